//! Neutron: networks, subnets and ports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Of one sort of resource in a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// -1 is none.
    pub limit: i64,
    pub used: i64,
    pub reserved: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    pub id: String,
    pub name: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub description: String,
    pub status: String,
    pub admin_state_up: bool,
    pub shared: bool,
    #[serde(rename = "router:external")]
    pub external: bool,
    pub subnets: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_security_enabled: Option<bool>,
    /// Only administrators see how a network is made.
    #[serde(rename = "provider:network_type", skip_serializing_if = "Option::is_none")]
    pub network_type: Option<String>,
    #[serde(rename = "provider:physical_network", skip_serializing_if = "Option::is_none")]
    pub physical_network: Option<String>,
    #[serde(rename = "provider:segmentation_id", skip_serializing_if = "Option::is_none")]
    pub segmentation_id: Option<u32>,
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
pub struct CreateNetwork {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_state_up: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_security_enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    #[serde(rename = "router:external", skip_serializing_if = "Option::is_none")]
    pub external: Option<bool>,
    #[serde(rename = "provider:network_type", skip_serializing_if = "Option::is_none")]
    pub network_type: Option<String>,
    #[serde(rename = "provider:physical_network", skip_serializing_if = "Option::is_none")]
    pub physical_network: Option<String>,
    #[serde(rename = "provider:segmentation_id", skip_serializing_if = "Option::is_none")]
    pub segmentation_id: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subnet {
    pub id: String,
    pub name: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub description: String,
    pub network_id: String,
    pub ip_version: u8,
    pub cidr: String,
    pub gateway_ip: Option<String>,
    pub allocation_pools: Vec<AllocationPool>,
    pub dns_nameservers: Vec<String>,
    pub host_routes: Vec<Value>,
    pub enable_dhcp: bool,
    pub ipv6_address_mode: Option<String>,
    pub ipv6_ra_mode: Option<String>,
    pub tags: Vec<String>,
    pub project_id: String,
    pub tenant_id: String,
    pub revision_number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<String>,
}

/// A subnet to be made. `gateway_ip` of `Some(None)` is sent as `null` and means: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateSubnet {
    pub network_id: String,
    pub name: String,
    pub ip_version: u8,
    pub cidr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "super::null_is_some")]
    pub gateway_ip: Option<Option<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allocation_pools: Vec<AllocationPool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_nameservers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_routes: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_dhcp: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_address_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_ra_mode: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocationPool {
    pub start: String,
    pub end: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    pub id: String,
    pub name: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub description: String,
    pub network_id: String,
    pub mac_address: String,
    pub admin_state_up: bool,
    pub status: String,
    pub fixed_ips: Vec<FixedIp>,
    pub security_groups: Vec<String>,
    pub allowed_address_pairs: Vec<AddressPair>,
    #[serde(deserialize_with = "super::null_is_default")]
    pub device_id: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub device_owner: String,
    #[serde(rename = "binding:vnic_type", skip_serializing_if = "Option::is_none")]
    pub vnic_type: Option<String>,
    /// These four are shown to administrators only.
    #[serde(rename = "binding:host_id", skip_serializing_if = "Option::is_none")]
    pub host_id: Option<String>,
    #[serde(rename = "binding:vif_type", skip_serializing_if = "Option::is_none")]
    pub vif_type: Option<String>,
    #[serde(rename = "binding:vif_details", skip_serializing_if = "Option::is_none")]
    pub vif_details: Option<Value>,
    #[serde(rename = "binding:profile", skip_serializing_if = "Option::is_none")]
    pub profile: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_security_enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagate_uplink_status: Option<bool>,
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
pub struct FixedIp {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddressPair {
    pub ip_address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
}

/// A port to be made; what stays `None` is Neutron's choice (no `security_groups` means the project's `default`, an empty
/// list means none at all).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreatePort {
    pub network_id: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_state_up: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed_ips: Option<Vec<FixedIp>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_address_pairs: Option<Vec<AddressPair>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_security_enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagate_uplink_status: Option<bool>,
    #[serde(rename = "binding:vnic_type", skip_serializing_if = "Option::is_none")]
    pub vnic_type: Option<String>,
    #[serde(rename = "binding:host_id", skip_serializing_if = "Option::is_none")]
    pub host_id: Option<String>,
    #[serde(rename = "binding:profile", skip_serializing_if = "Option::is_none")]
    pub profile: Option<Value>,
    /// Attributes that only this cloud knows.
    #[serde(flatten)]
    pub value_specs: BTreeMap<String, Value>,
}
