//! The real engine and the real controllers in a world of their own: management cluster, cloud and tenants in memory, paused time.
//!
//! Holds: everything that outlives a process is here and not in the engine, so that an engine can be killed and another one started.

use std::sync::Arc;
use std::time::Duration;

use hangar_api::registry;
use hangar_engine::pass::StepHook;
use hangar_kubesim::{Clock, KubeApi, KubeApiOptions};
use hangar_simulator::{Item, Options as Cloud, Simulator};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::chance::{SeededKeys, mix};
use crate::cloud_transport::CloudTransport;
use crate::datastores::MemoryDatastores;
use crate::foreign;
use crate::kubernetes;
use crate::laws::{HANGAR, Laws};
use crate::manifests;
pub use crate::manifests::CLUSTER;
use crate::meter::Meter;
use crate::tenants::Tenants;
use crate::wiring::Parts;

pub const NAMESPACE: &str = "default";
pub const CAPI: &str = "cluster.x-k8s.io";
/// What users made, or belongs to no cluster: it may stay.
const THEIRS: [&str; 3] = ["DataStore", "KubeadmConfigTemplate", "OpenStackMachineTemplate"];
/// In simulated time; anything that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(3 * 3600);

#[derive(Clone, Default)]
pub struct Options {
    pub seed: u64,
    /// Measures the fakes.
    pub meter: Meter,
    /// For benchmarks: requests are counted and not kept, nothing foreign is there, and no law is checked.
    pub forgetful: bool,
}

pub struct Simulation {
    pub management: KubeApi,
    pub cloud: Simulator,
    /// What happens on the way to the cloud.
    pub transport: CloudTransport,
    pub tenants: Tenants,
    pub datastores: Arc<MemoryDatastores>,
    pub meter: Meter,
    pub laws: Laws,
    lawful: bool,
    clock: Clock,
    seed: u64,
    keys: Arc<SeededKeys>,
    stop: CancellationToken,
    others: JoinHandle<()>,
    engines: Vec<JoinHandle<()>>,
}

impl Simulation {
    /// A world with nobody in it yet.
    pub fn new(seed: u64) -> Self {
        Self::with(Options { seed, ..Options::default() })
    }

