//! The rest of Kubernetes: Deployments get their pods and LoadBalancers their address, a second after they were asked for.
//!
//! Flows: a write to a Deployment or Service -> a queue -> a second later its status. Holds: the work follows the number of writes, not the
//! number of objects.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hangar_api::ObjectKey;
use hangar_kubesim::KubeApi;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::meter::Meter;

const DELAY: Duration = Duration::from_secs(1);

/// Which Service has which address; clones are the same.
#[derive(Clone, Default)]
pub struct LoadBalancers(Arc<Mutex<BTreeMap<String, ObjectKey>>>);

impl LoadBalancers {
    /// The Service with this address.
    pub fn service(&self, address: &str) -> Option<ObjectKey> {
        self.0.lock().unwrap().get(address).cloned()
    }

    /// An address of 198.18.0.0/15, which is set aside for tests.
    fn assign(&self, service: &ObjectKey) -> String {
        let mut addresses = self.0.lock().unwrap();
        let number = addresses.len() + 1;
        let address = format!("198.{}.{}.{}", 18 + number / 62_500, number / 250 % 250, number % 250 + 1);
        addresses.insert(address.clone(), service.clone());
        address
    }
}

/// Runs until it is aborted.
pub fn start(api: &KubeApi, meter: Meter) -> (LoadBalancers, JoinHandle<()>) {
    let (asked, mut changes) = mpsc::unbounded_channel::<(Instant, ObjectKey)>();
    api.observe(Arc::new(move |write| {
        let ours = [("apps", "Deployment"), ("", "Service")].contains(&(&*write.key.group, &*write.key.kind));
        if ours && write.after.is_some() {
            drop(asked.send((Instant::now() + DELAY, write.key.clone())));
        }
    }));
    let (api, balancers) = (api.clone(), LoadBalancers::default());
    let known = balancers.clone();
    let task = tokio::spawn(async move {
        while let Some((due, key)) = changes.recv().await {
            tokio::time::sleep_until(due).await;
            meter.measure(|| settle(&api, &balancers, &key));
        }
    });
    (known, task)
}

fn settle(api: &KubeApi, balancers: &LoadBalancers, key: &ObjectKey) {
    let Some(object) = api.get(&key.group, &key.kind, &key.namespace, &key.name) else { return };
    let (field, status) = match key.kind.as_str() {
        "Deployment" => ("/status", pods(&object)),
        _ if object["spec"]["type"] == "LoadBalancer" && object["status"]["loadBalancer"].is_null() => {
            ("/status", json!({ "loadBalancer": { "ingress": [{ "ip": balancers.assign(key) }] } }))
        }
        _ => return,
    };
    if object.pointer(field) != Some(&status) {
        api.edit(&key.group, &key.kind, &key.namespace, &key.name, |object| object["status"] = status);
    }
}

fn pods(deployment: &Value) -> Value {
    let replicas = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    json!({
        "observedGeneration": deployment["metadata"]["generation"], "replicas": replicas, "updatedReplicas": replicas,
        "readyReplicas": replicas, "availableReplicas": replicas,
        "conditions": [{ "type": "Available", "status": "True" }],
    })
}
