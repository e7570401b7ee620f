//! MachinePool: Nodes that the infrastructure makes and replaces by itself, from one bootstrap config, without a Machine for each.
//! Flows: owners -> bootstrap data -> infrastructure with its provider ids -> Nodes by provider id. Holds: how many there are is the
//! infrastructure's business; a Node is told once whose it is; on the way out the infrastructure goes first, and the Nodes last.

mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hangar_api::Object;
use hangar_api::contract::Foreign;
use hangar_api::kinds::MachinePool;
use hangar_api::names::{CLUSTER_NAME_LABEL, MACHINE_POOL_FINALIZER, NODE_UNINITIALIZED_TAINT};
use jiff::Timestamp;
use serde_json::json;

use crate::intent;
use crate::step::{ClusterName, Effect, NodeChange, TenantAnswer, TenantCall};
use crate::{Absorb, Phase, Phases, Planner, Progress, Report, Step};

pub struct MachinePools;

type World = crate::World<MachinePools>;

const BOOTSTRAP: &str = "/spec/template/spec/bootstrap/configRef";
const DATA_SECRET: &str = "/spec/template/spec/bootstrap/dataSecretName";
const INFRASTRUCTURE: &str = "/spec/template/spec/infrastructureRef";
const OWNER_NAME: &str = "cluster.x-k8s.io/owner-name";
const OWNER_KIND: &str = "cluster.x-k8s.io/owner-kind";

/// Nodes of the cluster by provider id, once they were listed.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub nodes: Option<BTreeMap<String, Arc<Object>>>,
}

impl Absorb for Facts {
    fn absorb(&mut self, effect: &Effect) {
        let Some(nodes) = &mut self.nodes else { return };
        match effect {
            Effect::Tenant(TenantAnswer::NodeDeleted { name }) => nodes.retain(|_, node| node.name() != name),
            Effect::Tenant(TenantAnswer::NodeAdopted(node)) => {
                nodes.insert(node.text("/spec/providerID").to_owned(), node.clone());
            }
            _ => {}
        }
    }
}

impl Planner for MachinePools {
    type Kind = MachinePool;
    type Facts = Facts;
    const FINALIZER: Option<&'static str> = Some(MACHINE_POOL_FINALIZER);
    const READY: bool = false;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases
            .then(owner)
            .then(children)
            .then(bootstrap)
            .then(infrastructure)
            .then(provider_ids)
            .facts()
            .then(nodes)
            .then(joined)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(infrastructure_gone).then(bootstrap_gone).facts().then(nodes_gone)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<MachinePool>) {
        status::describe(world, progress, report);
    }

    fn recheck(world: &World, now: Timestamp) -> Option<Duration> {
        status::available_in(world, now)
    }
}

fn infrastructure_pool(world: &World) -> Option<Foreign<'_>> {
    world.referenced(INFRASTRUCTURE).map(Foreign::new)
}

fn desired(world: &World) -> usize {
    usize::try_from(world.typed().spec.replicas.unwrap_or(1)).unwrap_or(0)
}

/// Its Nodes that have joined, in the order of their names.
fn own_nodes(world: &World) -> Vec<&Arc<Object>> {
    let ids = world.typed().spec.provider_id_list.as_deref().unwrap_or_default();
    let known = world.facts.nodes.as_ref();
    let mut nodes: Vec<&Arc<Object>> = ids.iter().filter_map(|id| known?.get(id)).collect();
    nodes.sort_by_key(|node| node.name());
    nodes
}

fn owner(world: &World) -> Phase {
    let name = &world.typed().spec.cluster_name;
    let Some(cluster) = world.cluster() else {
        return Phase::wait("WaitingForCluster", format!("there is no Cluster {name} yet"));
    };
    let labels = [(CLUSTER_NAME_LABEL, name.as_str())];
    Phase::steps(intent::adopt(world.object(), Some(MACHINE_POOL_FINALIZER), Some(&cluster.as_owner(false)), &labels))
}

/// Users write the bootstrap config and the infrastructure of a pool themselves; from then on they belong to it.
fn children(world: &World) -> Phase {
    let labels = [(CLUSTER_NAME_LABEL, world.typed().spec.cluster_name.as_str())];
    let pool = world.object();
    let referenced = [BOOTSTRAP, INFRASTRUCTURE].into_iter().filter_map(|place| world.referenced(place));
    let mut steps = vec![];
    for object in referenced.filter(|object| !object.is_deleting()) {
        if let Some(other) = object.controller().filter(|owner| owner.uid != pool.uid()) {
            let text = format!("{} belongs to {} {}: name another one", object.key(), other.kind, other.name);
            return Phase::blocked("NotOurs", text);
        }
        steps.extend(intent::adopt(object, None, Some(&pool.as_owner(true)), &labels));
    }
    Phase::steps(steps)
}

