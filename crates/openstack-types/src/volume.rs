//! Cinder: volumes and their types. Times come without a zone and with microseconds; they are UTC.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Volume {
    pub id: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub name: String,
    pub description: Option<String>,
    /// GiB.
    pub size: u64,
    /// `creating`, `available`, `reserved`, `attaching`, `in-use`, `detaching`, `deleting`, `error`, ...
    pub status: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub volume_type: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub availability_zone: String,
    /// A word, not a flag: `true` or `false`.
    #[serde(deserialize_with = "super::null_is_default")]
    pub bootable: String,
    pub multiattach: bool,
    pub encrypted: bool,
    pub attachments: Vec<Attachment>,
    pub metadata: BTreeMap<String, String>,
    pub snapshot_id: Option<String>,
    pub source_volid: Option<String>,
    pub user_id: String,
    #[serde(rename = "os-vol-tenant-attr:tenant_id", skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    pub created_at: String,
    pub updated_at: Option<String>,
}

/// One use of a volume by a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attachment {
    /// The volume's id again.
    pub id: String,
    pub attachment_id: String,
    pub volume_id: String,
    pub server_id: String,
    pub device: Option<String>,
    pub host_name: Option<String>,
    pub attached_at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateVolume {
    pub name: String,
    pub size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(rename = "imageRef", skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeType {
    pub id: String,
    pub name: String,
    pub is_public: bool,
    pub description: Option<String>,
    pub extra_specs: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    pub id: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub name: String,
    pub description: Option<String>,
    pub volume_id: String,
    pub size: u64,
    pub status: String,
    pub metadata: BTreeMap<String, String>,
    #[serde(rename = "os-extended-snapshot-attributes:project_id")]
    pub project_id: String,
    pub created_at: String,
}

/// Nova's view of a volume that is attached to a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeAttachment {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(rename = "volumeId")]
    pub volume_id: String,
    #[serde(rename = "serverId")]
    pub server_id: String,
    pub device: Option<String>,
}
