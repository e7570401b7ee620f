//! One history in one world: the laws are checked after every write, and in the end everything is as people want it, and then gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hangar_engine::pass::StepHook;
use hangar_kubesim::{ApiCall, Fault};
use hangar_simulation::chance::Die;
use hangar_simulation::cloud_transport::{STALE_FOR, Trouble};
use hangar_simulation::laws::HANGAR;
use hangar_simulation::{CAPI, NAMESPACE, Options, Simulation, condition, manifests};
use serde_json::{Value, json};

use crate::history::{Action, Deed, History, Moment, Twin};

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const PATIENCE: Duration = Duration::from_secs(3600);
/// Until a watch that was broken is back; a slow create takes longer.
const WATCHES_BREAK: Duration = Duration::from_secs(9);
const PATIENCE_FOR_CREATES: Duration = Duration::from_secs(30);
/// After which a Machine without a Node is replaced.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(1200);

/// How much happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub requests: u64,
    pub calls: u64,
    pub faults: u64,
    pub steps: u64,
}

/// What people want of a cluster.
struct Wish {
    name: String,
    is_there: bool,
    replicas: usize,
    templates: usize,
}

/// Of which cluster the cloud is answering a create, slowly.
type Creating = Arc<tokio::sync::watch::Sender<Option<usize>>>;

struct Life {
    simulation: Simulation,
    creating: Creating,
    wishes: Vec<Wish>,
    faults: Arc<AtomicU64>,
    steps: Arc<AtomicU64>,
}

/// Lives it; panics if a law is broken or if something never comes.
pub async fn live(history: &History) -> Counts {
    let mut life = Life::begin(history).await;
    for action in &history.actions {
        life.act(&life.moment_of(*action).await).await;
    }
    life.calm(history).await;
    life.everything_is_as_wanted(history).await;
    life.end().await
}

/// Every other cluster is on a network of its own.
async fn apply(simulation: &Simulation, name: &str) {
    let is_odd = name.bytes().last().is_some_and(|last| last % 2 == 1);
    if is_odd {
        let yaml = simulation.cloud.clouds_yaml("http://cloud.test");
        simulation.apply_documents(manifests::on_own_network(name, &yaml)).await;
    } else {
        simulation.apply_cluster(name).await;
    }
}

impl Life {
    async fn begin(history: &History) -> Self {
        let simulation = Simulation::with(Options { seed: history.seed, ..Options::default() });
        simulation.laws.excuse_duplicates();
        let names = (0..history.clusters).map(|number| format!("c{number}"));
        let wish = |name| Wish { name, is_there: true, replicas: 1, templates: 0 };
        let mut life = Self {
            simulation,
            creating: Creating::default(),
            wishes: names.map(wish).collect(),
            faults: Arc::default(),
            steps: Arc::default(),
        };
        for wish in &life.wishes {
            apply(&life.simulation, &wish.name).await;
        }
        life.trouble(history);
        let (die, deaths, steps) = (Die::new(history.seed ^ 1), history.troubles.deaths, life.steps.clone());
        let hook: StepHook = Arc::new(move |_, _| {
            steps.fetch_add(1, Ordering::Relaxed);
            deaths && die.throw() < 4
        });
        match history.troubles.twin {
            Twin::None => life.simulation.start(Some(hook)),
            Twin::Waiting => {
                life.simulation.start_candidate("one", Some(hook.clone()));
                life.simulation.start_candidate("other", Some(hook));
            }
            Twin::Acting => {
                life.simulation.laws.excuse_two_at_once();
                life.simulation.start(Some(hook));
                life.simulation.start(None);
            }
        }
        life
    }

