//! How many Machines each revision may have.
//!
//! Holds: a set counts as available with what it has and with what it is to have, whichever is less. So a set that was told to shrink, or whose status
//! is late, never counts for more than it will have; and what counts as surge is the larger of the two.

use hangar_api::Object;
use hangar_api::kinds::{MachineDeployment, MachineDeploymentSpecRolloutStrategyRollingUpdate};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::revision::Revisions;

pub fn count(set: &Object, pointer: &str) -> i32 {
    set.get(pointer).as_i64().and_then(|count| i32::try_from(count).ok()).unwrap_or(0)
}

fn wanted(set: &Object) -> i32 {
    count(set, "/spec/replicas")
}

/// Whether the set's status speaks of its spec.
pub fn is_current(set: &Object) -> bool {
    set.get("/status/observedGeneration").as_i64().unwrap_or_default() >= set.generation()
}

fn available(set: &Object) -> i32 {
    count(set, "/status/availableReplicas").min(wanted(set))
}

/// Those that are there or are to be there.
fn present(set: &Object) -> i32 {
    wanted(set).max(count(set, "/status/replicas"))
}

pub fn desired(deployment: &MachineDeployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// The size of the current revision's set: as large as surge allows.
pub fn new_size(deployment: &MachineDeployment, revisions: &Revisions<'_>) -> i32 {
    let desired = desired(deployment);
    let size = revisions.current.map_or(0, wanted);
    if revisions.old.is_empty() || size > desired {
        return desired;
    }
    let elsewhere: i32 = revisions.old.iter().map(|set| present(set)).sum();
    // Machines of this set that are on their way out still count.
    let here = revisions.current.map_or(0, present);
    let room = (desired + max_surge(deployment) - elsewhere - here).max(0);
    (size + room).min(desired)
}

/// D5: old sets that may be smaller, and their new size. Available Machines go as far as they exceed the least that must be available. Those
/// that are not available are no loss; but one may become available in the very moment in which it is given up, so they go only when
/// enough others are there, or when nothing else can move.
pub fn shrink<'a>(deployment: &MachineDeployment, revisions: &Revisions<'a>) -> Vec<(&'a Object, i32)> {
    let lowest = desired(deployment) - max_unavailable(deployment);
    let new = revisions.current.map_or(0, available);
    let total = new + revisions.old.iter().map(|set| available(set)).sum::<i32>();
    let stuck = revisions.current.is_some_and(|set| {
        is_current(set) && available(set) == wanted(set) && new_size(deployment, revisions) == wanted(set)
    });
    let gives_up_broken = total >= lowest || stuck;
    let mut spare = (total - lowest).max(0);
    let mut smaller = vec![];
    for set in &revisions.old {
        // A set deletes first what is not ready.
        let broken = if gives_up_broken { wanted(set) - available(set) } else { 0 };
        let given = spare.min(available(set));
        spare -= given;
        if broken + given > 0 {
            smaller.push((*set, wanted(set) - broken - given));
        }
    }
    smaller
}

pub fn max_surge(deployment: &MachineDeployment) -> i32 {
    amount(deployment, |rolling| rolling.max_surge.as_ref(), 1, true)
}

/// D4: both zero would never get anywhere.
pub fn max_unavailable(deployment: &MachineDeployment) -> i32 {
    let unavailable = amount(deployment, |rolling| rolling.max_unavailable.as_ref(), 0, false);
    if unavailable == 0 && max_surge(deployment) == 0 { 1 } else { unavailable }
}

type Rolling = MachineDeploymentSpecRolloutStrategyRollingUpdate;

fn amount(
    deployment: &MachineDeployment,
    field: fn(&Rolling) -> Option<&IntOrString>,
    default: i32,
    round_up: bool,
) -> i32 {
    let strategy = deployment.spec.rollout.as_ref().and_then(|rollout| rollout.strategy.as_ref());
    match strategy.and_then(|strategy| strategy.rolling_update.as_ref()).and_then(field) {
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(0);
            let share = percent.saturating_mul(desired(deployment));
            if round_up { (share + 99) / 100 } else { share / 100 }
        }
        None => default,
    }
}
