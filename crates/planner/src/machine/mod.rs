//! Machine: bootstrap data, then infrastructure, then the Node that came up on it.
//! Flows: bootstrap data -> infrastructure with provider id -> Node by provider id -> Running; on the way out ([`deletion`]): pods, volumes,
//! infrastructure, bootstrap config, Node. Holds: nothing is read from the Node but what the tenant's own API says.

mod conditions;
pub mod deletion;
mod drain;
mod node;
mod pods;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hangar_api::Object;
use hangar_api::contract::Foreign;
use hangar_api::kinds::{
    Machine, MachineStatus, MachineStatusAddress, MachineStatusInitialization, MachineStatusNodeInfo,
    MachineStatusNodeRef,
};
use hangar_api::names::{CLUSTER_NAME_LABEL, MACHINE_FINALIZER};
use jiff::Timestamp;
use serde_json::json;

use crate::intent;
use crate::report::{DELETING, PAUSED, present};
use crate::step::{ClusterName, Effect, Evicted, TenantAnswer, TenantCall};
use crate::{Absorb, Phase, Phases, Planner, Progress, Report, Step};

pub use volumes::Volumes;

pub struct Machines;

type World = crate::World<Machines>;

const BOOTSTRAP: &str = "/spec/bootstrap/configRef";
const INFRASTRUCTURE: &str = "/spec/infrastructureRef";
const UNREACHABLE: &str = "the cluster's API cannot be reached";
const CONNECTING: &str = "waiting for the cluster's API to answer";

/// M3: a tenant that has not answered for so long is news; before, what was known last still counts.
pub const UNREACHABLE_GRACE: Duration = Duration::from_secs(300);

/// What is known of the machine's Node.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Tenant {
    /// No control plane to ask yet, or it cannot be reached.
    #[default]
    Unreachable,
    /// It is being asked: whatever was known before still counts.
    Connecting,
    /// It was asked: there is no Node with this provider id.
    NoNode,
    Node(Arc<Object>),
}

/// What is known besides the objects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    pub tenant: Tenant,
    /// Since when the tenant does not answer, if it does not: what is known of its Nodes is as old.
    pub silent_for: Option<Duration>,
    /// Only while the Machine is being deleted.
    pub load: Load,
    /// Of the cluster, those that are there to stay; only while the Machine is being deleted.
    pub control_plane_machines: usize,
}

impl Facts {
    fn is_silent(&self) -> bool {
        self.silent_for.is_some_and(|time| time >= UNREACHABLE_GRACE)
    }
}

/// What a Node carries.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Load {
    /// Nobody asked: it does not matter, or it is too early.
    #[default]
    Unread,
    /// Why the tenant did not say.
    Unknown(String),
    Read(NodeLoad),
}

/// What runs on a Node, and what is attached to it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeLoad {
    pub pods: Vec<Object>,
    /// Labels of namespaces, if a rule asks for them.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Read when the pods are gone.
    pub volumes: Option<Volumes>,
    /// What was said to the evictions of this pass, by the pod's uid.
    pub evicted: BTreeMap<String, Evicted>,
}

impl Absorb for Facts {
    fn absorb(&mut self, effect: &Effect) {
        match effect {
            Effect::Tenant(TenantAnswer::NodeDeleted { .. }) => self.tenant = Tenant::NoNode,
            Effect::Tenant(TenantAnswer::NodeAdopted(node) | TenantAnswer::NodeCordoned(node)) => {
                self.tenant = Tenant::Node(node.clone());
            }
            Effect::Tenant(TenantAnswer::PodEvicted { uid, answer }) => {
                if let Load::Read(load) = &mut self.load {
                    load.evicted.insert(uid.clone(), answer.clone());
                }
            }
            _ => {}
        }
    }
}

impl Planner for Machines {
    type Kind = Machine;
    type Facts = Facts;
    const FINALIZER: Option<&'static str> = Some(MACHINE_FINALIZER);
    const CONDITIONS: &'static [&'static str] = conditions::OWN;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases
            .then(owner)
            .then(children)
            .then(bootstrap)
            .then(infrastructure)
            .then(provider_id)
            .facts()
            .then(node::node)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        deletion::phases(phases)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<Machine>) {
        if let Some(last) = last_seen(world, progress) {
            report.conditions = present(world.object());
            let own = |kind: &str| conditions::OWN.contains(&kind) && ![DELETING, PAUSED].contains(&kind);
            report.conditions.retain(|condition| own(&condition.kind));
            report.status = last;
            return;
        }
        let (has_data, provisioned) = has_data_and_is_provisioned(world);
        let node = match &world.facts.tenant {
            Tenant::Node(node) => Some(node),
            _ => None,
        };
        let status = &mut report.status;
        status.phase = Some(phase(world.object().is_deleting(), has_data, provisioned, node.is_some()).to_owned());
        status.initialization = Some(MachineStatusInitialization {
            bootstrap_data_secret_created: Some(has_data),
            infrastructure_provisioned: Some(provisioned),
        });
        status.addresses = infrastructure_machine(world).map(addresses).filter(|list| !list.is_empty());
        status.failure_domain = world.typed().spec.failure_domain.clone();
        // A Node that was seen is not forgotten because the API is away for a moment.
        let known = world.typed().status.as_ref().and_then(|status| status.node_ref.clone());
        status.node_ref = node.map(|node| MachineStatusNodeRef { name: node.name().to_owned() }).or(known);
        status.node_info = node.and_then(|node| node_info(node));
        status.deletion = deletion::times(world, progress, report.now);
        report.conditions = conditions::of(world, progress, has_data, provisioned, report.now);
    }

    fn recheck(world: &World, now: Timestamp) -> Option<Duration> {
        let (has_data, provisioned) = has_data_and_is_provisioned(world);
        conditions::available_in(world, has_data, provisioned, now)
    }
}

