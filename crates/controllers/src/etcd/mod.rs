//! A small etcd client: the dozen calls that make a tenant and take it away again.
//!
//! Flows: message (prost) -> one gRPC frame -> HTTP/2 over TLS with a client certificate -> answer. Holds: users are known by their
//! certificate, which etcd's JSON gateway does not support, and the client crate of the field needs a compiler for its messages that a
//! new machine does not have; hence this file.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prost::Message;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

mod maintenance;
mod tenants;
mod usage;
mod wire;

use wire::*;

const ANSWER_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    #[error("the datastore's certificates cannot be used: {0}")]
    Certificates(String),
    #[error("the datastore at {endpoint} cannot be reached: {message}")]
    Unreachable { endpoint: String, message: String },
    #[error("the datastore refused {method}: {message}")]
    Refused { method: String, code: String, message: String },
    #[error("{name} is the name of another tenant of this data store: choose another one, or leave it out")]
    Taken { name: String },
}

/// Keys below a prefix, users and roles.
pub struct Etcd {
    /// Members of one cluster: any of them answers for all.
    endpoints: Vec<String>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Etcd {
    /// Endpoints are `host:port`; the client certificate must be that of etcd's root user.
    pub fn new(endpoints: &[String], ca_pem: &str, certificate_pem: &str, key_pem: &str) -> Result<Self, EtcdError> {
        let unusable = |error: &dyn std::fmt::Display| EtcdError::Certificates(error.to_string());
        let mut roots = rustls::RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(|error| unusable(&error))?;
        roots.add(ca).map_err(|error| unusable(&error))?;
        let certificate =
            CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|error| unusable(&error))?;
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|error| unusable(&error))?;
        let config =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| unusable(&error))?
                .with_root_certificates(roots)
                .with_client_auth_cert(vec![certificate], key)
                .map_err(|error| unusable(&error))?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // A request is two frames, and the second one must not wait until the first is acknowledged: that is 40 ms.
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http2();
        let connector = connector.wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build(connector);
        Ok(Self { endpoints: endpoints.to_vec(), client })
    }

    /// Makes sure that only users with a role may do anything, and that we are one of them.
    pub async fn enable_auth(&self) -> Result<(), EtcdError> {
        let status: AuthStatus = self.call("Auth/AuthStatus", &Empty {}).await?;
        if status.enabled {
            return Ok(());
        }
        tokio::try_join!(self.add_user("root"), self.add_role("root"))?;
        self.grant_role("root", "root").await?;
        self.call::<_, Empty>("Auth/AuthEnable", &Empty {}).await.map(drop)
    }

    /// A user that is known by its certificate; one that is there already is fine.
    pub async fn add_user(&self, name: &str) -> Result<(), EtcdError> {
        let request =
            UserAdd { name: name.into(), password: String::new(), options: Some(UserOptions { no_password: true }) };
        tolerate(self.call::<_, Empty>("Auth/UserAdd", &request).await, "already exists")
    }

    pub async fn add_role(&self, name: &str) -> Result<(), EtcdError> {
        tolerate(self.call::<_, Empty>("Auth/RoleAdd", &Named { name: name.into() }).await, "already exists")
    }

    pub async fn grant_role(&self, user: &str, role: &str) -> Result<(), EtcdError> {
        self.call::<_, Empty>("Auth/UserGrantRole", &UserRole { user: user.into(), role: role.into() }).await.map(drop)
    }

    /// Read and write on everything below the prefix.
    pub async fn grant_prefix(&self, role: &str, prefix: &str) -> Result<(), EtcdError> {
        let permission = Permission { kind: READ_WRITE, key: prefix.into(), range_end: end_of(prefix) };
        let request = RolePermission { name: role.into(), permission: Some(permission) };
        self.call::<_, Empty>("Auth/RoleGrantPermission", &request).await.map(drop)
    }

    pub async fn delete_user(&self, name: &str) -> Result<(), EtcdError> {
        tolerate(self.call::<_, Empty>("Auth/UserDelete", &Named { name: name.into() }).await, "not found")
    }

    pub async fn delete_role(&self, name: &str) -> Result<(), EtcdError> {
        tolerate(self.call::<_, Empty>("Auth/RoleDelete", &Named { name: name.into() }).await, "not found")
    }

    pub async fn delete_prefix(&self, prefix: &str) -> Result<(), EtcdError> {
        let request = DeleteRange { key: prefix.into(), range_end: end_of(prefix) };
        self.call::<_, Empty>("KV/DeleteRange", &request).await.map(drop)
    }

    async fn delete_key(&self, key: &str) -> Result<(), EtcdError> {
        self.call::<_, Empty>("KV/DeleteRange", &DeleteRange { key: key.into(), range_end: vec![] }).await.map(drop)
    }

    pub async fn count(&self, prefix: &str) -> Result<i64, EtcdError> {
        let request = Range { key: prefix.into(), range_end: end_of(prefix), count_only: true, ..Range::default() };
        self.call::<_, RangeAnswer>("KV/Range", &request).await.map(|answer| answer.count)
    }

    pub async fn users(&self) -> Result<Vec<String>, EtcdError> {
        self.call::<_, Names>("Auth/UserList", &Empty {}).await.map(|answer| answer.names)
    }

    pub async fn roles(&self) -> Result<Vec<String>, EtcdError> {
        self.call::<_, Names>("Auth/RoleList", &Empty {}).await.map(|answer| answer.names)
    }

    /// Asks one member after the other, until one can be reached: with one of three down the store still works.
    async fn call<Q: Message, A: Message + Default>(&self, method: &str, request: &Q) -> Result<A, EtcdError> {
        let mut problem = EtcdError::Certificates("no endpoint is named".into());
        for endpoint in &self.endpoints {
            match self.ask(endpoint, method, request, ANSWER_WITHIN).await {
                Err(error @ EtcdError::Unreachable { .. }) => problem = error,
                answer => return answer,
            }
        }
        Err(problem)
    }

    async fn ask<Q: Message, A: Message + Default>(
        &self,
        endpoint: &str,
        method: &str,
        request: &Q,
        within: Duration,
    ) -> Result<A, EtcdError> {
        let unreachable = |message: String| EtcdError::Unreachable { endpoint: endpoint.to_owned(), message };
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(request.encoded_len() as u32);
        frame.put_slice(&request.encode_to_vec());
        let request = http::Request::post(format!("https://{endpoint}/etcdserverpb.{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(frame.freeze()))
            .map_err(|error| unreachable(error.to_string()))?;
        let sent = tokio::time::timeout(within, self.client.request(request)).await;
        let answer = sent
            .map_err(|_| unreachable(format!("no answer within {} seconds", within.as_secs())))?
            .map_err(|error| unreachable(hangar_engine::runtime::chain(&error)))?;
        let (parts, body) = answer.into_parts();
        let collected = body.collect().await.map_err(|error| unreachable(error.to_string()))?;
        // A refusal comes either at the end or instead of an answer.
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let word = |name: &str| {
            let value = trailers.get(name).or_else(|| parts.headers.get(name));
            value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let code = word("grpc-status");
        if code != "0" {
            return Err(EtcdError::Refused { method: method.to_owned(), code, message: word("grpc-message") });
        }
        let bytes = collected.to_bytes();
        A::decode(bytes.get(5..).unwrap_or_default()).map_err(|error| unreachable(error.to_string()))
    }
}

fn tolerate<T>(result: Result<T, EtcdError>, words: &str) -> Result<(), EtcdError> {
    match result {
        Err(EtcdError::Refused { message, .. }) if message.contains(words) => Ok(()),
        other => other.map(drop),
    }
}

/// The first key that is not below the prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_one_begins() {
        assert_eq!(end_of("/a/"), b"/a0");
        assert_eq!(end_of("b"), b"c");
        assert_eq!(end_of("\u{7f}"), [0x80]);
    }
}
