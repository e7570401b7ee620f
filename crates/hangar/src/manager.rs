//! The controllers as one program has them, on the local plane and in a management cluster alike.

use std::sync::Arc;

use async_trait::async_trait;
use hangar_controllers::data_stores::EtcdDataStores;
use hangar_controllers::{Context, Site, Surroundings};
use hangar_engine::runtime::{Controllers, Engine};
use hangar_engine::system_clock;
use hangar_engine::tenants::Connector;
use hangar_openstack::HostPolicy;
use hangar_pki::SystemKeys;
use kube::Client;

/// In what two such programs differ.
pub struct Parts {
    pub client: Client,
    pub site: Site,
    /// Where clouds may be.
    pub hosts: HostPolicy,
    pub workers: usize,
    pub controllers: Controllers<Context>,
}

/// Ready to run; it has asked for nothing yet.
pub fn engine(parts: Parts) -> Engine<Context> {
    let Parts { client, site, hosts, workers, controllers } = parts;
    hangar_controllers::engine(Surroundings {
        client,
        clock: system_clock(),
        site,
        connector: Arc::new(RealClusters),
        transports: hangar_controllers::clouds::over_network(hosts),
        data_stores: Arc::new(EtcdDataStores::default()),
        keys: Arc::new(SystemKeys),
        hook: None,
        workers,
        controllers,
    })
}

/// Connects to tenants over the network.
struct RealClusters;

#[async_trait]
impl Connector for RealClusters {
    async fn connect(&self, kubeconfig: &str) -> Result<Client, String> {
        crate::management::client(kubeconfig).await.map_err(|error| format!("{error:#}"))
    }
}
