//! Which kinds there are: ours from their schemas, the built-in ones from a table, and whatever else was created here once.

use hangar_api::registry::{self, KindFacts};

/// A kind as URLs and rules need it.
#[derive(Debug, Clone)]
pub(super) struct Resource {
    pub group: String,
    pub kind: String,
    pub plural: String,
    /// Status is written through its own door.
    pub status: bool,
    /// `metadata.generation` counts changes of what is wanted.
    pub generation: bool,
    /// Set for our own kinds: versions and schemas.
    pub facts: Option<&'static KindFacts>,
}

/// Group, kind, plural, status subresource, generation.
const BUILT_IN: &[(&str, &str, &str, bool, bool)] = &[
    ("", "ConfigMap", "configmaps", false, false),
    ("", "Event", "events", false, false),
    ("", "Namespace", "namespaces", true, false),
    ("", "Node", "nodes", true, false),
    ("", "PersistentVolume", "persistentvolumes", true, false),
    ("", "PersistentVolumeClaim", "persistentvolumeclaims", true, false),
    ("", "Pod", "pods", true, false),
    ("", "Secret", "secrets", false, false),
    ("", "Service", "services", true, false),
    ("", "ServiceAccount", "serviceaccounts", false, false),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false, true),
    ("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", true, true),
    ("apps", "DaemonSet", "daemonsets", true, true),
    ("apps", "Deployment", "deployments", true, true),
    ("apps", "ReplicaSet", "replicasets", true, true),
    ("apps", "StatefulSet", "statefulsets", true, true),
    ("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", true, false),
    ("coordination.k8s.io", "Lease", "leases", false, false),
    ("events.k8s.io", "Event", "events", false, false),
    ("networking.k8s.io", "NetworkPolicy", "networkpolicies", false, true),
    ("policy", "PodDisruptionBudget", "poddisruptionbudgets", true, true),
    ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", false, false),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings", false, false),
    ("rbac.authorization.k8s.io", "Role", "roles", false, false),
    ("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", false, false),
    ("storage.k8s.io", "VolumeAttachment", "volumeattachments", true, false),
];

impl Resource {
    /// A kind that is known from the start.
    pub fn known(group: &str, plural: &str) -> Option<Self> {
        let ours = registry::kinds().iter().find(|facts| facts.group == group && facts.plural() == plural);
        ours.map(Self::ours).or_else(|| {
            let row = BUILT_IN.iter().find(|row| row.0 == group && row.2 == plural)?;
            Some(Self {
                group: row.0.to_owned(),
                kind: row.1.to_owned(),
                plural: row.2.to_owned(),
                status: row.3,
                generation: row.4,
                facts: None,
            })
        })
    }

    /// Kind and plural of what is built in.
    pub fn of_group(group: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
        BUILT_IN.iter().filter(move |row| row.0 == group).map(|row| (row.1, row.2))
    }

    fn ours(facts: &'static KindFacts) -> Self {
        Self {
            group: facts.group.to_owned(),
            kind: facts.kind.to_owned(),
            plural: facts.plural().to_owned(),
            status: facts.hub().facts()["subresources"]["status"].is_object(),
            generation: true,
            facts: Some(facts),
        }
    }

    /// A kind that nobody told us of: the first object of it says what it is called.
    pub fn learnt(group: &str, plural: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            status: false,
            generation: false,
            facts: None,
        }
    }

    /// `machines.cluster.x-k8s.io`
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The version in which objects are kept; `None` keeps them as they come.
    pub fn hub(&self) -> Option<&'static str> {
        self.facts.map(|facts| facts.hub().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_group_and_plural() {
        let machine = Resource::known("cluster.x-k8s.io", "machines").unwrap();
        assert_eq!((machine.kind.as_str(), machine.status, machine.hub()), ("Machine", true, Some("v1beta2")));
        let template = Resource::known("bootstrap.cluster.x-k8s.io", "kubeadmconfigtemplates").unwrap();
        assert!(!template.status);
        assert_eq!(Resource::known("", "nodes").unwrap().qualified(), "nodes");
        assert!(Resource::known("", "machines").is_none());
    }
}
