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

/// From the request to the status.
pub(crate) const DELAY: Duration = Duration::from_secs(1);

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
        // Whoever looks late must not give another one.
        if let Some((address, _)) = addresses.iter().find(|(_, of)| *of == service) {
            return address.clone();
        }
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
    let Some(status) = status(balancers, &object).filter(|status| object["status"] != *status) else { return };
    api.edit(&key.group, &key.kind, &key.namespace, &key.name, |object| object["status"] = status);
}

/// What Kubernetes would say of a Deployment or a Service after a while.
pub(crate) fn status(balancers: &LoadBalancers, object: &Value) -> Option<Value> {
    let wants_address =
        || object["spec"]["type"] == "LoadBalancer" && object["status"]["loadBalancer"]["ingress"].is_null();
    match object["kind"].as_str()? {
        "Deployment" => Some(pods(object)),
        "Service" if wants_address() => {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let key = ObjectKey::new("", "Service", text("/metadata/namespace"), text("/metadata/name"));
            Some(json!({ "loadBalancer": { "ingress": [{ "ip": balancers.assign(&key) }] } }))
        }
        _ => None,
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
