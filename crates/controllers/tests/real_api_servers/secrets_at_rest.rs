//! What is in a tenant's data store while its Secrets move from plain text to a key, with a real etcd and real API servers.

use hangar_controllers::rewrite_secrets;
use hangar_planner::hosted::encryption::{beside, plain_text, with_key};
use hangar_planner::step::TenantAnswer;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::api_server::{ApiServer, Etcd};

const ENCRYPTED: &[u8] = b"k8s:enc:secretbox:v1:new:";

async fn serve(etcd: &Etcd, name: &str, configuration: &str) -> ApiServer {
    let file = etcd.file(name);
    std::fs::write(&file, configuration).unwrap();
    etcd.serve(name, &[format!("--encryption-provider-config={file}")]).await
}

async fn create(server: &ApiServer, name: &str, immutable: bool) {
    let secret =
        json!({ "metadata": { "name": name }, "stringData": { "password": "s3cr3t" }, "immutable": immutable });
    let secret: Secret = serde_json::from_value(secret).unwrap();
    secrets(server).await.create(&PostParams::default(), &secret).await.unwrap();
}

async fn secrets(server: &ApiServer) -> Api<Secret> {
    Api::namespaced(server.client("masters").await, "default")
}

async fn is_encrypted(etcd: &Etcd, name: &str) -> bool {
    let value = etcd.value(&format!("/registry/secrets/default/{name}")).await;
    assert!(value.starts_with(ENCRYPTED) || value.windows(6).any(|part| part == b"s3cr3t"), "{value:?}");
    value.starts_with(ENCRYPTED)
}

async fn reads(server: &ApiServer, names: &[&str]) {
    let secrets = secrets(server).await;
    for name in names {
        let secret = secrets.get(name).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(secret.data.unwrap()["password"].0, b"s3cr3t", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_move_over_and_every_api_server_reads_all_of_them() {
    let etcd = Etcd::start().await;
    let (plain, key) = (plain_text(), with_key("new", &[7; 32]));
    let before = etcd.serve("before", &[]).await;
    create(&before, "old", false).await;
    create(&before, "immutable", true).await;
    let knows = serve(&etcd, "knows", &beside(&plain, &key)).await;
    create(&knows, "meanwhile", false).await;
    reads(&before, &["old", "immutable", "meanwhile"]).await;
    drop(before);
    let writes = serve(&etcd, "writes", &beside(&key, &plain)).await;
    create(&writes, "new", false).await;
    reads(&knows, &["old", "immutable", "meanwhile", "new"]).await;
    drop(knows);
    for (name, expected) in [("old", false), ("immutable", false), ("meanwhile", false), ("new", true)] {
        assert_eq!(is_encrypted(&etcd, name).await, expected, "{name}");
    }
    let version = |secret: Secret| secret.metadata.resource_version.unwrap();
    let untouched = version(secrets(&writes).await.get("new").await.unwrap());
    let answer = rewrite_secrets(&writes.client("masters").await, None).await;
    assert!(answer == TenantAnswer::SecretsRewritten { next: None, left: None }, "{answer:?}");
    for name in ["old", "immutable", "meanwhile", "new"] {
        assert!(is_encrypted(&etcd, name).await, "{name}");
    }
    assert_eq!(version(secrets(&writes).await.get("new").await.unwrap()), untouched, "it was not written again");
    let alone = serve(&etcd, "alone", &key).await;
    reads(&alone, &["old", "immutable", "meanwhile", "new"]).await;
    reads(&writes, &["old"]).await;
}
