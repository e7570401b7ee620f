//! Load balancers with addresses that are not loopback: the machine's own, and those that are put on `lo` for them.
//!
//! Everything happens in a network namespace of the test's own, which has nothing but its `lo`: neither is the machine's `lo` changed, nor does anything
//! leave it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use plane::{Plane, address_of, until};
use serde_json::{Value, json};

const INSIDE: &str = "inside_a_network_of_its_own";

#[test]
fn addresses_are_put_on_lo_and_taken_off_again() {
    // As root, or as a user who is root in a namespace of his own.
    let ways: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
    let tried = |way: &&[&str]| Command::new("unshare").args(*way).args(["ip", "link", "set", "lo", "up"]).output();
    let works = |way: &&&[&str]| tried(way).is_ok_and(|tried| tried.status.success());
    let Some(way) = ways.iter().find(works) else {
        let said = ways.iter().map(tried).collect::<Vec<_>>();
        panic!(
            "no network namespace with its lo up: install util-linux and iproute2, and run as root or let users have namespaces\n{said:#?}"
        );
    };
    let mut command = Command::new("unshare");
    command.args(*way).args(["sh", "-c", r#"ip link set lo up && exec "$0" "$@""#]);
    command.arg(std::env::current_exe().unwrap()).args([INSIDE, "--exact", "--ignored", "--nocapture"]);
    assert!(command.status().unwrap().success(), "see above");
}

#[test]
#[ignore = "started by the test above in a network of its own"]
fn inside_a_network_of_its_own() {
    let interfaces = std::fs::read_to_string("/proc/net/dev").unwrap();
    let interfaces: Vec<&str> = interfaces.lines().skip(2).filter_map(|line| line.split(':').next()).collect();
    assert_eq!(
        interfaces.iter().map(|name| name.trim()).collect::<Vec<_>>(),
        ["lo"],
        "this test is for a network of its own"
    );
    ip("address add 10.77.0.5/32 dev lo");
    let before = on_lo();

    let first = Plane::new();
    first.ok(&["up", "--gateway-api"]);
    let manifests = plane::repository().join("crates/hangar/tests/inner/services.yaml");
    first.kubectl(&["apply", "-f", manifests.to_str().unwrap()]);
    first.kubectl(&["rollout", "status", "deployment/answer", "--timeout=120s"]);
    what_is_asked_for_is_had(&first);
    a_gateway_gets_one_too(&first);
    what_is_somebody_elses_is_not(&first);
    an_address_goes_with_its_service(&first);
    a_stop_takes_everything_off(&first, &before);

    first.kill();
    assert!(has("172.18.255.200"), "nobody was there to take it off");
    another_home_without_privileges();
    a_killed_node_finds_its_addresses_again(&first);

    first.kill();
    assert!(has("172.18.255.200"));
    first.ok(&["down", "--purge"]);
    assert_eq!(on_lo(), before, "everything is as it was, the user's address included");
}

fn what_is_asked_for_is_had(plane: &Plane) {
    balance(plane, "wanted", "172.18.255.200");
    balance(plane, "users", "10.77.0.5");
    for (name, address) in [("wanted", "172.18.255.200"), ("users", "10.77.0.5")] {
        gets(plane, name, address);
        answers(address);
    }
    until("a word on what was done", || {
        plane.events("wanted").contains("172.18.255.200/32 was added to the interface lo")
    });
    assert!(!plane.events("users").contains("lo"), "nothing was done for what was there");
    balance(plane, "late", "172.18.255.200");
    until("the address to be refused", || plane.events("late").contains("in use by another load balancer"));
    assert_eq!(address_of(&plane.get("service/late")), "");
    plane.kubectl(&["delete", "service", "late"]);
}

fn a_gateway_gets_one_too(plane: &Plane) {
    let listener = json!({ "name": "tls", "port": 8443, "protocol": "TLS", "tls": { "mode": "Passthrough" } });
    let spec =
        json!({ "gatewayClassName": "hangar", "addresses": [{ "value": "172.18.255.230" }], "listeners": [listener] });
    plane.until("gatewayclass/hangar", Value::is_object);
    apply(plane, "gateway.networking.k8s.io/v1", "Gateway", "front", &spec);
    let of = |gateway: &Value| gateway["status"]["addresses"][0]["value"].clone();
    plane.until("gateway/front", |gateway| of(gateway) == "172.18.255.230");
    assert!(has("172.18.255.230"));
    until("a word on what was done for the Gateway", || {
        plane.events("front").contains("172.18.255.230/32 was added to the interface lo")
    });
    plane.kubectl(&["delete", "gateway", "front"]);
    until("the Gateway's address to go", || !has("172.18.255.230"));
}

/// A gateway of a route, a neighbour that the kernel knows, and what no machine can have.
fn what_is_somebody_elses_is_not(plane: &Plane) {
    for line in [
        "link add v0 type veth peer name v1",
        "link set v0 up",
        "link set v1 up",
        "address add 10.98.0.2/24 dev v0",
        "route add 10.99.0.0/24 via 10.98.0.1",
        "neighbour replace 10.98.0.7 lladdr 02:00:00:00:00:01 dev v0 nud permanent",
    ] {
        ip(line);
    }
    let rows = [
        ("gateway", "10.98.0.1", "is the gateway of a route"),
        ("neighbour", "10.98.0.7", "by another machine on v0"),
        ("broadcast", "10.98.0.255", "broadcast address"),
        ("link-local", "169.254.169.254", "link-local"),
    ];
    for (name, asked, words) in rows {
        balance(plane, name, asked);
        until("a word on why not", || plane.events(name).contains(words));
        plane.until(&format!("service/{name}"), |service| address_of(service).starts_with("127."));
        assert!(!has(asked), "{asked}");
        plane.kubectl(&["delete", "service", name]);
    }
    ip("link delete v0");
}

fn an_address_goes_with_its_service(plane: &Plane) {
    balance(plane, "moving", "172.18.255.201");
    gets(plane, "moving", "172.18.255.201");
    balance(plane, "moving", "172.18.255.202");
    gets(plane, "moving", "172.18.255.202");
    answers("172.18.255.202");
    until("the first address to go", || !has("172.18.255.201"));
    plane.kubectl(&["delete", "service", "moving"]);
    until("the second address to go", || !has("172.18.255.202"));
    plane.kubectl(&["delete", "service", "users"]);
    plane.until("service/users", Value::is_null);
    assert!(has("10.77.0.5") && has("172.18.255.200"));
}

fn a_stop_takes_everything_off(plane: &Plane, before: &str) {
    plane.ok(&["down"]);
    assert_eq!(on_lo(), before);
    plane.ok(&["up"]);
    answers("172.18.255.200");
    gets(plane, "wanted", "172.18.255.200");
}

/// Neither does it take what the first home put on `lo`, nor can it put something there; but it takes up what the user puts there.
fn another_home_without_privileges() {
    let plane = Plane::new();
    let mut up = Command::new("setpriv");
    up.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", env!("CARGO_BIN_EXE_hangar"), "up"]);
    up.env("HANGAR_HOME", plane.home()).env_remove("KUBECONFIG").current_dir(plane::repository());
    let said = up.output().expect("install util-linux");
    assert!(said.status.success(), "{}\n{}", String::from_utf8_lossy(&said.stderr), plane.log_tail());
    balance(&plane, "taken", "172.18.255.200");
    until("a word on the other home", || plane.events("taken").contains("by another Hangar"));
    balance(&plane, "barred", "172.18.255.220");
    until("a word on what to do", || {
        plane.events("barred").contains("run `ip address add 172.18.255.220/32 dev lo` as root")
    });
    for name in ["taken", "barred"] {
        plane.until(&format!("service/{name}"), |service| address_of(service).starts_with("127."));
    }
    ip("address add 172.18.255.220/32 dev lo");
    plane.kubectl(&["annotate", "service", "barred", "look=again"]);
    gets(&plane, "barred", "172.18.255.220");
    plane.ok(&["down", "--purge"]);
    assert!(has("172.18.255.220") && has("172.18.255.200"), "neither was this home's");
    ip("address del 172.18.255.220/32 dev lo");
}

/// Its Service's address is kept; one whose Service went just before is removed.
fn a_killed_node_finds_its_addresses_again(plane: &Plane) {
    let path = plane.home().join("lo-addresses.json");
    let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let label = record["172.18.255.200"]["label"].as_str().unwrap().to_owned();
    record["172.18.255.210"] = json!({ "owners": "Services", "uid": "gone", "label": label });
    // In the record, but as the user put it there: killed between the two steps, before a user did the same.
    record["172.18.255.211"] = json!({ "owners": "Services", "uid": "gone", "label": label });
    std::fs::write(&path, record.to_string()).unwrap();
    ip(&format!("address add 172.18.255.210/32 dev lo label {label}"));
    ip("address add 172.18.255.211/32 dev lo");
    plane.ok(&["up"]);
    until("what belongs to nobody to go", || !has("172.18.255.210"));
    gets(plane, "wanted", "172.18.255.200");
    answers("172.18.255.200");
    assert!(has("172.18.255.211"), "it was the user's");
    ip("address del 172.18.255.211/32 dev lo");
}

fn balance(plane: &Plane, name: &str, asked: &str) {
    let ports = json!([{ "port": 8080, "targetPort": "web" }]);
    let spec =
        json!({ "type": "LoadBalancer", "loadBalancerIP": asked, "selector": { "app": "answer" }, "ports": ports });
    apply(plane, "v1", "Service", name, &spec);
}

fn apply(plane: &Plane, version: &str, kind: &str, name: &str, spec: &Value) {
    let object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": spec });
    let path = plane.home().join("applied.json");
    std::fs::write(&path, object.to_string()).unwrap();
    plane.kubectl(&["apply", "-f", path.to_str().unwrap()]);
}

fn gets(plane: &Plane, name: &str, wanted: &str) {
    plane.until(&format!("service/{name}"), |service| address_of(service) == wanted);
    assert!(has(wanted), "{wanted} is told, but not there:\n{}", on_lo());
}

/// Until a pod answers there.
fn answers(address: &str) {
    until(&format!("an answer of a pod at {address}"), || {
        let Ok(mut stream) = TcpStream::connect((address, 8080)) else { return false };
        let mut answer = String::new();
        let _ = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").and_then(|()| stream.read_to_string(&mut answer));
        answer.contains("etcd_server_id")
    });
}

fn ip(words: &str) -> String {
    let output = Command::new("ip").args(words.split(' ')).output().expect("install iproute2");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn on_lo() -> String {
    ip("-4 -oneline address show dev lo")
}

fn has(address: &str) -> bool {
    on_lo().contains(&format!(" {address}/32 "))
}
