//! Names, descriptions and keys of what belongs to a cluster as a whole, as users of upstream know them.

use super::{Cloud, CloudCall, ResourceType};
use crate::owner_key::OwnerKey;
use crate::step::Step;

/// Whose resources they are.
#[derive(Debug, Clone, Copy)]
pub struct ClusterOwner<'a> {
    pub namespace: &'a str,
    pub cluster_name: &'a str,
    pub cluster_uid: &'a str,
    pub object_uid: &'a str,
    /// Everything that can be tagged gets these.
    pub tags: &'a [String],
}

impl ClusterOwner<'_> {
    /// Of network, subnet and router.
    pub fn name(&self) -> String {
        format!("k8s-clusterapi-cluster-{}-{}", self.namespace, self.cluster_name)
    }

    pub fn key(&self, role: &str) -> OwnerKey {
        OwnerKey::new(self.cluster_uid, self.object_uid, role)
    }

    pub fn description(&self, role: &str) -> String {
        let (namespace, name) = (self.namespace, self.cluster_name);
        self.key(role).describe(&format!("Created by cluster-api-provider-openstack cluster {namespace}-{name}"))
    }

    /// Tags that are missing: an answer was lost, or somebody took them away. Those of others stay.
    pub fn tag(&self, cloud: &Cloud, of: ResourceType, id: &str, present: &[String]) -> Option<Step> {
        let missing: Vec<&String> = self.tags.iter().filter(|tag| !present.contains(tag)).collect();
        if missing.is_empty() {
            return None;
        }
        let tags = present.iter().chain(missing).cloned().collect();
        Some(cloud.step(CloudCall::Tag { of, id: id.to_owned(), tags }))
    }
}
