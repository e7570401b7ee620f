use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use hangar_api::names::{MACHINE_FINALIZER, OUTDATED_ANNOTATION};

use super::*;
use crate::testing::{CORE, Fake, at, changed, cluster, condition, deleting, merge, object, owner, planned, said};

const BOOT: &str = "bootstrap.cluster.x-k8s.io/v1beta2";
const INFRA: &str = "infrastructure.cluster.x-k8s.io/v1beta1";

fn set(replicas: Value) -> Value {
    object(
        CORE,
        "MachineSet",
        "ms",
        json!({
            "metadata": { "finalizers": [MACHINE_SET_FINALIZER], "labels": { CLUSTER_NAME_LABEL: "c" } },
            "spec": { "clusterName": "c", "replicas": replicas, "selector": { "matchLabels": { "x": "y" } }, "template": {
                "metadata": { "labels": { "x": "y" }, "annotations": { "note": "kept" } },
                "spec": { "clusterName": "c", "version": "v1.34.4",
                    "bootstrap": { "configRef": { "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfigTemplate", "name": "b" } },
                    "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackMachineTemplate", "name": "i" } } } },
        }),
    )
}

fn templates() -> Vec<Value> {
    vec![
        object(BOOT, "KubeadmConfigTemplate", "b", json!({ "spec": { "template": { "spec": { "verbosity": 5 } } } })),
        object(
            INFRA,
            "OpenStackMachineTemplate",
            "i",
            json!({ "spec": { "template": { "spec": { "flavor": "m1" } } } }),
        ),
    ]
}

fn machine(name: &str, created: i64, fields: Value) -> Value {
    let mut machine = object(
        CORE,
        "Machine",
        name,
        json!({
            "metadata": { "creationTimestamp": at(created).to_string(), "finalizers": ["m"], "ownerReferences": owner(CORE, "MachineSet", "ms") },
            "spec": { "clusterName": "c", "bootstrap": {} },
            "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready" }, { "type": "Available", "status": "True", "reason": "Available" }] },
        }),
    );
    merge(&mut machine, &fields);
    machine
}

fn world(set: Value, others: Vec<Value>) -> World {
    let mut world: World = crate::testing::world(set, others);
    world.facts = Names::of(world.object(), vec![]);
    // As the set itself made them.
    let made: Vec<Object> = machines(&world).map(|machine| as_made(world.object(), machine)).collect();
    made.into_iter().for_each(|machine| world.objects.insert(Arc::new(machine)));
    world
}

fn as_made(set: &Object, machine: &Object) -> Object {
    let mut made = machine.clone();
    if let Some(Step::Apply(wanted)) = machine::update(set, machine) {
        merge(&mut made.0, &wanted.0);
    }
    made
}

#[test]
fn each_phase_says_what_it_does_or_waits_for() {
    let all = |more: Vec<Value>| [vec![cluster(json!({}))], templates(), more].concat();
    let reservation = |count: u32| {
        format!(r#"patch MachineSet n/ms {{"metadata":{{"annotations":{{"hangar.dev/names-used":"{count}"}}}}}}"#)
    };
    for (what, set, others, expected) in [
        ("no Cluster", set(json!(1)), vec![], "wait WaitingForCluster: there is no Cluster c yet".to_owned()),
        (
            "no bootstrap template",
            set(json!(1)),
            vec![cluster(json!({}))],
            "wait WaitingForBootstrapTemplate: there is no KubeadmConfigTemplate b yet".into(),
        ),
        (
            "no infrastructure template",
            set(json!(1)),
            vec![cluster(json!({})), templates().remove(0)],
            "wait WaitingForInfrastructureTemplate: there is no OpenStackMachineTemplate i yet".into(),
        ),
        ("templates do not matter to a set that is complete", set(json!(0)), vec![cluster(json!({}))], "done".into()),
        ("names are reserved first", set(json!(2)), all(vec![]), reservation(2)),
        ("MS1: one if nothing is said", set(json!(null)), all(vec![]), reservation(1)),
        (
            "a Machine that goes is replaced",
            set(json!(1)),
            all(vec![machine("a", 0, json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }))]),
            reservation(1),
        ),
        ("complete", set(json!(1)), all(vec![machine("a", 0, json!({}))]), "done".into()),
        (
            "too many",
            set(json!(1)),
            all(vec![machine("a", 0, json!({})), machine("b", 1, json!({}))]),
            "delete Machine n/b".into(),
        ),
        (
            "Machines of others do not count",
            set(json!(0)),
            all(vec![machine("a", 0, json!({ "metadata": { "ownerReferences": null } }))]),
            "done".into(),
        ),
    ] {
        assert_eq!(said(&planned(&world(set, others))), expected, "{what}");
    }
}

