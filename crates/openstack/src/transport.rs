//! How requests leave: a boxed tower service, so that the same client talks to a socket or to a simulator in memory.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tower::service_fn;
use tower::util::BoxCloneSyncService;

use crate::{CloudConfig, ConfigError};

pub type BoxError = tower::BoxError;
pub type Transport = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, BoxError>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// No list we ask for comes near this; a reply that does is a broken proxy, not a cloud.
const LARGEST_REPLY: usize = 64 << 20;

/// The transport that a cloud's entry asks for.
pub fn transport_for(config: &CloudConfig) -> Result<Transport, ConfigError> {
    match config.verify() {
        true => http_transport(config.ca_pem()),
        false => transport(hangar_pki::unverified_client().map_err(|error| ConfigError::Tls(error.to_string()))?),
    }
}

/// A pooled HTTP(S) client. With `ca_pem` only that authority is trusted, without it the machine's own roots.
pub fn http_transport(ca_pem: Option<&[u8]>) -> Result<Transport, ConfigError> {
    transport(tls_config(ca_pem)?)
}

fn transport(tls: ClientConfig) -> Result<Transport, ConfigError> {
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(tcp);
    let client = Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(connector);
    Ok(BoxCloneSyncService::new(service_fn(move |request: Request<Bytes>| {
        let client = client.clone();
        async move {
            let reply = client.request(request.map(Full::new)).await?;
            let (head, body) = reply.into_parts();
            let body = Limited::new(body, LARGEST_REPLY).collect().await?.to_bytes();
            Ok::<_, BoxError>(Response::from_parts(head, body))
        }
    })))
}

fn tls_config(ca_pem: Option<&[u8]>) -> Result<ClientConfig, ConfigError> {
    use hyper_rustls::ConfigBuilderExt;
    let builder = ClientConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|error| ConfigError::Tls(error.to_string()))?;
    let Some(pem) = ca_pem else {
        // A machine without any roots still reaches clouds over http.
        return Ok(match builder.clone().with_native_roots() {
            Ok(builder) => builder.with_no_client_auth(),
            Err(_) => builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth(),
        });
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| ConfigError::BadCa(error.to_string()))?;
        roots.add(certificate).map_err(|error| ConfigError::BadCa(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(ConfigError::BadCa("no certificate in it".to_owned()));
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_that_holds_no_certificate_is_refused() {
        assert!(matches!(http_transport(Some(b"\n")), Err(ConfigError::BadCa(_))));
        let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(http_transport(Some(broken)), Err(ConfigError::BadCa(_))));
    }

    #[tokio::test]
    async fn without_a_ca_it_still_builds() {
        http_transport(None).unwrap();
    }
}
