//! etcd's messages, as far as they are used.

use prost::Message;

pub const READ_WRITE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub struct AuthStatus {
    #[prost(bool, tag = "2")]
    pub enabled: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct UserAdd {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
    #[prost(message, optional, tag = "3")]
    pub options: Option<UserOptions>,
}

#[derive(Clone, PartialEq, Message)]
pub struct UserOptions {
    #[prost(bool, tag = "1")]
    pub no_password: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Named {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Names {
    #[prost(string, repeated, tag = "2")]
    pub names: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct UserRole {
    #[prost(string, tag = "1")]
    pub user: String,
    #[prost(string, tag = "2")]
    pub role: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct RolePermission {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub permission: Option<Permission>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Permission {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DeleteRange {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// Any member may answer by itself.
    #[prost(bool, tag = "7")]
    pub serializable: bool,
    #[prost(bool, tag = "9")]
    pub count_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct RangeAnswer {
    #[prost(message, repeated, tag = "2")]
    pub pairs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub more: bool,
    #[prost(int64, tag = "4")]
    pub count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub value: Vec<u8>,
}

/// If all comparisons hold, these operations, else those.
#[derive(Clone, PartialEq, Message)]
pub struct Transaction {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<Operation>,
}

/// The version of a key equals a number; 0 says that there is no such key.
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    #[prost(oneof = "Expected", tags = "4")]
    pub expected: Option<Expected>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Expected {
    #[prost(int64, tag = "4")]
    Version(i64),
}

#[derive(Clone, PartialEq, Message)]
pub struct Operation {
    #[prost(message, optional, tag = "2")]
    pub put: Option<Put>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// The head of every answer.
#[derive(Clone, PartialEq, Message)]
pub struct Header {
    #[prost(uint64, tag = "2")]
    pub member: u64,
}

/// What one member says of itself.
#[derive(Clone, PartialEq, Message)]
pub struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(int64, tag = "3")]
    pub size: i64,
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    #[prost(int64, tag = "9")]
    pub in_use: i64,
}