/// MS2, in our order: the Machine comes first and owns the other two.
#[test]
fn ms2_a_machine_its_bootstrap_config_and_its_infrastructure_have_one_name() {
    let mut world = world(set(json!(2)), [vec![cluster(json!({}))], templates()].concat());
    let mut fake = Fake::default();
    fake.converge(&mut world);
    let names: Vec<String> = machines(&world).map(|machine| machine.name().to_owned()).collect();
    assert_eq!(names.len(), 2);
    for name in &names {
        let machine = world.named("cluster.x-k8s.io", "Machine", name).unwrap();
        assert_eq!(
            (machine.label("x"), machine.label(CLUSTER_NAME_LABEL), machine.annotation("note")),
            (Some("y"), Some("c"), Some("kept"))
        );
        let config = world.named("bootstrap.cluster.x-k8s.io", "KubeadmConfig", name).unwrap();
        let infra = world.named("infrastructure.cluster.x-k8s.io", "OpenStackMachine", name).unwrap();
        assert!(config.is_owned_by(machine.uid()) && infra.is_owned_by(machine.uid()));
        assert_eq!((config.get("/spec/verbosity"), infra.text("/spec/flavor")), (&json!(5), "m1"));
        assert_eq!(infra.annotation("cluster.x-k8s.io/cloned-from-name"), Some("i"));
    }
    // Somebody deleted one: it is made again.
    let key = hangar_api::ObjectKey::new("bootstrap.cluster.x-k8s.io", "KubeadmConfig", "n", &names[0]);
    world.absorb(&crate::Effect::Deleted { key, left: None });
    assert_eq!(said(&planned(&world)), format!("create KubeadmConfig n/{}", names[0]));
}

/// MS6.
#[test]
fn ms6_what_makes_no_other_machine_is_changed_on_those_that_are_there() {
    let mut world = world(set(json!(1)), [vec![cluster(json!({}))], templates()].concat());
    let mut fake = Fake::default();
    fake.converge(&mut world);
    let name = machines(&world).next().unwrap().name().to_owned();
    let template = json!({
        "metadata": { "labels": { "x": "y", "new": "1" }, "annotations": { "note": "changed" } },
        "spec": { "minReadySeconds": 30, "deletion": { "nodeDrainTimeoutSeconds": 60 }, "readinessGates": [{ "conditionType": "Net" }],
            "taints": [{ "key": "k", "effect": "NoSchedule", "propagation": "Always" }] },
    });
    let later = |world: World, template: &Value| {
        let mut world = changed(world, |own| merge(&mut own["spec"]["template"], template));
        world.facts = Names::of(world.object(), vec![]);
        world
    };
    let mut world = later(world, &template);
    let before = fake.done.len();
    fake.converge(&mut world);
    let machine = |world: &World| world.named("cluster.x-k8s.io", "Machine", &name).unwrap().clone();
    let [applied, told @ ..] = &fake.done[before..] else { panic!("nothing was done") };
    assert_eq!(applied, &format!("apply Machine n/{name}"));
    assert!(told.len() == 2 && told.iter().all(|step| step.starts_with("patch ")), "{told:?}");
    let spec = machine(&world).get("/spec").clone();
    for field in ["minReadySeconds", "deletion", "readinessGates", "taints"] {
        assert_eq!(spec[field], template["spec"][field], "{field}");
    }
    let clone = |world: &World| world.named("bootstrap.cluster.x-k8s.io", "KubeadmConfig", &name).unwrap().clone();
    assert_eq!((clone(&world).label("new"), clone(&world).annotation("note")), (Some("1"), Some("changed")));
    // What a template says no more goes from what was cloned, and nothing that others wrote.
    let mut world = later(world, &json!({ "metadata": { "labels": { "new": null }, "annotations": null } }));
    fake.converge(&mut world);
    assert_eq!((clone(&world).label("new"), clone(&world).annotation("note")), (None, None));
    assert_eq!(clone(&world).label("x"), Some("y"));
    assert_eq!(clone(&world).annotation("cluster.x-k8s.io/cloned-from-name"), Some("b"));
    // Another version, which makes another machine, is not written into one that is there.
    let mut world = later(world, &json!({ "spec": { "version": "v1.35.0" } }));
    fake.converge(&mut world);
    assert_eq!(machine(&world).text("/spec/version"), "v1.34.4");
}

