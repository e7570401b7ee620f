//! Machine: bootstrap data, then infrastructure, then the Node that came up on it.
//! Flows: bootstrap data -> infrastructure with provider id -> Node by provider id -> Running. Holds: nothing is read from the Node
//! but what the tenant's own API says; on the way out infrastructure goes first, then the bootstrap config, then the Node.

use hangar_api::conditions::{Condition, Status, find, settle, summary};
use hangar_api::kinds::Machine;
use hangar_api::names::{CLUSTER_NAME_LABEL, MACHINE_FINALIZER, NODE_UNINITIALIZED_TAINT};
use hangar_api::{KubeVersion, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::intent;
use crate::step::TenantCall;
use crate::{Phase, Phases, Plan, Progress, Reason, Step};

#[derive(Debug, Clone)]
pub struct World {
    pub object: Object,
    pub machine: Machine,
    pub cluster: Option<Object>,
    pub bootstrap: Option<Object>,
    pub infrastructure: Option<Object>,
    pub tenant: Tenant,
    pub refusal: Option<Reason>,
}

/// What is known of the machine's Node.
#[derive(Debug, Clone, PartialEq)]
pub enum Tenant {
    /// No control plane to ask yet, or it cannot be reached.
    Unreachable,
    /// It was asked: there is no Node with this provider id.
    NoNode,
    Node(Box<Object>),
}

pub fn plan(world: &World, now: Timestamp) -> Plan {
    if world.object.is_deleting() {
        return Phases::of(world, now)
            .unless_refused(world.refusal.as_ref())
            .then(delete_infrastructure)
            .then(delete_bootstrap)
            .then(delete_node)
            .then(release)
            .report(status);
    }
    Phases::of(world, now)
        .unless_refused(world.refusal.as_ref())
        .then(owner)
        .then(bootstrap)
        .then(infrastructure)
        .then(provider_id)
        .then(node)
        .report(status)
}

fn delete_infrastructure(world: &World, _now: Timestamp) -> Phase {
    gone(world.infrastructure.as_ref(), "WaitingForInfrastructureDeletion")
}

fn delete_bootstrap(world: &World, _now: Timestamp) -> Phase {
    gone(world.bootstrap.as_ref(), "WaitingForBootstrapDeletion")
}

fn gone(object: Option<&Object>, code: &'static str) -> Phase {
    match object {
        None => Phase::Done,
        Some(object) => match intent::delete(object) {
            Some(step) => Phase::Steps(vec![step]),
            None => Phase::wait(code, format!("{} is still going", object.key())),
        },
    }
}

fn delete_node(world: &World, _now: Timestamp) -> Phase {
    let cluster_goes = world.cluster.as_ref().is_none_or(Object::is_deleting);
    match &world.tenant {
        Tenant::Node(node) if !cluster_goes => {
            Phase::Steps(vec![Step::Tenant(TenantCall::DeleteNode { name: node.name().to_owned() })])
        }
        _ => Phase::Done,
    }
}

fn release(world: &World, _now: Timestamp) -> Phase {
    Phase::steps(intent::release(&world.object, MACHINE_FINALIZER))
}

fn owner(world: &World, _now: Timestamp) -> Phase {
    let cluster_name = world.machine.spec.cluster_name.as_str();
    let Some(cluster) = &world.cluster else {
        return Phase::wait("WaitingForCluster", format!("there is no Cluster {cluster_name} yet"));
    };
    // A Machine that somebody made by hand belongs to the Cluster; all others have their set.
    let owner = world.object.controller().is_none().then(|| cluster.as_owner(false));
    let labels = [(CLUSTER_NAME_LABEL, cluster_name)];
    Phase::steps(intent::adopt(&world.object, Some(MACHINE_FINALIZER), owner.as_ref(), &labels))
}

fn bootstrap(world: &World, _now: Timestamp) -> Phase {
    if world.machine.spec.bootstrap.data_secret_name.is_some() {
        return Phase::Done;
    }
    let Some(config) = &world.bootstrap else {
        return Phase::wait("WaitingForBootstrapConfig", "its bootstrap config is not there yet");
    };
    match config.text("/status/dataSecretName") {
        "" => Phase::wait("WaitingForBootstrapData", waits_for(config, "has no bootstrap data yet")),
        name => {
            Phase::steps(intent::touch(&world.object, json!({ "spec": { "bootstrap": { "dataSecretName": name } } })))
        }
    }
}

fn infrastructure(world: &World, _now: Timestamp) -> Phase {
    let Some(machine) = &world.infrastructure else {
        return Phase::wait("WaitingForInfrastructure", "its infrastructure machine is not there yet");
    };
    if is_provisioned(machine) {
        return Phase::Done;
    }
    Phase::wait("WaitingForInfrastructure", waits_for(machine, "is not provisioned yet"))
}

/// Contract v1beta2 or v1beta1, and a provider id in either.
fn is_provisioned(machine: &Object) -> bool {
    let flagged = machine.get("/status/initialization/provisioned") == true || machine.get("/status/ready") == true;
    flagged && !machine.text("/spec/providerID").is_empty()
}

/// What another object says of itself, or else our own words.
fn waits_for(object: &Object, otherwise: &str) -> String {
    let conditions: Vec<Condition> =
        serde_json::from_value(object.get("/status/conditions").clone()).unwrap_or_default();
    match find(&conditions, "Ready") {
        Some(ready) if !ready.is_true() && !ready.message.is_empty() => ready.message.clone(),
        _ => format!("{} {otherwise}", object.key()),
    }
}

fn provider_id(world: &World, _now: Timestamp) -> Phase {
    let id = world.infrastructure.as_ref().map_or("", |machine| machine.text("/spec/providerID"));
    Phase::steps(intent::touch(&world.object, json!({ "spec": { "providerID": id } })))
}

fn node(world: &World, _now: Timestamp) -> Phase {
    let Tenant::Node(node) = &world.tenant else {
        let text = match world.tenant {
            Tenant::Unreachable => "the cluster's API cannot be reached",
            _ => "no Node with its provider id has joined yet",
        };
        return Phase::wait("WaitingForNode", text);
    };
    let tainted = node.get("/spec/taints").as_array().into_iter().flatten();
    let uninitialized = tainted.into_iter().any(|taint| taint["key"] == NODE_UNINITIALIZED_TAINT);
    if uninitialized || node.annotation("cluster.x-k8s.io/machine") != Some(world.object.name()) {
        return Phase::Steps(vec![Step::Tenant(adoption(world, node))]);
    }
    Phase::Done
}

fn adoption(world: &World, node: &Object) -> TenantCall {
    let mut annotations = vec![
        ("cluster.x-k8s.io/cluster-name".to_owned(), world.machine.spec.cluster_name.clone()),
        ("cluster.x-k8s.io/cluster-namespace".to_owned(), world.object.namespace().to_owned()),
        ("cluster.x-k8s.io/machine".to_owned(), world.object.name().to_owned()),
    ];
    if let Some(owner) = world.object.controller() {
        annotations.push(("cluster.x-k8s.io/owner-kind".to_owned(), owner.kind));
        annotations.push(("cluster.x-k8s.io/owner-name".to_owned(), owner.name));
    }
    TenantCall::AdoptNode {
        name: node.name().to_owned(),
        annotations,
        remove_taint: NODE_UNINITIALIZED_TAINT.to_owned(),
    }
}

fn status(world: &World, progress: &Progress, now: Timestamp) -> Option<Value> {
    let deleting = world.object.is_deleting();
    if deleting && *progress == Progress::Acting && world.infrastructure.is_none() && world.bootstrap.is_none() {
        return None;
    }
    let has_data = world.machine.spec.bootstrap.data_secret_name.is_some();
    let provisioned = world.infrastructure.as_ref().is_some_and(is_provisioned);
    let node = match &world.tenant {
        Tenant::Node(node) => Some(node),
        _ => None,
    };
    let mut status = json!({
        "observedGeneration": world.object.generation(),
        "phase": phase(deleting, has_data, provisioned, node.is_some()),
        "initialization": { "bootstrapDataSecretCreated": has_data, "infrastructureProvisioned": provisioned },
        "conditions": settle(conditions(world, progress, has_data, provisioned), &present(world), now),
    });
    if let Some(addresses) =
        world.infrastructure.as_ref().map(|machine| machine.get("/status/addresses")).filter(|a| a.is_array())
    {
        status["addresses"] = addresses.clone();
    }
    if let Some(domain) = &world.machine.spec.failure_domain {
        status["failureDomain"] = domain.clone().into();
    }
    if let Some(node) = node {
        status["nodeRef"] = json!({ "name": node.name() });
        status["nodeInfo"] = node_info(node);
    } else if let Some(known) = world.machine.status.as_ref().and_then(|status| status.node_ref.as_ref()) {
        // A Node that was seen is not forgotten because the API is away for a moment.
        status["nodeRef"] = json!({ "name": known.name });
    }
    Some(status)
}

fn present(world: &World) -> Vec<Condition> {
    world.machine.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default()
}

fn phase(deleting: bool, has_data: bool, provisioned: bool, has_node: bool) -> &'static str {
    match (deleting, has_data, provisioned, has_node) {
        (true, ..) => "Deleting",
        (_, _, _, true) => "Running",
        (_, _, true, _) => "Provisioned",
        (_, true, ..) => "Provisioning",
        _ => "Pending",
    }
}

