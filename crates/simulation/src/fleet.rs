//! What a fleet of clusters needs beside a management cluster that is real: pods that are faked, tenants, nodes and a cloud in memory.
//!
//! Flows: Deployments and Services of the real API server -> a mirror in memory, in which tenants look up whether their pods run -> a second later their status, patched
//! through the real API. Holds: the stand-in and the controllers can run on threads of their own, so that what each takes can be told apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt as _;
use hangar_engine::runtime::Ended;
use hangar_kubesim::{Clock, KubeApi, KubeApiOptions};
use hangar_pki::SystemKeys;
use hangar_simulator::Simulator;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::datastores::MemoryDatastores;
use crate::kubernetes::{DELAY, LoadBalancers, status};
use crate::manifests;
use crate::meter::Meter;
use crate::tenants::Tenants;
use crate::wiring::Parts;

pub struct Fleet {
    pub cloud: Simulator,
    /// What the cloud and the tenants take of the controllers' thread.
    pub meter: Meter,
    /// Requests of the stand-in.
    pub patches: Arc<AtomicU64>,
    mirror: KubeApi,
    balancers: LoadBalancers,
    tenants: Tenants,
    datastores: Arc<MemoryDatastores>,
    clock: Clock,
}

impl Default for Fleet {
    fn default() -> Self {
        let (meter, clock): (_, Clock) = (Meter::on(), Arc::new(jiff::Timestamp::now));
        let mirror = KubeApi::new(KubeApiOptions { keep_requests: false, ..KubeApiOptions::default() });
        let private_cidr = "10.6.0.0/16".parse().unwrap();
        let options = hangar_simulator::Options { private_cidr, ..hangar_simulator::Options::default() };
        let (cloud, balancers) = (Simulator::new(options).unwrap(), LoadBalancers::default());
        let tenants = Tenants::new(mirror.clone(), balancers.clone(), clock.clone(), meter.clone());
        cloud.set_guests(Arc::new(tenants.clone()));
        Self { cloud, meter, patches: Arc::default(), mirror, balancers, tenants, datastores: Arc::default(), clock }
    }
}

impl Fleet {
    /// The documents of a cluster with one worker.
    pub fn manifests(&self, name: &str) -> Vec<Value> {
        manifests::cluster(name, &self.cloud.clouds_yaml("http://cloud.test"))
    }

    pub fn data_store(&self) -> Value {
        manifests::data_store((self.clock)())
    }

    /// Requests to tenants so far.
    pub fn tenant_requests(&self) -> u64 {
        self.tenants.apis().iter().map(KubeApi::request_count).sum()
    }

    /// The controllers, against the real API.
    pub async fn control(&self, client: Client, shutdown: CancellationToken) -> Ended {
        let parts = Parts {
            client,
            transport: self.cloud.transport(),
            tenants: self.tenants.clone(),
            datastores: self.datastores.clone(),
            clock: self.clock.clone(),
            keys: Arc::new(SystemKeys),
            meter: self.meter.clone(),
        };
        parts.run(None, shutdown).await
    }

    /// Pods and load balancers for whoever asks for them.
    pub async fn stand_in(&self, client: Client) {
        tokio::join!(self.follow::<Deployment>(client.clone()), self.follow::<Service>(client));
    }

    async fn follow<K>(&self, client: Client)
    where
        K: kube::Resource<DynamicType = ()> + 'static,
    {
        let resource = ApiResource::erase::<K>(&());
        let config = watcher::Config::default().labels("cluster.x-k8s.io/cluster-name");
        let watched = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let mut changes = Box::pin(watcher(watched, config).default_backoff().applied_objects());
        while let Some(change) = changes.next().await {
            let Ok(object) = change else { continue };
            let (client, resource) = (client.clone(), resource.clone());
            let (mirror, balancers, count) = (self.mirror.clone(), self.balancers.clone(), self.patches.clone());
            tokio::spawn(async move {
                let mut object = serde_json::to_value(object).unwrap();
                object["apiVersion"] = resource.api_version.clone().into();
                object["kind"] = resource.kind.clone().into();
                reflect(&mirror, &object);
                tokio::time::sleep(DELAY).await;
                settle(client, &resource, &balancers, &count, &object).await;
            });
        }
    }
}

/// What tenants ask for.
fn reflect(mirror: &KubeApi, object: &Value) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let group = text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
    let (kind, namespace, name) = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
    let same = |stored: &mut Value| stored["status"] = object["status"].clone();
    if !mirror.edit(group, kind, namespace, name, same) {
        mirror.put(object.clone());
    }
}

async fn settle(client: Client, resource: &ApiResource, balancers: &LoadBalancers, count: &AtomicU64, object: &Value) {
    let Some(status) = status(balancers, object).filter(|status| !contains(&object["status"], status)) else { return };
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let api = Api::<DynamicObject>::namespaced_with(client, text("/metadata/namespace"), resource);
    let patch = Patch::Merge(json!({ "status": status }));
    count.fetch_add(1, Ordering::Relaxed);
    // Whatever is gone by then needs none.
    drop(api.patch_status(text("/metadata/name"), &PatchParams::default(), &patch).await);
}

/// Whether these fields are there already.
fn contains(there: &Value, wanted: &Value) -> bool {
    wanted.as_object().is_some_and(|wanted| {
        wanted.iter().all(|(name, value)| name == "conditions" || there.get(name).is_some_and(|there| there == value))
    })
}
