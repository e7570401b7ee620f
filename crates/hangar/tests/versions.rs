//! Versions that are not at hand: fetched while pods wait, refused with a reason, or replaced by the nearest one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use plane::{Plane, condition};
use serde_json::{Value, json};

/// A site with the layout of the official one that serves copies of `sleep` under the names of components.
#[derive(Default)]
struct Site {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether programs are sent at all.
    open: bool,
    /// Whether checksums are right.
    honest: bool,
    asked: HashMap<String, usize>,
}

impl Site {
    fn start() -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let site = Arc::new(Self::default());
        let own = site.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = own.clone();
                std::thread::spawn(move || own.answer(stream));
            }
        });
        (site, url)
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn asked(&self, path: &str) -> usize {
        self.state.lock().unwrap().asked.get(path).copied().unwrap_or_default()
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut request = [0; 4096];
        let n = stream.read(&mut request).unwrap_or(0);
        let request = String::from_utf8_lossy(&request[..n]).into_owned();
        let path = request.split_whitespace().nth(1).unwrap_or_default().to_owned();
        let served = ["/v1.34.99/bin/linux/", "/v1.34.98/bin/linux/"].iter().any(|known| path.starts_with(known));
        let program = std::fs::read("/bin/sleep").unwrap();
        let is_digest = path.ends_with(".sha256");
        let honest = self.state.lock().unwrap().honest || path.contains("1.34.99");
        let digest = sha256(if honest { &program } else { b"another" }).into_bytes();
        let body = if is_digest { digest } else { program };
        let (status, body) = if served { ("200 OK", body) } else { ("404 Not Found", vec![]) };
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        let _ = stream.write_all(head.as_bytes());
        let sent = if is_digest { 0 } else { self.trickle(&mut stream, path, &body) };
        let _ = stream.write_all(&body[sent..]);
    }

    /// Sends a few bytes, slowly, until the gate opens; a silent site would be given up.
    fn trickle(&self, stream: &mut TcpStream, path: String, body: &[u8]) -> usize {
        let mut state = self.state.lock().unwrap();
        *state.asked.entry(path).or_default() += 1;
        let mut sent = 0;
        while !state.open && sent < body.len() {
            let _ = stream.write_all(&body[sent..=sent]);
            sent += 1;
            state = self.changed.wait_timeout(state, Duration::from_secs(1)).unwrap().0;
        }
        sent
    }
}

fn sha256(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pod(name: &str, image: &str, command: Option<&str>, args: &[&str]) -> Value {
    let mut container = json!({ "name": "c", "image": image, "args": args });
    if let Some(command) = command {
        container["command"] = json!([command]);
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "terminationGracePeriodSeconds": 1, "containers": [container] } })
}

fn apply(plane: &Plane, objects: &[Value]) {
    let path = plane.home().join("objects.json");
    std::fs::write(&path, json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string()).unwrap();
    plane.kubectl(&["apply", "-f", path.to_str().unwrap()]);
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").0 == "True"
}

fn state(pod: &Value) -> Value {
    pod["status"]["containerStatuses"][0].clone()
}

/// Messages of a pod's events of one reason.
fn events(plane: &Plane, pod: &str, reason: &str) -> String {
    let selector = format!("--field-selector=involvedObject.name={pod},reason={reason}");
    plane.kubectl(&["get", "events", &selector, "-o", "jsonpath={.items[*].message}"])
}

#[test]
fn a_version_that_is_not_at_hand_is_fetched_while_its_pods_wait() {
    let (site, url) = Site::start();
    let own_store = tempfile::tempdir().unwrap();
    // What is at hand is taken from the usual store, what is fetched goes elsewhere.
    let usual = hangar_embedded::default_directory();
    let plane = Plane::with(&[("HANGAR_COMPONENTS", own_store.path().to_str().unwrap())]);
    let usual = usual.to_str().unwrap();
    let up = ["up", "--components", usual, "--mirror", &url, "--insecure-mirror"];
    plane.ok(&up);

    // Two pods of one version wait for one download; others are not held up.
    let image = "registry.k8s.io/kube-scheduler:v1.34.99";
    apply(&plane, &[pod("first", image, None, &["600"]), pod("second", image, None, &["600"])]);
    plane.until("pod/first", |pod| {
        let message = state(pod)["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned();
        message.contains("downloading kube-scheduler 1.34.99") && message.contains("usually")
    });
    apply(&plane, &[pod("other", "any:1", Some("sleep"), &["600"])]);
    plane.until("pod/other", is_ready);
    assert_eq!(plane.get("pod/first")["status"]["phase"], "Pending");
    a_control_plane_says_what_it_waits_for(&plane);
    site.set(|state| state.open = true);
    for name in ["first", "second"] {
        let pod = plane.until(&format!("pod/{name}"), is_ready);
        assert_eq!(state(&pod)["imageID"], "hangar://kube-scheduler@v1.34.99");
        for (reason, words) in [("Pulling", "downloading"), ("Pulled", "was fetched in")] {
            plane::until(reason, || events(&plane, name, reason).contains(words));
        }
    }
    assert_eq!(site.asked("/v1.34.99/bin/linux/amd64/kube-scheduler"), 1, "one download for both");

    // A wrong checksum is said, and the pod starts by itself when the site is mended.
    apply(&plane, &[pod("wrong", "registry.k8s.io/kube-proxy:v1.34.98", None, &["600"])]);
    let wrong = plane.until("pod/wrong", |pod| state(pod)["state"]["waiting"]["reason"] == "ImagePullBackOff");
    let message = state(&wrong)["state"]["waiting"]["message"].as_str().unwrap().to_owned();
    for word in ["SHA-256", "hangar components fetch kube-proxy@1.34.98", "--mirror"] {
        assert!(message.contains(word), "no {word:?} in {message}");
    }
    plane::until("the checksum to be complained about", || events(&plane, "wrong", "Failed").contains("SHA-256"));
    site.set(|state| state.honest = true);
    plane.until("pod/wrong", is_ready);

    // What no site offers is replaced by what is near, and that is said; another wish needs another start.
    apply(&plane, &[pod("replaced", "registry.k8s.io/kube-scheduler:v1.33.1", None, &["600"])]);
    plane.until("pod/replaced", |_| events(&plane, "replaced", "VersionSubstituted").contains("v1.33.1"));
    let refused = plane.run(&["up", "--substitute-versions=never", "--components", usual]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("hangar down"), "{said}");
}

/// The API server's version is on its way: the condition of the control plane and the tree say so.
fn a_control_plane_says_what_it_waits_for(plane: &Plane) {
    let example = std::fs::read_to_string(plane::repository().join("examples/kamaji-openstack.yaml")).unwrap();
    let path = plane.home().join("cluster.yaml");
    std::fs::write(&path, example.replace("1.28.10", "1.34.99")).unwrap();
    plane.ok(&["up", "--no-wait", path.to_str().unwrap()]);
    let what = "downloading kube-apiserver 1.34.99";
    plane.until("kamajicontrolplane/kamaji-quickstart-control-plane", |object| {
        condition(object, "Available").1.contains(what)
    });
    let tree = String::from_utf8_lossy(&plane.run(&["describe", "cluster", "capi-quickstart"]).stdout).into_owned();
    assert!(tree.contains(what), "{tree}");
    plane.kubectl(&["delete", "cluster", "capi-quickstart", "--timeout=120s"]);
}
