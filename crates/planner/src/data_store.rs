//! DataStore: where control planes keep their data, shared by many.
//! Flows: who uses it -> status. Holds: a store in use is not let go.

use hangar_api::conditions::{Condition, Status};
use hangar_api::kinds::{DataStore, KamajiControlPlane};

use crate::intent;
use crate::{Phase, Phases, Planner, Progress, Report, Shared};

pub struct DataStores;

type World = crate::World<DataStores>;

const FINALIZER: &str = "finalizer.kamaji.clastix.io/datastore";

impl Planner for DataStores {
    type Kind = DataStore;
    type Facts = ();
    const FINALIZER: Option<&'static str> = Some(FINALIZER);
    const SHARED: Shared = Shared::WhenTrue;
    const READY: bool = false;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(held).then(driver)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(unused)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<DataStore>) {
        let ready = !matches!(progress, Progress::Blocked(_));
        report.status.ready = ready;
        report.status.used_by = Some(used_by(world));
        report.condition(Condition {
            observed_generation: Some(world.object().generation()),
            ..Condition::new(
                "DataStoreValidation",
                Status::from(ready),
                if ready { "Valid" } else { "NotValid" },
                progress.message(),
            )
        });
    }
}

/// It is held from the first user on.
fn held(world: &World) -> Phase {
    if used_by(world).is_empty() {
        return Phase::Done;
    }
    Phase::steps(intent::adopt(world.object(), Some(FINALIZER), None, &[]))
}

fn driver(world: &World) -> Phase {
    match world.object().text("/spec/driver") {
        "etcd" => Phase::Done,
        other => Phase::blocked("NotBuiltYet", format!("spec.driver {other} is not built yet; use etcd")),
    }
}

fn unused(world: &World) -> Phase {
    match used_by(world).as_slice() {
        [] => Phase::Done,
        users => Phase::wait("InUse", format!("waiting until it is no longer used by {}", users.join(", "))),
    }
}

/// `namespace/name` of the control planes that use it, sorted.
fn used_by(world: &World) -> Vec<String> {
    world.all::<KamajiControlPlane>().map(|plane| format!("{}/{}", plane.namespace(), plane.name())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{deleting, planned, world};

    fn store(users: &[&str]) -> World {
        let object = json!({"apiVersion": "kamaji.clastix.io/v1alpha1", "kind": "DataStore", "metadata": {"name": "d", "uid": "d"},
            "spec": {"driver": "etcd"}});
        let plane = |name: &&str| {
            json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1alpha2", "kind": "KamajiControlPlane",
            "metadata": {"name": name, "namespace": "n", "uid": name}, "spec": {}})
        };
        world(object, users.iter().map(plane).collect())
    }

    #[test]
    fn a_store_is_held_from_the_first_user_on() {
        assert_eq!(planned(&store(&[])).steps, []);
        let steps = planned(&store(&["b", "a"])).steps;
        assert!(
            matches!(&steps[..], [crate::Step::Patch { fields, .. }] if fields["metadata"]["finalizers"] == json!([FINALIZER]))
        );
    }

    #[test]
    fn a_store_in_use_is_not_let_go() {
        let plan = planned(&deleting(store(&["b", "a"]), Some(FINALIZER)));
        assert_eq!(plan.progress.message(), "waiting until it is no longer used by n/a, n/b");
        assert_eq!(plan.status.unwrap()["usedBy"], json!(["n/a", "n/b"]));
        assert_eq!(planned(&deleting(store(&[]), Some(FINALIZER))).steps.len(), 1);
    }

    #[test]
    fn another_driver_says_so() {
        let mut object = store(&[]).object().clone();
        object.0["spec"]["driver"] = "MySQL".into();
        let plan = planned(&world::<DataStores>(object.0, vec![]));
        assert_eq!(plan.progress.message(), "spec.driver MySQL is not built yet; use etcd");
        assert_eq!(plan.status.unwrap()["ready"], false);
    }
}
