//! Services of the local plane: what they ask for is honoured or said.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use plane::{Plane, address_of, until};
use serde_json::{Value, json};

#[test]
fn what_a_service_asks_for_is_honoured_or_said() {
    let plane = Plane::new();
    plane.ok(&["up"]);
    let manifests = plane::repository().join("crates/hangar/tests/inner/services.yaml");
    plane.kubectl(&["apply", "-f", manifests.to_str().unwrap()]);
    plane.kubectl(&["rollout", "status", "deployment/answer", "--timeout=120s"]);
    let of = |name: &str| plane.get(&format!("service/{name}"));
    let cluster_ip = |name: &str| format!("{}:8080", of(name)["spec"]["clusterIP"].as_str().unwrap());

    let turns = cluster_ip("turns");
    let heard = |address: &str| (0..6).map(|_| server(address)).collect::<BTreeSet<String>>();
    // A pod that is ready is found a moment later.
    until("both pods to take turns", || heard(&turns).iter().filter(|id| !id.is_empty()).count() == 2);
    let sticky = cluster_ip("sticky");
    until("the pods of another service", || !server(&sticky).is_empty());
    assert_eq!(heard(&sticky).len(), 1, "a client stays with its pod");

    let node: Value = plane.get("node/hangar");
    let node = node["status"]["addresses"][0]["address"].as_str().unwrap();
    let port = of("on-node")["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    until("the node port to answer", || !server(&format!("{node}:{port}")).is_empty());

    let unready = cluster_ip("unready");
    until("a pod that is not ready, where that is wanted", || !server(&unready).is_empty());
    assert_eq!(server(&cluster_ip("not-ready")), "");

    addresses(&plane);
    let closed = plane.until("service/closed", |service| !address_of(service).is_empty());
    assert_eq!(server(&format!("{}:8080", address_of(&closed))), "", "this machine is not in 10.0.0.0/8");
    let open = plane.until("service/for-clouds", |service| !address_of(service).is_empty());
    until("an open balancer", || !server(&format!("{}:8080", address_of(&open))).is_empty());

    for (name, word) in [
        ("elsewhere", "example.com"),
        ("by-hand", "selector"),
        ("datagrams", "53/UDP"),
        ("for-clouds", "loadbalancer.openstack.org/proxy-protocol"),
    ] {
        until("a word on what cannot be had", || plane.events(name).contains(word));
    }
}

/// Addresses that are asked for, in the spec and in an annotation, and one that is taken.
fn addresses(plane: &Plane) {
    let kubernetes = plane.get("service/kubernetes");
    let network = kubernetes["spec"]["clusterIP"].as_str().unwrap().split('.').nth(1).unwrap().to_owned();
    let (first, second) = (format!("127.{network}.64.200"), format!("127.{network}.64.201"));
    let ports = json!([{ "port": 8080, "targetPort": "web" }]);
    let service = |name: &str, annotations: Value, address: &str| {
        let mut spec = json!({ "type": "LoadBalancer", "selector": { "app": "answer" }, "ports": ports });
        if !address.is_empty() {
            spec["loadBalancerIP"] = address.into();
        }
        let metadata = json!({ "name": name, "annotations": annotations });
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec })
    };
    let apply = |objects: Value| {
        let path = plane.home().join("services.json");
        std::fs::write(&path, json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string()).unwrap();
        plane.kubectl(&["apply", "-f", path.to_str().unwrap()]);
    };
    let annotation = json!({ "metallb.io/loadBalancerIPs": second });
    apply(json!([service("fixed", json!({}), &first), service("annotated", annotation, "")]));
    for (name, wanted) in [("fixed", &first), ("annotated", &second)] {
        let found = plane.until(&format!("service/{name}"), |service| !address_of(service).is_empty());
        assert_eq!(address_of(&found), *wanted, "{name}");
        until(name, || !server(&format!("{wanted}:8080")).is_empty());
    }
    // What may be put on lo is for tests/lo_addresses.rs, which has a network of its own.
    apply(json!([service("late", json!({}), &first), service("far", json!({}), "224.0.0.9")]));
    until("the address to be refused", || plane.events("late").contains("in use by another"));
    assert_eq!(address_of(&plane.get("service/late")), "");
    until("another address to be taken", || plane.events("far").contains("224.0.0.9 is a multicast address"));
    plane.until("service/far", |service| address_of(service).starts_with("127."));
}

/// Who answers at an address; nothing if nobody does.
fn server(address: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return String::new() };
    let mut answer = String::new();
    let _ = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").and_then(|()| stream.read_to_string(&mut answer));
    let id = answer.lines().find_map(|line| line.strip_prefix("etcd_server_id{server_id=\"")?.split('"').next());
    id.unwrap_or_default().to_owned()
}
