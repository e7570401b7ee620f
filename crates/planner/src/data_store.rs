//! DataStore: where control planes keep their data, shared by many.
//! Flows: who uses it -> what its members say, and how much tenants use -> defragmentation -> status. Holds: a store in use is not let go; members are defragmented one after the
//! other, the leader last, and only while all of them answer.

pub mod quota;
pub mod read_only;

use std::time::Duration;

use hangar_api::conditions::{Condition, Status};
use hangar_api::kinds::{DataStore, KamajiControlPlane};
use hangar_api::{Object, ObjectKey};
use jiff::Timestamp;

use crate::step::{DataStoreCall, Effect};
use quota::TenantUsage;

use crate::{Absorb, Phase, Phases, Planner, Progress, Report, Shared, Step, intent};

pub struct DataStores;

type World = crate::World<DataStores>;

/// How often the members are asked: files grow over hours.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// Others have their turn in between.
const GO_ON_MEASURING: Duration = Duration::from_secs(15);
/// Less than this is not worth that a member answers nobody meanwhile.
const WORTHWHILE: u64 = 128 << 20;

/// One member of a store, as it describes itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    pub endpoint: String,
    pub answers: bool,
    pub leads: bool,
    /// Of its file, and how much of it is used.
    pub size: u64,
    pub in_use: u64,
}

/// What the members of a store say; nothing if it could not be asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreFacts {
    pub members: Vec<Member>,
    /// Of tenants, where it was measured.
    pub usage: Vec<TenantUsage>,
    /// Not all of them have been measured yet.
    pub measuring: bool,
}

impl Absorb for StoreFacts {
    fn absorb(&mut self, effect: &Effect) {
        let Effect::DataStore(DataStoreCall::Defragment { endpoint }) = effect else { return };
        for member in self.members.iter_mut().filter(|member| member.endpoint == *endpoint) {
            member.size = member.in_use;
        }
    }
}

const FINALIZER: &str = "finalizer.kamaji.clastix.io/datastore";

impl Planner for DataStores {
    type Kind = DataStore;
    type Facts = StoreFacts;
    const FINALIZER: Option<&'static str> = Some(FINALIZER);
    const SHARED: Shared = Shared::WhenTrue;
    const READY: bool = false;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(held).then(driver).then(read_only_tenants).then(defragmented)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(unused)
    }

    fn recheck(world: &World, _now: Timestamp) -> Option<Duration> {
        let again = if world.facts.measuring { GO_ON_MEASURING } else { LOOK_AGAIN };
        (!used_by(world).is_empty()).then_some(again)
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
        report.conditions.extend(members_answer(world));
        report.conditions.extend(quota::condition(world.object(), &world.facts.usage));
    }
}

/// Said only of stores with several members, and only when one is missing: nothing is written while all is well.
fn members_answer(world: &World) -> Option<Condition> {
    let members = &world.facts.members;
    let silent: Vec<&str> =
        members.iter().filter(|member| !member.answers).map(|member| member.endpoint.as_str()).collect();
    if silent.is_empty() {
        return None;
    }
    let text = format!(
        "{} of {} members do not answer: {}; the store works while more than half of them do",
        silent.len(),
        members.len(),
        silent.join(", ")
    );
    Some(Condition::new("MembersAvailable", Status::False, "MembersUnreachable", text))
}

/// Those that take too much write no more.
fn read_only_tenants(world: &World) -> Phase {
    let name = |plane: &Object| format!("{}/{}", plane.namespace(), plane.name());
    let planes = world.all::<KamajiControlPlane>().map(|plane| (name(plane), plane.uid().to_owned())).collect();
    read_only::ensure(world.object(), &planes, &world.facts)
}

/// One step at a time: the next member only when this one is back.
fn defragmented(world: &World) -> Phase {
    let Some(member) = to_defragment(&world.facts.members) else { return Phase::Done };
    let call = DataStoreCall::Defragment { endpoint: member.endpoint.clone() };
    Phase::Steps(vec![Step::DataStore { store: ObjectKey::of::<DataStore>("", world.object().name()), call }])
}

/// The next that is worth it: followers first, so that the lead changes at most once, and none while a member is down.
fn to_defragment(members: &[Member]) -> Option<&Member> {
    if !members.iter().all(|member| member.answers) {
        return None;
    }
    let is_worth_it =
        |member: &&Member| member.size.saturating_sub(member.in_use) >= WORTHWHILE && member.in_use < member.size / 2;
    members.iter().filter(is_worth_it).min_by_key(|member| member.leads)
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

    fn member(endpoint: &str, leads: bool, size: u64, in_use: u64) -> Member {
        Member { endpoint: endpoint.into(), answers: true, leads, size: size << 20, in_use: in_use << 20 }
    }

    #[test]
    fn members_are_defragmented_one_by_one_the_leader_last_and_only_if_it_is_worth_it() {
        let mut world = store(&["a"]);
        let mut object = world.object().clone();
        object.0["metadata"]["finalizers"] = json!([FINALIZER]);
        world = crate::testing::world(object.0, vec![]);
        world.facts.members = vec![
            member("a", true, 900, 100),
            member("b", false, 900, 100),
            member("c", false, 900, 800),
            member("d", false, 100, 1),
        ];
        let mut order = vec![];
        while let [Step::DataStore { call, .. }] = &planned(&world).steps[..] {
            let DataStoreCall::Defragment { endpoint } = call else { panic!("{call:?}") };
            order.push(endpoint.clone());
            world.facts.absorb(&Effect::DataStore(call.clone()));
        }
        assert_eq!(order, ["b", "a"], "c uses most of its file, d has a small one");

        world.facts.members = vec![member("a", false, 900, 1), Member { endpoint: "b".into(), ..Member::default() }];
        let plan = planned(&world);
        assert_eq!(plan.steps, [], "two of three must always answer");
        let status = plan.status.unwrap();
        let conditions = status["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|condition| condition["type"] == "MembersAvailable").unwrap();
        assert_eq!(
            found["message"],
            "1 of 2 members do not answer: b; the store works while more than half of them do"
        );
    }

    #[test]
    fn tenants_far_above_the_quota_are_marked_and_those_below_it_are_not() {
        const GI: u64 = 1 << 30;
        let mut object = store(&["a", "b"]).object().clone();
        object.0["metadata"]["finalizers"] = json!([FINALIZER]);
        let planes = || store(&["a", "b"]).all::<KamajiControlPlane>().map(|it| it.0.clone()).collect::<Vec<_>>();
        let mut mark = String::new();
        for (bytes, expected, written) in [(2 * GI, "", 0), (3 * GI, "a", 1), (2 * GI + 1, "a", 0), (2 * GI, "", 1)] {
            object.0["metadata"]["annotations"][read_only::READ_ONLY_ANNOTATION] = mark.clone().into();
            let mut world = crate::testing::world::<DataStores>(object.0.clone(), planes());
            world.facts.usage = vec![TenantUsage { plane: "n/a".into(), bytes }];
            let steps = planned(&world).steps;
            if let [Step::Patch { fields, .. }] = &steps[..] {
                mark = fields["metadata"]["annotations"][read_only::READ_ONLY_ANNOTATION].as_str().unwrap().to_owned();
            }
            assert_eq!((mark.as_str(), steps.len()), (expected, written), "{bytes}");
        }
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
