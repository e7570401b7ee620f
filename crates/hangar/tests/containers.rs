//! The process node as a kubelet, from the inside of containers: what they see, what they may hold, and what becomes of them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;

use plane::{Plane, until};
use serde_json::Value;

#[test]
fn containers_see_and_hold_what_they_were_given() {
    let plane = Plane::new();
    plane.ok(&["up"]);
    let manifests = plane::repository().join("crates/hangar/tests/inner/containers.yaml");
    plane.kubectl(&["apply", "-f", manifests.to_str().unwrap()]);
    let node: Value = serde_json::from_str(&plane.kubectl(&["get", "nodes", "-o", "json"])).unwrap();
    let conditions = node["items"][0]["status"]["conditions"].to_string();
    if conditions.contains("its own root file system") {
        a_root_of_its_own(&plane);
    } else {
        println!("NOT TESTED: containers have no root of their own on this system: {conditions}");
    }
    time_and_memory_are_limited(&plane);
    a_probe_speaks_grpc_and_a_balancer_is_guarded(&plane);
    claims_are_reclaimed_as_they_say(&plane);
    until("a job of the clock", || plane.kubectl(&["get", "jobs", "-o", "name"]).contains("every-minute"));
    plane.until("cronjob/every-minute", |job| !job["status"]["lastSuccessfulTime"].is_null());
}

fn a_root_of_its_own(plane: &Plane) {
    plane.wait("pod/housed", "condition=Ready");
    let sh = |script: &str| plane.run(&["kubectl", "--", "exec", "housed", "--", "sh", "-c", script]);
    let said = |script: &str| String::from_utf8_lossy(&sh(script).stdout).trim().to_owned();
    until("the container's first deed", || said("cat note") == "here");
    let rows = [
        ("cat /papers/letter", "dear reader"),
        ("cat /etc/letter", "dear reader"),
        ("stat -L -c %a /papers/letter", "400"),
        ("readlink /papers/letter", "..data/letter"),
        ("pwd", "/desk"),
        ("echo x > /drawer/y; cat left/drawer/y", "x"),
        ("stat -f -c %T /memory", "tmpfs"),
        ("hostname; cat /etc/hostname", "a-house\na-house"),
        ("cat given; printenv my.password", "s3cr3t word\ns3cr3t word"),
        ("ulimit -c -H", "0"),
        ("cat /var/run/secrets/kubernetes.io/serviceaccount/namespace", "default"),
        ("echo mine > /etc/of-hangar-test && cat /etc/of-hangar-test", "mine"),
    ];
    for (script, expected) in rows {
        assert_eq!(said(script), expected, "{script}");
    }
    assert!(!std::path::Path::new("/etc/of-hangar-test").exists(), "a container writes to its own layer");
    for script in ["touch /frozen/x", "touch /papers/x"] {
        assert!(!sh(script).status.success(), "{script}");
    }
    let uid = plane.get("pod/housed")["metadata"]["uid"].as_str().unwrap().to_owned();
    let layer = plane.home().join("pods").join(&uid).join("main").join("view-0");
    assert!(layer.is_dir());
    plane.kubectl(&["delete", "pod", "housed", "--timeout=60s"]);
    until("the layer to go with its container", || !layer.exists());
}

fn time_and_memory_are_limited(plane: &Plane) {
    let ended = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["terminated"].clone();
    let pod = plane.until("pod/glutton", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!((&ended(&pod)["reason"], &ended(&pod)["exitCode"]), (&"OOMKilled".into(), &137.into()), "{pod}");
    plane.wait("pod/modest", "condition=Ready");
    // What is run beside a container is under its limit, too.
    let groups = || plane.kubectl(&["logs", "modest"]);
    until("the groups of the container", || !groups().is_empty());
    assert_eq!(plane.kubectl(&["exec", "modest", "--", "cat", "/proc/self/cgroup"]), groups());
    let pod = plane.until("pod/late", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
}

fn a_probe_speaks_grpc_and_a_balancer_is_guarded(plane: &Plane) {
    plane.wait("pod/talks-grpc", "condition=Ready");
    let service = plane.until("service/guarded", |service| !service["status"]["loadBalancer"]["ingress"].is_null());
    let address = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().unwrap().to_owned();
    let answers = || {
        use std::io::{Read as _, Write as _};
        let Ok(mut stream) = std::net::TcpStream::connect((address.as_str(), 2379)) else { return false };
        let mut answer = String::new();
        let asked = stream.write_all(b"GET /health HTTP/1.0\r\n\r\n");
        asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains("\"health\":\"true\"")
    };
    assert!(!answers(), "this machine is not in 10.0.0.0/8");
    plane.kubectl(&["patch", "service", "guarded", "-p", r#"{"spec":{"loadBalancerSourceRanges":["127.0.0.0/8"]}}"#]);
    until("the balancer to let us in", answers);
    plane.kubectl(&[
        "patch",
        "service",
        "guarded",
        "-p",
        r#"{"spec":{"loadBalancerSourceRanges":["127.200.0.0/16"]}}"#,
    ]);
    until("the balancer to shut us out", || !answers());
}

fn claims_are_reclaimed_as_they_say(plane: &Plane) {
    let volume = |claim: &str| {
        let claim = plane.until(&format!("pvc/{claim}"), |claim| claim["status"]["phase"] == "Bound");
        claim["spec"]["volumeName"].as_str().unwrap().to_owned()
    };
    let (deleted, retained) = (volume("to-delete"), volume("to-retain"));
    let directory = |name: &str| plane.home().join("volumes").join(name);
    assert!(directory(&deleted).is_dir() && directory(&retained).is_dir());
    plane.kubectl(&["patch", "pv", &retained, "-p", r#"{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}"#]);
    plane.kubectl(&["delete", "pvc", "to-delete", "to-retain", "--timeout=60s"]);
    plane.until(&format!("pv/{retained}"), |volume| volume["status"]["phase"] == "Released");
    until("the directory to go with its claim", || !directory(&deleted).exists());
    until("the volume to go too", || plane.get(&format!("pv/{deleted}")).is_null());
    assert!(directory(&retained).is_dir(), "what is to be retained stays");
}
