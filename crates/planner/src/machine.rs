//! Machine: bootstrap data, then infrastructure, then the Node that came up on it.
//! Flows: bootstrap data -> infrastructure with provider id -> Node by provider id -> Running. Holds: nothing is read from the Node
//! but what the tenant's own API says; on the way out infrastructure goes first, then the bootstrap config, then the Node.

use std::sync::Arc;

use hangar_api::conditions::{Condition, Status, summary};
use hangar_api::contract::Foreign;
use hangar_api::kinds::{
    Machine, MachineStatus, MachineStatusAddress, MachineStatusInitialization, MachineStatusNodeInfo,
    MachineStatusNodeRef,
};
use hangar_api::names::{CLUSTER_NAME_LABEL, MACHINE_FINALIZER, NODE_UNINITIALIZED_TAINT};
use hangar_api::{KubeVersion, Object};
use serde_json::json;

use crate::intent;
use crate::report::{DELETING, PAUSED, READY, present};
use crate::step::{ClusterName, Effect, TenantAnswer, TenantCall};
use crate::{Absorb, Phase, Phases, Planner, Progress, Report, Step};

pub struct Machines;

type World = crate::World<Machines>;

const BOOTSTRAP: &str = "/spec/bootstrap/configRef";
const INFRASTRUCTURE: &str = "/spec/infrastructureRef";
const MACHINE_ANNOTATION: &str = "cluster.x-k8s.io/machine";
const UNREACHABLE: &str = "the cluster's API cannot be reached";
const CONNECTING: &str = "waiting for the cluster's API to answer";

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

impl Absorb for Tenant {
    fn absorb(&mut self, effect: &Effect) {
        match effect {
            Effect::Tenant(TenantAnswer::NodeDeleted) => *self = Self::NoNode,
            Effect::Tenant(TenantAnswer::NodeAdopted(node)) => *self = Self::Node(node.clone()),
            _ => {}
        }
    }
}

impl Planner for Machines {
    type Kind = Machine;
    type Facts = Tenant;
    const FINALIZER: Option<&'static str> = Some(MACHINE_FINALIZER);

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(owner).then(bootstrap).then(infrastructure).then(provider_id).facts().then(node)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(delete_infrastructure).then(delete_bootstrap).then(delete_node)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<Machine>) {
        if let Some(last) = last_seen(world, progress) {
            report.conditions = present(world.object());
            report.conditions.retain(|condition| ![DELETING, PAUSED].contains(&condition.kind.as_str()));
            report.status = last;
            return;
        }
        let has_data = world.typed().spec.bootstrap.data_secret_name.is_some();
        let provisioned = infrastructure_machine(world).is_some_and(|machine| machine.is_provisioned_machine());
        let node = match &world.facts {
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
        report.conditions = conditions(world, progress, has_data, provisioned);
    }
}

/// What the status says of a Node, for as long as nobody could ask: a restart of Hangar must not make machines look lost.
fn last_seen(world: &World, progress: &Progress) -> Option<MachineStatus> {
    let undecided = world.facts == Tenant::Connecting && matches!(progress, Progress::Waiting(_));
    let last = world.typed().status.clone().filter(|last| last.node_ref.is_some())?;
    (undecided && !world.object().is_deleting()).then_some(last)
}

fn infrastructure_machine(world: &World) -> Option<Foreign<'_>> {
    world.referenced(INFRASTRUCTURE).map(Foreign::new)
}

