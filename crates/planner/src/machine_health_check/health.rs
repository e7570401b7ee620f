//! Whether a Machine is healthy: by its Node, by its own conditions, by what people say, and by time.
//! Holds: H2. What nobody could ask says nothing: it is neither healthy nor unhealthy, and what was said of it before still stands.

use std::sync::Arc;

use hangar_api::Object;
use hangar_api::conditions::{Condition, find};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{World, external, is_being_remediated, is_marked};
use crate::report::present;

const REMEDIATE_ANNOTATION: &str = "cluster.x-k8s.io/remediate-machine";
/// H2.
const NODE_STARTUP_SECONDS: i64 = 600;

/// What a look at a Machine comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Health {
    Good,
    /// Nobody can tell.
    Unclear,
    /// Not good, and so it will be bad after this time.
    Suspect(SignedDuration),
    Bad(Illness),
    /// It is being replaced for being bad, and is not gone yet.
    Going,
}

/// A word for conditions, and what a person reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Illness {
    pub code: &'static str,
    pub text: String,
}

impl Health {
    /// H3: whether it counts as unhealthy: what was found to be ill and cannot be asked any more is not well for that.
    pub fn counts(&self, machine: &Object) -> bool {
        match self {
            Self::Bad(_) | Self::Going => true,
            Self::Unclear | Self::Suspect(_) => !machine.is_deleting() && is_marked(machine),
            Self::Good => false,
        }
    }
}

pub(super) fn health(world: &World, machine: &Object, now: Timestamp) -> Health {
    if machine.is_deleting() {
        return if is_being_remediated(machine) || external::is_asked_for(machine) {
            Health::Going
        } else {
            Health::Unclear
        };
    }
    let bad = |code, text: String| Health::Bad(Illness { code, text });
    if machine.annotation(REMEDIATE_ANNOTATION).is_some() {
        return bad("HasRemediateMachineAnnotation", format!("it has the annotation {REMEDIATE_ANNOTATION}"));
    }
    let of_machine = complaints(world.object().get("/spec/checks/unhealthyMachineConditions"), &present(machine), now);
    let of_machine = of_machine.map(|(left, text)| (left, Illness { code: "UnhealthyMachine", text }));
    let name = machine.text("/status/nodeRef/name");
    if name.is_empty() {
        return judged(of_machine.chain(startup(world, machine, now))).unwrap_or(Health::Unclear);
    }
    let checks = world.object().get("/spec/checks/unhealthyNodeConditions");
    let of_node = match node(world, machine) {
        // The Machine may know from a time when somebody could ask.
        None if is_known_deleted(machine) => return bad("NodeDeleted", format!("Node {name} was deleted")),
        None => return judged(of_machine).unwrap_or(Health::Unclear),
        Some(None) => return bad("NodeDeleted", format!("Node {name} was deleted")),
        Some(Some(node)) => complaints(checks, &present(node), now).map(move |(left, text)| {
            let text = format!("Node {}: {text}", node.name());
            (left, Illness { code: "UnhealthyNode", text })
        }),
    };
    judged(of_machine.chain(of_node)).unwrap_or(Health::Good)
}

/// The worst of several.
fn judged(all: impl Iterator<Item = (SignedDuration, Illness)>) -> Option<Health> {
    let (left, illness) = all.min_by_key(|(left, _)| *left)?;
    Some(if left > SignedDuration::ZERO { Health::Suspect(left) } else { Health::Bad(illness) })
}

/// Conditions that are as a check says they should not be, and how long they may still be so.
fn complaints(
    checks: &Value,
    conditions: &[Condition],
    now: Timestamp,
) -> impl Iterator<Item = (SignedDuration, String)> + use<> {
    let found = checks.as_array().into_iter().flatten().filter_map(|check| {
        let found = conditions.iter().find(|one| check["type"] == *one.kind && check["status"] == *one.status)?;
        let since = found.last_transition_time.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        let passed = since.map_or(SignedDuration::ZERO, |since| now.duration_since(since));
        let seconds = check["timeoutSeconds"].as_i64().unwrap_or(0);
        let left = SignedDuration::from_secs(seconds).saturating_sub(passed);
        Some((left, format!("{} has been {} for more than {seconds} s", found.kind, found.status)))
    });
    found.collect::<Vec<_>>().into_iter()
}

/// The Node of a Machine; that there is none, or that nobody can tell.
fn node<'a>(world: &'a World, machine: &Object) -> Option<Option<&'a Arc<Object>>> {
    let nodes = world.facts.nodes.as_ref()?;
    let (id, name) = (machine.text("/spec/providerID"), machine.text("/status/nodeRef/name"));
    // One that registers under another name is still there.
    Some(nodes.get(id).or_else(|| nodes.get(name)))
}

fn is_known_deleted(machine: &Object) -> bool {
    let said = present(machine);
    find(&said, "NodeReady").is_some_and(|condition| condition.reason == "NodeDeleted")
}

/// H2: a Node that has not come, counted from when it could.
fn startup(world: &World, machine: &Object, now: Timestamp) -> Option<(SignedDuration, Illness)> {
    let seconds = world.object().get("/spec/checks/nodeStartupTimeoutSeconds").as_i64();
    let seconds = seconds.unwrap_or(NODE_STARTUP_SECONDS);
    if seconds == 0 {
        return None;
    }
    let created = machine.created();
    let passed = created.map_or(SignedDuration::ZERO, |at| now.duration_since(at)).min(startable(world, now));
    let left = SignedDuration::from_secs(seconds).saturating_sub(passed);
    Some((left, Illness { code: "NodeStartupTimeout", text: format!("no Node has joined within {seconds} s") }))
}

/// For how long the cluster has had what a Node needs to join.
fn startable(world: &World, now: Timestamp) -> SignedDuration {
    let conditions = world.cluster().map(present).unwrap_or_default();
    let needed = ["ControlPlaneInitialized", "InfrastructureReady"];
    let since = needed.iter().filter_map(|kind| {
        let condition = find(&conditions, kind).filter(|condition| condition.is_true())?;
        Some(now.duration_since(condition.last_transition_time.as_deref()?.parse().ok()?))
    });
    since.min().unwrap_or(SignedDuration::MAX)
}
