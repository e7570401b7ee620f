use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::plan;
use crate::testing::{CORE, Fake, at, changed, cluster, condition, deleting, merge, object, planned, said, shared};

fn template(version: &str) -> Value {
    json!({ "clusterName": "c", "version": version,
        "bootstrap": { "configRef": { "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfigTemplate", "name": "b" } },
        "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackMachineTemplate", "name": "i" } })
}

fn deployment(replicas: i32, version: &str) -> Value {
    object(
        CORE,
        "MachineDeployment",
        "md",
        json!({
            "metadata": { "finalizers": [MACHINE_DEPLOYMENT_FINALIZER], "labels": { CLUSTER_NAME_LABEL: "c" },
                "ownerReferences": [{ "apiVersion": CORE, "kind": "Cluster", "name": "c", "uid": "c-uid" }] },
            "spec": { "clusterName": "c", "replicas": replicas, "selector": { "matchLabels": { "x": "y" } },
                "template": { "metadata": { "labels": { "x": "y" } }, "spec": template(version) } },
        }),
    )
}

/// A set of the deployment whose Machines are all available, as upstream would have made it.
fn set(name: &str, replicas: i32, version: &str) -> Value {
    object(
        CORE,
        "MachineSet",
        name,
        json!({
            "metadata": { "creationTimestamp": at(0).to_string(), "labels": { "machine-template-hash": format!("{name}-hash"), "x": "y" },
                "ownerReferences": [{ "apiVersion": CORE, "kind": "MachineDeployment", "name": "md", "uid": "md-uid", "controller": true }] },
            "spec": { "clusterName": "c", "replicas": replicas, "selector": { "matchLabels": { "x": "y" } }, "template": { "spec": template(version) } },
            "status": { "observedGeneration": 1, "replicas": replicas, "availableReplicas": replicas, "readyReplicas": replicas },
        }),
    )
}

fn world(deployment: Value, sets: Vec<Value>) -> World {
    let mut world: World = crate::testing::world(deployment, sets.into_iter().chain([cluster(json!({}))]).collect());
    begin_pass(&mut world, 0);
    world
}

/// What a controller reads at the beginning of a pass.
fn begin_pass(world: &mut World, now: i64) {
    world.facts = Facts { names: Names::of(world.object(), vec![]), now: at(now) };
}

fn sizes(world: &World) -> Vec<(String, i32)> {
    sets(world).map(|set| (set.name().to_owned(), rollout::count(set, "/spec/replicas"))).collect()
}

/// Sets reach their size; so many Machines of each do not become available.
fn refresh(world: &mut World, set: &str, unavailable: i32) {
    let found = sets(world).find(|other| other.name() == set).unwrap();
    let (size, mut newer) = (rollout::count(found, "/spec/replicas"), found.clone());
    let available = (size - unavailable).max(0);
    newer.0["status"] = json!({ "observedGeneration": found.generation(), "replicas": size, "availableReplicas": available, "readyReplicas": available });
    world.objects.insert(std::sync::Arc::new(newer));
}

#[test]
fn a_deployment_without_its_cluster_waits() {
    let world: World = crate::testing::world(deployment(1, "v1.34.4"), vec![]);
    assert_eq!(said(&planned(&world)), "wait WaitingForCluster: there is no Cluster c yet");
}

/// D3: names are derived and reserved before they are used.
#[test]
fn d3_a_new_deployment_reserves_a_name_with_its_finalizer_then_makes_one_set_of_its_size() {
    let bare = changed(world(deployment(3, "v1.34.4"), vec![]), |own| {
        merge(own, &json!({ "metadata": { "finalizers": null, "labels": null, "ownerReferences": null } }));
    });
    let plan = planned(&bare);
    let [Step::Patch { fields, resource_version, .. }] = &plan.steps[..] else { panic!("{plan:?}") };
    assert_eq!(fields["metadata"]["finalizers"], json!([MACHINE_DEPLOYMENT_FINALIZER]));
    assert_eq!(fields["metadata"]["annotations"][crate::names::NAMES_ANNOTATION], "1");
    assert!(resource_version.is_some());
    let (mut world, mut fake) = (bare, Fake::default());
    fake.converge(&mut world);
    let made = sizes(&world);
    assert_eq!((made.len(), made[0].1), (1, 3));
    let set = sets(&world).next().unwrap();
    assert_eq!(set.finalizers(), ["cluster.x-k8s.io/machineset"]);
    assert_eq!(set.label("cluster.x-k8s.io/deployment-name"), Some("md"));
    assert!(set.name().ends_with(set.label("machine-template-hash").unwrap()));
}

