//! Cluster: joins infrastructure, control plane and workers.
//! Flows: finalizer -> owners of what it refers to -> endpoint. Holds: references are resolved by group and kind; the endpoint is copied
//! once; on the way out workers go first, then the control plane, then the infrastructure.

use hangar_api::Object;
use hangar_api::conditions::{Condition, Status, aggregate, find, settle, summary};
use hangar_api::kinds::Cluster;
use hangar_api::names::{CLUSTER_FINALIZER, CLUSTER_NAME_LABEL};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::intent;
use crate::{Phase, Phases, Plan, Progress, Reason, Step};

#[derive(Debug, Clone)]
pub struct World {
    pub object: Object,
    pub cluster: Cluster,
    pub infrastructure: Option<Object>,
    pub control_plane: Option<Object>,
    /// MachineDeployments, MachineSets and Machines of this cluster.
    pub deployments: Vec<Object>,
    pub sets: Vec<Object>,
    pub machines: Vec<Object>,
    pub refusal: Option<Reason>,
}

pub fn plan(world: &World, now: Timestamp) -> Plan {
    if world.object.is_deleting() {
        return Phases::of(world, now)
            .unless_refused(world.refusal.as_ref())
            .then(delete_workers)
            .then(delete_control_plane)
            .then(delete_infrastructure)
            .then(release)
            .report(status);
    }
    Phases::of(world, now)
        .unless_refused(world.refusal.as_ref())
        .then(finalizer)
        .then(owners)
        .then(endpoint)
        .then(waiting)
        .report(status)
}

fn delete_workers(world: &World, _now: Timestamp) -> Phase {
    let standalone = |object: &&Object| object.controller().is_none();
    let all: Vec<&Object> = world
        .deployments
        .iter()
        .chain(world.sets.iter().filter(standalone))
        .chain(world.machines.iter().filter(standalone))
        .collect();
    let steps: Vec<Step> = all.iter().filter_map(|object| intent::delete(object)).collect();
    let left = world.deployments.len() + world.sets.len() + world.machines.len();
    if steps.is_empty() && left > 0 {
        return Phase::wait(
            "WaitingForWorkersDeletion",
            format!("{} worker Machines are still going", world.machines.len()),
        );
    }
    Phase::steps(steps)
}

fn delete_control_plane(world: &World, _now: Timestamp) -> Phase {
    gone(world.control_plane.as_ref(), "WaitingForControlPlaneDeletion")
}

fn delete_infrastructure(world: &World, _now: Timestamp) -> Phase {
    gone(world.infrastructure.as_ref(), "WaitingForInfrastructureDeletion")
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

fn release(world: &World, _now: Timestamp) -> Phase {
    Phase::steps(intent::release(&world.object, CLUSTER_FINALIZER))
}

fn finalizer(world: &World, _now: Timestamp) -> Phase {
    Phase::steps(intent::adopt(&world.object, Some(CLUSTER_FINALIZER), None, &[]))
}

fn owners(world: &World, _now: Timestamp) -> Phase {
    let owner = world.object.as_owner(false);
    let labels = [(CLUSTER_NAME_LABEL, world.object.name())];
    let parts = [&world.infrastructure, &world.control_plane];
    Phase::steps(parts.into_iter().flatten().filter_map(|part| intent::adopt(part, None, Some(&owner), &labels)))
}

fn endpoint(world: &World, _now: Timestamp) -> Phase {
    if !world.object.text("/spec/controlPlaneEndpoint/host").is_empty() {
        return Phase::Done;
    }
    let infrastructure = world.infrastructure.as_ref().filter(|object| is_provisioned(object));
    let sources = [infrastructure, world.control_plane.as_ref()];
    let found = sources.into_iter().flatten().map(|object| object.get("/spec/controlPlaneEndpoint"));
    let known = found.into_iter().find(|endpoint| {
        !endpoint["host"].as_str().unwrap_or_default().is_empty() && endpoint["port"].as_i64().unwrap_or_default() > 0
    });
    match known {
        Some(endpoint) => {
            let endpoint = json!({ "host": endpoint["host"], "port": endpoint["port"] });
            Phase::steps(intent::touch(&world.object, json!({ "spec": { "controlPlaneEndpoint": endpoint } })))
        }
        None => Phase::Done,
    }
}

fn waiting(world: &World, _now: Timestamp) -> Phase {
    let named = [("infrastructureRef", &world.infrastructure), ("controlPlaneRef", &world.control_plane)];
    for (field, found) in named {
        let reference = world.object.get("/spec").get(field).cloned().unwrap_or_default();
        if let (Some(kind), Some(name), None) = (reference["kind"].as_str(), reference["name"].as_str(), found) {
            return Phase::wait(
                "WaitingForReference",
                format!("there is no {kind} {name} yet, which spec.{field} names"),
            );
        }
    }
    Phase::Done
}

fn is_provisioned(infrastructure: &Object) -> bool {
    infrastructure.get("/status/initialization/provisioned") == true || infrastructure.get("/status/ready") == true
}

fn is_initialized(control_plane: &Object) -> bool {
    control_plane.get("/status/initialization/controlPlaneInitialized") == true
        || control_plane.get("/status/initialized") == true
}

fn status(world: &World, progress: &Progress, now: Timestamp) -> Option<Value> {
    let deleting = world.object.is_deleting();
    if deleting && world.infrastructure.is_none() && world.control_plane.is_none() && world.machines.is_empty() {
        return None;
    }
    let before = world.object.get("/status/initialization");
    // Both latch: what was once true stays true.
    let provisioned =
        before["infrastructureProvisioned"] == true || world.infrastructure.as_ref().is_some_and(is_provisioned);
    let initialized =
        before["controlPlaneInitialized"] == true || world.control_plane.as_ref().is_some_and(is_initialized);
    let has_endpoint = !world.object.text("/spec/controlPlaneEndpoint/host").is_empty();
    let phase = match (deleting, provisioned && has_endpoint, world.object.get("/spec/infrastructureRef").is_object()) {
        (true, ..) => "Deleting",
        (_, true, _) => "Provisioned",
        (_, _, true) => "Provisioning",
        _ => "Pending",
    };
    let present = world.cluster.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut status = json!({
        "observedGeneration": world.object.generation(),
        "phase": phase,
        "initialization": { "infrastructureProvisioned": provisioned, "controlPlaneInitialized": initialized },
        "workers": workers(world),
        "conditions": settle(conditions(world, progress, initialized), &present, now),
    });
    if let Some(plane) = &world.control_plane {
        status["controlPlane"] = control_plane_replicas(plane);
    }
    if let Some(domains) = world.infrastructure.as_ref().map(|object| object.get("/status/failureDomains")) {
        let list = failure_domains(domains);
        if !list.is_empty() {
            status["failureDomains"] = list.into();
        }
    }
    Some(status)
}

/// A map by name (contract v1beta1) or a list (v1beta2); sorted either way.
fn failure_domains(domains: &Value) -> Vec<Value> {
    let named = domains
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, domain)| json!({ "name": name, "controlPlane": domain["controlPlane"] == true }));
    let mut list: Vec<Value> = named.chain(domains.as_array().into_iter().flatten().cloned()).collect();
    list.sort_by_key(|domain| domain["name"].as_str().unwrap_or_default().to_owned());
    list
}

