//! How many hollow nodes one process carries, and what they cost an API server at rest. Run by `cargo xtask bench hollow`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark says what went wrong by panicking")]

mod plane;

use std::time::{Duration, Instant};

use hangar_node::hollow::{Fleet, HollowNode, Identity, Join};
use hangar_pki::{Authority, Leaf, SystemKeys};
use plane::Plane;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// How long the nodes are watched at rest.
const REST: Duration = Duration::from_secs(30);

#[test]
#[ignore = "a measurement, not a test: `cargo xtask bench hollow` runs it"]
fn hollow_nodes_at_scale() {
    let count: usize = std::env::var("HANGAR_HOLLOW_NODES").ok().and_then(|text| text.parse().ok()).unwrap_or(5000);
    let plane = Plane::new();
    plane.ok(&["up"]);
    let identities = identities(&plane, count);
    let before = memory();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shutdown = CancellationToken::new();
    let began = Instant::now();
    let fleet = Fleet::default();
    for (name, identity) in identities {
        let facts = Join { node_name: name, kubelet_version: "v1.34.4".into(), ..Join::default() };
        let (fleet, shutdown) = (fleet.clone(), shutdown.clone());
        runtime.spawn(async move { hangar_node::hollow::run(HollowNode { identity, facts }, &fleet, shutdown).await });
    }
    while ready(&plane) < count + 1 {
        std::thread::sleep(Duration::from_secs(1));
    }
    let joined = began.elapsed();
    let requests = api_requests(&plane);
    std::thread::sleep(REST);
    let rate = (api_requests(&plane) - requests) / REST.as_secs_f64();
    let each = (memory() - before) as f64 / count as f64;
    println!(
        "| {count} hollow nodes ready after {:.1} s, {each:.0} KiB each, {rate:.0} API requests a second at rest |",
        joined.as_secs_f64()
    );
    println!(
        "{}",
        json!({ "hollowNodes": count, "seconds": joined.as_secs_f64(), "kibEach": each, "requestsPerSecond": rate })
    );
    shutdown.cancel();
}

/// As if they had joined: certificates of the plane's authority.
fn identities(plane: &Plane, count: usize) -> Vec<(String, Identity)> {
    let read = |name: &str| std::fs::read_to_string(plane.home().join("pki").join(name)).unwrap();
    let ca_pem = read("ca.crt");
    let authority = Authority::load(&ca_pem, &read("ca.key")).unwrap();
    let server = plane.kubectl(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]);
    let now = jiff::Timestamp::now();
    (0..count)
        .map(|number| {
            let name = format!("hollow-{number}");
            let leaf = Leaf::client(&format!("system:node:{name}"), &["system:nodes"]);
            let pair = authority.issue(&SystemKeys, &leaf, now).unwrap();
            let (certificate_pem, key_pem) = (pair.certificate_pem, pair.key_pem);
            (name, Identity { ca_pem: ca_pem.clone(), certificate_pem, key_pem, server: server.clone() })
        })
        .collect()
}

fn ready(plane: &Plane) -> usize {
    let path = "jsonpath={range .items[*]}{.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
    plane.kubectl(&["get", "nodes", "-o", path]).lines().filter(|line| *line == "True").count()
}

fn api_requests(plane: &Plane) -> f64 {
    let metrics = plane.kubectl(&["get", "--raw", "/metrics"]);
    let counts = metrics.lines().filter(|line| line.starts_with("apiserver_request_total{"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Of this process, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
