//! The process node as a kubelet: what pods may ask for, and what is said when something is wrong with them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;

use plane::{Plane, until};
use serde_json::Value;

#[test]
fn pods_get_what_they_ask_for_and_are_told_what_is_wrong() {
    let plane = Plane::new();
    plane.ok(&["up"]);
    let manifests = plane::repository().join("crates/hangar/tests/inner/workloads.yaml");
    plane.kubectl(&["apply", "-f", manifests.to_str().unwrap()]);
    everything_in_one_pod(&plane);
    work_that_ends(&plane);
    what_is_wrong_is_said(&plane);
    a_flood_of_words_is_turned_over(&plane);
    a_port_is_forwarded(&plane);
}

fn everything_in_one_pod(plane: &Plane) {
    plane.wait("pod/everything", "condition=Ready");
    let words = "prepared\nhellofrom-a-variable 500 8080 everything\n";
    until("its words", || plane.kubectl(&["logs", "everything", "-c", "main"]) == words);
    let labels = plane.kubectl(&["exec", "everything", "-c", "main", "--", "cat", "/about/labels"]);
    assert_eq!(labels, "colour=\"blue\"");
    let beside = || plane.run(&["kubectl", "--", "exec", "everything", "-c", "main", "--", "cat", "/shared/beside"]);
    until("the words of the sidecar", || beside().stdout == b"beside\n");
    plane.kubectl(&["patch", "configmap", "words", "-p", r#"{"data":{"greeting":"goodbye"}}"#]);
    let read = || plane.kubectl(&["exec", "everything", "-c", "main", "--", "cat", "/words/greeting"]);
    until("a changed ConfigMap to arrive", || read() == "goodbye");
    let refused = plane.run(&["kubectl", "--", "attach", "everything", "-c", "main"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("kubectl logs -f"), "{refused:?}");
    let pod = plane.get("pod/everything");
    let volume = plane.home().join("pods").join(pod["metadata"]["uid"].as_str().unwrap());
    assert!(volume.is_dir());
    plane.kubectl(&["delete", "pod", "everything", "--timeout=60s"]);
    until("the directory to go", || !volume.exists());
}

fn work_that_ends(plane: &Plane) {
    plane.wait("job/counting", "condition=Complete");
    plane.kubectl(&["rollout", "status", "daemonset/everywhere", "--timeout=60s"]);
    assert_eq!(plane.get("job/counting")["status"]["succeeded"], 3);
}

fn what_is_wrong_is_said(plane: &Plane) {
    let waiting = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    let pod = plane.until("pod/unknown-image", |pod| waiting(pod)["reason"] == "ImagePullBackOff");
    let message = waiting(&pod)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("no-such-thing") && message.contains("hangar components fetch"), "{message}");

    until("the missing Secret to be named", || plane.events("no-secret").contains("Secret later not found"));
    plane.kubectl(&["create", "secret", "generic", "later", "--from-literal=key=found"]);
    plane.wait("pod/no-secret", "condition=Ready");
    until("its words", || plane.kubectl(&["logs", "no-secret"]) == "found\n");

    let pod = plane.until("pod/crashing", |pod| waiting(pod)["reason"] == "CrashLoopBackOff");
    let last = &pod["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["message"]), (&4.into(), &"about to fail".into()), "{last}");
    assert!(plane.kubectl(&["logs", "crashing", "--previous"]).contains("about to fail"));

    until("the class to be refused", || plane.events("of-another-class").contains("hangar.dev/loopback"));
    assert!(plane.get("service/of-another-class")["status"]["loadBalancer"]["ingress"].is_null());
}

fn a_flood_of_words_is_turned_over(plane: &Plane) {
    plane.until("pod/shouting", |pod| pod["status"]["phase"] == "Succeeded");
    let pod = plane.get("pod/shouting");
    let directory = plane.home().join("pods").join(pod["metadata"]["uid"].as_str().unwrap()).join("main");
    let kept: u64 = directory.read_dir().unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(kept <= 21 * 1024 * 1024, "{kept} bytes of words are kept");
    assert!(plane.kubectl(&["logs", "shouting", "--tail=1"]).starts_with("a flood of words"));
}

fn a_port_is_forwarded(plane: &Plane) {
    use std::io::{BufRead as _, Read as _, Write as _};
    // The shared etcd answers on its metrics port without a certificate.
    let pods: Value =
        serde_json::from_str(&plane.kubectl(&["get", "pods", "-n", "kamaji-system", "-o", "json"])).unwrap();
    let name = pods["items"][0]["metadata"]["name"].as_str().unwrap();
    let mut forward = plane.start(&["kubectl", "--", "port-forward", "-n", "kamaji-system", name, ":2381"]);
    let mut line = String::new();
    std::io::BufReader::new(forward.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let port: u16 = line.split(" -> ").next().unwrap().rsplit(':').next().unwrap().parse().expect(&line);
    for _ in 0..3 {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("200 OK"), "{answer}");
    }
    forward.kill().unwrap();
    forward.wait().unwrap();
}