#[test]
fn templates_belong_to_the_cluster_unless_they_go() {
    let template = |fields| object("infrastructure.cluster.x-k8s.io/v1beta1", "OpenStackMachineTemplate", "i", fields);
    for (what, fields, adopted) in
        [("there", json!({}), true), ("going", json!({ "metadata": { "deletionTimestamp": "x" } }), false)]
    {
        let mut world = world(deployment(1, "v1.34.4"), vec![set("s", 1, "v1.34.4"), template(fields)]);
        Fake::default().converge(&mut world);
        let owners = world.referenced(TEMPLATES[1]).unwrap().owners().len();
        assert_eq!(owners == 1, adopted, "{what}");
    }
}

/// D10.
#[test]
fn d10_scaling_changes_the_set_alone() {
    for (from, to) in [(3, 5), (5, 1), (1, 0), (0, 5)] {
        let mut world = world(deployment(to, "v1.34.4"), vec![set("s", from, "v1.34.4")]);
        Fake::default().converge(&mut world);
        assert_eq!(sizes(&world), [("s".to_owned(), to)], "{from} to {to}");
    }
}

/// D2.
#[test]
fn d2_revisions_are_compared_by_meaning() {
    for (what, change, current) in [
        ("a set of upstream with another name and hash", json!({}), true),
        ("version without its v", json!({ "version": "1.34.4" }), true),
        ("build metadata", json!({ "version": "v1.34.4+x" }), true),
        ("labels and timeouts", json!({ "deletion": { "nodeDrainTimeoutSeconds": 5 } }), true),
        ("version", json!({ "version": "v1.35.0" }), false),
        ("bootstrap template", json!({ "bootstrap": { "configRef": { "name": "b2" } } }), false),
        ("infrastructure template", json!({ "infrastructureRef": { "name": "i2" } }), false),
        ("failure domain", json!({ "failureDomain": "z" }), false),
    ] {
        let mut own = deployment(1, "v1.34.4");
        merge(&mut own["spec"]["template"]["spec"], &change);
        let world = world(own, vec![set("upstream-x7k2p", 1, "v1.34.4")]);
        assert_eq!(Revisions::of(&world, at(0)).current.is_some(), current, "{what}");
    }
}

#[test]
fn setting_or_clearing_rollout_after_in_the_future_does_not_roll_at_once() {
    let mut own = deployment(2, "v1.34.4");
    own["spec"]["rollout"] = json!({ "after": at(1000).to_string() });
    let later = world(own.clone(), vec![set("s", 2, "v1.34.4")]);
    for (what, world, now, expected) in
        [("set", &later, 10, true), ("a second before", &later, 999, true), ("its time has come", &later, 1000, false)]
    {
        assert_eq!(Revisions::of(world, at(now)).current.is_some(), expected, "{what}");
    }
    // Cleared again.
    let cleared = world(deployment(2, "v1.34.4"), vec![set("s", 2, "v1.34.4")]);
    assert!(Revisions::of(&cleared, at(2000)).current.is_some());
    let (mut world, mut fake) = (later, Fake { now: 10, ..Fake::default() });
    let plan = fake.converge(&mut world);
    assert_eq!(said(&plan), "wait WaitingForRollout: the rollout begins at 1970-01-01T00:16:40Z");
    assert_eq!(plan.progress.reason().unwrap().wake, crate::Wake::After(std::time::Duration::from_secs(990)));
    assert_eq!(sizes(&world), [("s".to_owned(), 2)]);
    // Those that were made since are new enough.
    let mut young = set("t", 2, "v1.34.4");
    young["metadata"]["creationTimestamp"] = at(1001).to_string().into();
    assert!(Revisions::of(&self::world(own, vec![young]), at(2000)).current.is_some());
}

