//! How requests leave: a boxed tower service, so that the same client talks to a socket or to a simulator in memory.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::GaiResolver;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tower::service_fn;
use tower::util::BoxCloneSyncService;

use crate::hosts::CheckedResolver;
use crate::{CloudConfig, ConfigError, HostPolicy};

pub type BoxError = tower::BoxError;
pub type Transport = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, BoxError>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A page of a thousand servers has about 3 MiB; a reply that is larger than this is a broken proxy, not a cloud.
const LARGEST_REPLY: usize = 16 << 20;

/// The transport that a cloud's entry asks for, to hosts that the policy allows.
pub fn transport_for(config: &CloudConfig, policy: &HostPolicy) -> Result<Transport, ConfigError> {
    let tls = match config.verify() {
        true => tls_config(config.ca_pem())?,
        false => hangar_pki::unverified_client().map_err(|error| ConfigError::Tls(error.to_string()))?,
    };
    transport(tls, policy.clone())
}

/// A pooled HTTP(S) client for any host. With `ca_pem` only that authority is trusted, without it the machine's own roots.
pub fn http_transport(ca_pem: Option<&[u8]>) -> Result<Transport, ConfigError> {
    transport(tls_config(ca_pem)?, HostPolicy::everything())
}

fn transport(tls: ClientConfig, policy: HostPolicy) -> Result<Transport, ConfigError> {
    let mut tcp =
        HttpConnector::new_with_resolver(CheckedResolver { policy: policy.clone(), inner: GaiResolver::new() });
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
        // Addresses never come to the resolver. Every host does come here: that of auth_url and those of the catalog.
        let allowed = policy.check_host(request.uri().host().unwrap_or_default());
        async move {
            allowed?;
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

    /// What a host inside would be asked for: by address, and by a name that resolves to one.
    #[tokio::test]
    async fn no_connection_is_made_to_a_host_that_is_not_allowed() {
        use tower::ServiceExt as _;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let yaml = "clouds: {openstack: {auth: {auth_url: 'http://k/v3', token: t, project_id: p}}}";
        let config = CloudConfig::parse(yaml.as_bytes(), "openstack", None, None).unwrap();
        let transport = transport_for(&config, &HostPolicy::shared::<&str>(&[], &[])).unwrap();
        // The second is 127.0.0.1 to the system's resolver, and no address to others.
        for host in ["127.0.0.1", "2130706433", "localhost"] {
            let request = Request::get(format!("http://{host}:{port}/")).body(Bytes::new()).unwrap();
            transport.clone().oneshot(request).await.unwrap_err();
        }
        let accepted = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
        assert!(accepted.is_err(), "somebody connected");
    }

    #[tokio::test]
    async fn without_a_ca_it_still_builds() {
        http_transport(None).unwrap();
    }
}
