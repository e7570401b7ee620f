//! The real engine and the real controllers in a world of their own: management cluster, cloud and tenants in memory, paused time.
//!
//! Holds: everything that outlives a process is here and not in the engine, so that an engine can be killed and another one started.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::{registry, yaml};
use hangar_controllers::clouds::Clouds;
use hangar_controllers::{Context, Controllers, Site, watched};
use hangar_engine::cache::Cache;
use hangar_engine::management::Management;
use hangar_engine::pass::{Passes, StepHook};
use hangar_engine::report::Unwritten;
use hangar_engine::runtime::Engine;
use hangar_engine::tenants::Tenants as TenantClients;
use hangar_pki::{Authority, Leaf, SystemKeys};
use hangar_simulator::kube_api::{Clock, KubeApi, KubeApiOptions};
use hangar_simulator::{Options, Simulator};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::surroundings::{MemoryDatastores, SeededKeys, rest_of_kubernetes};
use crate::tenants::Tenants;

pub const NAMESPACE: &str = "default";
pub const CLUSTER: &str = "capi-quickstart";
const CAPI: &str = "cluster.x-k8s.io";
/// What users made, or belongs to no cluster: it may stay.
const THEIRS: [&str; 3] = ["DataStore", "KubeadmConfigTemplate", "OpenStackMachineTemplate"];
/// In simulated time; anything that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(3 * 3600);

pub struct Simulation {
    pub management: KubeApi,
    pub cloud: Simulator,
    pub tenants: Tenants,
    pub datastores: Arc<MemoryDatastores>,
    clock: Clock,
    seed: u64,
    stop: CancellationToken,
    others: JoinHandle<()>,
    engines: Option<JoinHandle<()>>,
}