/// MS6: of Machines that go, timeouts still change.
#[test]
fn ms6_a_machine_that_goes_hears_of_a_timeout_and_keeps_its_finalizers_as_they_are() {
    let gone = |finalizers: Value| json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers } });
    for finalizers in [json!([MACHINE_FINALIZER]), json!(["example.org/other"])] {
        let world = world(set(json!(0)), vec![cluster(json!({})), machine("a", 0, gone(finalizers.clone()))]);
        let world =
            changed(world, |own| own["spec"]["template"]["spec"]["deletion"] = json!({ "nodeDrainTimeoutSeconds": 1 }));
        let plan = planned(&world);
        let [Step::Apply(applied)] = &plan.steps[..] else { panic!("{plan:?}") };
        assert_eq!(applied.get("/spec/deletion/nodeDrainTimeoutSeconds"), &json!(1));
        assert_eq!(applied.uid(), "a-uid", "one that is gone meanwhile is not made again");
        assert_eq!(applied.finalizers().contains(&MACHINE_FINALIZER), finalizers == json!([MACHINE_FINALIZER]));
    }
}

/// MS3.
#[test]
fn ms3_new_workers_fit_the_control_plane_unless_somebody_skips_the_check() {
    let plane = |version: Value, running: Value| {
        object(
            "controlplane.cluster.x-k8s.io/v1alpha2",
            "KamajiControlPlane",
            "p",
            json!({ "spec": { "version": version }, "status": { "version": running } }),
        )
    };
    let reference = json!({ "spec": { "controlPlaneRef": { "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KamajiControlPlane", "name": "p" } } });
    let (kubeadm, other) = ("KubeadmConfigTemplate", "K0sWorkerConfigTemplate");
    for (what, version, running, kind, replicas, skip, failed) in [
        ("the same minor", json!("v1.34.0"), json!("v1.34.0"), kubeadm, 1, "", None),
        ("an older control plane", json!("v1.33.9"), json!("v1.33.9"), kubeadm, 1, "", Some("KubernetesVersionSkew")),
        ("skipped with others", json!("v1.33.9"), json!("v1.33.9"), other, 1, "X, KubernetesVersionSkew", None),
        (
            "the other one is not",
            json!("v1.33.9"),
            json!("v1.33.9"),
            kubeadm,
            1,
            "KubernetesVersionSkew",
            Some("KubeadmVersionSkew"),
        ),
        ("all are skipped", json!("v1.33.9"), json!("v1.33.9"), kubeadm, 1, "All", None),
        ("a newer control plane", json!("v1.35.0"), json!("v1.35.0"), kubeadm, 1, "", Some("KubeadmVersionSkew")),
        ("which only kubeadm minds", json!("v1.37.0"), json!("v1.37.0"), other, 1, "", None),
        ("one that is too new", json!("v1.38.0"), json!("v1.38.0"), other, 1, "", Some("KubernetesVersionSkew")),
        ("an upgrade", json!("v1.34.4"), json!("v1.33.9"), kubeadm, 1, "", Some("ControlPlaneIsStable")),
        ("an upgrade to another patch", json!("v1.34.4"), json!("v1.34.1"), kubeadm, 1, "", None),
        ("none that runs yet", json!("v1.34.4"), json!(null), kubeadm, 1, "", None),
        ("nothing to make", json!("v1.33.9"), json!("v1.33.9"), kubeadm, 0, "", None),
        ("no version", json!(null), json!(null), kubeadm, 1, "", None),
    ] {
        let mut set = set(json!(replicas));
        merge(
            &mut set,
            &json!({ "metadata": { "annotations": { "machineset.cluster.x-k8s.io/skip-preflight-checks": skip } } }),
        );
        set["spec"]["template"]["spec"]["bootstrap"]["configRef"]["kind"] = kind.into();
        let template = object(BOOT, other, "b", json!({}));
        let others = [vec![cluster(reference.clone()), plane(version, running), template], templates()].concat();
        let said = said(&planned(&world(set, others)));
        match failed {
            Some(check) => assert!(
                said.starts_with("blocked PreflightCheckFailed") && said.contains(&format!("(check {check};")),
                "{what}: {said}"
            ),
            None => assert!(!said.contains("Preflight"), "{what}: {said}"),
        }
    }
}

