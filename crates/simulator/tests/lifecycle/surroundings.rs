//! What else there is around the controllers: the rest of Kubernetes, a datastore, keys.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hangar_controllers::datastores::{DatastoreAccess, Datastores};
use hangar_pki::{Keys, PkiError, SystemKeys};
use hangar_planner::step::DatastoreCall;
use hangar_simulator::KubeApi;
use serde_json::json;

/// Deployments get their pods and LoadBalancers their address, a second after they were asked for.
pub async fn rest_of_kubernetes(api: KubeApi) {
    let mut changes = api.changes();
    let mut addresses = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for deployment in api.list("apps", "Deployment") {
            run_pods(&api, &deployment);
        }
        for service in api.list("", "Service") {
            let waits = service["spec"]["type"] == "LoadBalancer" && service["status"]["loadBalancer"].is_null();
            if waits {
                addresses += 1;
                let ingress = json!({ "ingress": [{ "ip": format!("203.0.113.{addresses}") }] });
                let (namespace, name) = place(&service);
                api.edit("", "Service", &namespace, &name, |service| service["status"]["loadBalancer"] = ingress);
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn run_pods(api: &KubeApi, deployment: &serde_json::Value) {
    let replicas = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    let status = json!({
        "observedGeneration": deployment["metadata"]["generation"], "replicas": replicas, "updatedReplicas": replicas,
        "readyReplicas": replicas, "availableReplicas": replicas,
        "conditions": [{ "type": "Available", "status": "True" }],
    });
    if deployment["status"] != status {
        let (namespace, name) = place(deployment);
        api.edit("apps", "Deployment", &namespace, &name, |deployment| deployment["status"] = status);
    }
}

fn place(object: &serde_json::Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// Users of an etcd that is not there.
#[derive(Default)]
pub struct MemoryDatastores(Mutex<BTreeMap<String, (String, String)>>);

impl MemoryDatastores {
    pub fn tenants(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

#[async_trait]
impl Datastores for MemoryDatastores {
    async fn call(&self, _access: &DatastoreAccess, call: &DatastoreCall) -> Result<(), String> {
        let mut tenants = self.0.lock().unwrap();
        match call {
            DatastoreCall::Admit { user, role, prefix } => {
                tenants.insert(user.clone(), (role.clone(), prefix.clone()));
            }
            DatastoreCall::Evict { user, .. } => {
                tenants.remove(user);
            }
        }
        Ok(())
    }
}

/// Random bytes that follow from a seed; keys that do not, since nothing is named after them.
pub struct SeededKeys(AtomicU64);

impl SeededKeys {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Keys for SeededKeys {
    fn key_pair(&self) -> Result<rcgen::KeyPair, PkiError> {
        SystemKeys.key_pair()
    }

    fn fill(&self, bytes: &mut [u8]) -> Result<(), PkiError> {
        for byte in bytes {
            let at = self.0.fetch_add(1, Ordering::Relaxed);
            *byte = (mix(at) & 0xff) as u8;
        }
        Ok(())
    }
}

/// splitmix64: a good mixture of a counter and a seed.
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
