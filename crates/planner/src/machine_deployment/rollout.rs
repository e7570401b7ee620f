//! How many Machines each revision may have.
//!
//! Holds: a set counts as available with what it has and with what it is to have, whichever is less. So a set that was told to shrink, or whose status
//! is late, never counts for more than it will have; and what counts as surge is the larger of the two. Numbers are users' and others' statuses: they are
//! never negative, and sums of them saturate.

use hangar_api::Object;
use hangar_api::kinds::{MachineDeployment, MachineDeploymentSpecRolloutStrategyRollingUpdate};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::manual;
use super::revision::Revisions;

const AUTOSCALER_MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
const AUTOSCALER_MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";

pub fn count(set: &Object, pointer: &str) -> i32 {
    set.get(pointer).as_i64().and_then(|count| i32::try_from(count).ok()).unwrap_or(0).max(0)
}

pub fn wanted(set: &Object) -> i32 {
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

/// MS1: a size that nobody has written is the least that an autoscaler may choose, if there is one, else one.
pub fn autoscaled_or_one(annotation: impl Fn(&str) -> Option<String>) -> i32 {
    let size = |name: &str| annotation(name)?.parse::<i32>().ok().filter(|size| *size >= 0);
    match (size(AUTOSCALER_MIN), size(AUTOSCALER_MAX)) {
        (Some(least), Some(most)) if least <= most => least,
        _ => 1,
    }
}

/// Whether an autoscaler changes its size.
pub fn is_autoscaled(deployment: &Object) -> bool {
    [AUTOSCALER_MIN, AUTOSCALER_MAX].iter().all(|name| deployment.annotation(name).is_some())
}

pub fn desired(deployment: &MachineDeployment) -> i32 {
    let annotation = |name: &str| deployment.metadata.annotations.as_ref()?.get(name).cloned();
    deployment.spec.replicas.unwrap_or_else(|| autoscaled_or_one(annotation)).max(0)
}

/// The size of the current revision's set: as large as surge allows.
pub fn new_size(deployment: &MachineDeployment, revisions: &Revisions<'_>) -> i32 {
    if manual::is_on_delete(deployment) {
        return manual::new_size(deployment, revisions);
    }
    let desired = desired(deployment);
    let size = revisions.current.map_or(0, wanted);
    if revisions.old.is_empty() || size > desired {
        return desired;
    }
    let elsewhere = sum(revisions.old.iter().map(|set| present(set)));
    // Machines of this set that are on their way out still count.
    let here = revisions.current.map_or(0, present);
    let most = desired.saturating_add(max_surge(deployment));
    let room = most.saturating_sub(elsewhere).saturating_sub(here).max(0);
    size.saturating_add(room).min(desired)
}

/// D5: old sets that may be smaller, and their new size. Available Machines go as far as they exceed the least that must be available. Those
/// that are not available are no loss; but one may become available in the very moment in which it is given up, so they go only when
/// enough others are there, or when nothing else can move.
pub fn shrink<'a>(deployment: &MachineDeployment, revisions: &Revisions<'a>) -> Vec<(&'a Object, i32)> {
    if manual::is_on_delete(deployment) {
        return manual::shrink(deployment, revisions);
    }
    let lowest = desired(deployment).saturating_sub(max_unavailable(deployment)).max(0);
    let new = revisions.current.map_or(0, available);
    let total = new.saturating_add(sum(revisions.old.iter().map(|set| available(set))));
    let stuck = revisions.current.is_some_and(|set| {
        is_current(set) && available(set) == wanted(set) && new_size(deployment, revisions) == wanted(set)
    });
    let gives_up_broken = total >= lowest || stuck;
    let mut spare = total.saturating_sub(lowest).max(0);
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

fn sum(counts: impl Iterator<Item = i32>) -> i32 {
    counts.fold(0, i32::saturating_add)
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
        Some(IntOrString::Int(number)) => (*number).max(0),
        Some(IntOrString::String(text)) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(0);
            // Two factors of 31 bits: no overflow.
            let share = i64::from(percent.max(0)) * i64::from(desired(deployment));
            let share = if round_up { share.saturating_add(99) / 100 } else { share / 100 };
            i32::try_from(share).unwrap_or(i32::MAX)
        }
        None => default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn deployment(replicas: i64, surge: Value, unavailable: Value) -> MachineDeployment {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        let object = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": {"name": "d", "namespace": "n"},
            "spec": {
                "clusterName": "c", "replicas": replicas, "selector": {},
                "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}},
                "template": {"spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": {"kind": "K", "name": "n", "apiGroup": "g"}}},
            },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn no_number_overflows() {
        let most = i64::from(i32::MAX);
        let amounts = [
            json!(0),
            json!(-1),
            json!(most),
            json!(i32::MIN),
            json!("100%"),
            json!("2147483647%"),
            json!("-5%"),
            json!("x"),
        ];
        let mut set = Object::named("cluster.x-k8s.io/v1beta2", "MachineSet", "n", "s");
        set.0["spec"] = json!({ "replicas": most });
        set.0["status"] = json!({ "replicas": most, "availableReplicas": most });
        for replicas in [0, 1, most, -3, i64::from(i32::MIN)] {
            for surge in &amounts {
                for unavailable in &amounts {
                    let deployment = deployment(replicas, surge.clone(), unavailable.clone());
                    assert!(max_surge(&deployment) >= 0 && max_unavailable(&deployment) >= 0);
                    for revisions in [
                        Revisions { current: Some(&set), old: vec![&set, &set] },
                        Revisions { current: None, old: vec![&set, &set, &set] },
                    ] {
                        let size = new_size(&deployment, &revisions);
                        assert!((0..=desired(&deployment).max(0)).contains(&size), "{size}");
                        assert!(shrink(&deployment, &revisions).iter().all(|(_, size)| *size >= 0));
                    }
                }
            }
        }
        assert_eq!(max_surge(&deployment(3, json!("34%"), json!(0))), 2, "rounded up");
        assert_eq!(max_unavailable(&deployment(3, json!(1), json!("34%"))), 1, "rounded down");
    }
}