    fn trouble(&self, history: &History) {
        let die = Die::new(history.seed);
        let troubles = history.troubles;
        let count = |faults: &Arc<AtomicU64>, is_one: bool| {
            faults.fetch_add(u64::from(is_one), Ordering::Relaxed);
        };
        if troubles.management {
            self.simulation.laws.excuse_broken_watches(WATCHES_BREAK);
            let (die, faults) = (die.clone(), self.faults.clone());
            self.simulation.management.set_fault_hook(Arc::new(move |call| {
                // Whoever types a command types it again.
                let fault = if &*call.user == HANGAR { api_fault(die.throw()) } else { Fault::None };
                count(&faults, !matches!(fault, Fault::None));
                fault
            }));
        }
        let two_act = troubles.twin == Twin::Acting;
        if troubles.tenants || two_act {
            let (die, faults) = (die.clone(), self.faults.clone());
            self.simulation.tenants.set_faults(Some(Arc::new(move |_: &ApiCall| {
                let fault = if troubles.tenants { api_fault(die.throw()) } else { Fault::None };
                count(&faults, !matches!(fault, Fault::None));
                match fault {
                    // Of two that disagree until the watch of one is back, time has to pass.
                    Fault::None if two_act => Fault::Delay(Duration::from_millis(1)),
                    fault => fault,
                }
            })));
        }
        if troubles.cloud {
            let (hook_die, faults) = (die.clone(), self.faults.clone());
            self.simulation.cloud.set_fault_hook(Arc::new(move |_| {
                let fault = cloud_fault(hook_die.throw());
                count(&faults, !matches!(fault, hangar_simulator::Fault::None));
                fault
            }));
            let (die, faults, creating) = (die, self.faults.clone(), self.creating.clone());
            self.simulation.transport.set_hook(Some(Arc::new(move |request| {
                let trouble = cloud_trouble(die.throw(), is_create(request));
                count(&faults, trouble != Trouble::None);
                if let (Trouble::SlowBack(_), true) = (trouble, is_create(request)) {
                    creating.send_replace(cluster_of(request));
                }
                trouble
            })));
        }
    }

    /// Troubles end; a process that no twin disturbs goes on.
    async fn calm(&mut self, history: &History) {
        self.simulation.management.clear_fault_hook();
        self.simulation.tenants.set_faults(None);
        self.simulation.cloud.set_fault_hook(Arc::new(|_| hangar_simulator::Fault::None));
        self.simulation.transport.set_hook(None);
        if history.troubles.twin != Twin::None || history.troubles.deaths {
            self.simulation.stop_engines().await;
            self.simulation.start(None);
        }
        for wish in 0..self.wishes.len() {
            self.act(&Action { moment: Moment::After(Duration::ZERO), cluster: wish, deed: Deed::Resume }).await;
        }
        // What was shown before troubles ended is old by then.
        self.simulation.wait(STALE_FOR).await;
    }

    /// Waits until it is time; whoever waits for a create and sees none acts all the same.
    async fn moment_of(&self, action: Action) -> Action {
        match action.moment {
            Moment::After(time) => {
                self.simulation.wait(time).await;
                action
            }
            Moment::DuringCreate => {
                let mut creating = self.creating.subscribe();
                let seen = tokio::time::timeout(PATIENCE_FOR_CREATES, creating.changed()).await.is_ok();
                let cluster = creating.borrow().filter(|cluster| seen && *cluster < self.wishes.len());
                self.simulation.laws.check();
                Action { cluster: cluster.unwrap_or(action.cluster), ..action }
            }
        }
    }