/// Else a clock that is behind, or a time with a fraction of a second, would ask for one set after the other.
#[test]
fn a_set_that_was_made_for_a_rollout_is_current_whenever_the_api_server_says_it_was_made() {
    let mut own = deployment(2, "v1.34.4");
    own["spec"]["rollout"] = json!({ "after": "1970-01-01T00:16:40.9Z" });
    let old = set("old", 2, "v1.34.4");
    let mut made = revision::set_object(&shared(own.clone()), None, "new", 1, at(1001));
    made.0["metadata"]["uid"] = "new".into();
    made.0["metadata"]["ownerReferences"] = old["metadata"]["ownerReferences"].clone();
    for created in [900, 1000, 1001] {
        made.0["metadata"]["creationTimestamp"] = at(created).to_string().into();
        let world = world(own.clone(), vec![old.clone(), made.0.clone()]);
        assert_eq!(Revisions::of(&world, at(1001)).current.map(Object::name), Some("new"), "created at {created}");
        let again = revision::set_object(world.object(), Some(&made), "new", 1, at(5000));
        assert_eq!(again.annotation("hangar.dev/rollout-after"), made.annotation("hangar.dev/rollout-after"));
    }
    // Another rollout later is not the one that it was made for; and before its time nothing is made for it.
    own["spec"]["rollout"]["after"] = at(3000).to_string().into();
    assert!(Revisions::of(&world(own.clone(), vec![made.0.clone()]), at(3000)).current.is_none());
    let early = revision::set_object(&shared(own), None, "new", 1, at(2999));
    assert_eq!(early.annotation("hangar.dev/rollout-after"), None);
}

/// D1, D4.
#[test]
fn d1_d4_surge_rounds_up_unavailable_rounds_down_and_both_zero_is_one() {
    for (what, replicas, rolling, surge, unavailable) in [
        ("D1: defaults", 3, json!({}), 1, 0),
        ("numbers", 3, json!({ "maxSurge": 2, "maxUnavailable": 1 }), 2, 1),
        ("shares", 3, json!({ "maxSurge": "50%", "maxUnavailable": "50%" }), 2, 1),
        ("both zero", 3, json!({ "maxSurge": 0, "maxUnavailable": 0 }), 0, 1),
        ("both zero after rounding", 3, json!({ "maxSurge": 0, "maxUnavailable": "10%" }), 0, 1),
    ] {
        let mut own = deployment(replicas, "v1.34.4");
        own["spec"]["rollout"] = json!({ "strategy": { "type": "RollingUpdate", "rollingUpdate": rolling } });
        let world = world(own, vec![]);
        assert_eq!(
            (rollout::max_surge(world.typed()), rollout::max_unavailable(world.typed())),
            (surge, unavailable),
            "{what}"
        );
    }
}

/// D5: this once deleted everything.
#[test]
fn d5_a_rollout_with_max_unavailable_0_does_not_delete_all_old_machines_in_one_pass_with_stale_available_replicas() {
    let mut world = world(deployment(3, "v1.35.0"), vec![set("old", 3, "v1.34.4")]);
    let mut fake = Fake::default();
    let mut old_sizes = vec![];
    for pass in 0..12 {
        begin_pass(&mut world, 0);
        let before = sizes(&world);
        fake.pass(&mut world);
        let old = sets(&world).find(|set| set.name() == "old").map_or(0, |set| rollout::count(set, "/spec/replicas"));
        let old_before = before.iter().find(|(name, _)| name == "old").map_or(0, |(_, size)| *size);
        assert!(old_before - old <= 1, "pass {pass}: {before:?} -> {:?}", sizes(&world));
        old_sizes.push(old);
        let names: Vec<String> = sizes(&world).into_iter().map(|(name, _)| name).collect();
        names.iter().for_each(|name| refresh(&mut world, name, 0));
    }
    assert_eq!(old_sizes[0], 3, "no new Machine is available yet");
    assert_eq!(
        sizes(&world).iter().map(|(_, size)| *size).collect::<Vec<_>>(),
        [3],
        "D8: the old set is gone: {:?}",
        sizes(&world)
    );
}

