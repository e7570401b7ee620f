//! What becomes of each pod when its Node is emptied.
//! Flows: a pod -> what Kubernetes says of it -> its label -> the first MachineDrainRule that is about it -> a [`Fate`]. Holds: what would come back at
//! once (DaemonSets, static pods) or has ended is left where it is.

use std::collections::BTreeMap;

use hangar_api::kinds::MachineDrainRule;
use hangar_api::names::DRAIN_LABEL;
use hangar_api::{Object, selector};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{NodeLoad, World};

/// A kubelet that does not answer ends nothing: whatever was told to go this long ago counts as gone.
const UNREACHABLE_GRACE: SignedDuration = SignedDuration::from_secs(1);

/// M8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    Evicted {
        order: i32,
    },
    /// It ends by itself.
    Completes {
        order: i32,
    },
}

impl Fate {
    pub fn order(self) -> Option<i32> {
        match self {
            Self::Stays => None,
            Self::Evicted { order } | Self::Completes { order } => Some(order),
        }
    }
}

/// The Node's kubelet has not been heard of for a while.
pub(super) fn is_unreachable(node: &Object) -> bool {
    let mut conditions = node.get("/status/conditions").as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "Unknown")
}

pub(super) fn fate(world: &World, node: &Object, load: &NodeLoad, pod: &Object, now: Timestamp) -> Fate {
    let ended = ["Succeeded", "Failed"].contains(&pod.text("/status/phase"));
    let of_daemon_set = pod.controller().is_some_and(|owner| owner.kind == "DaemonSet");
    let told_to_go = pod.text("/metadata/deletionTimestamp").parse::<Timestamp>();
    let lost = is_unreachable(node) && told_to_go.is_ok_and(|told| now.duration_since(told) > UNREACHABLE_GRACE);
    if ended || of_daemon_set || pod.annotation("kubernetes.io/config.mirror").is_some() || lost {
        return Fate::Stays;
    }
    match pod.label(DRAIN_LABEL).map(str::to_lowercase).as_deref() {
        Some("skip") => Fate::Stays,
        Some("wait-completed") => Fate::Completes { order: 0 },
        _ => by_rule(world, load, pod),
    }
}

/// The first rule by name that is about the Machine and the pod.
fn by_rule(world: &World, load: &NodeLoad, pod: &Object) -> Fate {
    let labels = pod.labels();
    let none = BTreeMap::new();
    let namespace = load.namespaces.get(pod.namespace()).unwrap_or(&none);
    let about_pod = |rule: &&Object| {
        any(rule.get("/spec/pods"), |part| {
            selector::matches(&part["selector"], &labels) && selector::matches(&part["namespaceSelector"], namespace)
        })
    };
    let Some(rule) = rules(world).find(about_pod) else { return Fate::Evicted { order: 0 } };
    let order = rule.get("/spec/drain/order").as_i64().and_then(|order| i32::try_from(order).ok()).unwrap_or(0);
    match rule.text("/spec/drain/behavior") {
        "Skip" => Fate::Stays,
        "WaitCompleted" => Fate::Completes { order },
        _ => Fate::Evicted { order },
    }
}

/// Rules that are about the Machine, by name.
fn rules(world: &World) -> impl Iterator<Item = &Object> {
    let machine = world.object().labels();
    let cluster = world.cluster().map(Object::labels).unwrap_or_default();
    let here = world.object().namespace();
    world.all::<MachineDrainRule>().filter(move |rule| {
        rule.namespace() == here
            && any(rule.get("/spec/machines"), |part| {
                selector::matches(&part["selector"], &machine) && selector::matches(&part["clusterSelector"], &cluster)
            })
    })
}

/// A list that is empty or absent is about everything.
fn any(list: &Value, matches: impl Fn(&Value) -> bool) -> bool {
    match list.as_array() {
        Some(parts) if !parts.is_empty() => parts.iter().any(matches),
        _ => true,
    }
}

/// Whether a rule for the Machine looks at the labels of namespaces.
pub(super) fn asks_for_namespaces(world: &World) -> bool {
    let mut parts = rules(world).flat_map(|rule| rule.get("/spec/pods").as_array().into_iter().flatten());
    parts.any(|part| !selector::is_empty(&part["namespaceSelector"]))
}