/// What the status says of a Node, for as long as nobody could ask: a restart of Hangar must not make machines look lost.
fn last_seen(world: &World, progress: &Progress) -> Option<MachineStatus> {
    let patient = world.facts.silent_for.is_some() && !world.facts.is_silent();
    let unheard = world.facts.tenant == Tenant::Connecting || (world.facts.tenant == Tenant::Unreachable && patient);
    let undecided = unheard && matches!(progress, Progress::Waiting(_));
    let last = world.typed().status.clone().filter(|last| last.node_ref.is_some())?;
    (undecided && !world.object().is_deleting()).then_some(last)
}

fn has_data_and_is_provisioned(world: &World) -> (bool, bool) {
    let has_data = world.typed().spec.bootstrap.data_secret_name.is_some();
    (has_data, infrastructure_machine(world).is_some_and(|machine| machine.is_provisioned_machine()))
}

fn infrastructure_machine(world: &World) -> Option<Foreign<'_>> {
    world.referenced(INFRASTRUCTURE).map(Foreign::new)
}

fn addresses(machine: Foreign<'_>) -> Vec<MachineStatusAddress> {
    machine.addresses().into_iter().map(|(r#type, address)| MachineStatusAddress { r#type, address }).collect()
}

fn tenant(world: &World, call: TenantCall) -> Step {
    let cluster = ClusterName { namespace: world.object().namespace().into(), name: world.cluster_name() };
    Step::Tenant { cluster, call }
}

/// M1: a Machine that somebody made by hand belongs to the Cluster; all others have their set.
fn owner(world: &World) -> Phase {
    let name = &world.typed().spec.cluster_name;
    let Some(cluster) = world.cluster() else {
        return Phase::wait("WaitingForCluster", format!("there is no Cluster {name} yet"));
    };
    let owner = world.object().controller().is_none().then(|| cluster.as_owner(false));
    let labels = [(CLUSTER_NAME_LABEL, name.as_str())];
    Phase::steps(intent::adopt(world.object(), Some(MACHINE_FINALIZER), owner.as_ref(), &labels))
}

/// What is made for it is found by its label and goes by its owner, whoever takes them off: without the label nobody knows which cluster's it is.
fn children(world: &World) -> Phase {
    let machine = world.object();
    let labels = [(CLUSTER_NAME_LABEL, world.typed().spec.cluster_name.as_str())];
    let referenced = [BOOTSTRAP, INFRASTRUCTURE].into_iter().filter_map(|place| world.referenced(place));
    let own = referenced.filter(|object| !object.is_deleting() && is_free_for(machine, object));
    Phase::steps(own.filter_map(|object| intent::adopt(object, None, Some(&machine.as_owner(true)), &labels)))
}

fn is_free_for(machine: &Object, object: &Object) -> bool {
    object.controller().is_none_or(|owner| owner.uid == machine.uid())
}

/// M2: first the bootstrap data.
fn bootstrap(world: &World) -> Phase {
    if world.typed().spec.bootstrap.data_secret_name.is_some() {
        return Phase::Done;
    }
    let Some(config) = world.referenced(BOOTSTRAP).map(Foreign::new) else {
        return Phase::wait("WaitingForBootstrapConfig", "its bootstrap config is not there yet");
    };
    match config.data_secret_name() {
        None => Phase::wait("WaitingForBootstrapData", config.waits_for("has no bootstrap data yet")),
        Some(name) => {
            Phase::steps(intent::touch(world.object(), json!({ "spec": { "bootstrap": { "dataSecretName": name } } })))
        }
    }
}

fn infrastructure(world: &World) -> Phase {
    match infrastructure_machine(world) {
        None => Phase::wait("WaitingForInfrastructure", "its infrastructure machine is not there yet"),
        Some(machine) if machine.is_provisioned_machine() => Phase::Done,
        Some(machine) => Phase::wait("WaitingForInfrastructure", machine.waits_for("is not provisioned yet")),
    }
}

fn provider_id(world: &World) -> Phase {
    let id = infrastructure_machine(world).and_then(|machine| machine.provider_id()).unwrap_or_default();
    Phase::steps(intent::touch(world.object(), json!({ "spec": { "providerID": id } })))
}

/// M5.
fn phase(deleting: bool, has_data: bool, provisioned: bool, has_node: bool) -> &'static str {
    match (deleting, has_data, provisioned, has_node) {
        (true, ..) => "Deleting",
        (_, _, _, true) => "Running",
        (_, _, true, _) => "Provisioned",
        (_, true, ..) => "Provisioning",
        _ => "Pending",
    }
}

/// The fields of a Node's description that the Machine's schema knows.
fn node_info(node: &Object) -> Option<MachineStatusNodeInfo> {
    let info = node.get("/status/nodeInfo");
    serde_json::from_value(info.clone()).ok().filter(|_| info.is_object())
}

#[cfg(test)]
mod deletion_tests;
#[cfg(test)]
mod tests;