    async fn act(&mut self, action: &Action) {
        let wish = &mut self.wishes[action.cluster];
        let (name, management) = (wish.name.clone(), &self.simulation.management);
        let deployment = format!("{name}-md-0");
        let edit = |change: &dyn Fn(&mut Value)| {
            management.edit(CAPI, "MachineDeployment", NAMESPACE, &deployment, change);
        };
        match action.deed {
            Deed::Scale(replicas) => {
                wish.replicas = replicas;
                edit(&|object| object["spec"]["replicas"] = replicas.into());
            }
            Deed::ChangeVersion => edit(&|object| {
                let version = &mut object["spec"]["template"]["spec"]["version"];
                *version = if *version == "v1.28.10" { "v1.28.9".into() } else { "v1.28.10".into() };
            }),
            Deed::ChangeTemplate => {
                wish.templates += 1;
                let other = format!("{deployment}-{}", wish.templates);
                let template = management.object(INFRASTRUCTURE, "OpenStackMachineTemplate", NAMESPACE, &deployment);
                if let Some(mut template) = template {
                    template["metadata"] = json!({ "name": other, "namespace": NAMESPACE });
                    template["spec"]["template"]["spec"]["flavor"] = "m1.medium".into();
                    self.simulation.apply(&template).await;
                    self.simulation.management.edit(CAPI, "MachineDeployment", NAMESPACE, &deployment, |object| {
                        object["spec"]["template"]["spec"]["infrastructureRef"]["name"] = other.clone().into();
                    });
                }
            }
            Deed::Pause | Deed::Resume => {
                let paused = action.deed == Deed::Pause;
                management.edit(CAPI, "Cluster", NAMESPACE, &name, |object| object["spec"]["paused"] = paused.into());
            }
            Deed::EditDeployment => {
                let scheduler = format!("{name}-control-plane-scheduler");
                management.edit("apps", "Deployment", NAMESPACE, &scheduler, |object| {
                    object["spec"]["replicas"] = 7.into();
                });
            }
            Deed::RemoveLabel => {
                if let Some(machine) = self.first(&name, INFRASTRUCTURE, "OpenStackMachine") {
                    management.edit(INFRASTRUCTURE, "OpenStackMachine", NAMESPACE, &machine, |object| {
                        let labels = object["metadata"]["labels"].as_object_mut();
                        labels.into_iter().for_each(|labels| drop(labels.remove("cluster.x-k8s.io/cluster-name")));
                    });
                }
            }
            Deed::DeleteMachine => {
                if let Some(machine) = self.first(&name, CAPI, "Machine") {
                    management.delete(CAPI, "Machine", NAMESPACE, &machine);
                }
            }
            Deed::DeleteServer => {
                let machine = self.first(&name, CAPI, "Machine");
                let server =
                    self.simulation.in_cloud("server").into_iter().find(|it| Some(&it.name) == machine.as_ref());
                if let (Some(machine), Some(server)) = (machine, server) {
                    self.simulation.cloud.delete_behind("compute", "servers", &server.id);
                    management.delete(CAPI, "Machine", NAMESPACE, &machine);
                }
            }
            Deed::DeletePort => {
                // A port under a running server is not made again: its machine is replaced by whoever took it away.
                let machine = self.first(&name, CAPI, "Machine");
                let port = self.simulation.in_cloud("port").into_iter();
                let port = port.into_iter().find(|it| machine.as_ref().is_some_and(|name| it.name.starts_with(name)));
                if let (Some(machine), Some(port)) = (machine, port) {
                    self.simulation.cloud.delete_behind("network", "ports", &port.id);
                    management.delete(CAPI, "Machine", NAMESPACE, &machine);
                }
            }
            Deed::DeleteSecurityGroup => {
                let groups = self.simulation.in_cloud("security-group").into_iter();
                if let Some(group) = groups.into_iter().find(|it| it.name.contains(&format!("-{name}-"))) {
                    self.simulation.cloud.delete_behind("network", "security-groups", &group.id);
                }
            }
            Deed::DeleteOrApply => self.delete_or_apply(action.cluster).await,
        }
    }

    async fn delete_or_apply(&mut self, cluster: usize) {
        let name = self.wishes[cluster].name.clone();
        if self.simulation.management.get(CAPI, "Cluster", NAMESPACE, &name).is_some() {
            self.simulation.management.delete(CAPI, "Cluster", NAMESPACE, &name);
            self.delete_unadopted(&name);
            self.wishes[cluster].is_there = false;
        } else if self.nothing_is_left_of(&name) {
            apply(&self.simulation, &name).await;
            self.wishes[cluster] = Wish { name, is_there: true, replicas: 1, templates: 0 };
        }
    }

    /// What a Cluster never adopted, because it was paused from the beginning, stays its user's and is for its user to delete.
    fn delete_unadopted(&self, cluster: &str) {
        let plane = format!("{cluster}-control-plane");
        let deployment = format!("{cluster}-md-0");
        for (group, kind, name) in [
            ("controlplane.cluster.x-k8s.io", "KamajiControlPlane", plane.as_str()),
            (INFRASTRUCTURE, "OpenStackCluster", cluster),
            (CAPI, "MachineDeployment", &deployment),
        ] {
            let management = &self.simulation.management;
            let object = management.get(group, kind, NAMESPACE, name);
            if object.is_some_and(|object| object["metadata"]["ownerReferences"].is_null()) {
                management.delete(group, kind, NAMESPACE, name);
            }
        }
    }

    /// Whoever applies a cluster again waits until the old one is gone.
    fn nothing_is_left_of(&self, name: &str) -> bool {
        let kinds =
            [(CAPI, "Machine"), (CAPI, "MachineDeployment"), ("controlplane.cluster.x-k8s.io", "KamajiControlPlane")];
        let all = kinds.into_iter().flat_map(|(group, kind)| self.simulation.management.list(group, kind));
        !all.into_iter().any(|object| object["metadata"]["name"].as_str().is_some_and(|other| other.starts_with(name)))
    }