#[test]
fn d5_old_sets_shrink_by_what_is_spare_and_first_by_what_is_broken() {
    // (new: wanted, available), (old: wanted, available), maxUnavailable -> old becomes
    for (what, new, old, unavailable, expected) in [
        ("nothing is spare", (1, 0), (3, 3), 0, 3),
        ("one is", (1, 1), (3, 3), 0, 2),
        ("one may be missing", (0, 0), (3, 3), 1, 2),
        ("broken ones go with it", (1, 1), (3, 2), 0, 2),
        ("broken ones wait for others", (1, 0), (3, 2), 0, 3),
        ("a deadlock is broken: nothing else can move", (1, 1), (3, 1), 0, 1),
    ] {
        let mut own = deployment(3, "v1.35.0");
        own["spec"]["rollout"] = json!({ "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": unavailable } } });
        let sized = |name: &str, version: &str, (wanted, available): (i32, i32)| {
            let mut set = set(name, wanted, version);
            set["status"]["availableReplicas"] = available.into();
            set
        };
        let world = world(own, vec![sized("new", "v1.35.0", new), sized("old", "v1.34.4", old)]);
        let revisions = Revisions::of(&world, at(0));
        let shrunk = rollout::shrink(world.typed(), &revisions);
        assert_eq!(shrunk.first().map_or(old.0, |(_, size)| *size), expected, "{what}");
    }
}

#[test]
fn a_set_counts_with_what_was_asked_of_it_whatever_its_status_says() {
    // The old set was told to shrink and its status is late: nothing more goes, and its place is not taken twice.
    let mut late = set("old", 3, "v1.34.4");
    late["spec"]["replicas"] = 2.into();
    late["metadata"]["generation"] = 2.into();
    let world = world(deployment(3, "v1.35.0"), vec![late, set("new", 1, "v1.35.0")]);
    let revisions = Revisions::of(&world, at(0));
    assert_eq!(rollout::shrink(world.typed(), &revisions), []);
    assert_eq!(rollout::new_size(world.typed(), &revisions), 1, "three old Machines may still be there");
}

/// D6.
#[test]
fn d6_on_delete_only_what_users_delete_is_replaced() {
    let mut wanted = deployment(3, "v1.35.0");
    wanted["spec"]["rollout"] = json!({ "strategy": { "type": "OnDelete" } });
    let mut world = world(wanted, vec![set("old", 3, "v1.34.4")]);
    let mut fake = Fake::default();
    fake.converge(&mut world);
    let size_of = |world: &World, old: bool| {
        sizes(world).into_iter().filter(|(name, _)| (name == "old") == old).map(|(_, size)| size).sum::<i32>()
    };
    assert_eq!((size_of(&world, true), size_of(&world, false)), (3, 0), "nothing by itself");
    let old = sets(&world).find(|set| set.name() == "old").unwrap();
    assert_eq!(
        old.annotation("cluster.x-k8s.io/disable-machine-create"),
        Some("true"),
        "it makes no Machines any more"
    );
    let mut fewer = old.clone();
    fewer.0["status"] = json!({ "observedGeneration": fewer.generation(), "replicas": 2, "availableReplicas": 2 });
    world.objects.insert(std::sync::Arc::new(fewer));
    begin_pass(&mut world, 0);
    fake.converge(&mut world);
    assert_eq!((size_of(&world, true), size_of(&world, false)), (2, 1), "a user has deleted one");
}

