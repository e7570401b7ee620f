//! Calls to a cloud, and what comes back.

use hangar_openstack_types::{CreatePort, CreateSecurityGroup, CreateSecurityGroupRule, CreateServer};
use serde_json::Value;

use super::resources::{Resource, ResourceType};

/// The credential that an identityRef names.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CloudIdentity {
    pub namespace: String,
    /// `Secret` if empty.
    pub kind: String,
    pub name: String,
    pub cloud: String,
    pub region: Option<String>,
}

impl CloudIdentity {
    pub fn of(namespace: &str, reference: &Value) -> Self {
        let text = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
        Self {
            namespace: namespace.to_owned(),
            kind: text("type"),
            name: text("name"),
            cloud: text("cloudName"),
            region: reference["region"].as_str().filter(|region| !region.is_empty()).map(str::to_owned),
        }
    }
}

/// One call.
#[derive(Clone, PartialEq)]
pub enum CloudCall {
    CreatePort(Box<CreatePort>),
    /// Neutron takes no tags in the create call.
    TagPort {
        id: String,
        tags: Vec<String>,
    },
    CreateServer(Box<CreateServer>),
    CreateSecurityGroup(CreateSecurityGroup),
    CreateRules {
        group_id: String,
        rules: Vec<CreateSecurityGroupRule>,
    },
    DeleteRule {
        group_id: String,
        id: String,
    },
    Delete(ResourceType, String),
}

/// A server's user-data holds a bootstrap token.
impl std::fmt::Debug for CloudCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CreatePort(port) => write!(f, "CreatePort({port:?})"),
            Self::TagPort { id, tags } => write!(f, "TagPort({id}, {tags:?})"),
            Self::CreateServer(server) => write!(f, "CreateServer({})", server.name),
            Self::CreateSecurityGroup(group) => write!(f, "CreateSecurityGroup({})", group.name),
            Self::CreateRules { group_id, rules } => write!(f, "CreateRules({group_id}, {rules:?})"),
            Self::DeleteRule { group_id, id } => write!(f, "DeleteRule({group_id}, {id})"),
            Self::Delete(of, id) => write!(f, "Delete({of:?}, {id})"),
        }
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq)]
pub enum CloudAnswer {
    /// The resource as it is now.
    Is(Resource),
    Gone(ResourceType, String),
}