impl Simulation {
    /// A world with nobody in it yet.
    pub fn new(seed: u64) -> Self {
        let (began, since) = ("2026-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap(), tokio::time::Instant::now());
        let clock: Clock = Arc::new(move || began + since.elapsed());
        let options = KubeApiOptions {
            clock: clock.clone(),
            seed,
            latency: Duration::from_millis(2),
            watch_delay: Duration::from_millis(mix_delay(seed)),
            ..KubeApiOptions::default()
        };
        let management = KubeApi::new(options);
        let cloud = Simulator::new(Options::default()).unwrap();
        cloud.set_seed(seed);
        let tenants = Tenants::new(management.clone(), clock.clone());
        cloud.set_guests(Arc::new(tenants.clone()));
        let others = tokio::spawn(rest_of_kubernetes(management.clone()));
        Self {
            management,
            cloud,
            tenants,
            datastores: Arc::default(),
            clock,
            seed,
            stop: CancellationToken::new(),
            others,
            engines: None,
        }
    }

    /// A process that is started again whenever it dies; the hook may kill it once.
    pub fn start(&mut self, hook: Option<StepHook>) {
        let parts = Parts {
            management: self.management.clone(),
            cloud: self.cloud.clone(),
            tenants: self.tenants.clone(),
            datastores: self.datastores.clone(),
            clock: self.clock.clone(),
            seed: self.seed,
        };
        let stop = self.stop.clone();
        self.engines = Some(tokio::spawn(async move {
            while !stop.is_cancelled() {
                parts.run(hook.clone(), stop.child_token()).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }));
    }

    /// What a user does with the example.
    pub async fn apply_example(&self) {
        let text = include_str!("../../../../examples/kamaji-openstack.yaml");
        let clouds = STANDARD.encode(self.cloud.clouds_yaml("http://cloud.test"));
        let text = text.replace("${OPENSTACK_CLOUD_YAML_B64}", &clouds);
        let mut objects = vec![data_store((self.clock)())];
        objects.extend(yaml::documents(&text).unwrap());
        for object in objects {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (api_version, kind) = (text("/apiVersion"), text("/kind"));
            let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
            let client = self.management.client();
            let api: Api<DynamicObject> = match text("/metadata/namespace").as_str() {
                "" => Api::all_with(client, &resource),
                namespace => Api::namespaced_with(client, namespace, &resource),
            };
            let params = PatchParams::apply("kubectl").force();
            api.patch(&text("/metadata/name"), &params, &Patch::Apply(&object)).await.unwrap();
        }
    }

    pub async fn becomes_available(&self, replicas: usize) {
        self.until(&format!("the cluster is available with {replicas} machines"), || {
            let cluster = self.management.object(CAPI, "Cluster", NAMESPACE, CLUSTER).unwrap_or_default();
            let machines = self.management.list(CAPI, "Machine");
            let servers = self.cloud.inventory();
            condition(&cluster, "Available")
                && machines.len() == replicas
                && machines.iter().all(|machine| condition(machine, "Available"))
                && servers.of_kind("server").count() == replicas
        })
        .await;
        self.nothing_is_there_twice();
    }

    pub fn scale(&self, replicas: usize) {
        let edited = self.management.edit(CAPI, "MachineDeployment", NAMESPACE, "capi-quickstart-md-0", |deployment| {
            deployment["spec"]["replicas"] = replicas.into();
        });
        assert!(edited, "there is no MachineDeployment to scale");
    }

    pub async fn delete_cluster(&self) {
        self.management.delete(CAPI, "Cluster", NAMESPACE, CLUSTER);
        self.until("the cluster is gone", || {
            self.management.object(CAPI, "Cluster", NAMESPACE, CLUSTER).is_none() && self.cloud.inventory().is_empty()
        })
        .await;
        self.until("nothing is left", || self.left_over().is_empty() && self.datastores.tenants() == 0).await;
    }

    /// Objects that should have gone with the cluster.
    pub fn left_over(&self) -> Vec<String> {
        let ours = registry::kinds().iter().map(|facts| (facts.group, facts.kind));
        let built_in = [("", "Secret"), ("", "ConfigMap"), ("", "Service"), ("apps", "Deployment")];
        let all = ours.chain(built_in).filter(|(_, kind)| !THEIRS.contains(kind));
        let objects = all.flat_map(|(group, kind)| {
            self.management
                .list(group, kind)
                .into_iter()
                .map(move |object| format!("{kind} {}", object["metadata"]["name"]))
        });
        // The credentials are the user's.
        objects.filter(|object| *object != format!("Secret \"{CLUSTER}\"")).collect()
    }

    /// One server and one port for each machine, one of each group.
    pub fn nothing_is_there_twice(&self) {
        let inventory = self.cloud.inventory();
        for kind in ["server", "port", "security-group"] {
            let mut names: Vec<&str> = inventory.of_kind(kind).map(|item| item.name.as_str()).collect();
            names.sort_unstable();
            assert!(names.is_sorted_by(|one, other| one != other), "{kind} twice: {names:?}\n{}", self.state());
        }
    }

    pub async fn until(&self, what: &str, reached: impl Fn() -> bool) {
        let began = tokio::time::Instant::now();
        while !reached() {
            assert!(began.elapsed() < PATIENCE, "seed {}: it never came that {what}\n{}", self.seed, self.state());
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Everything that says why it waits.
    pub fn state(&self) -> String {
        let mut lines = vec![];
        for facts in registry::kinds() {
            for object in self.management.list(facts.group, facts.kind) {
                let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let waits = conditions.iter().filter(|condition| condition["status"] != "True");
                let words: Vec<String> =
                    waits.map(|c| format!("{}={} {}", c["type"], c["status"], c["message"])).collect();
                let metadata = &object["metadata"];
                let (name, going) = (&metadata["name"], &metadata["deletionTimestamp"]);
                lines.push(format!(
                    "{} {name} going={going} {}: {}",
                    facts.kind,
                    metadata["finalizers"],
                    words.join("; ")
                ));
            }
        }
        lines.extend(
            self.cloud
                .inventory()
                .projects
                .values()
                .flatten()
                .map(|item| format!("{} {} {}", item.kind, item.name, item.owner)),
        );
        lines.join("\n")
    }

    /// Ends everything; the same world can be looked at afterwards.
    pub async fn stop(&mut self) {
        self.stop.cancel();
        if let Some(engines) = self.engines.take() {
            engines.await.unwrap();
        }
        self.others.abort();
    }
}

/// Caches lag behind, in every world by another time.
fn mix_delay(seed: u64) -> u64 {
    crate::surroundings::mix(seed) % 40
}

/// What an engine is made of.
struct Parts {
    management: KubeApi,
    cloud: Simulator,
    tenants: Tenants,
    datastores: Arc<MemoryDatastores>,
    clock: Clock,
    seed: u64,
}

impl Parts {
    /// One life of the process.
    async fn run(&self, hook: Option<StepHook>, shutdown: CancellationToken) {
        let (client, cache) = (self.management.client(), Cache::default());
        let (changed, changes) = mpsc::unbounded_channel();
        let (wake, wakes) = mpsc::unbounded_channel();
        let management = Management::new(client.clone(), cache.clone(), changed.clone());
        let transport = self.cloud.transport();
        let controllers = Controllers::new(Context {
            site: Site { konnectivity: Ok(()) },
            passes: Passes { management, clock: self.clock.clone(), hook, unwritten: Unwritten::default() },
            tenants: TenantClients::new(Arc::new(self.tenants.clone()), cache.clone(), wake),
            clouds: Clouds::new(Arc::new(move |_| Ok(transport.clone()))),
            datastores: self.datastores.clone(),
            keys: Arc::new(SeededKeys::new(self.seed)),
        });
        let engine = Engine { client, cache, changes, changed, wakes, watched: watched(), workers: 4 };
        engine.run(Arc::new(controllers), shutdown).await;
    }
}

pub fn condition(object: &Value, name: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == name && condition["status"] == "True")
}

fn data_store(now: jiff::Timestamp) -> Value {
    let authority = Authority::create(&SystemKeys, "etcd", now).unwrap();
    let client = authority.issue(&SystemKeys, &Leaf::client("root", &[]), now).unwrap();
    let content = |pem: &str| json!({ "content": STANDARD.encode(pem) });
    json!({
        "apiVersion": "kamaji.clastix.io/v1alpha1", "kind": "DataStore", "metadata": { "name": "default" },
        "spec": {
            "driver": "etcd", "endpoints": ["127.0.0.1:2379"],
            "tlsConfig": {
                "certificateAuthority": { "certificate": content(authority.certificate_pem()), "privateKey": content(authority.key_pem()) },
                "clientCertificate": { "certificate": content(&client.certificate_pem), "privateKey": content(&client.key_pem) },
            },
        },
    })
}