/// D7.
#[test]
fn d7_a_paused_deployment_scales_and_does_not_roll() {
    let mut wanted = deployment(5, "v1.35.0");
    wanted["spec"]["paused"] = true.into();
    let mut world = world(wanted, vec![set("old", 3, "v1.34.4")]);
    let mut fake = Fake::default();
    fake.converge(&mut world);
    assert_eq!(sizes(&world), [("old".to_owned(), 5)]);
    assert_eq!(fake.done, [r#"patch MachineSet n/old {"spec":{"replicas":5}}"#]);
}

/// D9.
#[test]
fn d9_old_sets_are_marked_and_one_that_is_current_again_is_not() {
    let mark = |world: &World, name: &str| {
        sets(world).find(|set| set.name() == name).unwrap().annotation("hangar.dev/outdated-revision").is_some()
    };
    let mut before = world(deployment(2, "v1.35.0"), vec![set("old", 1, "v1.34.4"), set("new", 1, "v1.35.0")]);
    Fake::default().converge(&mut before);
    assert!(mark(&before, "old") && !mark(&before, "new"));
    let old = sets(&before).find(|set| set.name() == "old").unwrap();
    assert!(old.annotation("cluster.x-k8s.io/disable-machine-create").is_none(), "it replaces what breaks meanwhile");
    let mut back = changed(before, |own| own["spec"]["template"]["spec"]["version"] = "v1.34.4".into());
    begin_pass(&mut back, 0);
    Fake::default().converge(&mut back);
    assert!(!mark(&back, "old") && mark(&back, "new"));
}

/// MS6: a rollout may hang on the timeouts of what it replaces.
#[test]
fn ms6_old_sets_hear_of_timeouts_and_nothing_else() {
    let mut wanted = deployment(1, "v1.35.0");
    wanted["spec"]["template"]["spec"]["deletion"] = json!({ "nodeDrainTimeoutSeconds": 60 });
    let mut world = world(wanted, vec![set("old", 1, "v1.34.4"), set("new", 1, "v1.35.0")]);
    refresh(&mut world, "new", 1);
    let mut fake = Fake::default();
    fake.converge(&mut world);
    let old = sets(&world).find(|set| set.name() == "old").unwrap();
    assert_eq!(old.get("/spec/template/spec/deletion"), &json!({ "nodeDrainTimeoutSeconds": 60 }));
    assert_eq!(old.text("/spec/template/spec/version"), "v1.34.4");
    let mut world = changed(world, |own| own["spec"]["template"]["spec"]["deletion"] = Value::Null);
    begin_pass(&mut world, 0);
    fake.converge(&mut world);
    let old = sets(&world).find(|set| set.name() == "old").unwrap();
    assert_eq!(old.get("/spec/template/spec/deletion"), &Value::Null);
}

/// D8.
#[test]
fn d8_an_old_set_goes_only_when_its_status_says_that_it_is_empty() {
    for (what, status, goes) in [
        ("empty", json!({ "observedGeneration": 2, "replicas": 0 }), true),
        ("Machines are left", json!({ "observedGeneration": 2, "replicas": 1 }), false),
        ("the status is older than the spec", json!({ "observedGeneration": 1, "replicas": 0 }), false),
    ] {
        let mut old = set("old", 0, "v1.34.4");
        old["metadata"]["generation"] = 2.into();
        old["status"] = status;
        let mut world = world(deployment(1, "v1.35.0"), vec![old, set("new", 1, "v1.35.0")]);
        Fake::default().pass(&mut world);
        assert_eq!(!sizes(&world).iter().any(|(name, _)| name == "old"), goes, "{what}");
    }
}

#[test]
fn on_the_way_out_only_its_own_sets_go() {
    let mut foreign = set("foreign", 1, "v1.34.4");
    foreign["metadata"]["ownerReferences"][0]["uid"] = "other".into();
    let held = json!({ "metadata": { "finalizers": ["x"] } });
    let mut own = set("own", 1, "v1.34.4");
    merge(&mut own, &held);
    let mut world = deleting(world(deployment(1, "v1.34.4"), vec![own, foreign]), Some(MACHINE_DEPLOYMENT_FINALIZER));
    let mut fake = Fake::default();
    let plan = fake.pass(&mut world);
    assert_eq!(said(&plan), "wait WaitingForMachineSets: waiting for 1 MachineSets to be deleted");
    assert_eq!(fake.done, ["delete MachineSet n/own"]);
}

#[test]
fn the_status_adds_up_its_sets() {
    let mut old = set("old", 1, "v1.34.4");
    old["status"]["availableReplicas"] = 0.into();
    let world = world(deployment(3, "v1.35.0"), vec![old, set("new", 2, "v1.35.0")]);
    let plan = crate::refused(&world, crate::Reason::retry("Refused", "no"), at(0));
    let status = plan.status.clone().unwrap();
    assert_eq!(
        (&status["replicas"], &status["availableReplicas"], &status["upToDateReplicas"]),
        (&json!(3), &json!(2), &json!(2))
    );
    assert_eq!((&status["phase"], &status["selector"]), (&json!("Running"), &json!("x=y")));
    let (status, _, message) = condition(&plan, "Available").unwrap();
    assert_eq!((status.as_str(), message.as_str()), ("False", "no"));
}

#[derive(Debug, Clone)]
enum Event {
    Pass,
    /// The n-th set's status becomes true; so many of its Machines are not available.
    Refresh(usize, i32),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        Just(Event::Pass),
        (0..3_usize, prop_oneof![3 => Just(0), 1 => 1..2_i32]).prop_map(|(set, bad)| Event::Refresh(set, bad))
    ];
    prop::collection::vec(event, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]
    /// Whatever is late: the Machines that are asked for never exceed desired + maxSurge, and what was available and is given up
    /// never brings the rest below desired - maxUnavailable.
    #[test]
    fn d5_a_rollout_keeps_to_surge_and_availability_after_every_step(desired in 1..6_i32, older in 0..3_i32, surge in 0..3_i32, unavailable in 0..3_i32, events in events()) {
        let mut own = deployment(desired, "v1.35.0");
        own["spec"]["rollout"] = json!({ "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } } });
        // Two old revisions: a rollout that another one overtook.
        let older = older.min(desired);
        let mut world = world(own, vec![set("old", desired - older, "v1.34.4"), set("old-1", older, "v1.33.0")]);
        let mut fake = Fake::default();
        let (most, fewest) = (desired + rollout::max_surge(world.typed()), desired - rollout::max_unavailable(world.typed()));
        // What really runs: a set's Machines, and those that are available. It follows the spec only when the set gets its turn.
        let mut real: std::collections::BTreeMap<String, (i32, i32)> = [("old".to_owned(), (desired - older, desired - older)), ("old-1".to_owned(), (older, older))].into();
        for event in events {
            match event {
                Event::Pass => {
                    begin_pass(&mut world, 0);
                    for _ in 0..20 {
                        let plan = plan(&world, at(0));
                        if plan.steps.is_empty() { break }
                        for step in &plan.steps {
                            fake.carry_out(&mut world, step);
                            // The worst case of what was asked for: a set may shrink at once, and grows by Machines that are not available.
                            let now = sizes(&world);
                            let total: i32 = now.iter().map(|(name, size)| (*size).max(real.get(name).map_or(0, |it| it.0))).sum();
                            let available: i32 = now.iter().map(|(name, size)| real.get(name).map_or(0, |it| it.1.min(*size))).sum();
                            prop_assert!(total <= most, "{total} > {most}: {now:?} {real:?} {:?}", fake.done);
                            prop_assert!(available >= fewest, "{available} < {fewest}: {now:?} {real:?} {:?}", fake.done);
                        }
                    }
                }
                Event::Refresh(index, bad) => {
                    let all = sizes(&world);
                    if let Some((name, size)) = all.get(index % all.len().max(1)) {
                        // Old Machines stay available; of new ones some may not come up yet.
                        let known = real.get(name).map_or(0, |it| it.1);
                        let available = if name.starts_with("old") { known.min(*size) } else { (*size - bad).max(known.min(*size)) };
                        real.insert(name.clone(), (*size, available));
                        refresh(&mut world, name, *size - available);
                    }
                }
            }
        }
        // In the end everything comes up, and the rollout is over.
        for _ in 0..40 {
            begin_pass(&mut world, 0);
            fake.pass(&mut world);
            let names: Vec<String> = sizes(&world).into_iter().map(|(name, _)| name).collect();
            names.iter().for_each(|name| refresh(&mut world, name, 0));
        }
        let left = sizes(&world);
        prop_assert_eq!(left.len(), 1, "{:?}", left);
        prop_assert_eq!(left[0].1, desired);
        prop_assert!(!left[0].0.starts_with("old"));
    }
}

#[test]
fn a_set_that_another_deployment_owns_is_neither_counted_nor_changed() {
    let mut foreign = set("foreign", 5, "v1.34.4");
    foreign["metadata"]["ownerReferences"][0]["uid"] = "other".into();
    let mut world = world(deployment(1, "v1.35.0"), vec![set("s", 1, "v1.35.0")]);
    world.objects.insert(shared(foreign));
    let mut fake = Fake::default();
    let plan = fake.converge(&mut world);
    assert!(!fake.done.iter().any(|step| step.contains("foreign")), "{:?}", fake.done);
    assert_eq!(plan.status.unwrap()["replicas"], 1);
}
