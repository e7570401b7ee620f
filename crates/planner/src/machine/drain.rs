//! A Node is emptied: no new pods, then those that are there go, as far as their owners allow.
//! Flows: cordon -> pods ([`super::pods`]) -> evictions of the lowest order -> look again until none is left. Holds: an eviction that is refused is told
//! and tried again later; nothing waits inside of a pass; a timeout of 0 is none (M9).

use std::time::Duration;

use hangar_api::Object;
use hangar_api::names::EXCLUDE_DRAIN_ANNOTATION;
use jiff::Timestamp;

use super::deletion::{began, left, touches_node};
use super::pods::{self, Fate, fate};
use super::{Facts, Load, NodeLoad, Tenant, UNREACHABLE, World, tenant};
use crate::step::{Evicted, Eviction, TenantCall};
use crate::{Phase, Step};

pub(super) const CODE: &str = "DrainingNode";
/// A scheduler that has not heard of the cordon yet may still send a pod.
const AFTER_CORDON: Duration = Duration::from_secs(1);
const WHILE_PODS_END: Duration = Duration::from_secs(5);
/// A disruption budget changes less often.
const WHILE_REFUSED: Duration = Duration::from_secs(10);
/// In one pass: a tenant decides how many pods it has, and others want their turn.
const MOST_EVICTIONS: usize = 100;
/// Of one sort, in a message.
const MOST_NAMES: usize = 5;

/// M8, M9.
pub(super) fn is_due(world: &World, facts: &Facts, now: Timestamp) -> bool {
    let excluded = world.object().annotation(EXCLUDE_DRAIN_ANNOTATION).is_some();
    !excluded && touches_node(world, facts) && time_left(world, now) != Some(Duration::ZERO)
}

fn time_left(world: &World, now: Timestamp) -> Option<Duration> {
    let deletion = world.typed().spec.deletion.as_ref();
    let seconds = deletion.and_then(|deletion| deletion.node_drain_timeout_seconds);
    left(seconds, began(world, "nodeDrainStartTime", now), now)
}

pub(super) fn is_cordoned(node: &Object) -> bool {
    node.get("/spec/unschedulable") == true
}

pub(super) fn asks_for_namespaces(world: &World) -> bool {
    pods::asks_for_namespaces(world)
}

/// Pods with what becomes of them.
fn fates<'a>(world: &World, facts: &'a Facts, now: Timestamp) -> Vec<(&'a Object, Fate)> {
    let (Tenant::Node(node), Load::Read(load)) = (&facts.tenant, &facts.load) else { return vec![] };
    load.pods.iter().map(|pod| (pod, fate(world, node, load, pod, now))).collect()
}

pub(super) fn is_over(world: &World, facts: &Facts, now: Timestamp) -> bool {
    let is_read = matches!(facts.load, Load::Read(_));
    is_read && fates(world, facts, now).iter().all(|(_, fate)| *fate == Fate::Stays)
}

/// Pods that are left where they are and use their volumes.
pub(super) fn stays<'a>(world: &World, facts: &'a Facts, now: Timestamp) -> Vec<&'a Object> {
    let ended = |pod: &&Object| ["Succeeded", "Failed"].contains(&pod.text("/status/phase"));
    let staying = fates(world, facts, now).into_iter().filter(|(_, fate)| *fate == Fate::Stays);
    staying.map(|(pod, _)| pod).filter(|pod| !ended(pod)).collect()
}

