//! The webhook that the API server calls: conversion and admission, over TLS with a certificate of our own.
//!
//! Holds: everything that is decided here is decided by `hangar-api`; this is only the wire.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::{Object, admission, review};
use hangar_pki::{Authority, CertifiedKey, Keys, Leaf, PkiError};
use jiff::Timestamp;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// The certificate of the webhook and the authority that the API server must trust.
pub struct WebhookIdentity {
    pub ca_pem: String,
    pub server: CertifiedKey,
}

impl WebhookIdentity {
    /// Of our own making: nobody but our own API server has to know it, and it is told with the definitions.
    pub fn create(keys: &dyn Keys, host: &str, now: Timestamp) -> Result<Self, PkiError> {
        let authority = Authority::create(keys, "hangar-webhook", now)?;
        let server = authority.issue(keys, &Leaf::server("hangar-webhook", [host.to_owned()]), now)?;
        Ok(Self { ca_pem: authority.certificate_pem().to_owned(), server })
    }

    pub fn ca_bundle(&self) -> String {
        STANDARD.encode(&self.ca_pem)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("the webhook's certificate cannot be used")]
    Certificate(#[from] rustls::Error),
    #[error("the webhook's certificate cannot be read: {0}")]
    Unreadable(String),
}

/// Serves until told to stop.
pub async fn serve(
    listener: TcpListener,
    identity: &WebhookIdentity,
    shutdown: CancellationToken,
) -> Result<(), WebhookError> {
    let acceptor = acceptor(identity)?;
    let router = router();
    loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the webhook could not accept a connection");
                    continue;
                }
            },
        };
        tokio::spawn(answer(stream, acceptor.clone(), router.clone()));
    }
}

fn acceptor(identity: &WebhookIdentity) -> Result<TlsAcceptor, WebhookError> {
    let unreadable = |error: rustls_pki_types::pem::Error| WebhookError::Unreadable(error.to_string());
    let certificate = CertificateDer::from_pem_slice(identity.server.certificate_pem.as_bytes()).map_err(unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(identity.server.key_pem.as_bytes()).map_err(unreadable)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn answer(stream: TcpStream, acceptor: TlsAcceptor, router: axum::Router) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = hyper_util::service::TowerToHyperService::new(router);
    let io = hyper_util::rt::TokioIo::new(stream);
    let builder = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
    if let Err(error) = builder.serve_connection(io, service).await {
        tracing::debug!(%error, "a webhook connection ended");
    }
}

/// A list of a few hundred large objects; what is larger is not what an API server sends.
const LARGEST_REVIEW: usize = 64 << 20;

fn router() -> axum::Router {
    let routes = axum::Router::new().route("/convert", post(convert)).route("/admit", post(admit));
    routes.layer(DefaultBodyLimit::max(LARGEST_REVIEW))
}

async fn convert(body: Bytes) -> Json<Value> {
    Json(review::conversion(&body))
}

async fn admit(body: Bytes) -> Json<Value> {
    Json(review::admission(&body))
}

/// The registration of the admission webhook.
pub fn admission_configuration(url: &str, ca_bundle: &str) -> Object {
    let rules: Vec<Value> = admission::admitted()
        .into_iter()
        .map(|(group, plural, version)| {
            json!({
                "apiGroups": [group], "apiVersions": [version], "resources": [plural],
                "operations": ["CREATE", "UPDATE"], "scope": "*",
            })
        })
        .collect();
    let mut configuration =
        Object::named("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "", "hangar");
    configuration.0["webhooks"] = json!([{
        "name": "admit.hangar.dev",
        "admissionReviewVersions": ["v1"],
        "clientConfig": { "url": format!("{url}/admit"), "caBundle": ca_bundle },
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "rules": rules,
    }]);
    configuration
}
