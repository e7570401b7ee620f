//! The same cloud over HTTPS.

use std::time::Duration;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::Simulator;

const HANDSHAKE: Duration = Duration::from_secs(10);
/// After a connection that could not be accepted, most likely because files have run out.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
const WAITING: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the certificate of the simulated cloud cannot be read")]
    Pem(#[source] rustls_pki_types::pem::Error),
    #[error("the certificate of the simulated cloud cannot be used")]
    Certificate(#[source] rustls::Error),
}

/// A certificate and its key, ready to serve with.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    pub fn new(certificates_pem: &str, key_pem: &str) -> Result<Self, TlsError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates_pem.as_bytes()).collect();
        let certificates = certificates.map_err(TlsError::Pem)?;
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(TlsError::Pem)?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let config = ServerConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Certificate)?
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .map_err(TlsError::Certificate)?;
        Ok(Self(TlsAcceptor::from(std::sync::Arc::new(config))))
    }
}

impl Simulator {
    /// Until `shutdown`; then the state is saved.
    pub async fn serve_tls(&self, listener: TcpListener, tls: Tls, shutdown: CancellationToken) -> std::io::Result<()> {
        self.resume();
        let router = self.router_at("https");
        let address = listener.local_addr()?;
        let (sender, connections) = mpsc::channel(WAITING);
        let accepting = tokio::spawn(accept(listener, tls, sender));
        let secured = Secured { connections, address };
        let served = axum::serve(secured, router).with_graceful_shutdown(shutdown.cancelled_owned()).await;
        accepting.abort();
        self.close()?;
        served
    }
}

type Secure = (TlsStream<TcpStream>, std::net::SocketAddr);

/// Handshakes are made beside each other: one client that says nothing must not keep others out.
async fn accept(listener: TcpListener, tls: Tls, sender: mpsc::Sender<Secure>) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (acceptor, sender) = (tls.0.clone(), sender.clone());
        tokio::spawn(async move {
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                // Nobody is left to take it once serving has ended.
                let _ = sender.send((stream, peer)).await;
            }
        });
    }
}

struct Secured {
    connections: mpsc::Receiver<Secure>,
    address: std::net::SocketAddr,
}

impl axum::serve::Listener for Secured {
    type Io = TlsStream<TcpStream>;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(secure) => secure,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        Ok(self.address)
    }
}