/// The name of the data may change: its token ends, and new data is made.
fn bootstrap(world: &World) -> Phase {
    let known = world.object().text(DATA_SECRET);
    if world.object().get(BOOTSTRAP).is_null() {
        return match known {
            "" => Phase::blocked(
                "NoBootstrapData",
                "spec.template.spec.bootstrap has neither configRef nor dataSecretName",
            ),
            _ => Phase::Done,
        };
    }
    let Some(config) = world.referenced(BOOTSTRAP).map(Foreign::new) else {
        return Phase::wait("WaitingForBootstrapConfig", "its bootstrap config is not there yet");
    };
    match config.data_secret_name() {
        Some(name) => {
            let fields = json!({ "spec": { "template": { "spec": { "bootstrap": { "dataSecretName": name } } } } });
            Phase::steps(intent::touch(world.object(), fields))
        }
        // What is there stays good until other data replaces it.
        None if !known.is_empty() => Phase::Done,
        None => Phase::wait("WaitingForBootstrapData", config.waits_for("has no bootstrap data yet")),
    }
}

fn infrastructure(world: &World) -> Phase {
    match infrastructure_pool(world) {
        None => Phase::wait("WaitingForInfrastructure", "its infrastructure machine pool is not there yet"),
        Some(pool) if pool.provisioned() == Some(true) => Phase::Done,
        Some(pool) => Phase::wait("WaitingForInfrastructure", pool.waits_for("is not provisioned yet")),
    }
}

fn provider_ids(world: &World) -> Phase {
    let ids = infrastructure_pool(world).map(|pool| pool.provider_ids()).unwrap_or_default();
    let same = world.typed().spec.provider_id_list.as_deref().unwrap_or_default() == ids;
    if same {
        return Phase::Done;
    }
    // The list is whole: what is not in it any more goes.
    let fields = json!({ "spec": { "providerIDList": ids } });
    let pool = world.object();
    Phase::steps([Step::Patch { key: pool.key(), uid: pool.uid().to_owned(), resource_version: None, fields }])
}

fn tenant(world: &World, call: TenantCall) -> Step {
    let cluster = ClusterName { namespace: world.object().namespace().into(), name: world.cluster_name() };
    Step::Tenant { cluster, call }
}

/// Each Node is told whose it is, and pods may come.
fn nodes(world: &World) -> Phase {
    let changes = own_nodes(world).into_iter().filter_map(|node| change(world, node));
    Phase::steps(changes.map(|change| tenant(world, TenantCall::AdoptNode(change))))
}

fn change(world: &World, node: &Object) -> Option<NodeChange> {
    let name = world.object().name();
    let taints = node.get("/spec/taints").as_array().into_iter().flatten();
    let new = taints.filter(|taint| taint["key"] == NODE_UNINITIALIZED_TAINT);
    let text = |taint: &serde_json::Value, field: &str| taint[field].as_str().unwrap_or_default().to_owned();
    let remove_taints: Vec<(String, String)> = new.map(|taint| (text(taint, "key"), text(taint, "effect"))).collect();
    let is_told = node.annotation(OWNER_NAME) == Some(name) && node.annotation(OWNER_KIND) == Some("MachinePool");
    if is_told && remove_taints.is_empty() {
        return None;
    }
    let annotations = [
        ("cluster.x-k8s.io/cluster-name", world.typed().spec.cluster_name.as_str()),
        ("cluster.x-k8s.io/cluster-namespace", world.object().namespace()),
        (OWNER_KIND, "MachinePool"),
        (OWNER_NAME, name),
    ];
    let annotations = annotations.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Some(NodeChange { name: node.name().to_owned(), annotations, remove_taints, ..NodeChange::default() })
}

fn joined(world: &World) -> Phase {
    if world.facts.nodes.is_none() {
        return Phase::wait("WaitingForNodes", "the cluster's API cannot be reached");
    }
    let (joined, desired) = (own_nodes(world).len(), desired(world));
    match joined.cmp(&desired) {
        std::cmp::Ordering::Equal => Phase::Done,
        std::cmp::Ordering::Less => Phase::wait("WaitingForNodes", format!("{joined} of {desired} Nodes have joined")),
        std::cmp::Ordering::Greater => {
            Phase::wait("ScalingDown", format!("the infrastructure still has {joined} Nodes, {desired} are wanted"))
        }
    }
}

fn infrastructure_gone(world: &World) -> Phase {
    intent::gone(world.referenced(INFRASTRUCTURE), "WaitingForInfrastructureDeletion")
}

fn bootstrap_gone(world: &World) -> Phase {
    intent::gone(world.referenced(BOOTSTRAP), "WaitingForBootstrapDeletion")
}

/// Of a cluster that stays: Nodes without a host would be waited for by whoever placed pods there. If it cannot be asked, nobody waits for it.
fn nodes_gone(world: &World) -> Phase {
    if world.cluster().is_none_or(Object::is_deleting) {
        return Phase::Done;
    }
    let calls = own_nodes(world)
        .into_iter()
        .map(|node| TenantCall::DeleteNode { name: node.name().to_owned(), last_try: true });
    Phase::steps(calls.map(|call| tenant(world, call)))
}

#[cfg(test)]
mod tests;
