//! A real etcd and real API servers on it, as few as a test needs, each with the arguments that the test is about.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_embedded::{Component, Silent, Store, StoreOptions, default_version};
use hangar_pki::{Authority, Leaf, SystemKeys, Usage, service_account_keys};
use kube::Client;
use serde_json::{Value, json};

/// Token, user and groups: whoever a test speaks as.
const USERS: &str = "masters,super-admin,1,system:masters\nadmin,admin,2,admins\nnode,system:node:n,3,system:nodes\nmanager,system:kube-controller-manager,4\n";

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub struct Etcd {
    pub directory: tempfile::TempDir,
    endpoint: String,
    server: PathBuf,
    ca: Authority,
    _process: Program,
}

pub struct ApiServer {
    address: String,
    ca: String,
    process: Program,
    log: PathBuf,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(program: &Path, arguments: &[String], log: &Path) -> Program {
    let output = std::fs::File::create(log).unwrap();
    let command = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(output).spawn();
    Program(command.unwrap())
}

async fn client(config: Value) -> Client {
    let config = serde_json::from_value(config).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn config(server: &str, ca: Option<&str>, token: Option<&str>) -> Value {
    json!({
        "clusters": [{ "name": "c", "cluster": { "server": server, "certificate-authority-data": ca.map(|ca| STANDARD.encode(ca)) } }],
        "users": [{ "name": "u", "user": { "token": token } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }], "current-context": "c",
    })
}

impl Etcd {
    pub async fn start() -> Self {
        let store = Store::new(StoreOptions::default());
        let component = |name: &str| Component { name: name.into(), version: default_version(name) };
        let programs = store.fetch(&[component("etcd"), component("kube-apiserver")], &Silent).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (endpoint, peer) =
            (format!("http://127.0.0.1:{}", free_port()), format!("http://127.0.0.1:{}", free_port()));
        let arguments = [
            format!("--data-dir={}", directory.path().join("etcd").display()),
            format!("--listen-client-urls={endpoint}"),
            format!("--advertise-client-urls={endpoint}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
        ];
        let process = spawn(&programs[0], &arguments, &directory.path().join("etcd.log"));
        let now = jiff::Timestamp::now();
        let ca = Authority::create(&SystemKeys, "ca", now).unwrap();
        let (public, private) = service_account_keys(&SystemKeys).unwrap();
        let leaf = Leaf { usage: Usage::Server, ..Leaf::server("server", ["127.0.0.1".to_owned()]) };
        let leaf = ca.issue(&SystemKeys, &leaf, now).unwrap();
        let files = [
            ("sa.pub", public),
            ("sa.key", private),
            ("tls.crt", leaf.certificate_pem),
            ("tls.key", leaf.key_pem),
            ("users.csv", USERS.to_owned()),
        ];
        for (name, content) in files {
            std::fs::write(directory.path().join(name), content).unwrap();
        }
        Self { directory, endpoint, server: programs[1].clone(), ca, _process: process }
    }

    pub fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Another API server on the same data; it is ready when it comes back.
    pub async fn serve(&self, name: &str, more: &[String]) -> ApiServer {
        let port = free_port();
        let mut arguments = vec![
            "--bind-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".into(),
            format!("--secure-port={port}"),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            format!("--etcd-servers={}", self.endpoint),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", self.file("sa.pub")),
            format!("--service-account-signing-key-file={}", self.file("sa.key")),
            format!("--tls-cert-file={}", self.file("tls.crt")),
            format!("--tls-private-key-file={}", self.file("tls.key")),
            format!("--token-auth-file={}", self.file("users.csv")),
            "--feature-gates=APIServerIdentity=false".into(),
        ];
        arguments.extend_from_slice(more);
        let log = self.directory.path().join(format!("{name}.log"));
        let process = spawn(&self.server, &arguments, &log);
        let address = format!("https://127.0.0.1:{port}");
        let mut server = ApiServer { address, ca: self.ca.certificate_pem().to_owned(), process, log };
        server.is_ready().await;
        server
    }

    /// What is stored under a key.
    pub async fn value(&self, key: &str) -> Vec<u8> {
        let etcd = client(config(&self.endpoint, None, None)).await;
        let body = json!({ "key": STANDARD.encode(key) }).to_string().into_bytes();
        let request = http::Request::post("/v3/kv/range").header("content-type", "application/json").body(body);
        let found: Value = etcd.request(request.unwrap()).await.unwrap();
        STANDARD.decode(found["kvs"][0]["value"].as_str().unwrap()).unwrap()
    }
}

impl ApiServer {
    /// As one of the users, by token.
    pub async fn client(&self, token: &str) -> Client {
        client(config(&self.address, Some(&self.ca), Some(token))).await
    }

    async fn is_ready(&mut self) {
        let client = self.client("masters").await;
        let began = std::time::Instant::now();
        let ready = async || client.request_text(http::Request::get("/readyz").body(vec![]).unwrap()).await.is_ok();
        while !ready().await {
            let ended = self.process.0.try_wait().unwrap();
            assert!(ended.is_none() && began.elapsed() < Duration::from_secs(240), "{ended:?}: {}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub fn log(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text[text.floor_char_boundary(text.len().saturating_sub(3000))..].to_owned()
    }
}
