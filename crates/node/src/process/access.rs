//! What a process node must be allowed to do in its cluster: the rules of its ClusterRole.
//!
//! A kubelet's own rights (`system:node`) do not suffice, because this node is more than a kubelet: it proxies Services, provisions volumes and serves
//! Ingresses and Gateways. Holds: no wildcard, and no right to write Secrets, ConfigMaps or the specification of pods.

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::sni::GATEWAY_API;

/// The rules of a process node.
pub fn rules() -> Vec<PolicyRule> {
    let (core, networking) = ("", "networking.k8s.io");
    let seen = ["services", "secrets", "configmaps", "persistentvolumeclaims", "namespaces"];
    vec![
        rule(core, &["nodes"], &["get", "create", "patch"]),
        rule(core, &["nodes/status", "pods/status", "services/status"], &["patch"]),
        rule(core, &["pods"], &["get", "list", "watch", "delete"]),
        rule(core, &seen, &["get", "list", "watch"]),
        rule(core, &["persistentvolumes"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule(core, &["events"], &["create"]),
        rule(core, &["serviceaccounts/token"], &["create"]),
        rule("storage.k8s.io", &["storageclasses"], &["get", "create", "patch"]),
        rule(networking, &["ingresses"], &["get", "list", "watch"]),
        rule(networking, &["ingresses/status"], &["patch"]),
        rule(networking, &["ingressclasses"], &["get", "list", "watch", "create", "patch"]),
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["get", "list", "watch"]),
        rule(GATEWAY_API, &["gatewayclasses"], &["get", "list", "watch", "create", "patch"]),
        rule(GATEWAY_API, &["gateways", "tlsroutes"], &["get", "list", "watch"]),
        rule(GATEWAY_API, &["gatewayclasses/status", "gateways/status", "tlsroutes/status"], &["patch"]),
        // Whoever calls the node's own API is asked about first.
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(words(&[group])),
        resources: Some(words(resources)),
        verbs: words(verbs),
        ..PolicyRule::default()
    }
}
