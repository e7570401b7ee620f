//! Octavia: load balancers and what hangs below them. Every change puts the whole tree into `PENDING_*` for a while.

use serde::{Deserialize, Serialize};

use super::Reference;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadBalancer {
    pub id: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub name: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub description: String,
    /// `ACTIVE`, `ERROR`, `PENDING_CREATE`, `PENDING_UPDATE`, `PENDING_DELETE`.
    pub provisioning_status: String,
    pub operating_status: String,
    pub admin_state_up: bool,
    pub vip_address: Option<String>,
    pub vip_port_id: Option<String>,
    pub vip_subnet_id: Option<String>,
    pub vip_network_id: Option<String>,
    #[serde(deserialize_with = "super::null_is_default")]
    pub provider: String,
    pub flavor_id: Option<String>,
    pub availability_zone: Option<String>,
    pub listeners: Vec<Reference>,
    pub pools: Vec<Reference>,
    pub tags: Vec<String>,
    pub project_id: String,
    pub created_at: String,
    pub updated_at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateLoadBalancer {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip_subnet_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip_network_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip_port_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flavor_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_state_up: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// A whole tree in one request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<CreateListener>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<CreatePool>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listener {
    pub id: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub name: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub description: String,
    pub protocol: String,
    pub protocol_port: u16,
    pub connection_limit: i64,
    pub default_pool_id: Option<String>,
    /// `None` lets everybody in.
    pub allowed_cidrs: Option<Vec<String>>,
    pub loadbalancers: Vec<Reference>,
    pub provisioning_status: String,
    pub operating_status: String,
    pub admin_state_up: bool,
    pub tags: Vec<String>,
    pub project_id: String,
    pub created_at: String,
    pub updated_at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateListener {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub protocol: String,
    pub protocol_port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loadbalancer_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_pool_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_pool: Option<Box<CreatePool>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_cidrs: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_limit: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pool {
    pub id: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub name: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub description: String,
    pub protocol: String,
    pub lb_algorithm: String,
    pub healthmonitor_id: Option<String>,
    pub loadbalancers: Vec<Reference>,
    pub listeners: Vec<Reference>,
    pub members: Vec<Reference>,
    pub provisioning_status: String,
    pub operating_status: String,
    pub admin_state_up: bool,
    pub tags: Vec<String>,
    pub project_id: String,
    pub created_at: String,
    pub updated_at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreatePool {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub protocol: String,
    pub lb_algorithm: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loadbalancer_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<CreateMember>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthmonitor: Option<CreateHealthMonitor>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    pub id: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub name: String,
    pub address: String,
    pub protocol_port: u16,
    pub weight: u16,
    pub backup: bool,
    pub subnet_id: Option<String>,
    pub provisioning_status: String,
    pub operating_status: String,
    pub admin_state_up: bool,
    pub tags: Vec<String>,
    pub project_id: String,
    pub created_at: String,
    pub updated_at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateMember {
    pub name: String,
    pub address: String,
    pub protocol_port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HealthMonitor {
    pub id: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub delay: u32,
    pub timeout: u32,
    pub max_retries: u32,
    pub max_retries_down: u32,
    pub pools: Vec<Reference>,
    pub provisioning_status: String,
    pub operating_status: String,
    pub admin_state_up: bool,
    pub tags: Vec<String>,
    pub project_id: String,
    pub created_at: String,
    pub updated_at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateHealthMonitor {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_id: Option<String>,
    #[serde(rename = "type")]
    pub kind: String,
    pub delay: u32,
    pub timeout: u32,
    pub max_retries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries_down: Option<u32>,
}

/// Who can build load balancers in this cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provider {
    pub name: String,
    pub description: String,
}

/// A size of load balancers, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadBalancerFlavor {
    pub id: String,
    pub name: String,
    pub enabled: bool,
}
