//! Hollow nodes in a tenant: one that is switched off says so, one that dies is found out, and both come back.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;

use base64::Engine as _;
use hangar_node::hollow::{Fleet, HollowNode, Identity, Join};
use hangar_pki::{Authority, Leaf, SystemKeys};
use plane::{Plane, condition, until};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

const CLUSTER: &str = "capi-quickstart";

#[test]
fn a_node_that_leaves_says_so_and_a_dead_one_is_found_out() {
    let plane = Plane::new();
    plane.ok(&["up", "examples/kamaji-openstack.yaml"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (fleet, node) = (Fleet::default(), hollow_node(&plane, "visitor"));
    let start = || {
        let (stop, fleet, node) = (CancellationToken::new(), fleet.clone(), node.clone());
        let own = stop.clone();
        let running = runtime.spawn(async move { hangar_node::hollow::run(node, &fleet, own).await });
        (stop, running)
    };
    let ready = || condition(&tenant(&plane, "node/visitor"), "Ready");

    let (stop, running) = start();
    until("the node to be ready", || ready().0 == "True");
    let lease = || tenant(&plane, "lease/visitor");
    until("the lease to belong to its node", || lease()["metadata"]["ownerReferences"][0]["name"] == "visitor");
    let first = lease()["spec"]["renewTime"].clone();
    until("the lease to be renewed", || lease()["spec"]["renewTime"].as_str().is_some_and(|now| first != now));
    stop.cancel();
    runtime.block_on(running).unwrap().unwrap();
    runtime.block_on(hangar_node::hollow::leave(&node)).unwrap();
    let (status, message) = ready();
    assert_eq!((status.as_str(), message.as_str()), ("False", "node is shutting down"));

    let (stop, running) = start();
    until("the node to be back", || ready().0 == "True");
    stop.cancel();
    runtime.block_on(running).unwrap().unwrap();
    until("the cluster to find out that the node is dead", || ready().0 == "Unknown");
    let taints = || tenant(&plane, "node/visitor")["spec"]["taints"].to_string();
    until("the taint that follows", || taints().contains("node.kubernetes.io/unreachable"));
}

fn tenant(plane: &Plane, what: &str) -> Value {
    let arguments = ["kubectl", "--cluster", CLUSTER, "--", "-n", "kube-node-lease", "get", what, "-o", "json"];
    serde_json::from_slice(&plane.run(&arguments).stdout).unwrap_or_default()
}

/// As if it had joined: a certificate of the tenant's authority.
fn hollow_node(plane: &Plane, name: &str) -> HollowNode {
    let secret = plane.get(&format!("secret/{CLUSTER}-ca"));
    let read = |key: &str| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let ca_pem = read("tls.crt");
    let authority = Authority::load(&ca_pem, &read("tls.key")).unwrap();
    let leaf = Leaf::client(&format!("system:node:{name}"), &["system:nodes"]);
    let pair = authority.issue(&SystemKeys, &leaf, jiff::Timestamp::now()).unwrap();
    let path = "jsonpath={.clusters[0].cluster.server}";
    let server = plane.tenant(CLUSTER, &["config", "view", "--minify", "-o", path]);
    let identity = Identity { ca_pem, certificate_pem: pair.certificate_pem, key_pem: pair.key_pem, server };
    let facts = Join { node_name: name.to_owned(), kubelet_version: "v1.34.4".into(), ..Join::default() };
    HollowNode { identity, facts }
}