fn conditions(world: &World, progress: &Progress, has_data: bool, provisioned: bool) -> Vec<Condition> {
    let say = |kind: &str, good: bool, object: Option<&Object>, otherwise: &str| {
        if good {
            return Condition::new(kind, Status::True, kind, "");
        }
        let message = object.map_or_else(|| otherwise.to_owned(), |object| waits_for(object, otherwise));
        Condition::new(kind, Status::False, &format!("Not{kind}"), message)
    };
    let bootstrap = say("BootstrapConfigReady", has_data, world.bootstrap.as_ref(), "has no bootstrap data yet");
    let infrastructure =
        say("InfrastructureReady", provisioned, world.infrastructure.as_ref(), "is not provisioned yet");
    let node = node_condition(world);
    let deleting = Condition::new(
        "Deleting",
        world.object.is_deleting().into(),
        if world.object.is_deleting() { "Deleting" } else { "NotDeleting" },
        progress.reason().filter(|_| world.object.is_deleting()).map_or(String::new(), |reason| reason.message.clone()),
    );
    let mut ready = summary("Ready", &[&bootstrap, &infrastructure, &node]);
    if let Progress::Blocked(reason) = progress {
        ready = Condition::new("Ready", Status::False, reason.code, reason.message.clone());
    } else if world.object.is_deleting() {
        ready = Condition::new("Ready", Status::False, "Deleting", "it is being deleted");
    }
    let available = Condition { kind: "Available".into(), ..ready.clone() };
    let mut all = vec![available, ready, bootstrap, infrastructure, node, deleting];
    all.extend(up_to_date(world));
    all
}

