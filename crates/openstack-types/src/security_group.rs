//! Neutron: security groups and their rules.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecurityGroup {
    pub id: String,
    pub name: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub description: String,
    pub security_group_rules: Vec<SecurityGroupRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stateful: Option<bool>,
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
pub struct CreateSecurityGroup {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stateful: Option<bool>,
}

/// A rule as it stands; unset fields are `null` on the wire, as Neutron writes them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecurityGroupRule {
    pub id: String,
    pub security_group_id: String,
    /// `ingress` or `egress`.
    pub direction: String,
    /// `IPv4` or `IPv6`.
    pub ethertype: String,
    pub protocol: Option<String>,
    pub port_range_min: Option<i32>,
    pub port_range_max: Option<i32>,
    pub remote_group_id: Option<String>,
    pub remote_ip_prefix: Option<String>,
    #[serde(deserialize_with = "super::null_is_default")]
    pub description: String,
    pub project_id: String,
    pub tenant_id: String,
    pub revision_number: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateSecurityGroupRule {
    pub security_group_id: String,
    pub direction: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_range_min: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_range_max: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_group_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_ip_prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}