/// MS1: an autoscaler's least size counts as long as nobody has written another one.
#[test]
fn ms1_a_size_that_nobody_wrote_is_one_or_what_the_autoscaler_begins_with() {
    let prefix = "cluster.x-k8s.io/cluster-api-autoscaler-node-group";
    for (what, replicas, least, most, expected) in [
        ("nothing is said", json!(null), json!(null), json!(null), 1),
        ("an autoscaler", json!(null), json!("3"), json!("5"), 3),
        ("down to nothing", json!(null), json!("0"), json!("5"), 0),
        ("half of it", json!(null), json!("3"), json!(null), 1),
        ("no numbers", json!(null), json!("x"), json!("5"), 1),
        ("upside down", json!(null), json!("5"), json!("3"), 1),
        ("somebody said so", json!(2), json!("3"), json!("5"), 2),
    ] {
        let mut own = set(replicas);
        let annotations = json!({ format!("{prefix}-min-size"): least, format!("{prefix}-max-size"): most });
        merge(&mut own, &json!({ "metadata": { "annotations": annotations } }));
        assert_eq!(desired(&world(own, vec![])), expected, "{what}");
    }
}

/// MS4.
#[test]
fn ms4_marked_ones_go_first_then_those_that_are_not_ready_then_by_the_sets_order() {
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "X" }] } });
    let marked = json!({ "metadata": { "annotations": { DELETE_MACHINE_ANNOTATION: "" } } });
    for (what, order, fields, expected) in [
        ("marked before not ready", json!(null), [marked, unready.clone(), json!({})], "a"),
        ("not ready", json!(null), [json!({}), unready, json!({})], "b"),
        ("any, which is the newest", json!("Random"), [json!({}), json!({}), json!({})], "c"),
        ("the newest", json!("Newest"), [json!({}), json!({}), json!({})], "c"),
        ("the oldest", json!("Oldest"), [json!({}), json!({}), json!({})], "a"),
    ] {
        let mut set = set(json!(2));
        set["spec"]["deletion"] = json!({ "order": order });
        let [a, b, c] = fields;
        let world = world(set, vec![cluster(json!({})), machine("a", 0, a), machine("b", 1, b), machine("c", 2, c)]);
        let plan = planned(&world);
        assert_eq!(said(&plan), format!("delete Machine n/{expected}"), "{what}");
        assert!(matches!(&plan.steps[0], Step::Delete { resource_version: Some(_), .. }), "{what}: as it was seen");
    }
}

/// As a health check leaves one behind that is to be replaced.
fn ill(name: &str, created: i64, fields: Value) -> Value {
    let said = |kind: &str| json!({ "type": kind, "status": "False", "reason": "X" });
    let all = ["Ready", "Available", "HealthCheckSucceeded", "OwnerRemediated"].map(said);
    let mut machine = machine(name, created, json!({ "status": { "conditions": all } }));
    merge(&mut machine, &fields);
    machine
}

