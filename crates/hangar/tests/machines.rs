//! Workers that are machines, as a plain user: the real kubelet, pods that run, Services, DNS, logs, and what becomes of them when things are killed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

#[path = "../../machine/tests/plain_user/mod.rs"]
mod plain_user;
mod plane;

use std::path::Path;

use base64::Engine as _;
use plane::{Plane, until};
use serde_json::Value;

const CLUSTER: &str = "capi-quickstart";
const WORKLOAD: &str = include_str!("machines_of/workload.yaml");

#[test]
fn a_worker_that_is_a_machine_runs_what_a_cluster_is_for() {
    as_plain_user("a_worker_that_is_a_machine_runs_what_a_cluster_is_for", |plane| {
        let said = plane.ok(&["up", "examples/kamaji-openstack.yaml"]);
        let deployment = "machinedeployment/capi-quickstart-md-0";
        plane.kubectl(&["scale", deployment, "--replicas=2"]);
        assert!(said.contains("machines: processes with the real kubelet"), "{said}");
        the_kubelet_speaks_for_itself(plane);
        a_workload_does_what_it_says(plane);
        wrong_user_data_keeps_a_machine_out(plane);
        what_was_killed_comes_back(plane);
        a_server_that_is_deleted_takes_everything_along(plane);
    });
}

fn as_plain_user(name: &str, test: impl FnOnce(&Plane)) {
    let components = hangar_embedded::default_directory();
    let examples = plane::repository().join("examples");
    let files: [(&Path, &str); 3] =
        [(&plane::program(), "hangar"), (&components, "components"), (&examples, "examples")];
    plain_user::run(name, &files, || {
        let mut variables = vec![("HANGAR_GUESTS".to_owned(), "machine".to_owned())];
        if let Some(directory) = plain_user::aside() {
            variables.push(("HANGAR_COMPONENTS".to_owned(), directory.join("components").display().to_string()));
        }
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (&**name, &**value)).collect();
        test(&Plane::with(&variables));
    });
}

fn tenant(plane: &Plane, words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let output = plane.run(&[&["kubectl", "--cluster", CLUSTER, "--"], &words[..]].concat());
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn node(plane: &Plane) -> Value {
    let list: Value = serde_json::from_str(&tenant(plane, "get nodes -o json")).unwrap_or_default();
    list["items"][0].clone()
}

fn is_ready(plane: &Plane) -> bool {
    let path = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}";
    let said = tenant(plane, &format!("get nodes -o {path}"));
    said == "True True"
}

fn the_kubelet_speaks_for_itself(plane: &Plane) {
    let node = node(plane);
    let info = &node["status"]["nodeInfo"];
    assert_eq!(info["containerRuntimeVersion"], "hangar://0.1.0");
    assert!(info["kubeletVersion"].as_str().unwrap().starts_with("v1."), "{info}");
    assert_ne!(info["kernelVersion"], "", "{info}");
    assert!(node["status"]["addresses"][0]["address"].as_str().unwrap().starts_with("10.6.0."));
}

fn a_workload_does_what_it_says(plane: &Plane) {
    until("both nodes to be ready", || is_ready(plane));
    let file = plane.home().join("workload.yaml");
    std::fs::write(&file, WORKLOAD).unwrap();
    plane.tenant(CLUSTER, &["apply", "-f", file.to_str().unwrap()]);
    // By name, from another pod: DNS and a Service.
    plane.tenant(CLUSTER, &["wait", "job/ask", "--for=condition=complete", "--timeout=150s"]);
    let said = tenant(plane, "logs job/ask");
    assert!(said.contains("web-"), "{said}");
    plane.tenant(CLUSTER, &["wait", "pod/reader", "--for=condition=ready", "--timeout=60s"]);
    assert_eq!(tenant(plane, "exec reader -- cat /secret/word"), "one");
    assert_eq!(tenant(plane, "exec reader -- hostname"), "reader");
    pods_reach_pods_on_both_nodes_as_themselves(plane);
    until("a container whose liveness probe fails to be started again", || {
        tenant(plane, "get pod ill -o jsonpath={.status.containerStatuses[0].restartCount}").parse().unwrap_or(0) > 0
    });
    let update = r#"{"stringData":{"word":"two"}}"#;
    plane.tenant(CLUSTER, &["patch", "secret", "of-reader", "-p", update]);
    // A kubelet looks once a minute, and at once when its pod changes.
    plane.tenant(CLUSTER, &["annotate", "pod", "reader", "looked-at=now"]);
    until("a Secret's news to arrive in its volume", || tenant(plane, "exec reader -- cat /secret/word") == "two");
}

fn pods_reach_pods_on_both_nodes_as_themselves(plane: &Plane) {
    plane.tenant(CLUSTER, &["rollout", "status", "deployment/web", "--timeout=60s"]);
    let own = tenant(plane, "get pod reader -o jsonpath={.status.podIP}");
    let pods = tenant(plane, "get pods -l app=web -o jsonpath={.items[*].status.podIP}");
    let nodes = tenant(plane, "get pods -l app=web -o jsonpath={.items[*].status.hostIP}");
    let nodes: std::collections::BTreeSet<&str> = nodes.split(' ').collect();
    assert_eq!(nodes.len(), 2, "pods are on both nodes: {nodes:?}");
    for pod in pods.split(' ') {
        let ask = format!("exec 3<>/dev/tcp/{pod}/8080; printf 'GET /clientip HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3");
        let said = plane.tenant(CLUSTER, &["exec", "reader", "--", "bash", "-c", &ask]);
        assert!(said.contains(&own), "{pod} sees {said} instead of {own}");
    }
}

