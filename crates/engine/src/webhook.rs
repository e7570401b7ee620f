//! The webhook that the API server calls: conversion and admission, over TLS with a certificate of our own.
//!
//! Holds: everything that is decided here is decided by `hangar-api`; this is only the wire. Whoever reaches the port may send anything: connections, sizes and
//! times are limited, above what an API server needs.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::{Object, admission, review};
use hangar_pki::{Authority, CertifiedKey, Keys, Leaf, PkiError};
use jiff::Timestamp;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

const HANDSHAKE: Duration = Duration::from_secs(10);
/// Longer than API servers keep a connection that they do not use (90 s), so that it is never we who close it.
const HEADERS: Duration = Duration::from_secs(120);
/// API servers give up after at most 30 s.
const BODY: Duration = Duration::from_secs(30);
/// An object and the one before it, each as large as etcd takes them (1.5 MiB), and what escaping adds.
const LARGEST_ADMISSION: usize = 8 << 20;
/// A list is converted in one review, however long it is.
const LARGEST_CONVERSION: usize = 64 << 20;
/// An API server uses a few dozen.
const MOST_CONNECTIONS: usize = 512;
/// When no connection can be accepted, which is when files have run out: others have to close theirs first.
const PAUSE: Duration = Duration::from_millis(100);

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

/// Serves until told to stop; what is said to others on the same port goes along.
pub async fn serve(
    listener: TcpListener,
    mut identity: watch::Receiver<WebhookIdentity>,
    others: axum::Router,
    shutdown: CancellationToken,
) -> Result<(), WebhookError> {
    let mut current = acceptor(&identity.borrow_and_update())?;
    let router = router().merge(others);
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let place = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            place = places.clone().acquire_owned() => place,
        };
        let stream = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the webhook could not accept a connection");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        if identity.has_changed().unwrap_or(false) {
            match acceptor(&identity.borrow_and_update()) {
                Ok(renewed) => current = renewed,
                Err(error) => tracing::warn!(%error, "the webhook keeps its certificate"),
            }
        }
        let answering = answer(stream, current.clone(), router.clone());
        tokio::spawn(async move {
            answering.await;
            drop(place);
        });
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
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    serve_connection(stream, router).await;
}

/// HTTP/1.1, which is what an API server speaks without ALPN.
async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: axum::Router) {
    let service = hyper_util::service::TowerToHyperService::new(router);
    let io = hyper_util::rt::TokioIo::new(stream);
    let mut builder = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new()).http1_only();
    builder.http1().timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(HEADERS);
    if let Err(error) = builder.serve_connection(io, service).await {
        tracing::debug!(%error, "a webhook connection ended");
    }
}

fn router() -> axum::Router {
    axum::Router::new().route("/convert", post(convert)).route("/admit", post(admit))
}

async fn convert(request: Request) -> Response {
    answered(request, LARGEST_CONVERSION, review::conversion).await
}

async fn admit(request: Request) -> Response {
    answered(request, LARGEST_ADMISSION, review::admission).await
}

async fn answered(request: Request, largest: usize, review: fn(&[u8]) -> Value) -> Response {
    let said = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|length| length > largest as u64) {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    }
    match tokio::time::timeout(BODY, axum::body::to_bytes(request.into_body(), largest)).await {
        Ok(Ok(body)) => Json(review(&body)).into_response(),
        Ok(Err(_)) => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// What a client that sends this and then waits gets.
    async fn sent(text: &str) -> String {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        tokio::spawn(serve_connection(server, router()));
        client.write_all(text.as_bytes()).await.unwrap();
        let mut answer = vec![];
        tokio::time::timeout(Duration::from_secs(600), client.read_to_end(&mut answer))
            .await
            .expect("still open")
            .unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_go_on_is_not_waited_for() {
        assert_eq!(sent("").await, "");
        assert_eq!(sent("POST /admit HTTP/1.1\r\nHost: x\r\n").await, "");
        let body = sent("POST /admit HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n{").await;
        assert!(body.starts_with("HTTP/1.1 408"), "{body}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_read_than_an_api_server_sends() {
        for (path, length) in [("admit", LARGEST_ADMISSION), ("convert", LARGEST_CONVERSION)] {
            let head = format!(
                "POST /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                length + 1
            );
            let answer = sent(&head).await;
            assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        }
        let good = sent("POST /admit HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}").await;
        assert!(good.starts_with("HTTP/1.1 200"), "{good}");
    }

    /// What is shown to somebody who connects now.
    async fn shown(address: std::net::SocketAddr) -> CertificateDer<'static> {
        let connector = tokio_rustls::TlsConnector::from(Arc::new(hangar_pki::unverified_client().unwrap()));
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = connector.connect(address.ip().into(), stream).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    }

    #[tokio::test]
    async fn a_renewed_certificate_is_shown_from_the_next_connection_on() {
        let made = || WebhookIdentity::create(&hangar_pki::SystemKeys, "127.0.0.1", Timestamp::now()).unwrap();
        let of = |identity: &WebhookIdentity| {
            CertificateDer::from_pem_slice(identity.server.certificate_pem.as_bytes()).unwrap().into_owned()
        };
        let (first, second) = (made(), made());
        let (before, after) = (of(&first), of(&second));
        let (renewed, identity) = watch::channel(first);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, identity, axum::Router::new(), shutdown.clone()));
        assert_eq!(shown(address).await, before);
        renewed.send_replace(second);
        assert_eq!(shown(address).await, after);
        // One that cannot be used changes nothing.
        let broken = CertifiedKey { certificate_pem: "nothing".into(), key_pem: "nothing".into() };
        renewed.send_replace(WebhookIdentity { ca_pem: String::new(), server: broken });
        assert_eq!(shown(address).await, after);
        shutdown.cancel();
        serving.await.unwrap().unwrap();
    }
}
