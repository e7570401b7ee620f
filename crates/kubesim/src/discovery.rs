//! What a client asks for that knows a kind and not its plural: `/api/v1`, `/apis/GROUP/VERSION`.
//!
//! Holds: built-in kinds are in every version that somebody asks for, ours in those that are served, and kinds with a definition as that says.

use hangar_api::registry;
use serde_json::{Value, json};

use super::resource::Resource;
use super::store::Store;

/// Kinds of Kubernetes that are in no namespace.
const CLUSTER_SCOPED: [&str; 9] = [
    "Namespace",
    "Node",
    "PersistentVolume",
    "MutatingWebhookConfiguration",
    "CustomResourceDefinition",
    "CertificateSigningRequest",
    "ClusterRole",
    "ClusterRoleBinding",
    "VolumeAttachment",
];

/// The kinds of a group and version; nothing if there are none.
pub(super) fn resources(store: &Store, path: &str) -> Option<Value> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version) = match parts[..] {
        ["api", version] => ("", version),
        ["apis", group, version] => (group, version),
        _ => return None,
    };
    let built_in = Resource::of_group(group).map(|(kind, plural)| {
        let namespaced = !CLUSTER_SCOPED.contains(&kind);
        json!({ "name": plural, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": ["get", "create", "patch"] })
    });
    let ours = registry::kinds().iter().filter(|facts| facts.group == group && facts.version(version).is_some());
    let ours = ours.map(|facts| {
        let namespaced = facts.hub().facts()["scope"] != "Cluster";
        json!({ "name": facts.plural(), "singularName": "", "kind": facts.kind, "namespaced": namespaced, "verbs": ["get", "create", "patch"] })
    });
    let defined = store.all("apiextensions.k8s.io", "CustomResourceDefinition").filter(|definition| {
        let mut versions = definition["spec"]["versions"].as_array().into_iter().flatten();
        definition["spec"]["group"] == group && versions.any(|one| one["name"] == version)
    });
    let defined = defined.map(|definition| {
        let (names, namespaced) = (&definition["spec"]["names"], definition["spec"]["scope"] != "Cluster");
        json!({ "name": names["plural"], "singularName": "", "kind": names["kind"], "namespaced": namespaced, "verbs": ["get", "create", "patch"] })
    });
    let all: Vec<Value> = built_in.chain(ours).chain(defined).collect();
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!all.is_empty())
        .then(|| json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": all }))
}
