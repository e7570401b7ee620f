//! Calls to a cloud, and what comes back.

use hangar_openstack_types::{
    CreateFloatingIp, CreateHealthMonitor, CreateListener, CreateLoadBalancer, CreateMember, CreateNetwork, CreatePool,
    CreatePort, CreateRouter, CreateSecurityGroup, CreateSecurityGroupRule, CreateServer, CreateSubnet, CreateTrunk,
    CreateVolume,
};
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

/// One call. `changes` are the fields that change, as the service names them.
#[derive(Debug, Clone, PartialEq)]
pub enum CloudCall {
    CreatePort(Box<CreatePort>),
    UpdatePort {
        id: String,
        changes: Value,
    },
    /// Its `Debug` hides user-data, which holds a bootstrap token.
    CreateServer(Box<CreateServer>),
    CreateVolume(Box<CreateVolume>),
    CreateTrunk(Box<CreateTrunk>),
    /// Known fields and free properties.
    CreateImage(Box<Value>),
    /// The cloud downloads it by itself.
    ImportImage {
        id: String,
        url: String,
    },
    RemoveSubPorts {
        trunk_id: String,
        port_ids: Vec<String>,
    },
    CreateSecurityGroup(CreateSecurityGroup),
    CreateRules {
        group_id: String,
        rules: Vec<CreateSecurityGroupRule>,
    },
    DeleteRule {
        group_id: String,
        id: String,
    },
    CreateNetwork(Box<CreateNetwork>),
    UpdateNetwork {
        id: String,
        changes: Value,
    },
    CreateSubnet(Box<CreateSubnet>),
    UpdateSubnet {
        id: String,
        changes: Value,
    },
    CreateRouter(Box<CreateRouter>),
    UpdateRouter {
        id: String,
        changes: Value,
    },
    /// A port of ours becomes the router's.
    AddRouterInterface {
        router_id: String,
        port_id: String,
    },
    /// The port goes with it.
    RemoveRouterInterface {
        router_id: String,
        port_id: String,
    },
    CreateFloatingIp(Box<CreateFloatingIp>),
    /// To a port, or off it; with a revision only while nobody else changed it.
    BindFloatingIp {
        id: String,
        port_id: Option<String>,
        revision: Option<u64>,
    },
    /// With everything below it.
    CreateLoadBalancer(Box<CreateLoadBalancer>),
    ChangeLoadBalancer {
        id: String,
        change: LoadBalancerChange,
    },
    /// Neutron takes no tags in create calls.
    Tag {
        of: ResourceType,
        id: String,
        tags: Vec<String>,
    },
    /// A load balancer goes with everything below it.
    Delete(ResourceType, String),
}

/// One change below a load balancer; it is pending afterwards.
#[derive(Debug, Clone, PartialEq)]
pub enum LoadBalancerChange {
    CreateListener(Box<CreateListener>),
    UpdateListener {
        id: String,
        changes: Value,
    },
    DeleteListener(String),
    CreatePool(Box<CreatePool>),
    DeletePool(String),
    /// These and no others.
    SetMembers {
        pool_id: String,
        members: Vec<CreateMember>,
    },
    CreateMonitor(CreateHealthMonitor),
    UpdateMonitor {
        id: String,
        changes: Value,
    },
    DeleteMonitor(String),
}

/// What came back.
#[derive(Debug, Clone, PartialEq)]
pub enum CloudAnswer {
    /// The resource as it is now.
    Is(Resource),
    Gone(ResourceType, String),
}
