//! Nova: servers, flavors, zones and key pairs, as of microversion 2.53 (a server shows its flavor's values, not its id).

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    pub id: String,
    pub name: String,
    /// `BUILD`, `ACTIVE`, `ERROR`, `DELETED`, ...
    pub status: String,
    pub tenant_id: String,
    pub user_id: String,
    pub created: String,
    pub updated: String,
    pub metadata: BTreeMap<String, String>,
    /// By network name.
    pub addresses: BTreeMap<String, Vec<Address>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    pub key_name: Option<String>,
    pub flavor: ServerFlavor,
    /// `None` for a server that boots from a volume (`""` on the wire).
    #[serde(deserialize_with = "empty_is_none")]
    pub image: Option<Reference>,
    pub tags: Vec<String>,
    #[serde(rename = "OS-EXT-AZ:availability_zone")]
    pub availability_zone: Option<String>,
    #[serde(rename = "OS-EXT-STS:task_state")]
    pub task_state: Option<String>,
    #[serde(rename = "OS-EXT-STS:vm_state")]
    pub vm_state: Option<String>,
    #[serde(rename = "OS-EXT-STS:power_state")]
    pub power_state: Option<u8>,
    #[serde(deserialize_with = "super::null_is_default")]
    pub config_drive: String,
    #[serde(rename = "OS-SRV-USG:launched_at")]
    pub launched_at: Option<String>,
    #[serde(rename = "hostId")]
    pub host_id: String,
    #[serde(rename = "os-extended-volumes:volumes_attached")]
    pub volumes: Vec<ServerVolume>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerVolume {
    pub id: String,
    pub delete_on_termination: bool,
}

/// Where servers of a group may run relative to each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerGroup {
    pub id: String,
    pub name: String,
    /// One word in a list; since microversion 2.64 `policy` says it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    pub members: Vec<String>,
    pub project_id: String,
    pub user_id: String,
}

/// One network card of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceAttachment {
    pub port_id: String,
    pub net_id: String,
    pub mac_addr: String,
    pub port_state: String,
    pub fixed_ips: Vec<super::FixedIp>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Address {
    pub addr: String,
    pub version: u8,
    /// `fixed` or `floating`.
    #[serde(rename = "OS-EXT-IPS:type")]
    pub kind: String,
    #[serde(rename = "OS-EXT-IPS-MAC:mac_addr")]
    pub mac_address: String,
}

/// Why a server is in ERROR.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fault {
    pub code: u16,
    pub message: String,
    pub created: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reference {
    pub id: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerFlavor {
    /// Only below microversion 2.47.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ram: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flavor {
    pub id: String,
    pub name: String,
    pub vcpus: u32,
    /// MiB.
    pub ram: u64,
    /// GiB.
    pub disk: u64,
    #[serde(rename = "OS-FLV-EXT-DATA:ephemeral")]
    pub ephemeral: u64,
    #[serde(rename = "os-flavor-access:is_public")]
    pub is_public: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AvailabilityZone {
    #[serde(rename = "zoneName")]
    pub name: String,
    #[serde(rename = "zoneState")]
    pub state: ZoneState,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ZoneState {
    pub available: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyPair {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub public_key: String,
    pub fingerprint: String,
}

/// A server to be made. `user_data` is base64 and may hold a bootstrap token, so it stays out of `Debug`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateServer {
    pub name: String,
    #[serde(rename = "flavorRef")]
    pub flavor_id: String,
    /// Empty when the server boots from a volume.
    #[serde(rename = "imageRef")]
    pub image_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    pub networks: Vec<ServerNetwork>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_drive: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_name: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub block_device_mapping_v2: Vec<BlockDevice>,
    /// Goes beside the server in the request, not inside it.
    #[serde(skip)]
    pub scheduler_hints: BTreeMap<String, Value>,
}

impl std::fmt::Debug for CreateServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreateServer")
            .field("name", &self.name)
            .field("flavor_id", &self.flavor_id)
            .field("image_id", &self.image_id)
            .field("networks", &self.networks)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerNetwork {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockDevice {
    pub boot_index: i32,
    pub source_type: String,
    pub destination_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    pub delete_on_termination: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

fn empty_is_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Reference>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(Reference::deserialize(value).ok().filter(|image| !image.id.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_server_booted_from_a_volume_has_no_image() {
        let read: Server = serde_json::from_value(json!({"id": "1", "image": "", "unknown": 1})).unwrap();
        assert_eq!(read.image, None);
        let read: Server = serde_json::from_value(json!({"image": {"id": "i", "links": []}})).unwrap();
        assert_eq!(read.image, Some(Reference { id: "i".to_owned() }));
    }

    #[test]
    fn user_data_stays_out_of_debug_output() {
        let server = CreateServer { user_data: Some("c2VjcmV0".to_owned()), ..CreateServer::default() };
        assert!(!format!("{server:?}").contains("c2VjcmV0"));
    }
}
