//! A kubeconfig with one cluster, one user and one context, written as JSON (which every reader of YAML takes).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::CertifiedKey;

/// Everything a kubeconfig says.
#[derive(Debug, Clone)]
pub struct Kubeconfig<'a> {
    pub cluster: &'a str,
    pub user: &'a str,
    /// `https://host:port`
    pub server: &'a str,
    pub ca_pem: &'a str,
    pub identity: &'a CertifiedKey,
}

impl Kubeconfig<'_> {
    pub fn to_json(&self) -> String {
        let context = format!("{}@{}", self.user, self.cluster);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.cluster, "cluster": {
                "server": self.server,
                "certificate-authority-data": STANDARD.encode(self.ca_pem),
            }}],
            "users": [{"name": self.user, "user": {
                "client-certificate-data": STANDARD.encode(&self.identity.certificate_pem),
                "client-key-data": STANDARD.encode(&self.identity.key_pem),
            }}],
            "contexts": [{"name": context, "context": {"cluster": self.cluster, "user": self.user}}],
            "current-context": context,
        });
        format!("{config:#}\n")
    }
}
