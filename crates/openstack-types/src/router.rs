//! Neutron: routers, floating IPs and trunks.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::FixedIp;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Router {
    pub id: String,
    pub name: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub description: String,
    pub status: String,
    pub admin_state_up: bool,
    pub external_gateway_info: Option<GatewayInfo>,
    pub routes: Vec<Value>,
    pub availability_zones: Vec<String>,
    pub availability_zone_hints: Vec<String>,
    pub flavor_id: Option<String>,
    pub tags: Vec<String>,
    pub project_id: String,
    pub tenant_id: String,
    pub revision_number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayInfo {
    pub network_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_snat: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub external_fixed_ips: Vec<FixedIp>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateRouter {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_state_up: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_gateway_info: Option<GatewayInfo>,
}

/// What joining a router and a subnet answers: the port in between.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouterInterface {
    /// Of the router.
    pub id: String,
    pub subnet_id: String,
    pub port_id: String,
    pub network_id: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FloatingIp {
    pub id: String,
    pub floating_ip_address: String,
    pub floating_network_id: String,
    pub fixed_ip_address: Option<String>,
    pub port_id: Option<String>,
    pub router_id: Option<String>,
    /// `ACTIVE` while bound, `DOWN` otherwise; it follows the binding a moment later.
    pub status: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub description: String,
    pub tags: Vec<String>,
    pub project_id: String,
    pub tenant_id: String,
    pub revision_number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateFloatingIp {
    pub floating_network_id: String,
    /// A certain address is the privilege of administrators in most clouds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floating_ip_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed_ip_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trunk {
    pub id: String,
    pub name: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub description: String,
    pub port_id: String,
    pub status: String,
    pub admin_state_up: bool,
    pub sub_ports: Vec<SubPort>,
    pub tags: Vec<String>,
    pub project_id: String,
    pub tenant_id: String,
    pub revision_number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubPort {
    pub port_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segmentation_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segmentation_id: Option<u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateTrunk {
    pub name: String,
    pub port_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sub_ports: Vec<SubPort>,
}
