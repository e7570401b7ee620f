//! What planners know of a cloud: the resources of one owner, and the calls that may be made.
//!
//! Holds: observed resources carry the owner's key that was found on them; `None` means that it is not ours and must not be touched.

use std::collections::BTreeMap;

use crate::OwnerKey;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Port {
    pub id: String,
    pub name: String,
    pub network_id: String,
    pub addresses: Vec<String>,
    pub device_id: String,
    pub tags: Vec<String>,
    pub key: Option<OwnerKey>,
    pub created_at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Server {
    pub id: String,
    pub name: String,
    /// BUILD, ACTIVE, ERROR, ...
    pub status: String,
    pub fault: Option<String>,
    /// Type (fixed or floating) and address, sorted by network, IPv4 first.
    pub addresses: Vec<(String, String)>,
    pub key: Option<OwnerKey>,
    pub created_at: String,
}

impl Server {
    pub fn is_active(&self) -> bool {
        self.status == "ACTIVE"
    }

    pub fn has_failed(&self) -> bool {
        self.status == "ERROR"
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Network {
    pub id: String,
    pub name: String,
    pub tags: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subnet {
    pub id: String,
    pub name: String,
    pub network_id: String,
    pub cidr: String,
    pub tags: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityGroup {
    pub id: String,
    pub name: String,
    pub rules: Vec<SecurityGroupRule>,
    pub key: Option<OwnerKey>,
    pub created_at: String,
}

/// A rule; `id` is empty while it is only wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct SecurityGroupRule {
    pub id: String,
    pub direction: String,
    pub ether_type: String,
    pub protocol: Option<String>,
    pub port_range_min: Option<i64>,
    pub port_range_max: Option<i64>,
    pub remote_group_id: Option<String>,
    pub remote_ip_prefix: Option<String>,
    pub description: String,
}

impl SecurityGroupRule {
    /// Two rules that Neutron takes for the same: descriptions do not count.
    pub fn same(&self, other: &Self) -> bool {
        let identity = |rule: &Self| Self { id: String::new(), description: String::new(), ..rule.clone() };
        identity(self) == identity(other)
    }
}

/// A port to be made.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NewPort {
    pub key: Option<OwnerKey>,
    pub name: String,
    pub description: String,
    pub network_id: String,
    /// Subnet and address, either may be missing.
    pub fixed_ips: Vec<(Option<String>, Option<String>)>,
    /// `None`: the project's default group.
    pub security_groups: Option<Vec<String>>,
    pub port_security: Option<bool>,
    pub allowed_address_pairs: Vec<(String, Option<String>)>,
    pub vnic_type: Option<String>,
    pub mac_address: Option<String>,
    pub admin_state_up: Option<bool>,
    pub host_id: Option<String>,
    pub propagate_uplink_status: Option<bool>,
    pub tags: Vec<String>,
}

/// A server to be made.
#[derive(Clone, PartialEq, Default)]
pub struct NewServer {
    pub key: Option<OwnerKey>,
    pub name: String,
    pub flavor_id: String,
    pub image_id: String,
    pub availability_zone: Option<String>,
    pub key_name: Option<String>,
    pub port_ids: Vec<String>,
    /// As cloud-init gets it, not yet base64.
    pub user_data: String,
    pub metadata: BTreeMap<String, String>,
    pub tags: Vec<String>,
    pub config_drive: Option<bool>,
    pub server_group_id: Option<String>,
}

impl std::fmt::Debug for NewServer {
    // User-data holds a bootstrap token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewServer({}, ports {:?})", self.name, self.port_ids)
    }
}

/// One call to the cloud.
#[derive(Debug, Clone, PartialEq)]
pub enum CloudCall {
    CreatePort(NewPort),
    /// Neutron takes no tags in the create call.
    TagPort {
        id: String,
        tags: Vec<String>,
    },
    DeletePort {
        id: String,
    },
    CreateServer(NewServer),
    DeleteServer {
        id: String,
    },
    CreateSecurityGroup {
        key: OwnerKey,
        name: String,
        description: String,
    },
    DeleteSecurityGroup {
        id: String,
    },
    CreateRules {
        group_id: String,
        rules: Vec<SecurityGroupRule>,
    },
    DeleteRule {
        group_id: String,
        id: String,
    },
}

/// What came back.
#[derive(Debug, Clone, PartialEq)]
pub enum CloudAnswer {
    Port(Port),
    PortTagged {
        id: String,
        tags: Vec<String>,
    },
    PortGone {
        id: String,
    },
    Server(Server),
    /// Accepted; it takes a while.
    ServerGoing {
        id: String,
    },
    SecurityGroup(SecurityGroup),
    SecurityGroupGone {
        id: String,
    },
    Rules {
        group_id: String,
        rules: Vec<SecurityGroupRule>,
    },
    RuleGone {
        group_id: String,
        id: String,
    },
}

/// Of several resources with one key the oldest counts; the others came from an answer that was lost.
pub fn oldest<'a, T>(items: impl Iterator<Item = &'a T>, created_at: fn(&T) -> (&str, &str)) -> Option<&'a T> {
    items.min_by(|a, b| created_at(a).cmp(&created_at(b)))
}
