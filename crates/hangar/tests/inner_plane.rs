//! A control plane that somebody else runs on the embedded plane, as on any cluster: three etcd members, three API servers, a load balancer.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod inner;
mod plane;

use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use plane::{Plane, address_of, until};

/// Clients that ask all the time while a pod is killed.
const CLIENTS: usize = 4;

#[test]
fn three_api_servers_on_three_etcd_members_live_through_everything() {
    let plane = Plane::new();
    plane.ok(&["up"]);
    let manifests = plane::repository().join("crates/hangar/tests/inner/manifests.yaml");
    plane.kubectl(&["apply", "-f", manifests.to_str().unwrap()]);
    let service = plane.until("service/inner", |service| !address_of(service).is_empty());
    let address = address_of(&service);
    let kubeconfig = inner::pki(&plane, &format!("https://{address}:6443"), &[&address]);
    let inner = Inner { plane: &plane, kubeconfig };

    inner.rolled_out();
    until("the inner API behind its Service", || inner.ask(&["version"]).status.success());
    inner.kubectl(&["create", "configmap", "kept", "--from-literal=word=hello"]);
    members_have_claims_and_names(&plane);
    words_can_be_read(&plane);

    a_pod_is_killed_under_load(&inner);
    plane.kubectl(&["set", "env", "deployment/inner", "ROUND=2"]);
    inner.rolled_out();
    inner.still_knows();
    plane.kubectl(&["scale", "deployment/inner", "--replicas=1"]);
    plane.until("deployment/inner", |deployment| deployment["status"]["replicas"] == 1);
    inner.still_knows();

    plane.ok(&["down"]);
    plane.ok(&["up"]);
    inner.rolled_out();
    assert_eq!(address_of(&plane.get("service/inner")), address, "addresses survive");
    // What was rolled out before the plane stopped looks so until its pods are seen again.
    until("the inner API after a restart", || inner.ask(&["version"]).status.success());
    inner.still_knows();

    plane.kubectl(&["delete", "-f", manifests.to_str().unwrap(), "--timeout=120s"]);
    plane.until("pods", |pods| pods["items"].as_array().is_none_or(Vec::is_empty));
    let claims = plane.get("persistentvolumeclaims")["items"].as_array().unwrap().len();
    assert_eq!(claims, 3, "claims of a StatefulSet outlive it, as everywhere");
}

struct Inner<'a> {
    plane: &'a Plane,
    kubeconfig: PathBuf,
}

impl Inner<'_> {
    /// kubectl against the inner API server, through the Service.
    fn kubectl(&self, arguments: &[&str]) -> String {
        let answer = self.ask(arguments);
        assert!(answer.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8(answer.stdout).unwrap()
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig.display());
        self.plane.run(&[&["kubectl", "--", kubeconfig.as_str()], arguments].concat())
    }

    fn rolled_out(&self) {
        self.plane.kubectl(&["rollout", "status", "statefulset/etcd", "--timeout=150s"]);
        self.plane.kubectl(&["rollout", "status", "deployment/inner", "--timeout=150s"]);
    }

    fn still_knows(&self) {
        assert_eq!(self.kubectl(&["get", "configmap", "kept", "-o", "jsonpath={.data.word}"]), "hello");
    }
}

fn members_have_claims_and_names(plane: &Plane) {
    let claims = plane.get("persistentvolumeclaims");
    let bound = claims["items"].as_array().unwrap().iter().filter(|claim| claim["status"]["phase"] == "Bound").count();
    assert_eq!(bound, 3);
    for name in ["etcd-0.etcd.default.svc", "inner.default.svc.cluster.local"] {
        until(name, || plane.kubectl(&["exec", "etcd-1", "--", "cat", "/etc/hosts"]).contains(name));
    }
}

fn words_can_be_read(plane: &Plane) {
    let said = plane.kubectl(&["exec", "deploy/inner", "--", "sh", "-c", "echo $POD_IP; ls /pki"]);
    assert!(said.starts_with("127.") && said.contains("server.crt"), "{said}");
    let refused = plane.run(&["kubectl", "--", "exec", "etcd-0", "--", "sh", "-c", "exit 7"]);
    assert_eq!(refused.status.code(), Some(7));
    assert!(plane.kubectl(&["logs", "etcd-0", "--tail=20"]).lines().count() == 20);
    let stamped = plane.kubectl(&["logs", "etcd-0", "--tail=1", "--timestamps"]);
    assert!(stamped.starts_with("20") && stamped.contains("Z "), "{stamped}");
}

/// What is lost is at most what was under way when the pod died.
fn a_pod_is_killed_under_load(inner: &Inner<'_>) {
    let (asked, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let answer = inner.ask(&["get", "configmap", "kept"]);
                    failed.fetch_add(usize::from(!answer.status.success()), Ordering::Relaxed);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        until("the first answers", || asked.load(Ordering::Relaxed) >= 2 * CLIENTS);
        let before = asked.load(Ordering::Relaxed);
        kill_one(inner.plane);
        until("answers after the kill", || asked.load(Ordering::Relaxed) >= before + 10 * CLIENTS);
        stop.store(true, Ordering::Relaxed);
    });
    let (asked, failed) = (asked.into_inner(), failed.into_inner());
    println!("{failed} of {asked} requests failed while one of three API servers was killed");
    assert!(failed <= CLIENTS, "{failed} of {asked} requests failed");
    inner.rolled_out();
    let pods = inner.plane.get("pods")["items"].as_array().unwrap().clone();
    let restarts: i64 = pods
        .iter()
        .filter(|pod| pod["metadata"]["labels"]["app"] == "inner")
        .map(|pod| pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or(0))
        .sum();
    assert_eq!(restarts, 1);
}

/// Kills the process of one API server: it is told where it runs by its own command line.
fn kill_one(plane: &Plane) {
    let pods = plane.get("pods")["items"].as_array().unwrap().clone();
    let one = pods.iter().find(|pod| pod["metadata"]["labels"]["app"] == "inner").unwrap();
    let address = one["status"]["podIP"].as_str().unwrap();
    let pattern = format!("kube-apiserver --bind-address={address} ");
    assert!(std::process::Command::new("pkill").args(["-9", "-f", &pattern]).status().unwrap().success());
}