fn workers(world: &World) -> Value {
    let sum = |pointer: &str| world.deployments.iter().filter_map(|object| object.get(pointer).as_i64()).sum::<i64>();
    json!({
        "desiredReplicas": sum("/spec/replicas"), "replicas": sum("/status/replicas"),
        "readyReplicas": sum("/status/readyReplicas"), "availableReplicas": sum("/status/availableReplicas"),
        "upToDateReplicas": sum("/status/upToDateReplicas"),
    })
}

fn control_plane_replicas(plane: &Object) -> Value {
    let number = |pointer: &str| plane.get(pointer).as_i64().unwrap_or_default();
    json!({
        "desiredReplicas": number("/spec/replicas"), "replicas": number("/status/replicas"),
        "readyReplicas": number("/status/readyReplicas"), "availableReplicas": number("/status/availableReplicas"),
        "upToDateReplicas": number("/status/upToDateReplicas"),
    })
}

fn conditions(world: &World, progress: &Progress, initialized: bool) -> Vec<Condition> {
    let infrastructure = mirror("InfrastructureReady", world.infrastructure.as_ref(), &["Ready"], is_provisioned);
    let plane = mirror("ControlPlaneAvailable", world.control_plane.as_ref(), &["Available", "Ready"], is_initialized);
    let parts: Vec<(String, Vec<Condition>)> =
        world.deployments.iter().map(|object| (object.name().to_owned(), conditions_of(object))).collect();
    let parts: Vec<(String, Option<&Condition>)> = parts
        .iter()
        .map(|(name, conditions)| (format!("MachineDeployment {name}"), find(conditions, "Available")))
        .collect();
    let workers = aggregate("WorkersAvailable", &parts);
    let mut available = summary("Available", &[&infrastructure, &plane, &workers]);
    let waits = progress.reason().map_or(String::new(), |reason| reason.message.clone());
    let deleting = Condition::new(
        "Deleting",
        world.object.is_deleting().into(),
        if world.object.is_deleting() { "Deleting" } else { "NotDeleting" },
        if world.object.is_deleting() { waits.clone() } else { String::new() },
    );
    if world.object.is_deleting() {
        available = Condition::new("Available", Status::False, "Deleting", "it is being deleted");
    } else if !available.is_true() && !waits.is_empty() {
        available.message = format!("{waits}\n{}", available.message);
    }
    let started = Condition::new(
        "ControlPlaneInitialized",
        initialized.into(),
        if initialized { "Initialized" } else { "NotInitialized" },
        "",
    );
    vec![available, infrastructure, started, plane, workers, deleting]
}

fn conditions_of(object: &Object) -> Vec<Condition> {
    serde_json::from_value(object.get("/status/conditions").clone()).unwrap_or_default()
}

/// Another object's own condition, or its flag where it has none.
fn mirror(kind: &str, object: Option<&Object>, theirs: &[&str], flag: fn(&Object) -> bool) -> Condition {
    let Some(object) = object else {
        return Condition::new(kind, Status::Unknown, "NotFound", "the object that the Cluster names is not there");
    };
    let conditions = conditions_of(object);
    match theirs.iter().find_map(|name| find(&conditions, name)) {
        Some(theirs) => Condition {
            kind: kind.to_owned(),
            status: theirs.status.clone(),
            reason: if theirs.reason.is_empty() { kind.to_owned() } else { theirs.reason.clone() },
            message: theirs.message.clone(),
            ..Condition::default()
        },
        None if flag(object) => Condition::new(kind, Status::True, kind, ""),
        None => {
            Condition::new(kind, Status::False, &format!("Not{kind}"), format!("{} has not reported yet", object.key()))
        }
    }
}