const TOKEN: &str = "\
apiVersion: v1
kind: Secret
type: bootstrap.kubernetes.io/token
metadata: { name: bootstrap-token-abcdef, namespace: kube-system }
stringData:
  token-id: abcdef
  token-secret: 0123456789abcdef
  usage-bootstrap-authentication: 'true'
  usage-bootstrap-signing: 'true'
  auth-extra-groups: system:bootstrappers:kubeadm:default-node-token
";

/// kubeadm says on the console what is wrong; it asks for minutes by itself, and here for seconds.
fn wrong_user_data_keeps_a_machine_out(plane: &Plane) {
    let base64 = base64::engine::general_purpose::STANDARD;
    let machine = plane.get("machines")["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let secret = plane.get(&format!("secret/{machine}"));
    let right = String::from_utf8(base64.decode(secret["data"]["value"].as_str().unwrap()).unwrap()).unwrap();
    let after = |mark: &str| {
        right.split(mark).nth(1).unwrap().split_whitespace().next().unwrap().trim_matches(['"', '\'']).to_owned()
    };
    let reversed = |text: &str| text.chars().rev().collect::<String>();
    let (hash, token) = (after("sha256:"), after("token: "));
    // That of a machine goes when it has joined.
    let file = plane.home().join("token.yaml");
    std::fs::write(&file, TOKEN).unwrap();
    plane.tenant(CLUSTER, &["apply", "-f", file.to_str().unwrap()]);
    let discovery = right.lines().find(|line| line.trim() == "discovery:").unwrap();
    let hasty =
        right.replacen(discovery, &format!("{discovery}\n{}  timeout: 3s", discovery.replace("discovery:", "")), 1);
    let wrong = [
        (hasty.replace(&hash, &reversed(&hash)).replace(&token, "abcdef.0123456789abcdef"), "none of the public keys"),
        (hasty.replace(&token, "abcdef.fedcba9876543210"), "couldn't validate the identity of the API Server"),
        ("#cloud-config\nruncmd: [nonsense-command]\n".to_owned(), "nonsense-command: not found"),
    ];
    let clouds = std::fs::read(plane.home().join("clouds.yaml")).unwrap();
    let config = hangar_openstack::CloudConfig::parse(&clouds, "openstack", None, None).unwrap();
    let cloud = hangar_openstack::Cloud::new(config, hangar_openstack::http_transport(None).unwrap());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let flavor_id = cloud.flavors().await.unwrap().remove(0).id;
        let query = hangar_openstack::NetworkQuery { external: Some(false), ..Default::default() };
        let network = cloud.networks(&query).await.unwrap().remove(0).id;
        let mut servers = vec![];
        for (index, (user_data, words)) in wrong.iter().enumerate() {
            let wanted = hangar_openstack::CreateServer {
                name: format!("intruder-{index}"),
                flavor_id: flavor_id.clone(),
                image_id: "c81cf709-d3a4-4f51-8ae7-8e9daca0cfd8".into(),
                networks: vec![hangar_openstack::ServerNetwork { uuid: Some(network.clone()), ..Default::default() }],
                user_data: Some(base64.encode(user_data)),
                ..Default::default()
            };
            servers.push((cloud.create_server(&wanted).await.unwrap(), words));
        }
        for (id, words) in servers {
            let console = loop {
                let console = cloud.console_output(&id).await.unwrap_or_default();
                if console.contains(" finished") {
                    break console;
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            };
            assert!(console.contains(*words), "no {words:?} in {console}");
            assert!(console.contains("runcmd failed"), "{console}");
            cloud.delete_server(&id).await.unwrap();
        }
    });
    let nodes = tenant(plane, "get nodes -o name");
    assert!(!nodes.contains("intruder"), "{nodes}");
}

fn what_was_killed_comes_back(plane: &Plane) {
    for what in ["the background process", "the fabric", "a guest", "everything"] {
        let before: Vec<(u32, String)> = plane.processes();
        let words = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is = |pid: u32, word: &str| String::from_utf8_lossy(&words(pid)).contains(word);
        let daemon = plane.state()["pid"].as_u64().unwrap();
        let chosen = before.iter().map(|(pid, _)| *pid).filter(|pid| match what {
            "the background process" => u64::from(*pid) == daemon,
            "the fabric" => is(*pid, "machine-process\0fabric"),
            "a guest" => is(*pid, "machine-process\0init"),
            _ => true,
        });
        let most = if what == "a guest" { 1 } else { usize::MAX };
        let pids: Vec<String> = chosen.take(most).map(|pid| pid.to_string()).collect();
        assert!(!pids.is_empty(), "{what}");
        // Some of them end with others of them.
        drop(std::process::Command::new("kill").arg("-KILL").args(&pids).output());
        plane.ok(&["up"]);
        until(&format!("the nodes to be ready after {what} was killed"), || is_ready(plane));
        until(&format!("pods to answer after {what} was killed"), || {
            tenant(plane, "exec reader -- cat /secret/word") == "two"
        });
    }
}

fn a_server_that_is_deleted_takes_everything_along(plane: &Plane) {
    plane.kubectl(&["delete", "cluster", CLUSTER, "--timeout=150s"]);
    let disks = plane.home().join("machines/disks");
    until("the disk of the server to go", || disks.read_dir().is_ok_and(|mut disks| disks.next().is_none()));
    plane.ok(&["down", "--purge"]);
    assert_eq!(plane.pids(), [0; 0]);
    assert!(!plane.home().exists());
}