    pub fn with(options: Options) -> Self {
        let Options { seed, meter, forgetful } = options;
        let (began, since) = ("2026-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap(), tokio::time::Instant::now());
        let clock: Clock = Arc::new(move || began + since.elapsed());
        let management = KubeApi::new(KubeApiOptions {
            clock: clock.clone(),
            seed,
            latency: Duration::from_millis(2),
            // Caches lag behind, in every world by another time.
            watch_delay: Duration::from_millis(mix(seed) % 40),
            keep_requests: !forgetful,
            ..KubeApiOptions::default()
        });
        // Room for thousands of servers.
        let private_cidr = "10.6.0.0/16".parse().unwrap();
        // One clock for all: what is old in one place is old in the others.
        let cloud_options = Cloud { private_cidr, time: Some(began), ..Cloud::default() };
        let (balancers, others) = kubernetes::start(&management, meter.clone());
        let cloud = Simulator::new(cloud_options).unwrap();
        cloud.set_seed(seed);
        let tenants = Tenants::new(management.clone(), balancers, clock.clone(), meter.clone());
        cloud.set_guests(Arc::new(tenants.clone()));
        let measured = meter.clone();
        cloud.set_stopwatch(Arc::new(move |work| measured.measure(work)));
        let laws = Laws::new(clock.clone(), seed);
        if !forgetful {
            laws.watch(&management, &cloud, &tenants);
        }
        Self {
            management,
            cloud,
            transport: CloudTransport::default(),
            tenants,
            datastores: Arc::default(),
            meter,
            laws,
            lawful: !forgetful,
            clock,
            seed,
            keys: Arc::new(SeededKeys::new(seed)),
            stop: CancellationToken::new(),
            others,
            engines: vec![],
        }
    }

    /// A process that is started again whenever it dies; the hook may kill it. More than one may run at once.
    pub fn start(&mut self, hook: Option<StepHook>) {
        let (parts, stop) = (self.parts(), self.stop.clone());
        self.engines.push(tokio::spawn(async move {
            while !stop.is_cancelled() {
                let _ = parts.run(hook.clone(), stop.child_token()).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }));
    }

    /// The same, but it acts only while it holds the Lease. What is given back tells it to stop, for good.
    pub fn start_candidate(&mut self, identity: &str, hook: Option<StepHook>) -> CancellationToken {
        let (parts, stop, identity) = (self.parts(), self.stop.child_token(), identity.to_owned());
        let told = stop.clone();
        self.engines.push(tokio::spawn(async move {
            while !stop.is_cancelled() {
                parts.lead(&identity, hook.clone(), stop.child_token()).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }));
        told
    }

    fn parts(&self) -> Parts {
        Parts {
            client: self.meter.service(self.management.service(HANGAR)),
            transport: self.transport.wrap(self.cloud.transport()),
            tenants: self.tenants.clone(),
            datastores: self.datastores.clone(),
            clock: self.clock.clone(),
            // Neither two processes nor two lives of one throw the same dice.
            keys: self.keys.clone(),
            meter: self.meter.clone(),
        }
    }

    /// In simulated time.
    pub fn now(&self) -> jiff::Timestamp {
        (self.clock)()
    }

    /// What a user does with the example.
    pub async fn apply_example(&self) {
        self.apply_cluster(CLUSTER).await;
    }

    /// The same under another name.
    pub async fn apply_cluster(&self, name: &str) {
        self.apply_documents(self.example(name)).await;
    }

    /// The documents of the example for a cluster of this name.
    pub fn example(&self, name: &str) -> Vec<Value> {
        manifests::cluster(name, &self.cloud.clouds_yaml("http://cloud.test"))
    }

    /// These documents, in a world with a data store and with what is others'.
    pub async fn apply_documents(&self, documents: Vec<Value>) {
        if self.management.get("kamaji.clastix.io", "DataStore", "", "default").is_none() {
            if self.lawful {
                self.plant_foreign().await;
            }
            self.apply(&manifests::data_store((self.clock)())).await;
        }
        for object in documents {
            self.apply(&object).await;
        }
    }

    /// The example, with documents that a user has changed.
    pub async fn apply_changed(&self, name: &str, change: impl Fn(&mut Value)) {
        let mut documents = self.example(name);
        documents.iter_mut().for_each(change);
        self.apply_documents(documents).await;
    }

    /// A cluster whose control plane chooses its user in the data store.
    pub async fn apply_named_tenant(&self, name: &str, user: &str) {
        for mut object in self.example(name) {
            if object["kind"] == "KamajiControlPlane" {
                object["spec"]["dataStoreUsername"] = user.into();
            }
            self.apply(&object).await;
        }
    }

    /// `kubectl apply`
    pub async fn apply(&self, object: &Value) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let client = self.management.client_as("kubectl");
        let api: Api<DynamicObject> = match text("/metadata/namespace").as_str() {
            "" => Api::all_with(client, &resource),
            namespace => Api::namespaced_with(client, namespace, &resource),
        };
        let params = PatchParams::apply("kubectl").force();
        api.patch(&text("/metadata/name"), &params, &Patch::Apply(object)).await.unwrap();
    }

    /// The example's cluster and all of its Machines are available.
    pub async fn becomes_available(&self, replicas: usize) {
        self.all_become_available(&[CLUSTER], replicas).await;
    }

    /// Several clusters with as many Machines each.
    pub async fn all_become_available(&self, clusters: &[&str], replicas: usize) {
        self.until(&format!("{clusters:?} are available with {replicas} machines each"), || {
            let available = |name: &&str| {
                let cluster = self.management.get(CAPI, "Cluster", NAMESPACE, name);
                cluster.is_some_and(|cluster| condition(&cluster, "Available"))
            };
            let machines = self.machines();
            clusters.iter().all(available)
                && machines.len() == replicas * clusters.len()
                && machines.iter().all(|machine| condition(machine, "Available"))
                && self.in_cloud("server").len() == machines.len()
        })
        .await;
        if !self.laws.are_duplicates_excused() {
            assert_eq!(self.there_twice(), Vec::<String>::new(), "{}", self.state());
        }
    }

    /// All Machines but foreign ones.
    pub fn machines(&self) -> Vec<Value> {
        let machines = self.management.list(CAPI, "Machine").into_iter();
        machines.filter(|machine| machine["spec"]["clusterName"] != foreign::CLUSTER).collect()
    }

    pub fn scale(&self, replicas: usize) {
        self.edit_deployment(|deployment| deployment["spec"]["replicas"] = replicas.into());
    }

    /// A user edits the example's MachineDeployment.
    pub fn edit_deployment(&self, change: impl FnOnce(&mut Value)) {
        let edited = self.management.edit(CAPI, "MachineDeployment", NAMESPACE, "capi-quickstart-md-0", change);
        assert!(edited, "there is no MachineDeployment to edit");
    }

    pub async fn delete_cluster(&self) {
        self.delete_clusters(&[CLUSTER]).await;
    }

    pub async fn delete_clusters(&self, clusters: &[&str]) {
        for name in clusters {
            self.management.delete(CAPI, "Cluster", NAMESPACE, name);
        }
        self.until("the clusters are gone", || {
            let gone = |name: &&str| self.management.get(CAPI, "Cluster", NAMESPACE, name).is_none();
            clusters.iter().all(gone) && self.left_in_cloud().is_empty()
        })
        .await;
        self.until("nothing is left", || self.left_over().is_empty() && self.datastores.tenants() == 0).await;
        self.laws.check_at_the_end();
    }

    /// Objects that should have gone with their cluster.
    pub fn left_over(&self) -> Vec<String> {
        let ours = registry::kinds().iter().map(|facts| (facts.group, facts.kind));
        let built_in = [("", "Secret"), ("", "ConfigMap"), ("", "Service"), ("apps", "Deployment")];
        let all = ours.chain(built_in).filter(|(_, kind)| !THEIRS.contains(kind));
        let objects = all.flat_map(|(group, kind)| {
            self.management
                .list(group, kind)
                .into_iter()
                .filter(|object| !is_theirs(object))
                .map(move |object| format!("{kind} {}", object["metadata"]["name"]))
        });
        objects.collect()
    }

    /// What Hangar has made in the cloud, of one kind.
    pub fn in_cloud(&self, kind: &str) -> Vec<Item> {
        let all = self.cloud.inventory().projects.into_values().flatten();
        all.filter(|item| item.kind == kind && !self.laws.knows_foreign(&item.id)).collect()
    }

    /// What Hangar has made in the cloud.
    pub fn left_in_cloud(&self) -> Vec<Item> {
        let all = self.cloud.inventory().projects.into_values().flatten();
        all.filter(|item| !self.laws.knows_foreign(&item.id)).collect()
    }

    /// Names of servers, ports and groups of which there are two.
    pub fn there_twice(&self) -> Vec<String> {
        let mut twice = vec![];
        for kind in ["server", "port", "security-group", "network", "router", "load-balancer"] {
            let mut names: Vec<String> = self.in_cloud(kind).into_iter().map(|item| item.name).collect();
            names.sort_unstable();
            twice.extend(names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| format!("{kind} {}", pair[0])));
        }
        twice
    }

    /// Time passes, and the laws are looked after.
    pub async fn wait(&self, time: Duration) {
        tokio::time::sleep(time).await;
        self.laws.check();
    }

    pub async fn until(&self, what: &str, reached: impl Fn() -> bool) {
        self.until_within(PATIENCE, what, reached).await;
    }

    pub async fn until_within(&self, patience: Duration, what: &str, reached: impl Fn() -> bool) {
        let began = tokio::time::Instant::now();
        while !reached() {
            self.laws.check();
            assert!(began.elapsed() < patience, "seed {}: it never came that {what}\n{}", self.seed, self.state());
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        self.laws.check();
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
        self.stop_engines().await;
        self.others.abort();
        self.laws.check();
    }

    /// Ends all processes; others may be started in the same world.
    pub async fn stop_engines(&mut self) {
        std::mem::take(&mut self.stop).cancel();
        for engine in self.engines.drain(..) {
            engine.await.unwrap();
        }
        // Tasks that were aborted are gone after their next turn.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Thousands of worlds are made one after the other.
impl Drop for Simulation {
    fn drop(&mut self) {
        self.stop.cancel();
        self.others.abort();
        self.laws.let_go();
        self.tenants.let_go();
    }
}

pub fn condition(object: &Value, name: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == name && condition["status"] == "True")
}

/// What users made with `kubectl apply` stays theirs: credentials, and whatever is foreign.
fn is_theirs(object: &Value) -> bool {
    let applied = object["kind"] == "Secret" && object["data"].get("clouds.yaml").is_some();
    applied || object["metadata"]["labels"].get(foreign::LABEL).is_some()
}
