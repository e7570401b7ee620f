//! What a tenant above its quota can and cannot do, with a real API server.

use hangar_api::KubeVersion;
use hangar_planner::hosted::read_only::{authorization, nobody};
use kube::Client;
use serde_json::{Value, json};

use crate::api_server::{ApiServer, Etcd};

/// What it shows, who asks, as whom, for what, and whether it is done.
type Row<'a> = (&'a str, &'a Client, Option<&'a str>, &'a str, &'a str, Value, bool);

/// Status and body of a request.
async fn send(client: &Client, user: Option<&str>, method: &str, path: &str, body: &Value) -> (u16, String) {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let mut request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    if let Some(user) = user {
        request = request.header("impersonate-user", user);
        if let Some(namespace) = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split(':').next()) {
            let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
            for group in groups {
                request = request.header("impersonate-group", group);
            }
        }
        if user == "system:anybody" {
            request = request.header("impersonate-group", "system:masters");
        }
    }
    let body = if body.is_null() { vec![] } else { body.to_string().into_bytes() };
    let answer = client.send(request.body(kube::client::Body::from(body)).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let bytes = answer.into_body().collect_bytes().await.unwrap();
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

fn object(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

async fn fill(server: &ApiServer) {
    let masters = server.client("masters").await;
    for (path, body) in [
        ("/api/v1/namespaces/default/configmaps", object("one")),
        ("/api/v1/namespaces/default/configmaps", object("two")),
        ("/api/v1/namespaces/default/serviceaccounts", object("operator")),
        ("/api/v1/namespaces", object("going")),
        ("/api/v1/nodes", object("n")),
        ("/api/v1/namespaces", object("kube-node-lease")),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", object("n")),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", object("kube-controller-manager")),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            json!({
                "metadata": { "name": "admins" },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
                "subjects": [
                    { "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "admins" },
                    { "kind": "ServiceAccount", "namespace": "default", "name": "operator" },
                ],
            }),
        ),
    ] {
        let (status, answer) = send(&masters, None, "POST", path, &body).await;
        assert!(status == 201 || status == 409, "{path}: {answer}");
    }
    let (status, answer) = send(
        &masters,
        None,
        "PATCH",
        "/api/v1/namespaces/default/configmaps/one",
        &json!({ "metadata": { "finalizers": ["example.org/mine"] } }),
    )
    .await;
    assert_eq!(status, 200, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn above_the_quota_nothing_is_created_or_changed_and_everything_can_be_read_and_deleted() {
    let etcd = Etcd::start().await;
    let before = etcd.serve("before", &["--authorization-mode=Node,RBAC".to_owned()]).await;
    fill(&before).await;
    drop(before);
    let version = KubeVersion::parse("v1.34.4").unwrap();
    let (file, nobody_file) = (etcd.file("authorization.yaml"), etcd.file("nobody.yaml"));
    std::fs::write(&nobody_file, nobody().to_string()).unwrap();
    std::fs::write(&file, authorization(&version, &nobody_file).to_string()).unwrap();
    let server = etcd.serve("read-only", &[format!("--authorization-config={file}")]).await;
    let (admin, masters) = (server.client("admin").await, server.client("masters").await);
    let (node, manager) = (server.client("node").await, server.client("manager").await);

    let maps = "/api/v1/namespaces/default/configmaps";
    let (one, two) = (format!("{maps}/one"), format!("{maps}/two"));
    let (lease, leader) = (
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager",
    );
    let mut led: Value = serde_json::from_str(&send(&masters, None, "GET", leader, &Value::Null).await.1).unwrap();
    led["spec"]["holderIdentity"] = "m".into();
    let event = json!({ "metadata": { "name": "e" }, "involvedObject": { "namespace": "default" } });
    let review = json!({ "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } } });
    let big = json!({ "data": { "x": "y" } });
    let operator = Some("system:serviceaccount:default:operator");
    let rows: Vec<Row<'_>> = vec![
        ("people read", &admin, None, "GET", maps, Value::Null, true),
        ("people do not create", &admin, None, "POST", maps, object("three"), false),
        ("nor change", &admin, None, "PATCH", &two, big.clone(), false),
        ("nor replace", &admin, None, "PUT", &two, object("two"), false),
        (
            "nor make rules",
            &admin,
            None,
            "POST",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            object("p"),
            false,
        ),
        ("nor become Hangar", &admin, Some("system:anybody"), "POST", maps, object("three"), false),
        (
            "they may ask what they may do",
            &admin,
            None,
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            review,
            true,
        ),
        ("and act as others", &admin, operator, "GET", maps, Value::Null, true),
        ("programs do not create", &admin, operator, "POST", maps, object("three"), false),
        ("events are refused", &admin, operator, "POST", "/api/v1/namespaces/default/events", event, false),
        ("finalizers go", &admin, operator, "PATCH", &one, json!({ "metadata": { "finalizers": null } }), true),
        (
            "tokens are given",
            &admin,
            None,
            "POST",
            "/api/v1/namespaces/default/serviceaccounts/operator/token",
            json!({ "spec": {} }),
            true,
        ),
        ("a node is heard of", &node, None, "PATCH", lease, json!({ "spec": { "holderIdentity": "n" } }), true),
        (
            "with its status",
            &node,
            None,
            "PATCH",
            "/api/v1/nodes/n/status",
            json!({ "status": { "conditions": [] } }),
            true,
        ),
        ("the controller manager leads", &manager, None, "PUT", leader, led, true),
        ("Hangar does its work", &masters, None, "POST", maps, object("hangar"), true),
        ("people delete", &admin, None, "DELETE", &one, Value::Null, true),
        ("collections, too", &admin, None, "DELETE", maps, Value::Null, true),
        ("and namespaces", &admin, None, "DELETE", "/api/v1/namespaces/going", Value::Null, true),
        (
            "of which the last finalizer goes",
            &admin,
            Some("system:serviceaccount:kube-system:namespace-controller"),
            "PUT",
            "/api/v1/namespaces/going/finalize",
            json!({ "metadata": { "name": "going" }, "spec": { "finalizers": [] } }),
            true,
        ),
    ];
    for (what, client, user, method, path, body, allowed) in rows {
        let (status, answer) = send(client, user, method, path, &body).await;
        assert_eq!((200..300).contains(&status), allowed, "{what}: {status} {answer}\n{}", server.log());
        if !allowed {
            // Whoever may not become somebody is told by another filter.
            let told = if status == 403 { "cannot impersonate" } else { "above-its-quota-and-read-only" };
            assert!(answer.contains(told), "{what}: {answer}");
        }
    }
}