/// Whether the node runs what was asked for. Versions are compared by meaning: a build tag or a missing `v` is no difference.
fn up_to_date(world: &World) -> Option<Condition> {
    let Tenant::Node(node) = &world.tenant else { return None };
    let wanted = KubeVersion::parse(world.machine.spec.version.as_deref()?)?;
    let running = KubeVersion::parse(node.text("/status/nodeInfo/kubeletVersion"))?;
    Some(if running == wanted {
        Condition::new("UpToDate", Status::True, "UpToDate", "")
    } else {
        Condition::new(
            "UpToDate",
            Status::False,
            "NotUpToDate",
            format!("{wanted} was asked for, its kubelet is {running}"),
        )
    })
}

fn node_condition(world: &World) -> Condition {
    match &world.tenant {
        Tenant::Unreachable => {
            Condition::new("NodeHealthy", Status::Unknown, "ConnectionDown", "the cluster's API cannot be reached")
        }
        Tenant::NoNode => Condition::new(
            "NodeHealthy",
            Status::Unknown,
            "NodeNotYetJoined",
            "no Node with its provider id has joined yet",
        ),
        Tenant::Node(node) => {
            let conditions = node.get("/status/conditions").as_array().into_iter().flatten();
            let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
            match ready {
                Some(ready) if ready["status"] == "True" => {
                    Condition::new("NodeHealthy", Status::True, "NodeHealthy", "")
                }
                Some(ready) => {
                    let text = ready["message"].as_str().unwrap_or_default();
                    Condition::new(
                        "NodeHealthy",
                        Status::False,
                        "NodeNotHealthy",
                        format!("Node {} is not ready: {text}", node.name()),
                    )
                }
                None => Condition::new(
                    "NodeHealthy",
                    Status::Unknown,
                    "NodeStatusUnknown",
                    format!("Node {} has not reported yet", node.name()),
                ),
            }
        }
    }
}

/// The fields of a Node's description that the Machine's schema knows.
fn node_info(node: &Object) -> Value {
    const FIELDS: [&str; 10] = [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ];
    let info = node.get("/status/nodeInfo");
    FIELDS
        .iter()
        .map(|field| ((*field).to_owned(), json!(info[*field].as_str().unwrap_or_default())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
