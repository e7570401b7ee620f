//! A tenant that takes far more of a shared data store than its share: its API server goes on reading and deleting, and refuses what makes the data grow.
//!
//! Flows: the mark on the DataStore ([`crate::data_store::read_only`]) -> a webhook among the authorizers that nobody answers, whose conditions say what it is asked
//! about -> what it is asked about is denied. Holds: the file is the API server's, so nobody inside the tenant can change it; only `system:masters` is not asked about, which is
//! Hangar itself; nothing is called that could be slow or missing.

use hangar_api::KubeVersion;
use hangar_api::conditions::{Condition, Status};
use serde_json::{Value, json};

pub(super) const AUTHORIZATION: &str = "authorization.yaml";
pub(super) const NOBODY: &str = "nobody.yaml";
pub(super) const ARGUMENT: &str = "authorization-config";
/// From here on authorizers can be configured by a file without a feature gate; from the second on under this version of it.
const SINCE: (u64, u64) = (1, 30);
const STABLE_SINCE: (u64, u64) = (1, 32);

/// Port 1 of the pod itself, where nobody listens; the path is what people read in the refusal.
const SERVER: &str = "https://127.0.0.1:1/this-cluster-is-above-its-quota-and-read-only:delete-objects";

/// What no object becomes larger by; `scale` is how people make room.
const NOT_STORED: &str =
    "['attach', 'binding', 'eviction', 'exec', 'finalize', 'portforward', 'proxy', 'scale', 'token']";
/// Answers that are not stored; by version, because another one could be a tenant's own definition.
const REVIEWS: &str = "request.resourceAttributes.version == 'v1' && (\
     (request.resourceAttributes.group == 'authentication.k8s.io' && request.resourceAttributes.resource in ['tokenreviews', 'selfsubjectreviews']) || \
     (request.resourceAttributes.group == 'authorization.k8s.io' && request.resourceAttributes.resource in \
     ['subjectaccessreviews', 'localsubjectaccessreviews', 'selfsubjectaccessreviews', 'selfsubjectrulesreviews']))";
/// The cluster's own programs: without them no finalizer goes, no node is heard of, and nobody leads.
const PROGRAMS: &str = "request.user in ['system:kube-controller-manager', 'system:kube-scheduler'] || \
     'system:nodes' in request.groups || 'system:serviceaccounts' in request.groups";

/// Whether the API server of this version can be told.
pub fn is_possible(version: &KubeVersion) -> bool {
    version.at_least(SINCE.0, SINCE.1)
}

fn denied() -> String {
    let of = "request.resourceAttributes";
    let stored = format!("!({of}.subresource in {NOT_STORED}) && !({REVIEWS})");
    [
        format!("({of}.verb == 'create' && {stored})"),
        // Events would go on filling it.
        format!("({of}.verb in ['update', 'patch'] && {stored} && ({of}.resource == 'events' || !({PROGRAMS})))"),
        format!(
            "({of}.verb.startsWith('impersonate') && {of}.resource == 'groups' && {of}.name in ['system:masters', '*', ''])"
        ),
    ]
    .join(" || ")
}

/// The authorizers in their order.
pub fn authorization(version: &KubeVersion, kubeconfig: &str) -> Value {
    let form = if version.at_least(STABLE_SINCE.0, STABLE_SINCE.1) { "v1" } else { "v1beta1" };
    json!({
        "apiVersion": format!("apiserver.config.k8s.io/{form}"), "kind": "AuthorizationConfiguration",
        "authorizers": [
            { "type": "Webhook", "name": "quota.hangar.dev", "webhook": {
                "timeout": "1s", "authorizedTTL": "1s", "unauthorizedTTL": "1s", "failurePolicy": "Deny",
                "subjectAccessReviewVersion": "v1", "matchConditionSubjectAccessReviewVersion": "v1",
                "connectionInfo": { "type": "KubeConfigFile", "kubeConfigFile": kubeconfig },
                "matchConditions": [{ "expression": "has(request.resourceAttributes)" }, { "expression": denied() }],
            } },
            { "type": "Node", "name": "node" },
            { "type": "RBAC", "name": "rbac" },
        ],
    })
}

pub fn nobody() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{ "name": "nobody", "cluster": { "server": SERVER } }], "users": [{ "name": "nobody", "user": {} }],
        "contexts": [{ "name": "nobody", "context": { "cluster": "nobody", "user": "nobody" } }],
        "current-context": "nobody",
    })
}

