//! The Node of a Machine: found by its provider id, then told whose it is, with the labels and taints that the Machine has for it.
//! Holds: of labels, only those of domains that are ours to write; what the Machine does not have any more goes, which annotations on the Node remember;
//! everything that others wrote stays.

use hangar_api::Object;
use hangar_api::kinds::MachineSet;
use hangar_api::names::{NODE_OUTDATED_TAINT, NODE_UNINITIALIZED_TAINT, OUTDATED_ANNOTATION};
use serde_json::{Value, json};

use super::{CONNECTING, Tenant, UNREACHABLE, World, tenant};
use crate::Phase;
use crate::step::{NodeChange, TenantCall};

pub(super) const MACHINE_ANNOTATION: &str = "cluster.x-k8s.io/machine";
const LABELS_ANNOTATION: &str = "cluster.x-k8s.io/labels-from-machine";
const TAINTS_ANNOTATION: &str = "cluster.x-k8s.io/taints-from-machine";
const ROLE_PREFIX: &str = "node-role.kubernetes.io";
/// With everything below.
const DOMAINS: [&str; 2] = ["node-restriction.kubernetes.io", "node.cluster.x-k8s.io"];

pub(super) fn node(world: &World) -> Phase {
    let node = match &world.facts.tenant {
        Tenant::Node(node) => node,
        Tenant::Unreachable => return Phase::wait("WaitingForNode", UNREACHABLE),
        Tenant::Connecting => return Phase::wait("WaitingForNode", CONNECTING),
        Tenant::NoNode => return Phase::wait("WaitingForNode", "no Node with its provider id has joined yet"),
    };
    let mut change = NodeChange { name: node.name().to_owned(), ..NodeChange::default() };
    identity(world, node, &mut change);
    labels(world, node, &mut change);
    taints(world, node, &mut change);
    if change == (NodeChange { name: node.name().to_owned(), ..NodeChange::default() }) {
        return Phase::Done;
    }
    Phase::Steps(vec![tenant(world, TenantCall::AdoptNode(change))])
}

fn identity(world: &World, node: &Object, change: &mut NodeChange) {
    if node.annotation(MACHINE_ANNOTATION) == Some(world.object().name()) {
        return;
    }
    change.annotations = vec![
        ("cluster.x-k8s.io/cluster-name".to_owned(), world.typed().spec.cluster_name.clone()),
        ("cluster.x-k8s.io/cluster-namespace".to_owned(), world.object().namespace().to_owned()),
        (MACHINE_ANNOTATION.to_owned(), world.object().name().to_owned()),
    ];
    if let Some(owner) = world.object().controller() {
        change.annotations.push(("cluster.x-k8s.io/owner-kind".to_owned(), owner.kind));
        change.annotations.push(("cluster.x-k8s.io/owner-name".to_owned(), owner.name));
    }
}

fn is_for_nodes(label: &str) -> bool {
    let Some((domain, _)) = label.split_once('/') else { return false };
    let is_below = |ours: &str| domain == ours || domain.strip_suffix(ours).is_some_and(|rest| rest.ends_with('.'));
    domain == ROLE_PREFIX || DOMAINS.into_iter().any(is_below)
}

/// What an annotation of the Node remembers.
fn recorded<'a>(node: &'a Object, annotation: &str) -> Vec<&'a str> {
    node.annotation(annotation).unwrap_or_default().split(',').filter(|name| !name.is_empty()).collect()
}

fn record(node: &Object, annotation: &str, names: &[String], change: &mut NodeChange) {
    let names = names.join(",");
    if node.annotation(annotation).unwrap_or_default() != names {
        change.annotations.push((annotation.to_owned(), names));
    }
}

fn labels(world: &World, node: &Object, change: &mut NodeChange) {
    let mut wanted = world.object().labels();
    wanted.retain(|name, _| is_for_nodes(name));
    let missing = wanted.iter().filter(|(name, value)| node.label(name) != Some(value));
    change.labels = missing.map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
    let gone = recorded(node, LABELS_ANNOTATION).into_iter().filter(|name| !wanted.contains_key(*name));
    change.labels.extend(gone.map(|name| (name.to_owned(), None)));
    record(node, LABELS_ANNOTATION, &wanted.into_keys().collect::<Vec<_>>(), change);
}

fn identity_of(taint: &Value) -> (String, String) {
    let text = |field: &str| taint[field].as_str().unwrap_or_default().to_owned();
    (text("key"), text("effect"))
}

/// Those that the Machine keeps up, those for a beginning, and the one of an outdated revision.
fn taints(world: &World, node: &Object, change: &mut NodeChange) {
    let present: Vec<&Value> = node.get("/spec/taints").as_array().into_iter().flatten().collect();
    let is_new = present.iter().any(|taint| taint["key"] == NODE_UNINITIALIZED_TAINT);
    let all = world.typed().spec.taints.iter().flatten();
    let (kept, first): (Vec<_>, Vec<_>) = all.partition(|taint| taint.propagation != "OnInitialization");
    let as_taint = |taint: &hangar_api::kinds::MachineSpecTaint| {
        let mut object = json!({ "key": taint.key, "effect": taint.effect });
        if let Some(value) = taint.value.as_ref().filter(|value| !value.is_empty()) {
            object["value"] = value.as_str().into();
        }
        object
    };
    let names: Vec<String> = kept.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
    let mut wanted: Vec<Value> = kept.into_iter().map(as_taint).collect();
    if is_new {
        wanted.extend(first.into_iter().map(as_taint));
    }
    // D9.
    let outdated = json!({ "key": NODE_OUTDATED_TAINT, "effect": "PreferNoSchedule" });
    let set = world.owner::<MachineSet>();
    if set.is_some_and(|set| set.annotation(OUTDATED_ANNOTATION).is_some()) {
        wanted.push(outdated);
    }
    let remembered = recorded(node, TAINTS_ANNOTATION);
    let gone = present.iter().map(|taint| identity_of(taint)).filter(|(key, effect)| {
        let ours = [NODE_UNINITIALIZED_TAINT, NODE_OUTDATED_TAINT].contains(&key.as_str());
        let was_kept = remembered.contains(&format!("{key}:{effect}").as_str());
        (ours || was_kept) && !wanted.iter().any(|taint| identity_of(taint) == (key.clone(), effect.clone()))
    });
    change.remove_taints = gone.collect();
    let is_there = |taint: &Value| {
        present.iter().any(|there| identity_of(there) == identity_of(taint) && there["value"] == taint["value"])
    };
    change.taints = wanted.into_iter().filter(|taint| !is_there(taint)).collect();
    record(node, TAINTS_ANNOTATION, &names, change);
}
