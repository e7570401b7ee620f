//! The objects of one cluster as a tree: infrastructure, control plane, workers.
//!
//! Flows: every object -> its `Available` (or `Ready`) condition -> a [`Row`] below whoever it belongs to. Holds: an object that has
//! reported nothing is `Unknown`, never ready; what is under deletion is never ready; a reference to nothing is shown.

use hangar_api::conditions::{Condition, find};
use hangar_api::{Object, names};
use jiff::Timestamp;
use serde_json::Value;

use crate::Row;
use crate::group::group;

/// The label that upstream puts on the machines of a control plane.
const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";
const NOT_REPORTED: &str = "NotReported";

/// The objects of one cluster, in their hub versions.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub cluster: Object,
    pub infrastructure: Option<Object>,
    pub control_plane: Option<Object>,
    pub deployments: Vec<Object>,
    pub sets: Vec<Object>,
    pub pools: Vec<Object>,
    pub machines: Vec<Object>,
    pub infrastructure_machines: Vec<Object>,
    pub bootstrap_configs: Vec<Object>,
}

/// The cluster with all that belongs to it, in the order in which people look.
pub fn tree(snapshot: &Snapshot) -> Row {
    let (control, workers): (Vec<&Object>, Vec<&Object>) =
        snapshot.machines.iter().partition(|machine| machine.label(CONTROL_PLANE_LABEL).is_some());
    let mut root = state("", &snapshot.cluster);
    let cluster = &snapshot.cluster;
    root.children.extend(referred(
        cluster,
        "infrastructureRef",
        "ClusterInfrastructure",
        snapshot.infrastructure.as_ref(),
    ));
    let mut plane = referred(cluster, "controlPlaneRef", "ControlPlane", snapshot.control_plane.as_ref());
    match &mut plane {
        Some(plane) => plane.children = machine_rows(snapshot, control),
        None if !control.is_empty() => plane = Some(Row::heading("ControlPlane", machine_rows(snapshot, control))),
        None => {}
    }
    root.children.extend(plane);
    let workers = worker_rows(snapshot, workers);
    if !workers.is_empty() {
        root.children.push(Row::heading("Workers", workers));
    }
    root
}

/// The object a Cluster refers to, or a row that says it is missing.
fn referred(cluster: &Object, field: &str, role: &str, object: Option<&Object>) -> Option<Row> {
    if let Some(object) = object {
        return Some(state(role, object));
    }
    let reference = cluster.get(&format!("/spec/{field}"));
    let (kind, name) = (reference.get("kind")?.as_str()?, reference.get("name")?.as_str()?);
    Some(Row {
        name: format!("{role} - {kind}/{name}"),
        ready: Some("False".into()),
        reason: "NotFound".into(),
        since: None,
        message: format!("the object does not exist: apply it, or correct spec.{field} of the Cluster"),
        children: vec![],
    })
}

/// MachineDeployments with their machines, then MachineSets that stand alone, MachinePools, and machines that stand alone.
fn worker_rows(snapshot: &Snapshot, machines: Vec<&Object>) -> Vec<Row> {
    let mut rest = machines;
    let mut rows = Vec::new();
    for deployment in by_name(snapshot.deployments.iter()) {
        let sets: Vec<&Object> = snapshot.sets.iter().filter(|set| belongs_to_deployment(set, deployment)).collect();
        let (own, others) = rest.into_iter().partition(|machine: &&Object| {
            belongs_to_deployment(machine, deployment) || sets.iter().any(|set| belongs_to_set(machine, set))
        });
        rest = others;
        rows.push(Row { children: machine_rows(snapshot, own), ..state("", deployment) });
    }
    let alone = |set: &&Object| !snapshot.deployments.iter().any(|deployment| belongs_to_deployment(set, deployment));
    for set in by_name(snapshot.sets.iter().filter(alone)) {
        let (own, others) = rest.into_iter().partition(|machine: &&Object| belongs_to_set(machine, set));
        rest = others;
        rows.push(Row { children: machine_rows(snapshot, own), ..state("", set) });
    }
    for pool in by_name(snapshot.pools.iter()) {
        let (own, others) = rest.into_iter().partition(|machine: &&Object| machine.is_owned_by(pool.uid()));
        rest = others;
        rows.push(Row { children: machine_rows(snapshot, own), ..state("", pool) });
    }
    let mut rows = group(rows);
    rows.extend(machine_rows(snapshot, rest));
    rows
}

