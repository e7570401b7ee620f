//! Glance: images. Free properties stand beside the known fields.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    pub id: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub name: String,
    pub status: String,
    pub visibility: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub owner: String,
    pub tags: Vec<String>,
    pub min_disk: u64,
    pub min_ram: u64,
    pub size: Option<u64>,
    pub virtual_size: Option<u64>,
    pub checksum: Option<String>,
    pub os_hash_algo: Option<String>,
    pub os_hash_value: Option<String>,
    pub os_hidden: bool,
    pub protected: bool,
    pub disk_format: Option<String>,
    pub container_format: Option<String>,
    pub created_at: String,
    pub updated_at: String,
    /// Everything else, such as `os_distro` or `kube_version`.
    #[serde(flatten)]
    pub properties: BTreeMap<String, Value>,
}

impl Image {
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name)?.as_str()
    }
}
