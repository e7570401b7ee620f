//! Clients of a tenant's API server: anonymous, by token, by certificate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::Identity;

/// Who we say we are.
pub(super) enum Credential<'a> {
    Anonymous,
    Token(String),
    Certificate(&'a Identity),
}

/// Without `ca_pem` the server is not verified: only for what is checked by other means afterwards.
pub(super) async fn client(
    server: &str,
    ca_pem: Option<&str>,
    credential: Credential<'_>,
) -> Result<kube::Client, kube::Error> {
    let cluster = match ca_pem {
        Some(pem) => json!({"server": server, "certificate-authority-data": STANDARD.encode(pem)}),
        None => json!({"server": server, "insecure-skip-tls-verify": true}),
    };
    let user = match credential {
        Credential::Anonymous => json!({}),
        Credential::Token(token) => json!({"token": token}),
        Credential::Certificate(identity) => json!({
            "client-certificate-data": STANDARD.encode(&identity.certificate_pem),
            "client-key-data": STANDARD.encode(&identity.key_pem),
        }),
    };
    let config = kubeconfig(cluster, user)?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .map_err(|error| kube::Error::Service(Box::new(error)))?;
    kube::Client::try_from(config)
}

fn kubeconfig(cluster: Value, user: Value) -> Result<Kubeconfig, kube::Error> {
    let config = json!({
        "clusters": [{"name": "tenant", "cluster": cluster}],
        "users": [{"name": "node", "user": user}],
        "contexts": [{"name": "tenant", "context": {"cluster": "tenant", "user": "node"}}],
        "current-context": "tenant",
    });
    serde_json::from_value(config).map_err(kube::Error::SerdeError)
}
