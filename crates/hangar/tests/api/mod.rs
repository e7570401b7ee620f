//! etcd and kube-apiserver with our definitions and our webhook, and no controllers: what is applied stays as it is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    reason = "a test says what went wrong by panicking; not every test uses all"
)]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use hangar_api::Object;
use hangar_api::crds::WebhookAddress;
use hangar_embedded::{Home, KUBERNETES, Plane, PlaneOptions, Quiet, Store, StoreOptions};
use hangar_engine::management::api_of;
use hangar_engine::webhook::{WebhookIdentity, admission_configuration, serve};
use hangar_pki::SystemKeys;
use kube::Client;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub struct Api {
    directory: tempfile::TempDir,
    plane: Plane,
    kubectl: PathBuf,
    pub client: Client,
    pub webhook: WebhookAddress,
    shutdown: CancellationToken,
}

impl Api {
    /// With everything installed, as a user would: `hangar crds | kubectl apply`.
    pub async fn start() -> Self {
        let api = Self::bare().await;
        let definitions = api.definitions();
        api.kubectl_with(&["apply", "--server-side", "-f", "-"], &definitions);
        api.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=120s"]);
        let admission = admission_configuration(&api.webhook.url, &api.webhook.ca_bundle);
        api.kubectl_with(&["apply", "--server-side", "-f", "-"], &admission.0.to_string());
        api
    }

    /// The server and the webhook, and nothing installed.
    pub async fn bare() -> Self {
        let directory = tempfile::Builder::new().prefix("hangar-test-").tempdir().unwrap();
        let home = Home::open(directory.path().join("home")).unwrap();
        let store = Store::new(StoreOptions::default());
        let plane = Plane::start(&home, &store, &PlaneOptions::default(), &Quiet).await.unwrap();
        let kubectl = store.installed("kubectl", &KUBERNETES.trim_start_matches('v').parse().unwrap());
        let kubectl = kubectl.expect("kubectl is not at hand; get it with `cargo xtask fetch`");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let identity = WebhookIdentity::create(&SystemKeys, "127.0.0.1", jiff::Timestamp::now()).unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        std::fs::write(directory.path().join("ca.pem"), &identity.ca_pem).unwrap();
        let (webhook, shutdown) = (WebhookAddress { url, ca_bundle: identity.ca_bundle() }, CancellationToken::new());
        let stop = shutdown.clone();
        let (_, identity) = tokio::sync::watch::channel(identity);
        tokio::spawn(async move { serve(listener, identity, Default::default(), stop).await });
        let client = plane.client().await.unwrap();
        Self { directory, plane, kubectl, client, webhook, shutdown }
    }

    pub fn api_server_pid(&self) -> Option<u32> {
        self.pid("kube-apiserver")
    }

    pub fn pid(&self, name: &str) -> Option<u32> {
        self.plane.processes().into_iter().find(|process| process.name == name).and_then(|process| process.pid)
    }

    /// A client that talks to the webhook itself.
    pub fn webhook_client(&self) -> Client {
        use base64::Engine as _;
        let pem = base64::engine::general_purpose::STANDARD.decode(&self.webhook.ca_bundle).unwrap();
        Self::client_of(&self.webhook.url, &String::from_utf8(pem).unwrap())
    }

    /// A client of a server with this authority.
    pub fn client_of(url: &str, ca_pem: &str) -> Client {
        use rustls_pki_types::pem::PemObject as _;
        let authority = rustls_pki_types::CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap();
        let mut config = kube::Config::new(url.parse().unwrap());
        config.root_cert = Some(vec![authority.to_vec()]);
        Client::try_from(config).unwrap()
    }

    /// The administrator's.
    pub fn kubeconfig(&self) -> String {
        self.plane.kubeconfig().display().to_string()
    }

    /// What `hangar crds` prints for this webhook.
    pub fn definitions(&self) -> String {
        let ca = self.directory.path().join("ca.pem");
        let arguments = ["crds", "--webhook-url", &self.webhook.url, "--webhook-ca", ca.to_str().unwrap()];
        let output = Command::new(env!("CARGO_BIN_EXE_hangar")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubectl_with(arguments, "")
    }

    pub fn kubectl_with(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        let errors = String::from_utf8_lossy(&output.stderr);
        let shown: String = input.chars().take(3000).collect();
        assert!(output.status.success(), "kubectl {arguments:?} failed: {errors}\n{shown}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// kubectl must fail, and say these words.
    pub fn refused(&self, arguments: &[&str], input: &str, words: &[&str]) {
        let output = self.run(arguments, input);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "kubectl {arguments:?} succeeded with {input}");
        words.iter().for_each(|word| assert!(said.contains(word), "no {word:?} in: {said}\n{input}"));
    }

    fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = Command::new(&self.kubectl);
        command
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig())
            .arg("--cache-dir")
            .arg(self.directory.path().join("cache"));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// An object as it is stored, in its own version or another.
    pub async fn get(&self, object: &Object, version: Option<&str>) -> Object {
        let mut asked = object.clone();
        if let Some(version) = version {
            asked.0["apiVersion"] = format!("{}/{version}", object.group()).into();
        }
        let found = api_of(&self.client, &asked).get(object.name()).await;
        let found = found.unwrap_or_else(|error| panic!("{} as {:?}: {error}", object.key(), asked.api_version()));
        found.into_object()
    }

    pub async fn stop(self) {
        self.plane.stop().await;
        self.shutdown.cancel();
    }
}

/// The objects of a manifest, each with a namespace.
pub fn documents(text: &str) -> Vec<Object> {
    let all = hangar_api::yaml::documents(text).unwrap().into_iter().map(Object);
    all.map(|mut object| {
        let namespaced = object.0["metadata"].get("namespace").is_some();
        if !namespaced {
            object.0["metadata"]["namespace"] = "default".into();
        }
        object
    })
    .collect()
}

/// Everything that was written must be there; null is nothing.
pub fn subset(written: &Value, found: &Value, place: &str) {
    match written {
        Value::Null => {}
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| subset(value, &found[name], &format!("{place}.{name}")));
        }
        Value::Array(items) => {
            assert_eq!(items.len(), found.as_array().map_or(0, Vec::len), "{place}: {written} became {found}");
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| subset(item, &found[index], &format!("{place}[{index}]")));
        }
        _ => assert_eq!(written, found, "{place}"),
    }
}

pub fn lacks(text: &str, word: &str) {
    assert!(!text.contains(word), "{word} is in {text}");
}
