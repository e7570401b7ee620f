//! One control plane started by hand: etcd, kube-apiserver, kube-controller-manager, kube-scheduler as plain processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    reason = "a benchmark says what went wrong by panicking; not every one uses all"
)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hangar_embedded::{ETCD, KUBERNETES, Store, StoreOptions};
use hangar_pki::{Authority, CertifiedKey, Kubeconfig, Leaf, SystemKeys, Usage, service_account_keys};

pub struct Baseline {
    pub api_ready: Duration,
    pub all_healthy: Duration,
}

/// The processes of a plane and the directory that they work in.
pub struct Processes(Vec<Child>, Option<tempfile::TempDir>);

impl Processes {
    pub fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }
}

/// Gives a plane the same definitions as ours has, as people do it: `kubectl apply`, and waits until they are served.
pub fn install_definitions(plane: &Processes, definitions: &Path) {
    let kubectl = program(&Store::new(StoreOptions::default()), "kubectl");
    let kubeconfig = plane.1.as_ref().expect("the plane runs").path().join("kubeconfig");
    let ask = |words: &[&str]| {
        let output = Command::new(&kubectl).arg("--kubeconfig").arg(&kubeconfig).args(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    ask(&["apply", "--server-side", "-f", definitions.to_str().unwrap()]);
    ask(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=600s"]);
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn program(store: &Store, name: &str) -> PathBuf {
    let version = if name == "etcd" { ETCD } else { KUBERNETES };
    store.installed(name, &version.parse().unwrap()).expect("run `cargo xtask fetch` first")
}

fn start(program: &Path, arguments: &[String]) -> Child {
    Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Asks until the answer is `ok`, without a look at certificates: this is about time.
fn until_ok(directory: &Path, port: u16, path: &str) {
    loop {
        let certificate = directory.join("admin.crt");
        let key = directory.join("admin.key");
        let answer = Command::new("curl")
            .args(["-sk", "--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()])
            .arg(format!("https://127.0.0.1:{port}{path}"))
            .output()
            .expect("curl is needed for the baseline");
        if answer.stdout == b"ok" {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Starts one plane, measures, and ends it.
pub fn one_plane_by_hand() -> Baseline {
    plane_by_hand().0
}

/// A plane that runs until it is dropped.
pub fn plane_by_hand() -> (Baseline, Processes) {
    let store = Store::new(StoreOptions::default());
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    certificates(directory.path());
    let (etcd, peer, api, manager, scheduler) = (port(), port(), port(), port(), port());
    let began = Instant::now();
    let first = start(
        &program(&store, "etcd"),
        &[
            format!("--data-dir={}", at("etcd")),
            format!("--listen-client-urls=http://127.0.0.1:{etcd}"),
            format!("--advertise-client-urls=http://127.0.0.1:{etcd}"),
            format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
        ],
    );
    let mut running = Processes(vec![first], None);
    running.0.push(start(
        &program(&store, "kube-apiserver"),
        &[
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={api}"),
            format!("--client-ca-file={}", at("ca.crt")),
            format!("--tls-cert-file={}", at("server.crt")),
            format!("--tls-private-key-file={}", at("server.key")),
            format!("--service-account-key-file={}", at("sa.pub")),
            format!("--service-account-signing-key-file={}", at("sa.key")),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            "--authorization-mode=Node,RBAC".into(),
            "--endpoint-reconciler-type=none".into(),
        ],
    ));
    until_ok(directory.path(), api, "/readyz");
    let api_ready = began.elapsed();
    std::fs::write(directory.path().join("kubeconfig"), kubeconfig(directory.path(), api)).unwrap();
    let common = |port: u16| {
        let config = at("kubeconfig");
        vec![
            format!("--kubeconfig={config}"),
            format!("--authentication-kubeconfig={config}"),
            format!("--authorization-kubeconfig={config}"),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            "--leader-elect=false".into(),
        ]
    };
    running.0.push(start(&program(&store, "kube-controller-manager"), &common(manager)));
    running.0.push(start(&program(&store, "kube-scheduler"), &common(scheduler)));
    until_ok(directory.path(), manager, "/healthz");
    until_ok(directory.path(), scheduler, "/healthz");
    let measured = Baseline { api_ready, all_healthy: began.elapsed() };
    running.1 = Some(directory);
    (measured, running)
}

fn certificates(directory: &Path) {
    let now = jiff::Timestamp::now();
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    let authority = Authority::create(&SystemKeys, "kubernetes", now).unwrap();
    write("ca.crt", authority.certificate_pem());
    let server = Leaf { usage: Usage::Server, ..Leaf::server("kube-apiserver", ["127.0.0.1".to_owned()]) };
    let server = authority.issue(&SystemKeys, &server, now).unwrap();
    let admin = authority.issue(&SystemKeys, &Leaf::client("admin", &["system:masters"]), now).unwrap();
    for (name, pair) in [("server", &server), ("admin", &admin)] {
        write(&format!("{name}.crt"), &pair.certificate_pem);
        write(&format!("{name}.key"), &pair.key_pem);
    }
    let (public, private) = service_account_keys(&SystemKeys).unwrap();
    write("sa.pub", &public);
    write("sa.key", &private);
}

fn kubeconfig(directory: &Path, port: u16) -> String {
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    let identity = CertifiedKey { certificate_pem: read("admin.crt"), key_pem: read("admin.key") };
    let (server, ca) = (format!("https://127.0.0.1:{port}"), read("ca.crt"));
    Kubeconfig { cluster: "baseline", user: "admin", server: &server, ca_pem: &ca, identity: &identity }.to_json()
}