pub(super) fn drained(world: &World, now: Timestamp) -> Phase {
    if !is_due(world, &world.facts, now) {
        return Phase::Done;
    }
    let wait = |message: String, time: Duration| {
        Phase::wait_for(CODE, message, time_left(world, now).map_or(time, |left| left.min(time)))
    };
    let Tenant::Node(node) = &world.facts.tenant else {
        let text = format!(
            "{UNREACHABLE}, so its pods cannot be evicted: to delete the Machine all the same, set the annotation {EXCLUDE_DRAIN_ANNOTATION}"
        );
        return wait(text, WHILE_REFUSED);
    };
    if !is_cordoned(node) {
        return Phase::Steps(vec![tenant(world, TenantCall::CordonNode { name: node.name().to_owned() })]);
    }
    match &world.facts.load {
        Load::Unread => wait(format!("Node {} is cordoned, its pods are evicted next", node.name()), AFTER_CORDON),
        Load::Unknown(why) => {
            let text = format!(
                "the pods of Node {} are not known: {why}; to delete the Machine all the same, set the annotation {EXCLUDE_DRAIN_ANNOTATION}",
                node.name()
            );
            wait(text, WHILE_REFUSED)
        }
        Load::Read(load) => {
            let fates = fates(world, &world.facts, now);
            let Some(order) = fates.iter().filter_map(|(_, fate)| fate.order()).min() else { return Phase::Done };
            let evictions = evictions(world, node, load, &fates, order);
            if !evictions.is_empty() {
                return Phase::Steps(evictions);
            }
            let pending = Pending::of(&fates, load, order);
            let time = if pending.terminating.is_empty() { WHILE_REFUSED } else { WHILE_PODS_END };
            wait(pending.words(node.name()), time)
        }
    }
}

/// Everything of this order that was not asked yet.
fn evictions(world: &World, node: &Object, load: &NodeLoad, fates: &[(&Object, Fate)], order: i32) -> Vec<Step> {
    let grace_seconds = pods::is_unreachable(node).then_some(1);
    let now = fates.iter().filter(|(pod, fate)| {
        *fate == Fate::Evicted { order } && !pod.is_deleting() && !load.evicted.contains_key(pod.uid())
    });
    let eviction = |pod: &Object| Eviction {
        namespace: pod.namespace().to_owned(),
        name: pod.name().to_owned(),
        uid: pod.uid().to_owned(),
        grace_seconds,
    };
    let batch = now.take(MOST_EVICTIONS.saturating_sub(load.evicted.len()));
    batch.map(|(pod, _)| tenant(world, TenantCall::EvictPod(eviction(pod)))).collect()
}

/// Pods that are still there, by what they wait for.
#[derive(Default)]
struct Pending {
    terminating: Vec<String>,
    completing: Vec<String>,
    /// With the words of the refusal.
    refused: Vec<(String, String)>,
    /// After these.
    later: usize,
}

impl Pending {
    fn of(fates: &[(&Object, Fate)], load: &NodeLoad, order: i32) -> Self {
        let mut pending = Self::default();
        for (pod, fate) in fates {
            let name = format!("{}/{}", pod.namespace(), pod.name());
            match (fate, load.evicted.get(pod.uid())) {
                (Fate::Stays, _) => {}
                (fate, _) if fate.order() != Some(order) => pending.later += 1,
                (Fate::Evicted { .. }, Some(Evicted::Refused(why))) => pending.refused.push((name, why.clone())),
                (Fate::Completes { .. }, _) => pending.completing.push(name),
                (Fate::Evicted { .. }, None) if !pod.is_deleting() => pending.later += 1,
                (Fate::Evicted { .. }, _) => pending.terminating.push(name),
            }
        }
        pending
    }

    fn words(&self, node: &str) -> String {
        let count = self.terminating.len() + self.completing.len() + self.refused.len() + self.later;
        let mut lines = vec![format!("{count} pods are left on Node {node}")];
        for (name, why) in self.refused.iter().take(MOST_NAMES) {
            lines.push(format!("* {name}: {why}"));
        }
        if self.refused.len() > MOST_NAMES {
            lines.push(format!("* {} more evictions were refused", self.refused.len() - MOST_NAMES));
        }
        for (names, what) in [(&self.terminating, "evicted, terminating"), (&self.completing, "waiting for completion")]
        {
            if !names.is_empty() {
                lines.push(format!("* {}: {what}", several(names)));
            }
        }
        if self.later > 0 {
            lines.push(format!("* {} more are evicted after these", self.later));
        }
        lines.join("\n")
    }
}

pub(super) fn several(names: &[String]) -> String {
    let shown = names.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown}, ... ({more} more)"),
    }
}
