//! A node that only pretends to run pods: it joins as kubeadm and the kubelet do, keeps its lease, and says that every
//! pod given to it runs.
//!
//! Flows: [`Join`] -> discovery (cluster-info, token signature, CA pin) -> certificate request -> [`Identity`] -> [`run`].
//! Holds: nothing is trusted before signature and pin have been checked; the bootstrap token is used for the certificate
//! request only; at rest a node writes its lease and nothing else.

mod api_client;
mod discovery;
mod node;
mod pods;
mod registration;
mod tls_bootstrap;

use std::collections::BTreeMap;

pub use node::{Fleet, RunError, leave, run};
use serde::{Deserialize, Serialize};

/// Everything a join configuration and a machine say about a node to be.
#[derive(Clone, Default)]
pub struct Join {
    /// `host:port`
    pub endpoint: String,
    pub token: String,
    /// `sha256:<hex>` of the authority's public key.
    pub ca_hashes: Vec<String>,
    pub skip_ca_verification: bool,
    pub node_name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub provider_id: Option<String>,
    /// (type, address), such as (`InternalIP`, `10.6.0.2`)
    pub addresses: Vec<(String, String)>,
    pub external_cloud_provider: bool,
    /// `v1.34.4`
    pub kubelet_version: String,
}

impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Join")
            .field("endpoint", &self.endpoint)
            .field("node_name", &self.node_name)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: String,
}

/// What a joined node has on its disk.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    pub ca_pem: String,
    pub certificate_pem: String,
    pub key_pem: String,
    /// `https://host:port`
    pub server: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("server", &self.server).finish_non_exhaustive()
    }
}

/// A node that has joined.
#[derive(Debug, Clone)]
pub struct HollowNode {
    pub identity: Identity,
    pub facts: Join,
}

/// Why a node could not join; [`JoinError::retryable`] says whether waiting may help.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("the bootstrap token is malformed")]
    Token(#[source] hangar_pki::PkiError),
    #[error("could not read cluster-info from API server {endpoint}")]
    Unreachable { endpoint: String, source: Box<kube::Error> },
    #[error("invalid cluster-info: {0}")]
    ClusterInfo(String),
    #[error("cluster-info is not signed for token {0}: the token is unknown to the cluster, or has expired")]
    NotSigned(String),
    #[error(
        "the signature of cluster-info does not match token {0}: the token secret is wrong, or the connection is intercepted"
    )]
    BadSignature(String),
    #[error("the cluster CA {found} matches none of caCertHashes: this is another cluster, or the hash is outdated")]
    Pin { found: String },
    #[error("caCertHashes is empty: give one, or set unsafeSkipCAVerification")]
    NoPin,
    #[error("could not create the certificate signing request: {0}")]
    Request(String),
    #[error("the API server refused the certificate request of {node}")]
    Refused { node: String, source: Box<kube::Error> },
    #[error("the certificate request {name} was denied: {why}")]
    Denied { name: String, why: String },
    #[error(
        "the certificate request {name} was not approved and signed within {seconds} s: is the controller manager running?"
    )]
    NotApproved { name: String, seconds: u64 },
}

impl JoinError {
    /// kubeadm keeps trying while the cluster may still change its mind; a wrong pin or secret it does not outwait.
    pub fn retryable(&self) -> bool {
        !matches!(self, Self::Token(_) | Self::Pin { .. } | Self::NoPin | Self::BadSignature(_))
    }
}

/// kubeadm's way in.
pub async fn join(join: &Join) -> Result<Identity, JoinError> {
    let token = hangar_pki::BootstrapToken::parse(&join.token).map_err(JoinError::Token)?;
    let cluster = discovery::discover(join, &token).await?;
    tls_bootstrap::request_identity(&join.node_name, &token, cluster).await
}
