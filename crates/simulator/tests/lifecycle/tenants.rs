//! The clusters that are made: a Kubernetes API each, up as long as its pods are, and guests that join it with their token.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use hangar_api::yaml;
use hangar_engine::tenants::Connector;
use hangar_simulator::kube_api::{ApiCall, Clock, Fault, KubeApi, KubeApiOptions};
use hangar_simulator::{Guest, GuestDriver};
use serde_json::{Value, json};

type Faults = Arc<dyn Fn(&ApiCall) -> Fault + Send + Sync>;

/// Every tenant by the address of its API; clones are the same.
#[derive(Clone)]
pub struct Tenants(Arc<Inner>);

struct Inner {
    management: KubeApi,
    clock: Clock,
    apis: Mutex<BTreeMap<String, KubeApi>>,
    /// Guests that have not been shut down, by server.
    running: Mutex<BTreeMap<String, String>>,
    faults: Mutex<Option<Faults>>,
}

impl Tenants {
    pub fn new(management: KubeApi, clock: Clock) -> Self {
        Self(Arc::new(Inner {
            management,
            clock,
            apis: Mutex::default(),
            running: Mutex::default(),
            faults: Mutex::default(),
        }))
    }

    pub fn set_faults(&self, faults: Option<Faults>) {
        *self.0.faults.lock().unwrap() = faults;
    }

    /// The API behind an address; its data outlives its pods.
    fn api(&self, host: &str) -> KubeApi {
        let mut apis = self.0.apis.lock().unwrap();
        if let Some(api) = apis.get(host) {
            return api.clone();
        }
        let options = KubeApiOptions {
            clock: self.0.clock.clone(),
            seed: 1000 + apis.len() as u64,
            version: "v1.28.10".into(),
            ..KubeApiOptions::default()
        };
        let api = KubeApi::new(options);
        let (world, host_name) = (self.clone(), host.to_owned());
        api.set_fault_hook(Arc::new(move |call| {
            if !is_up(&world.0.management, &host_name) {
                return Fault::Before(503);
            }
            let faults = world.0.faults.lock().unwrap().clone();
            faults.map_or(Fault::None, |faults| faults(call))
        }));
        apis.insert(host.to_owned(), api.clone());
        api
    }

    fn is_running(&self, server: &str) -> bool {
        self.0.running.lock().unwrap().contains_key(server)
    }

    /// What `kubeadm join` and the kubelet do, with the cloud controller's part.
    fn join(&self, guest: &Guest) -> Result<(), String> {
        let text = String::from_utf8_lossy(&guest.user_data);
        let config = yaml::document(&text).map_err(|error| error.to_string())?;
        let files = config["write_files"].as_array().into_iter().flatten();
        let join = files
            .filter_map(|file| yaml::document(file["content"].as_str()?).ok())
            .find(|file| file["kind"] == "JoinConfiguration");
        let join = join.ok_or("the user-data holds no JoinConfiguration")?;
        let discovery = &join["discovery"]["bootstrapToken"];
        let endpoint = discovery["apiServerEndpoint"].as_str().unwrap_or_default();
        let host = endpoint.split(':').next().unwrap_or_default();
        if !is_up(&self.0.management, host) {
            return Err(format!("{endpoint} does not answer"));
        }
        let api = self.api(host);
        let token = discovery["token"].as_str().unwrap_or_default().split('.').next().unwrap_or_default();
        if api.object("", "Secret", "kube-system", &format!("bootstrap-token-{token}")).is_none() {
            return Err(format!("token {token} is not known"));
        }
        api.put(node(guest, &join["nodeRegistration"]["taints"]));
        Ok(())
    }
}

/// Whether the pods behind a Service with this address run.
fn is_up(management: &KubeApi, host: &str) -> bool {
    let mut services = management.list("", "Service").into_iter();
    let service = services.find(|service| service["status"]["loadBalancer"]["ingress"][0]["ip"] == host);
    let Some(service) = service else { return false };
    let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default().to_owned();
    let pods = management.object("apps", "Deployment", &text("namespace"), &text("name"));
    pods.is_some_and(|pods| pods["status"]["availableReplicas"].as_u64().unwrap_or(0) > 0)
}

fn node(guest: &Guest, taints: &Value) -> Value {
    let address = guest.addresses.first().cloned().unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": guest.name },
        "spec": { "providerID": provider_id(&guest.server_id), "taints": taints },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": address }],
            "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
            "nodeInfo": { "kubeletVersion": "v1.28.10" },
        },
    })
}

fn provider_id(server: &str) -> String {
    format!("openstack:///{server}")
}

#[async_trait]
impl Connector for Tenants {
    async fn connect(&self, kubeconfig: &str) -> Result<kube::Client, String> {
        let config = yaml::document(kubeconfig).map_err(|error| error.to_string())?;
        let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default();
        let host = server.trim_start_matches("https://").split(':').next().unwrap_or_default();
        Ok(self.api(host).client())
    }
}

impl GuestDriver for Tenants {
    fn boot(&self, guest: Guest) {
        self.0.running.lock().unwrap().insert(guest.server_id.clone(), guest.name.clone());
        let tenants = self.clone();
        tokio::spawn(async move {
            while tenants.is_running(&guest.server_id) {
                match tenants.join(&guest) {
                    Ok(()) => return,
                    Err(why) => guest.console.line(why),
                }
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
    }

    fn shut_down(&self, server_id: &str) {
        self.0.running.lock().unwrap().remove(server_id);
        let apis: Vec<KubeApi> = self.0.apis.lock().unwrap().values().cloned().collect();
        for api in apis {
            for node in api.list("", "Node") {
                if node["spec"]["providerID"] == provider_id(server_id) {
                    api.delete("", "Node", "", node["metadata"]["name"].as_str().unwrap_or_default());
                }
            }
        }
    }
}
