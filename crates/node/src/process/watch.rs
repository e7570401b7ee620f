//! One watch per kind; stores that hold the latest, and a bell for each kind that rings when something changed.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use kube::api::Api;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::NodeError;

/// A store and a counter that goes up with every change.
pub(super) struct Kind<K: Resource<DynamicType = ()> + Clone + 'static> {
    pub store: Store<K>,
    changed: watch::Receiver<u64>,
}

impl<K> Kind<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    fn start(api: Api<K>, config: watcher::Config, tasks: &mut JoinSet<()>) -> Self {
        let (store, writer) = reflector::store();
        let (notify, changed) = watch::channel(0);
        let stream = watcher(api, config).default_backoff().modify(|object| object.managed_fields_mut().clear());
        let stream = reflector(writer, stream);
        tasks.spawn(async move {
            let mut stream = std::pin::pin!(stream);
            while let Some(event) = stream.next().await {
                match event {
                    Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
                    Ok(_) => notify.send_modify(|count| *count += 1),
                    Err(error) => tracing::debug!(%error, "a watch failed and is restarted"),
                }
            }
        });
        Self { store, changed }
    }

    /// Rings from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        let mut changes = self.changed.clone();
        changes.mark_unchanged();
        changes
    }

    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }
}

impl<K> Kind<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope> + Clone + 'static,
    ObjectRef<K>: Hash,
{
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }
}

pub(super) struct Watched {
    pub pods: Kind<Pod>,
    pub services: Kind<Service>,
    pub secrets: Kind<Secret>,
    pub config_maps: Kind<ConfigMap>,
    pub claims: Kind<PersistentVolumeClaim>,
    pub volumes: Kind<PersistentVolume>,
    pub namespaces: Kind<Namespace>,
    pub ingresses: Kind<Ingress>,
    pub ingress_classes: Kind<IngressClass>,
}

impl Watched {
    pub fn start(client: &Client, node: &str, tasks: &mut JoinSet<()>) -> Self {
        let all = watcher::Config::default;
        let own = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        Self {
            pods: Kind::start(Api::all(client.clone()), own, tasks),
            services: Kind::start(Api::all(client.clone()), all(), tasks),
            secrets: Kind::start(Api::all(client.clone()), all(), tasks),
            config_maps: Kind::start(Api::all(client.clone()), all(), tasks),
            claims: Kind::start(Api::all(client.clone()), all(), tasks),
            volumes: Kind::start(Api::all(client.clone()), all(), tasks),
            namespaces: Kind::start(Api::all(client.clone()), all(), tasks),
            ingresses: Kind::start(Api::all(client.clone()), all(), tasks),
            ingress_classes: Kind::start(Api::all(client.clone()), all(), tasks),
        }
    }

    /// Nothing is decided before everything was listed once.
    pub async fn until_ready(&self) -> Result<(), NodeError> {
        let ended = |_| NodeError::WatchEnded;
        self.pods.store.wait_until_ready().await.map_err(ended)?;
        self.services.store.wait_until_ready().await.map_err(ended)?;
        self.secrets.store.wait_until_ready().await.map_err(ended)?;
        self.config_maps.store.wait_until_ready().await.map_err(ended)?;
        self.claims.store.wait_until_ready().await.map_err(ended)?;
        self.volumes.store.wait_until_ready().await.map_err(ended)?;
        self.namespaces.store.wait_until_ready().await.map_err(ended)?;
        self.ingresses.store.wait_until_ready().await.map_err(ended)?;
        self.ingress_classes.store.wait_until_ready().await.map_err(ended)
    }
}
