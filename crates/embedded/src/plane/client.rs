//! Clients of the plane's API server.
//!
//! Holds: a client that outlives its certificate is told of the next one: requests go through whatever client was made last, and connections that
//! were made with an older certificate end with the requests that use them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use kube::client::Body;

use super::PlaneError;

/// A client whose kubeconfig may be written anew while it is used.
#[derive(Clone)]
pub struct RenewableClient {
    kubeconfig: PathBuf,
    current: Arc<RwLock<kube::Client>>,
}

impl RenewableClient {
    pub async fn open(kubeconfig: &Path) -> Result<Self, PlaneError> {
        let current = from_file(kubeconfig).await?;
        Ok(Self { kubeconfig: kubeconfig.to_owned(), current: Arc::new(RwLock::new(current)) })
    }

    /// For everybody who keeps one.
    pub fn client(&self) -> kube::Client {
        let current = self.current.clone();
        let namespace = self.current().default_namespace().to_owned();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let client = current.read().unwrap_or_else(PoisonError::into_inner).clone();
            async move { client.send(request).await }
        });
        kube::Client::new(service, namespace)
    }

    /// From the next request on, what the file says counts.
    pub async fn renew(&self) -> Result<(), PlaneError> {
        let renewed = from_file(&self.kubeconfig).await?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = renewed;
        Ok(())
    }

    fn current(&self) -> kube::Client {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) async fn from_file(kubeconfig: &Path) -> Result<kube::Client, PlaneError> {
    let read = kube::config::Kubeconfig::read_from(kubeconfig);
    let made = match read {
        Ok(read) => from_config(read).await,
        Err(error) => Err(error.into()),
    };
    made.map_err(|source| PlaneError::Client { path: kubeconfig.to_owned(), source })
}

pub(super) async fn from_config(
    kubeconfig: kube::config::Kubeconfig,
) -> Result<kube::Client, Box<dyn std::error::Error + Send + Sync>> {
    // kube builds its TLS configuration from the process's default provider; the first to set it wins and all set the same.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
