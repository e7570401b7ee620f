//! What a new plane holds before its API server reads for the first time.
//!
//! Why: an API server that finds its definitions at the start builds what it publishes once; one that is given them one after the other
//! builds it again and again, which costs more than everything else in a first start. Holds: only an etcd without any key is written to.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use serde_json::{Value, json};

use super::PlaneError;

/// An object as the API server would have stored it.
#[derive(Debug, Clone)]
pub struct InitialObject {
    /// Below the API server's prefix, such as `apiextensions.k8s.io/customresourcedefinitions/NAME`.
    pub key: String,
    /// As JSON.
    pub value: Vec<u8>,
}

/// How many are on their way at a time.
const AT_ONCE: usize = 8;

/// Writes them if there is nothing yet; says whether it did.
pub(super) async fn put(endpoint: &str, pki: &Path, initial_objects: &[InitialObject]) -> Result<bool, PlaneError> {
    let client = client(endpoint, pki).await?;
    // Every key there is: from the smallest to the end.
    let all = json!({ "key": STANDARD.encode([0]), "range_end": STANDARD.encode([0]), "count_only": true });
    let found = ask(&client, "/v3/kv/range", &all).await?;
    if found["count"].as_str().is_some_and(|count| count != "0") {
        return Ok(false);
    }
    let written = initial_objects.iter().map(|object| {
        let key = format!("/registry/{}", object.key);
        let put = json!({ "key": STANDARD.encode(key), "value": STANDARD.encode(&object.value) });
        let client = &client;
        async move { ask(client, "/v3/kv/put", &put).await }
    });
    futures::stream::iter(written).buffer_unordered(AT_ONCE).try_collect::<Vec<Value>>().await?;
    Ok(true)
}

async fn ask(client: &Client, path: &str, body: &Value) -> Result<Value, PlaneError> {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).map_err(|error| refused(path, &error))?;
    client.request(request).await.map_err(|error| refused(path, &error))
}

fn refused(what: &str, error: &dyn std::fmt::Display) -> PlaneError {
    PlaneError::Etcd { what: what.to_owned(), message: error.to_string() }
}

/// etcd's own gateway speaks JSON over HTTP, so a client for a Kubernetes API does.
async fn client(endpoint: &str, pki: &Path) -> Result<Client, PlaneError> {
    let file = |name: &str| pki.join(name).display().to_string();
    let kubeconfig = json!({
        "clusters": [{ "name": "etcd", "cluster": {
            "server": endpoint, "certificate-authority": file("etcd-ca.crt"),
        } }],
        "users": [{ "name": "plane", "user": {
            "client-certificate": file("apiserver-etcd-client.crt"), "client-key": file("apiserver-etcd-client.key"),
        } }],
        "contexts": [{ "name": "etcd", "context": { "cluster": "etcd", "user": "plane" } }],
        "current-context": "etcd",
    });
    let kubeconfig = serde_json::from_value(kubeconfig).map_err(|error| refused("a client", &error))?;
    super::client::from_config(kubeconfig).await.map_err(|error| refused("a client", &error))
}