/// Said only while it is so.
pub fn condition(store: &str, version: &KubeVersion) -> Condition {
    let (reason, text) = if is_possible(version) {
        (
            "ReadOnly",
            format!(
                "its data takes more of DataStore {store} than a tenant may: the API server refuses to create and to change objects until there is less than the quota; delete objects"
            ),
        )
    } else {
        (
            "AboveQuota",
            format!(
                "its data takes more of DataStore {store} than a tenant may: delete objects; API servers before {}.{} cannot be made read-only",
                SINCE.0, SINCE.1
            ),
        )
    };
    Condition::new("WithinQuota", Status::False, reason, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_store::read_only::READ_ONLY_ANNOTATION;
    use crate::hosted::tests::{World, begin_pass, run, world};
    use crate::testing::{Fake, object, planned, shared};

    fn arguments(world: &World) -> String {
        let server = world.named("apps", "Deployment", "p").unwrap();
        let all = server.get("/spec/template/spec/containers/0/args").as_array().unwrap().iter();
        let named = all.filter_map(Value::as_str).filter(|argument| argument.starts_with("--authorization"));
        named.collect::<Vec<_>>().join(" ")
    }

    fn mark(world: &mut World, uids: &str) {
        let store = json!({ "metadata": { "namespace": "", "annotations": { READ_ONLY_ANNOTATION: uids } } });
        world.objects.insert(shared(object("kamaji.clastix.io/v1alpha1", "DataStore", "store", store)));
    }

    /// What an API server is told about writers, and what people are, while the store names these control planes.
    fn told(version: &str, arguments_of_user: &[&str], uids: &str) -> (String, Option<String>) {
        let spec = json!({ "version": version, "apiServer": { "extraArgs": arguments_of_user } });
        let (mut world, mut fake) = (world(spec), Fake::default());
        run(&mut world, &mut fake);
        mark(&mut world, uids);
        begin_pass(&mut world);
        fake.pass(&mut world);
        let condition = crate::testing::condition(&planned(&world), "WithinQuota").map(|it| it.1);
        (arguments(&world), condition)
    }

    #[test]
    fn a_marked_tenant_is_read_only_whatever_the_user_says_and_others_are_not() {
        const FILE: &str = "--authorization-config=/etc/kubernetes/configuration/authorization.yaml";
        const USUAL: &str = "--authorization-mode=Node,RBAC";
        for (version, user, uids, arguments, reason) in [
            ("v1.34.4", &[][..], "", USUAL, None),
            ("v1.34.4", &[], "other-uid", USUAL, None),
            ("v1.34.4", &[], "other-uid p-uid", FILE, Some("ReadOnly")),
            ("v1.30.0", &[], "p-uid", FILE, Some("ReadOnly")),
            ("v1.29.9", &[], "p-uid", USUAL, Some("AboveQuota")),
            ("v1.34.4", &["--authorization_mode=AlwaysAllow"], "p-uid", FILE, Some("ReadOnly")),
            ("v1.34.4", &["--authorization-config=/x"], "p-uid", FILE, Some("ReadOnly")),
            ("v1.34.4", &["--authorization-webhook-cache-authorized-ttl=1h"], "p-uid", FILE, Some("ReadOnly")),
        ] {
            let (found, condition) = told(version, user, uids);
            assert_eq!((&*found, condition.as_deref()), (arguments, reason), "{version} {user:?} {uids}");
        }
    }

    #[test]
    fn it_comes_back_with_the_files_of_before() {
        let (mut world, mut fake) = (world(json!({})), Fake::default());
        run(&mut world, &mut fake);
        let before = world.named("apps", "Deployment", "p").unwrap().get("/spec/template").clone();
        for (uids, is_there) in [("p-uid", true), ("", false)] {
            mark(&mut world, uids);
            begin_pass(&mut world);
            fake.pass(&mut world);
            let template = world.named("apps", "Deployment", "p").unwrap().get("/spec/template").clone();
            assert_eq!(template != before, is_there, "{uids}");
        }
    }

    #[test]
    fn the_form_of_the_file_follows_the_version() {
        for (version, form) in [("v1.30.0", "v1beta1"), ("v1.31.9", "v1beta1"), ("v1.32.0", "v1"), ("v1.34.4", "v1")] {
            let file = authorization(&KubeVersion::parse(version).unwrap(), "/nobody");
            assert_eq!(file["apiVersion"], format!("apiserver.config.k8s.io/{form}"), "{version}");
            let types: Vec<&Value> = file["authorizers"].as_array().unwrap().iter().map(|it| &it["type"]).collect();
            assert_eq!(types, ["Webhook", "Node", "RBAC"]);
            assert_eq!(file["authorizers"][0]["webhook"]["failurePolicy"], "Deny");
        }
    }
}