fn belongs_to_deployment(object: &Object, deployment: &Object) -> bool {
    object.is_owned_by(deployment.uid()) || object.label(names::DEPLOYMENT_NAME_LABEL) == Some(deployment.name())
}

fn belongs_to_set(machine: &Object, set: &Object) -> bool {
    machine.is_owned_by(set.uid()) || machine.label(names::SET_NAME_LABEL) == Some(set.name())
}

fn machine_rows(snapshot: &Snapshot, machines: Vec<&Object>) -> Vec<Row> {
    group(by_name(machines.into_iter()).into_iter().map(|machine| machine_row(snapshot, machine)).collect())
}

/// A machine, with its server and its bootstrap data only if they say what the machine does not.
fn machine_row(snapshot: &Snapshot, machine: &Object) -> Row {
    let mut row = state("", machine);
    let parts = [
        ("BootstrapConfig", "/spec/bootstrap/configRef", &snapshot.bootstrap_configs),
        ("MachineInfrastructure", "/spec/infrastructureRef", &snapshot.infrastructure_machines),
    ];
    for (role, reference, candidates) in parts {
        let reference = machine.get(reference);
        let named = |object: &&Object| reference["kind"] == object.kind() && reference["name"] == object.name();
        let part = candidates.iter().find(named).map(|object| state(role, object));
        row.children.extend(part.filter(|part| says_more(part, &row)));
    }
    row
}

fn says_more(part: &Row, machine: &Row) -> bool {
    let said = if part.message.is_empty() { &part.reason } else { &part.message };
    part.is_bad() && part.reason != NOT_REPORTED && machine.reason != *said && !machine.message.contains(said.as_str())
}

fn by_name<'a>(objects: impl Iterator<Item = &'a Object>) -> Vec<&'a Object> {
    let mut objects: Vec<&Object> = objects.collect();
    objects.sort_by_key(|object| object.name());
    objects
}

/// One object as a row without children.
fn state(role: &str, object: &Object) -> Row {
    let condition = condition(object);
    let name = format!("{}/{}", object.kind(), object.name());
    Row {
        name: if role.is_empty() { name } else { format!("{role} - {name}") },
        since: condition.last_transition_time.as_deref().and_then(transition_time),
        // A reason beside `True` only repeats the column before it.
        reason: if condition.is_true() { String::new() } else { condition.reason },
        ready: Some(condition.status),
        message: condition.message,
        children: vec![],
    }
}

/// Schemas of some providers fill in conditions with the time 1970-01-01, which means that nobody has reported them yet.
fn transition_time(text: &str) -> Option<Timestamp> {
    text.parse().ok().filter(|&time: &Timestamp| time > Timestamp::UNIX_EPOCH)
}

fn condition(object: &Object) -> Condition {
    let all = object.get("/status/conditions").as_array().into_iter().flatten();
    let all: Vec<Condition> = all.filter_map(|one| serde_json::from_value(Value::clone(one)).ok()).collect();
    let reported =
        find(&all, "Available").or_else(|| find(&all, "Ready")).filter(|one| !one.status.is_empty()).cloned();
    let unknown = || Condition {
        status: "Unknown".into(),
        reason: NOT_REPORTED.into(),
        message: "not reported yet".into(),
        ..Condition::default()
    };
    let condition = reported.unwrap_or_else(unknown);
    if object.is_deleting() && (condition.is_true() || condition.reason == NOT_REPORTED) {
        let since = object.text("/metadata/deletionTimestamp").to_owned();
        return Condition {
            status: "False".into(),
            reason: "Deleting".into(),
            message: "waiting for deletion".into(),
            last_transition_time: Some(since),
            ..Condition::default()
        };
    }
    condition
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