/// MS5.
#[test]
fn ms5_machines_that_a_health_check_has_marked_are_replaced_by_the_current_revision() {
    let said = |kind: &str, status: &str| json!({ "type": kind, "status": status, "reason": "X" });
    let conditions = |list: Vec<Value>| json!({ "status": { "conditions": list } });
    let found = || said("HealthCheckSucceeded", "False");
    let available = conditions(vec![said("Available", "True"), found(), said("OwnerRemediated", "False")]);
    let alone = |name: &str| json!({ "metadata": { "annotations": { name: "" } } });
    let all = "delete Machine n/c; delete Machine n/b; delete Machine n/a";
    let old = json!({ "metadata": { "annotations": { OUTDATED_ANNOTATION: "true" } } });
    for (what, of_set, of_b, expected) in [
        ("newest first", json!({}), json!({}), all),
        ("an old revision replaces nothing", old, json!({}), "done"),
        ("not marked for its owner", json!({}), conditions(vec![found()]), "delete Machine n/c; delete Machine n/a"),
        ("still available: not yet", json!({}), available, "delete Machine n/c; delete Machine n/a"),
        ("paused", json!({}), alone("cluster.x-k8s.io/paused"), "delete Machine n/c; delete Machine n/a"),
        ("left alone", json!({}), alone("cluster.x-k8s.io/skip-remediation"), "delete Machine n/c; delete Machine n/a"),
        (
            "no new ones could be made",
            json!({ "spec": { "template": { "spec": { "version": "v1.99.0" } } } }),
            json!({}),
            "done",
        ),
    ] {
        let mut set = set(json!(3));
        merge(&mut set, &of_set);
        let control_plane = json!({ "spec": { "controlPlaneRef": { "apiGroup": "g", "kind": "Plane", "name": "p" } } });
        let running = object("g/v1", "Plane", "p", json!({ "spec": { "version": "v1.34.4" } }));
        let machines = vec![ill("a", 0, json!({})), ill("b", 1, of_b), ill("c", 2, json!({}))];
        let plan = planned(&world(set, [vec![cluster(control_plane), running], machines].concat()));
        assert_eq!(crate::testing::said(&plan), expected, "{what}");
        let as_seen = |step: &Step| matches!(step, Step::Delete { resource_version: Some(_), .. });
        assert!(plan.steps.iter().all(as_seen), "{what}: one that is well again stays");
    }
}

/// MS5.
#[test]
fn ms5_no_more_go_at_once_than_the_deployment_allows() {
    for (what, most, going, expected) in [
        ("no limit", json!(null), 0, "delete Machine n/c; delete Machine n/b; delete Machine n/a"),
        ("one", json!(1), 0, "delete Machine n/c"),
        ("one that is on its way", json!(1), 1, "done"),
        ("two, of which one is on its way", json!(2), 1, "delete Machine n/b"),
        ("none", json!(0), 0, "done"),
        ("a share of the deployment, rounded up", json!("21%"), 0, "delete Machine n/c; delete Machine n/b"),
        ("what nobody understands", json!("many"), 0, "done"),
    ] {
        let mut set = set(json!(if going == 0 { 3 } else { 2 }));
        set["metadata"]["ownerReferences"] = owner(CORE, "MachineDeployment", "md");
        let mut spec = json!({ "replicas": 5 });
        if !most.is_null() {
            spec["remediation"] = json!({ "maxInFlight": most });
        }
        let deployment = object(CORE, "MachineDeployment", "md", json!({ "spec": spec }));
        let last =
            if going == 0 { json!({}) } else { json!({ "metadata": { "deletionTimestamp": at(5).to_string() } }) };
        let machines = vec![ill("a", 0, json!({})), ill("b", 1, json!({})), ill("c", 2, last)];
        let plan = planned(&world(set, [vec![cluster(json!({})), deployment], machines].concat()));
        assert_eq!(said(&plan), expected, "{what}");
    }
}

