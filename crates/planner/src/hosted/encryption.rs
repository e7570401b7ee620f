//! Secrets of a tenant are encrypted in its data store, with a key that no other tenant has.
//!
//! Flows: a key -> the configuration of the API server, in the Secret of [`Root::EncryptionKey`] -> `--encryption-provider-config`. It is rotated as everything else
//! that a control plane stands on: what is trusted there is read here, what signs there writes here. Holds: a control plane from before begins as one whose
//! key is plain text, so that it moves over by a rotation; a lost key is never replaced, because another one reads nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::Object;
use serde_json::{Map, Value, json};

use super::roots::Root;
use super::{ControlPlane, Hosting};
use crate::Reason;
use crate::step::{Material, TenantCall};

/// The configuration, as the API server reads it; with the key in it.
pub const FILE: &str = "encryption.json";
pub(super) const ARGUMENT: &str = "encryption-provider-config";

/// How far it is with writing all Secrets of a tenant again, in this pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Rewriting {
    #[default]
    NotTried,
    /// Up to this page.
    Until(String),
    Done,
    /// Some could not be written: why.
    Left(String),
}

impl Rewriting {
    pub(super) fn answered(next: Option<&String>, left: Option<&String>) -> Self {
        match (left, next) {
            (Some(why), _) => Self::Left(why.clone()),
            (None, Some(next)) => Self::Until(next.clone()),
            (None, None) => Self::Done,
        }
    }

    /// The call that comes next, until all are written.
    pub(super) fn call(&self) -> Option<TenantCall> {
        match self {
            Self::NotTried => Some(TenantCall::RewriteSecrets { from: None }),
            Self::Until(next) => Some(TenantCall::RewriteSecrets { from: Some(next.clone()) }),
            Self::Done | Self::Left(_) => None,
        }
    }
}

/// The first provider writes, all of them read.
fn configuration(providers: &[Value]) -> String {
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{ "resources": ["secrets"], "providers": providers }],
    });
    format!("{configuration}\n")
}

/// What one key writes and reads; its name is kept with all that it writes.
pub fn with_key(name: &str, key: &[u8; 32]) -> String {
    let key = json!({ "name": name, "secret": STANDARD.encode(key) });
    configuration(&[json!({ "secretbox": { "keys": [key] } })])
}

/// What API servers without a key write and read.
pub fn plain_text() -> String {
    configuration(&[json!({ "identity": {} })])
}

/// What the first writes, and what both of them read.
pub fn beside(first: &str, second: &str) -> String {
    let all: Vec<Value> = [first, second].into_iter().flat_map(providers).collect();
    configuration(&all)
}

fn providers(configuration: &str) -> Vec<Value> {
    let configuration: Value = serde_json::from_str(configuration).unwrap_or_default();
    configuration.pointer("/resources/0/providers").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The names of the keys in the Secret, which say nothing of the keys.
pub(super) fn key_names(secret: &Object) -> Vec<String> {
    let configuration = secret.secret_text(FILE).unwrap_or_default();
    let name = |provider: &Value| provider.pointer("/secretbox/keys/0/name").and_then(Value::as_str).map(str::to_owned);
    providers(&configuration).iter().filter_map(name).collect()
}

impl Hosting<'_> {
    /// What the Secret of a new control plane begins with, and that of one that has written without a key.
    pub(super) fn first_encryption_key(&self, plane: &ControlPlane) -> Result<Material, Reason> {
        let server = self.deployment("");
        if server.is_none() && self.secret(&plane.object("-datastore-config")).is_none() {
            return Ok(Material::EncryptionKey { file: FILE.to_owned() });
        }
        let arguments = server.map(|server| server.get("/spec/template/spec/containers/0/args").to_string());
        if arguments.is_some_and(|arguments| arguments.contains(ARGUMENT)) {
            let name = plane.root_secret(Root::EncryptionKey);
            let text = format!(
                "Secret {name} is missing, and with it the key that Secrets of the tenant are encrypted with: restore it from a backup, or from {FILE} in a pod of the API server that still runs"
            );
            return Err(Reason::retry("EncryptionKeyMissing", text));
        }
        let current: Map<String, Value> =
            [(FILE.to_owned(), STANDARD.encode(plain_text()).into())].into_iter().collect();
        Ok(Material::Successor { root: Root::EncryptionKey, common_name: String::new(), current })
    }
}
