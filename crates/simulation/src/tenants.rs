//! The clusters that are made: a Kubernetes API each, up as long as its pods are, and guests that join it with their token.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::yaml;
use hangar_engine::tenants::Connector;
use hangar_kubesim::{ApiCall, Clock, Fault, KubeApi, KubeApiOptions};
use hangar_pki::SystemKeys;
use hangar_planner::hosted::tenant::BOOTSTRAPPERS;
use hangar_simulator::{Guest, GuestDriver};
use serde_json::{Value, json};

use crate::kubernetes::LoadBalancers;
use crate::laws::HANGAR;
use crate::meter::Meter;

const UNDECIDED: &str = "has not been decided on";

type Faults = Arc<dyn Fn(&ApiCall) -> Fault + Send + Sync>;

/// Every tenant by the address of its API; clones are the same.
#[derive(Clone)]
pub struct Tenants(Arc<Inner>);

struct Inner {
    management: KubeApi,
    balancers: LoadBalancers,
    clock: Clock,
    meter: Meter,
    apis: Mutex<BTreeMap<String, KubeApi>>,
    /// Guests that have not been shut down, by server; with the tenant and the Node once they have joined.
    running: Mutex<BTreeMap<String, Option<(String, String)>>>,
    faults: Mutex<Option<Faults>>,
}

impl Tenants {
    pub(crate) fn new(management: KubeApi, balancers: LoadBalancers, clock: Clock, meter: Meter) -> Self {
        Self(Arc::new(Inner {
            management,
            balancers,
            clock,
            meter,
            apis: Mutex::default(),
            running: Mutex::default(),
            faults: Mutex::default(),
        }))
    }

    pub fn set_faults(&self, faults: Option<Faults>) {
        *self.0.faults.lock().unwrap() = faults;
    }

    /// Their hooks hold them.
    pub(crate) fn let_go(&self) {
        self.0.apis.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
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
            keep_requests: false,
            ..KubeApiOptions::default()
        };
        let api = KubeApi::new(options);
        let (world, host_name) = (self.clone(), host.to_owned());
        api.set_fault_hook(Arc::new(move |call| {
            if !world.is_up(&host_name) {
                return Fault::Before(503);
            }
            let faults = world.0.faults.lock().unwrap().clone();
            faults.map_or(Fault::None, |faults| faults(call))
        }));
        apis.insert(host.to_owned(), api.clone());
        api
    }

    /// Every tenant that somebody has called.
    pub fn apis(&self) -> Vec<KubeApi> {
        self.0.apis.lock().unwrap().values().cloned().collect()
    }

    /// Pods that would be lost with a Node: neither finished, nor of a DaemonSet, nor marked to be left alone.
    pub fn evictable(&self, node: &str) -> Vec<String> {
        let pods = self.apis().into_iter().flat_map(|api| api.list("", "Pod"));
        let here = pods.filter(|pod| pod["spec"]["nodeName"] == node && is_evictable(pod));
        here.map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The kubelet of a Node stops or comes back, as the tenant's node controller tells it a while later.
    pub fn kubelet_answers(&self, node: &str, answers: bool) {
        let since = jiff::Timestamp::from_second((self.0.clock)().as_second()).unwrap().to_string();
        for api in self.apis() {
            api.edit("", "Node", "", node, |node| {
                let status = if answers { "True" } else { "Unknown" };
                node["status"]["conditions"] =
                    json!([{ "type": "Ready", "status": status, "lastTransitionTime": since }]);
            });
        }
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
        if !self.is_up(host) {
            return Err(format!("{endpoint} does not answer"));
        }
        let api = self.api(host);
        let token = discovery["token"].as_str().unwrap_or_default().split('.').next().unwrap_or_default();
        let Some(secret) = api.object("", "Secret", "kube-system", &format!("bootstrap-token-{token}")) else {
            return Err(format!("token {token} is not known"));
        };
        if secret["data"]["auth-extra-groups"] == STANDARD.encode(BOOTSTRAPPERS) {
            certificate(&api, guest, token)?;
        }
        api.put(node(guest, &join["nodeRegistration"]["taints"]));
        if let Some(joined) = self.0.running.lock().unwrap().get_mut(&guest.server_id) {
            *joined = Some((host.to_owned(), guest.name.clone()));
        }
        Ok(())
    }

    /// Whether the pods behind a Service with this address run.
    fn is_up(&self, host: &str) -> bool {
        let management = &self.0.management;
        let Some(key) = self.0.balancers.service(host) else { return false };
        let Some(service) = management.get("", "Service", &key.namespace, &key.name) else { return false };
        if service["status"]["loadBalancer"]["ingress"][0]["ip"] != host {
            return false;
        }
        let pods = management.get("apps", "Deployment", &key.namespace, &key.name);
        pods.is_some_and(|pods| pods["status"]["availableReplicas"].as_u64().unwrap_or(0) > 0)
    }
}

/// The kubelet's first certificate; whoever waits for it asks again.
fn certificate(api: &KubeApi, guest: &Guest, token: &str) -> Result<(), String> {
    const KIND: &str = "CertificateSigningRequest";
    let name = format!("node-csr-{}-{token}", guest.server_id);
    let Some(request) = api.object("certificates.k8s.io", KIND, "", &name) else {
        let user = format!("system:node:{}", guest.name);
        let (_, pem) =
            hangar_pki::request::create(&SystemKeys, &user, &["system:nodes"]).map_err(|error| error.to_string())?;
        api.put(json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": KIND, "metadata": { "name": name },
            "spec": {
                "request": STANDARD.encode(pem), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "username": format!("system:bootstrap:{token}"), "usages": ["digital signature", "client auth"],
            },
        }));
        return Err(format!("{name} {UNDECIDED}"));
    };
    match &request["status"]["conditions"][0] {
        Value::Null => Err(format!("{name} {UNDECIDED}")),
        condition if condition["type"] == "Approved" => Ok(()),
        condition => Err(format!("{name} was denied: {}", condition["message"])),
    }
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

fn is_evictable(pod: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let of_daemon_set = owners.into_iter().flatten().any(|owner| owner["kind"] == "DaemonSet");
    let ended = ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase);
    !of_daemon_set && !ended && pod["metadata"]["labels"]["cluster.x-k8s.io/drain"] != "skip"
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
        Ok(self.0.meter.service(self.api(host).service(HANGAR)))
    }
}

impl GuestDriver for Tenants {
    fn boot(&self, guest: Guest) {
        self.0.running.lock().unwrap().insert(guest.server_id.clone(), None);
        let tenants = self.clone();
        tokio::spawn(async move {
            while tenants.is_running(&guest.server_id) {
                match tenants.0.meter.measure(|| tenants.join(&guest)) {
                    Ok(()) => return,
                    // A kubelet watches.
                    Err(why) if why.ends_with(UNDECIDED) => tokio::time::sleep(Duration::from_millis(500)).await,
                    Err(why) => {
                        guest.console.line(why);
                        tokio::time::sleep(Duration::from_secs(5)).await;
                    }
                }
            }
        });
    }

    fn shut_down(&self, server_id: &str) {
        let joined = self.0.running.lock().unwrap().remove(server_id).flatten();
        let Some((host, node)) = joined else { return };
        let api = self.0.apis.lock().unwrap().get(&host).cloned();
        if let Some(api) = api {
            api.delete("", "Node", "", &node);
            // The garbage collector of pods.
            for pod in api.list("", "Pod").iter().filter(|pod| pod["spec"]["nodeName"] == *node) {
                let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
                api.delete("", "Pod", text("namespace"), text("name"));
            }
        }
    }
}