#[test]
fn on_the_way_out_its_machines_go_and_are_waited_for() {
    let foreign =
        machine("foreign", 0, json!({ "metadata": { "ownerReferences": owner(CORE, "MachineSet", "other") } }));
    let mut world = deleting(
        world(set(json!(2)), vec![machine("a", 0, json!({})), machine("b", 0, json!({})), foreign]),
        Some(MACHINE_SET_FINALIZER),
    );
    let mut fake = Fake::default();
    assert_eq!(said(&fake.pass(&mut world)), "wait WaitingForMachines: waiting for 2 Machines to be deleted");
    assert_eq!(fake.done, ["delete Machine n/a", "delete Machine n/b"]);
    for name in ["a", "b"] {
        world.absorb(&crate::Effect::Deleted { key: hangar_api::ObjectKey::of::<Machine>("n", name), left: None });
    }
    fake.pass(&mut world);
    assert!(world.object().finalizers().is_empty());
}

#[test]
fn the_status_counts_what_the_machines_say() {
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "X", "message": "no valid host" }] } });
    let world = world(set(json!(2)), vec![cluster(json!({})), machine("a", 0, json!({})), machine("b", 0, unready)]);
    let plan = planned(&world);
    let status = plan.status.clone().unwrap();
    assert_eq!(
        (&status["replicas"], &status["readyReplicas"], &status["availableReplicas"], &status["selector"]),
        (&json!(2), &json!(1), &json!(1), &json!("x=y"))
    );
    assert_eq!(
        condition(&plan, "MachinesReady").unwrap(),
        ("False".into(), "NotMachinesReady".into(), "b: no valid host".into())
    );
    assert_eq!(
        (condition(&plan, "ScalingUp").unwrap().0, condition(&plan, "ScalingDown").unwrap().0),
        ("False".into(), "False".into())
    );
    let blocked = crate::refused(&world, crate::Reason::retry("Refused", "quota"), at(0));
    assert_eq!(condition(&blocked, "MachinesReady").unwrap(), ("False".into(), "Refused".into(), "quota".into()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    /// Whatever sizes are asked for, one after the other: it always ends with as many, and no name comes twice.
    #[test]
    fn any_sequence_of_sizes_converges_and_never_reuses_a_name(sizes in prop::collection::vec(0..6_usize, 1..8)) {
        let mut world = world(set(json!(0)), [vec![cluster(json!({}))], templates()].concat());
        let (mut fake, mut seen) = (Fake::default(), std::collections::BTreeSet::new());
        for size in sizes {
            world = changed(world, |own| own["spec"]["replicas"] = size.into());
            world.facts = Names::of(world.object(), vec![]);
            let before = fake.done.len();
            fake.converge(&mut world);
            for made in fake.done[before..].iter().filter_map(|step| step.strip_prefix("create Machine ")) {
                prop_assert!(seen.insert(made.to_owned()), "{made} came twice");
            }
            prop_assert_eq!(living(&world).count(), size);
            // The Machines that go are gone before the next change.
            let gone: Vec<_> = machines(&world).filter(|machine| machine.is_deleting()).map(Object::key).collect();
            gone.into_iter().for_each(|key| world.absorb(&crate::Effect::Deleted { key, left: None }));
        }
    }
}

/// Scaled down during a pause: the set hears of the end of the pause at the same time as its deployment.
#[test]
fn a_set_makes_nothing_before_its_deployment_has_decided() {
    let waits = "wait WaitingForMachineDeployment: MachineDeployment n/md has changed and decides first how many Machines this set has";
    let paused = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } });
    for (what, generation, status, fields, expected) in [
        ("it has not seen the change yet", 2, json!({ "observedGeneration": 1 }), json!({}), waits),
        ("it has", 2, json!({ "observedGeneration": 2 }), json!({}), "patch MachineSet"),
        ("it never said anything", 1, json!({}), json!({}), "patch MachineSet"),
        ("it is paused and will not", 2, json!({ "observedGeneration": 1 }), paused, "patch MachineSet"),
    ] {
        let mut set = set(json!(1));
        set["metadata"]["ownerReferences"] = owner(CORE, "MachineDeployment", "md");
        let mut deployment = object(CORE, "MachineDeployment", "md", json!({ "status": status }));
        deployment["metadata"]["generation"] = generation.into();
        merge(&mut deployment, &fields);
        let mut others = templates();
        others.extend([cluster(json!({})), deployment]);
        let said = said(&planned(&world(set, others)));
        assert!(said.starts_with(expected), "{what}: {said}");
    }
}