fn addresses(machine: Foreign<'_>) -> Vec<MachineStatusAddress> {
    machine.addresses().into_iter().map(|(r#type, address)| MachineStatusAddress { r#type, address }).collect()
}

fn delete_infrastructure(world: &World) -> Phase {
    intent::gone(world.referenced(INFRASTRUCTURE), "WaitingForInfrastructureDeletion")
}

fn delete_bootstrap(world: &World) -> Phase {
    intent::gone(world.referenced(BOOTSTRAP), "WaitingForBootstrapDeletion")
}

fn tenant(world: &World, call: TenantCall) -> Step {
    let cluster = ClusterName { namespace: world.object().namespace().into(), name: world.cluster_name() };
    Step::Tenant { cluster, call }
}

/// M7: a Node of a cluster that goes is not touched.
fn delete_node(world: &World) -> Phase {
    let cluster_goes = world.cluster().is_none_or(Object::is_deleting);
    match &world.facts {
        Tenant::Node(node) if !cluster_goes => {
            Phase::Steps(vec![tenant(world, TenantCall::DeleteNode { name: node.name().to_owned() })])
        }
        // A Node that could not be asked for yet may be there.
        Tenant::Connecting if !cluster_goes => Phase::wait("WaitingForNode", CONNECTING),
        _ => Phase::Done,
    }
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

fn node(world: &World) -> Phase {
    let node = match &world.facts {
        Tenant::Node(node) => node,
        Tenant::Unreachable => return Phase::wait("WaitingForNode", UNREACHABLE),
        Tenant::Connecting => return Phase::wait("WaitingForNode", CONNECTING),
        Tenant::NoNode => return Phase::wait("WaitingForNode", "no Node with its provider id has joined yet"),
    };
    let mut taints = node.get("/spec/taints").as_array().into_iter().flatten();
    let uninitialized = taints.any(|taint| taint["key"] == NODE_UNINITIALIZED_TAINT);
    if uninitialized || node.annotation(MACHINE_ANNOTATION) != Some(world.object().name()) {
        return Phase::Steps(vec![tenant(world, adoption(world, node))]);
    }
    Phase::Done
}

fn adoption(world: &World, node: &Object) -> TenantCall {
    let mut annotations = vec![
        ("cluster.x-k8s.io/cluster-name".to_owned(), world.typed().spec.cluster_name.clone()),
        ("cluster.x-k8s.io/cluster-namespace".to_owned(), world.object().namespace().to_owned()),
        (MACHINE_ANNOTATION.to_owned(), world.object().name().to_owned()),
    ];
    if let Some(owner) = world.object().controller() {
        annotations.push(("cluster.x-k8s.io/owner-kind".to_owned(), owner.kind));
        annotations.push(("cluster.x-k8s.io/owner-name".to_owned(), owner.name));
    }
    TenantCall::AdoptNode {
        name: node.name().to_owned(),
        annotations,
        remove_taint: NODE_UNINITIALIZED_TAINT.to_owned(),
    }
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

/// M4.
fn conditions(world: &World, progress: &Progress, has_data: bool, provisioned: bool) -> Vec<Condition> {
    let say = |kind: &str, good: bool, object: Option<&Object>, otherwise: &str| {
        if good {
            return Condition::new(kind, Status::True, kind, "");
        }
        let message = object.map_or_else(|| otherwise.to_owned(), |object| Foreign::new(object).waits_for(otherwise));
        Condition::new(kind, Status::False, &format!("Not{kind}"), message)
    };
    let (config, machine) = (world.referenced(BOOTSTRAP), world.referenced(INFRASTRUCTURE));
    let bootstrap = say("BootstrapConfigReady", has_data, config, "has no bootstrap data yet");
    let infrastructure = say("InfrastructureReady", provisioned, machine, "is not provisioned yet");
    let node = node_condition(world);
    let mut ready = summary(READY, &[&bootstrap, &infrastructure, &node]);
    if let Progress::Blocked(reason) = progress {
        ready = Condition::new(READY, Status::False, reason.code, reason.message.clone());
    } else if world.object().is_deleting() {
        ready = Condition::new(READY, Status::False, "Deleting", "it is being deleted");
    }
    let available = Condition { kind: "Available".into(), ..ready.clone() };
    let mut all = vec![available, ready, bootstrap, infrastructure, node];
    all.extend(up_to_date(world));
    all
}

/// M13: whether the node runs what was asked for. Versions are compared by meaning: a build tag or a missing `v` is no difference.
fn up_to_date(world: &World) -> Option<Condition> {
    let Tenant::Node(node) = &world.facts else { return None };
    let wanted = KubeVersion::parse(world.typed().spec.version.as_deref()?)?;
    let running = KubeVersion::parse(node.text("/status/nodeInfo/kubeletVersion"))?;
    Some(if running == wanted {
        Condition::new("UpToDate", Status::True, "UpToDate", "")
    } else {
        let text = format!("requested {wanted}, its kubelet runs {running}");
        Condition::new("UpToDate", Status::False, "NotUpToDate", text)
    })
}

/// M3: a Node that was there and is gone is not the same as one that has not come yet.
fn node_condition(world: &World) -> Condition {
    let condition = |status, reason: &str, message: String| Condition::new("NodeHealthy", status, reason, message);
    let known = world.object().text("/status/nodeRef/name");
    let node = match &world.facts {
        Tenant::Unreachable => {
            return condition(Status::Unknown, "ConnectionDown", UNREACHABLE.into());
        }
        Tenant::Connecting => return condition(Status::Unknown, "ConnectionDown", CONNECTING.into()),
        Tenant::NoNode if !known.is_empty() => {
            return condition(Status::False, "NodeDeleted", format!("Node {known} was deleted"));
        }
        Tenant::NoNode => {
            let text = "no Node with its provider id has joined yet".into();
            return condition(Status::Unknown, "NodeNotYetJoined", text);
        }
        Tenant::Node(node) => node,
    };
    let mut theirs = node.get("/status/conditions").as_array().into_iter().flatten();
    match theirs.find(|condition| condition["type"] == "Ready") {
        Some(ready) if ready["status"] == "True" => condition(Status::True, "NodeHealthy", String::new()),
        Some(ready) => {
            let text = ready["message"].as_str().unwrap_or_default();
            condition(Status::False, "NodeNotHealthy", format!("Node {} is not ready: {text}", node.name()))
        }
        None => condition(Status::Unknown, "NodeStatusUnknown", format!("Node {} has not reported yet", node.name())),
    }
}

/// The fields of a Node's description that the Machine's schema knows.
fn node_info(node: &Object) -> Option<MachineStatusNodeInfo> {
    let info = node.get("/status/nodeInfo");
    serde_json::from_value(info.clone()).ok().filter(|_| info.is_object())
}

#[cfg(test)]
mod tests;
