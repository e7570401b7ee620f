//! Sizes when people steer a rollout themselves: they delete the old Machines (OnDelete), or nothing rolls at all (paused).
//! Holds: D6, D7. Nobody here deletes a Machine for being old; only a smaller deployment does.

use hangar_api::Object;
use hangar_api::kinds::MachineDeployment;

use super::revision::Revisions;
use super::rollout::{count, desired, is_current, max_surge, wanted};

pub fn is_on_delete(deployment: &MachineDeployment) -> bool {
    let strategy = deployment.spec.rollout.as_ref().and_then(|rollout| rollout.strategy.as_ref());
    strategy.is_some_and(|strategy| strategy.r#type == "OnDelete")
}

/// D6: an old set is as large as what is left of it.
fn left(set: &Object) -> i32 {
    if is_current(set) { wanted(set).min(count(set, "/status/replicas")) } else { wanted(set) }
}

/// D6: what users deleted comes back in the current revision, when it is gone.
pub fn new_size(deployment: &MachineDeployment, revisions: &Revisions<'_>) -> i32 {
    let old = revisions.old.iter().map(|set| left(set)).fold(0, i32::saturating_add);
    desired(deployment).saturating_sub(old).max(0)
}

/// D6: old sets that are to be smaller: by what was deleted, and the oldest first by what the deployment is too large.
pub fn shrink<'a>(deployment: &MachineDeployment, revisions: &Revisions<'a>) -> Vec<(&'a Object, i32)> {
    let old = revisions.old.iter().map(|set| left(set)).fold(0, i32::saturating_add);
    let mut excess = old.saturating_sub(desired(deployment)).max(0);
    let sizes = revisions.old.iter().map(|set| {
        let given = excess.min(left(set));
        excess -= given;
        (*set, left(set) - given)
    });
    sizes.filter(|(set, size)| *size != wanted(set)).collect()
}

/// D7: all sets in proportion; a deployment in the middle of a rollout stays there, surge included.
pub fn proportional<'a>(deployment: &MachineDeployment, sets: &[&'a Object]) -> Vec<(&'a Object, i32)> {
    let mut active: Vec<&Object> = sets.iter().copied().filter(|set| wanted(set) > 0).collect();
    if active.is_empty() {
        active.extend(sets.last());
    }
    let total = active.iter().map(|set| wanted(set)).fold(0, i32::saturating_add);
    let surge = if active.len() > 1 { max_surge(deployment) } else { 0 };
    let lowest = desired(deployment);
    let target = total.clamp(lowest, if lowest == 0 { 0 } else { lowest.saturating_add(surge) });
    let mut sizes: Vec<(&Object, i32)> = active
        .into_iter()
        .map(|set| {
            let share = i64::from(wanted(set)) * i64::from(target) / i64::from(total.max(1));
            (set, i32::try_from(share).unwrap_or(i32::MAX))
        })
        .collect();
    // What rounding left over goes to the largest, the newest of them.
    let rest = target - sizes.iter().map(|(_, size)| *size).fold(0, i32::saturating_add);
    if let Some((_, size)) = sizes.iter_mut().max_by_key(|(set, _)| wanted(set)) {
        *size = size.saturating_add(rest);
    }
    sizes.into_iter().filter(|(set, size)| *size != wanted(set)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(replicas: i32, surge: i32) -> MachineDeployment {
        let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge } });
        let spec = json!({ "replicas": replicas, "rollout": { "strategy": strategy } });
        serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
    }

    fn set(name: &str, wanted: i32, there: i32) -> Object {
        let mut set = Object::named("cluster.x-k8s.io/v1beta2", "MachineSet", "n", name);
        set.0["spec"] = json!({ "replicas": wanted });
        set.0["status"] = json!({ "replicas": there });
        set
    }

    #[test]
    fn d6_what_users_delete_comes_back_in_the_current_revision() {
        for (what, replicas, old, new, shrunk) in [
            ("nothing was deleted", 3, vec![(3, 3)], 0, vec![]),
            ("one was deleted and is gone", 3, vec![(3, 2)], 1, vec![2]),
            ("all are gone", 3, vec![(3, 0)], 3, vec![0]),
            ("a larger deployment", 5, vec![(3, 3)], 2, vec![]),
            ("a smaller one: the oldest first", 2, vec![(2, 2), (2, 2)], 0, vec![0]),
            ("smaller and deleted", 1, vec![(2, 1), (2, 2)], 0, vec![0, 1]),
        ] {
            let sets: Vec<Object> = old.iter().map(|(wanted, there)| set("old", *wanted, *there)).collect();
            let revisions = Revisions { current: None, old: sets.iter().collect() };
            let deployment = deployment(replicas, 1);
            assert_eq!(new_size(&deployment, &revisions), new, "{what}");
            let sizes: Vec<i32> = shrink(&deployment, &revisions).into_iter().map(|(_, size)| size).collect();
            assert_eq!(sizes, shrunk, "{what}");
        }
    }

    #[test]
    fn d7_a_paused_deployment_keeps_its_proportions() {
        for (what, replicas, surge, before, after) in [
            ("as it is", 3, 1, vec![3], vec![3]),
            ("one set grows", 5, 1, vec![3], vec![5]),
            ("one set shrinks", 1, 1, vec![3], vec![1]),
            ("in the middle of a rollout", 3, 1, vec![2, 2], vec![2, 2]),
            ("a rollout twice the size", 8, 0, vec![3, 1], vec![6, 2]),
            ("a rollout of half the size", 2, 0, vec![3, 1], vec![2, 0]),
            ("what is left over goes to the largest", 5, 0, vec![2, 1], vec![4, 1]),
            ("to nothing", 0, 1, vec![2, 1], vec![0, 0]),
            ("from nothing", 2, 1, vec![0, 0], vec![0, 2]),
        ] {
            let sets: Vec<Object> =
                before.iter().enumerate().map(|(at, size)| set(&at.to_string(), *size, *size)).collect();
            let all: Vec<&Object> = sets.iter().collect();
            let changed = proportional(&deployment(replicas, surge), &all);
            let size = |set: &Object| {
                let found = changed.iter().find(|(other, _)| other.name() == set.name());
                found.map_or_else(|| wanted(set), |(_, size)| *size)
            };
            assert_eq!(sets.iter().map(size).collect::<Vec<_>>(), after, "{what}");
        }
    }

    #[test]
    fn no_number_overflows() {
        let sets = [set("a", i32::MAX, i32::MAX), set("b", i32::MAX, 0)];
        let all: Vec<&Object> = sets.iter().collect();
        for replicas in [0, 1, i32::MAX, i32::MIN] {
            let deployment = deployment(replicas, 1);
            assert!(proportional(&deployment, &all).iter().all(|(_, size)| *size >= 0));
            let revisions = Revisions { current: Some(&sets[0]), old: all.clone() };
            assert!(new_size(&deployment, &revisions) >= 0);
            assert!(shrink(&deployment, &revisions).iter().all(|(_, size)| *size >= 0));
        }
    }
}
