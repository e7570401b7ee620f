//! Who the parts of the background process are at the API server, and what each may do.
//!
//! Flows: rules (of the controllers, of the node, ...) -> a ClusterRole and its binding to one user, whose certificate the plane issues -> a client for each part.
//! Holds: no part acts as the administrator; that identity installs definitions, roles and the shared etcd, and belongs to the user of the plane.

use hangar_api::Object;
use hangar_embedded::{InitialObject, identities};
use hangar_engine::management::api_of;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use uuid::Uuid;

const RBAC: &str = "rbac.authorization.k8s.io";
const MANAGER: &str = "hangar";
/// The API server's own role for its client of kubelets.
const KUBELET_API: &str = "system:kubelet-api-admin";

/// Roles and bindings of all parts.
pub fn objects() -> Vec<Object> {
    let parts = [
        (identities::CONTROLLERS, hangar_controllers::access::rules()),
        (identities::NODE, hangar_node::process::access::rules()),
        (identities::CLOUD, cloud_rules()),
    ];
    let mut objects = vec![binding("hangar-kubelet-client", KUBELET_API, identities::KUBELET_CLIENT), metrics_reader()];
    for (user, rules) in parts {
        objects.push(Object(json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": metadata(user), "rules": rules,
        })));
        objects.push(binding(user, user, user));
    }
    objects
}

/// The nodes of tenants are looked after with the kubeconfigs that are in Secrets.
fn cloud_rules() -> Vec<PolicyRule> {
    vec![PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".to_owned()]),
        verbs: ["get", "list", "watch"].map(str::to_owned).into(),
        ..PolicyRule::default()
    }]
}

/// For whoever scrapes; bound to nobody.
fn metrics_reader() -> Object {
    Object(json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": metadata("hangar-metrics-reader"),
        "rules": [{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }],
    }))
}

fn metadata(name: &str) -> Value {
    json!({ "name": name, "labels": { "app.kubernetes.io/part-of": "hangar" } })
}

fn binding(name: &str, role: &str, user: &str) -> Object {
    Object(json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata(name),
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": user }],
    }))
}

/// For a plane that has nothing yet: its parts have their rights from the first moment.
pub fn initial_objects(now: jiff::Timestamp) -> impl Iterator<Item = InitialObject> {
    objects().into_iter().map(move |mut object| {
        let key = format!("{}s/{}", object.kind().to_lowercase(), object.name());
        object.0["metadata"]["uid"] = Uuid::new_v4().to_string().into();
        object.0["metadata"]["creationTimestamp"] = format!("{now:.0}").into();
        InitialObject { key, value: object.0.to_string().into_bytes() }
    })
}

/// Makes it so; what is there already is not written again.
pub async fn install(client: &Client) -> kube::Result<()> {
    let params = PatchParams::apply(MANAGER).force();
    let objects = objects();
    let applied = objects.iter().map(|object| {
        let (api, params) = (api_of(client, object), &params);
        async move { api.patch(object.name(), params, &Patch::Apply(&object.0)).await }
    });
    futures::future::try_join_all(applied).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_role_of_its_own_and_none_may_change_roles_or_do_everything() {
        let objects = objects();
        for object in objects.iter().filter(|object| object.kind() == "ClusterRole") {
            let rules: Vec<PolicyRule> = serde_json::from_value(object.get("/rules").clone()).unwrap();
            for rule in &rules {
                assert!(!rule.api_groups.iter().flatten().any(|group| group == RBAC), "{}: {rule:?}", object.name());
                assert!(
                    !rule.verbs.iter().any(|verb| ["*", "impersonate", "escalate", "bind"].contains(&verb.as_str()))
                );
                assert!(!rule.resources.iter().flatten().any(|resource| resource.contains('*')), "{rule:?}");
            }
        }
        let users: Vec<&str> = objects
            .iter()
            .filter(|object| object.kind() == "ClusterRoleBinding")
            .map(|object| object.text("/subjects/0/name"))
            .collect();
        assert_eq!(users.len(), 4);
        assert!(!objects.iter().any(|object| object.text("/roleRef/name") == "cluster-admin"));
    }
}