    fn first(&self, cluster: &str, group: &str, kind: &str) -> Option<String> {
        let all = self.simulation.management.list(group, kind).into_iter();
        let mut names = all.filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned));
        names.find(|name| name.starts_with(&format!("{cluster}-")))
    }

    async fn everything_is_as_wanted(&self, history: &History) {
        if history.troubles.twin == Twin::Acting {
            self.simulation.wait(STARTUP_TIMEOUT).await;
            self.replace_what_never_joined();
        }
        self.simulation
            .until_within(PATIENCE, "everything is as people want it", || {
                self.wishes.iter().all(|wish| self.is_granted(wish))
            })
            .await;
        let twice = self.simulation.there_twice();
        if !twice.is_empty() {
            self.simulation
                .until_within(PATIENCE, &format!("nothing is there twice: {twice:?}"), || {
                    self.simulation.there_twice().is_empty()
                })
                .await;
        }
    }

    /// Two processes that act at once may start two servers of one name, and delete the one whose Node has joined: the other one stays out. What a health check
    /// does after a while, its user does here.
    fn replace_what_never_joined(&self) {
        for machine in self.simulation.machines() {
            let name = machine["metadata"]["name"].as_str().unwrap_or_default();
            let wanted = self.wishes.iter().any(|wish| wish.is_there && machine["spec"]["clusterName"] == *wish.name);
            if wanted && machine["status"]["nodeRef"].is_null() {
                self.simulation.management.delete(CAPI, "Machine", NAMESPACE, name);
            }
        }
    }

    fn is_granted(&self, wish: &Wish) -> bool {
        let cluster = self.simulation.management.get(CAPI, "Cluster", NAMESPACE, &wish.name);
        if !wish.is_there {
            return cluster.is_none();
        }
        let machines: Vec<Value> = self.simulation.machines();
        let own: Vec<&Value> = machines.iter().filter(|machine| machine["spec"]["clusterName"] == *wish.name).collect();
        cluster.is_some_and(|cluster| condition(&cluster, "Available"))
            && own.len() == wish.replicas
            && own.iter().all(|machine| condition(machine, "Available"))
    }

    async fn end(mut self) -> Counts {
        let there: Vec<&str> = self.wishes.iter().filter(|wish| wish.is_there).map(|wish| wish.name.as_str()).collect();
        self.simulation.delete_clusters(&there).await;
        self.simulation.stop().await;
        Counts {
            requests: self.simulation.management.request_count(),
            calls: self.simulation.cloud.call_count(),
            faults: self.faults.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
        }
    }
}

impl Counts {
    pub fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.calls += other.calls;
        self.faults += other.faults;
        self.steps += other.steps;
    }
}

fn api_fault(number: u64) -> Fault {
    match number {
        0..15 => Fault::Before(500),
        15..30 => Fault::After,
        30..33 => Fault::DropWatches,
        33..35 => Fault::Expire,
        35..40 => Fault::Before(429),
        _ => Fault::None,
    }
}

fn cloud_fault(number: u64) -> hangar_simulator::Fault {
    match number {
        0..25 => hangar_simulator::Fault::Before,
        25..50 => hangar_simulator::Fault::After,
        _ => hangar_simulator::Fault::None,
    }
}

fn is_create(request: &http::Request<bytes::Bytes>) -> bool {
    request.method() == http::Method::POST && !request.uri().path().ends_with("/tokens")
}

/// Whose resource it is about; names of clusters are in the names of their resources.
fn cluster_of(request: &http::Request<bytes::Bytes>) -> Option<usize> {
    let body = String::from_utf8_lossy(request.body());
    let number =
        ["default-c", "\"c"].iter().find_map(|start| body.split_once(start).map(|(_, rest)| rest.to_owned()))?;
    number.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

fn cloud_trouble(number: u64, is_create: bool) -> Trouble {
    match number {
        40..120 if is_create => Trouble::SlowBack(Duration::from_secs(number / 4)),
        0..20 => Trouble::Stale,
        // What is on its way cannot be called back when somebody pauses a cluster: it arrives while the laws still wait for news to spread.
        20..30 => Trouble::SlowThere(Duration::from_millis(30 * number)),
        30..40 => Trouble::SlowBack(Duration::from_secs(number)),
        _ => Trouble::None,
    }
}

/// By name, what a reader of a failing history needs to see.
pub fn summary(history: &History) -> String {
    let mut lines = BTreeMap::new();
    let mut at = Duration::ZERO;
    for (number, action) in history.actions.iter().enumerate() {
        let (cluster, deed) = (action.cluster, action.deed);
        let line = match action.moment {
            Moment::After(time) => {
                at += time;
                format!("  {:>8.3} s  c{cluster} {deed:?}", at.as_secs_f64())
            }
            Moment::DuringCreate => format!("  during a create of a cluster, else of c{cluster}: {deed:?}"),
        };
        lines.insert(number, line);
    }
    let text: Vec<String> = lines.into_values().collect();
    format!("seed {}, {} clusters, {:?}\n{}", history.seed, history.clusters, history.troubles, text.join("\n"))
}
