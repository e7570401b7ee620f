//! What is in the plane's etcd, looked at without its API server.

// A test says what went wrong by panicking, in its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_embedded::{Home, Plane, PlaneOptions, Quiet, Store, StoreOptions, encrypt_existing};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

const ENCRYPTED: &[u8] = b"k8s:enc:secretbox:v1:home:";

/// etcd's own gateway speaks JSON over HTTP, so a client for a Kubernetes API does.
struct Etcd(Client);

impl Etcd {
    async fn of(home: &Home, plane: &Plane) -> Self {
        let state: Value = serde_json::from_slice(&std::fs::read(home.state_file()).unwrap()).unwrap();
        let file = |name: &str| home.pki().join(name).display().to_string();
        let kubeconfig = json!({
            "clusters": [{ "name": "etcd", "cluster": {
                "server": format!("https://{}:{}", plane.network().plane(), state["etcdPort"]),
                "certificate-authority": file("etcd-ca.crt"),
            } }],
            "users": [{ "name": "test", "user": {
                "client-certificate": file("apiserver-etcd-client.crt"), "client-key": file("apiserver-etcd-client.key"),
            } }],
            "contexts": [{ "name": "etcd", "context": { "cluster": "etcd", "user": "test" } }],
            "current-context": "etcd",
        });
        let kubeconfig = serde_json::from_value(kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
        Self(Client::try_from(config).unwrap())
    }

    async fn ask(&self, path: &str, body: Value) -> Value {
        let request = http::Request::post(path).header("content-type", "application/json");
        self.0.request(request.body(body.to_string().into_bytes()).unwrap()).await.unwrap()
    }

    async fn value(&self, key: &str) -> Vec<u8> {
        let found = self.ask("/v3/kv/range", json!({ "key": STANDARD.encode(key) })).await;
        STANDARD.decode(found["kvs"][0]["value"].as_str().unwrap()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_encrypted_in_etcd_and_those_of_an_older_home_become_so() {
    let directory = tempfile::tempdir().unwrap();
    let home = Home::open(directory.path().join("home")).unwrap();
    let store = Store::new(StoreOptions::default());
    let plane = Plane::start(&home, &store, &PlaneOptions::default(), &Quiet).await.unwrap();
    let client = plane.client().await.unwrap();
    let etcd = Etcd::of(&home, &plane).await;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let secret: Secret =
        serde_json::from_value(json!({ "metadata": { "name": "new" }, "stringData": { "password": "s3cr3t" } }))
            .unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    assert!(etcd.value("/registry/secrets/default/new").await.starts_with(ENCRYPTED));

    // As an older version of this program has written it.
    let plain = json!({
        "apiVersion": "v1", "kind": "Secret", "data": { "password": STANDARD.encode("s3cr3t") },
        "metadata": { "name": "old", "namespace": "default", "uid": "7d8e1c39-3b0f-4f39-8f57-000000000000", "creationTimestamp": "2026-01-01T00:00:00Z" },
    });
    let key = "/registry/secrets/default/old";
    etcd.ask("/v3/kv/put", json!({ "key": STANDARD.encode(key), "value": STANDARD.encode(plain.to_string()) })).await;
    let password = async || secrets.get("old").await.unwrap().data.unwrap()["password"].0.clone();
    assert_eq!(password().await, b"s3cr3t", "it can be read all the same");
    encrypt_existing(&client, plane.pki()).await.unwrap();
    assert!(etcd.value(key).await.starts_with(ENCRYPTED));
    assert_eq!(password().await, b"s3cr3t");
    plane.stop().await;
}
