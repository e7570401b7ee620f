use std::sync::Arc;

use hangar_api::Object;
use hangar_api::names::{EXCLUDE_DETACH_ANNOTATION, EXCLUDE_DRAIN_ANNOTATION, PRE_DRAIN_HOOK, PRE_TERMINATE_HOOK};
use serde_json::{Value, json};

use super::tests::{config, infra, node, world};
use super::*;
use crate::plan;
use crate::testing::{CORE, Fake, at, cluster, condition, deleting, merge, object, said};

/// The deletion in these tests began at second 0 of 2026.
const BEGAN: i64 = 1_767_225_600;

fn plane(fields: Value) -> Value {
    let mut plane = object(
        "controlplane.cluster.x-k8s.io/v1alpha2",
        "KamajiControlPlane",
        "p",
        json!({ "status": { "externalManagedControlPlane": true } }),
    );
    merge(&mut plane, &fields);
    plane
}

fn hosted() -> Value {
    let reference = json!({ "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KamajiControlPlane", "name": "p" });
    cluster(json!({ "metadata": { "labels": { "tier": "gold" } }, "spec": { "controlPlaneRef": reference } }))
}

fn pod(name: &str, fields: Value) -> Object {
    let mut pod = object("v1", "Pod", name, json!({ "status": { "phase": "Running" } }));
    merge(&mut pod, &fields);
    Object(pod)
}

fn cordoned(fields: Value) -> Tenant {
    let mut all = json!({ "spec": { "unschedulable": true } });
    merge(&mut all, &fields);
    node(all)
}

fn load(pods: Vec<Object>) -> Load {
    Load::Read(NodeLoad { pods, volumes: Some(Volumes::default()), ..NodeLoad::default() })
}

/// A Machine on its way out with everything that it has.
fn going(fields: Value, others: Vec<Value>, tenant: Tenant, load: Load) -> World {
    let mut own = json!({ "metadata": { "labels": { "pool": "a" } }, "status": { "nodeRef": { "name": "node-m" } } });
    merge(&mut own, &fields);
    let all = [vec![hosted(), plane(json!({})), infra(json!({})), config(json!({}))], others].concat();
    let mut world = deleting(world(own, all, tenant), Some(MACHINE_FINALIZER));
    world.facts.load = load;
    world
}

fn decided(world: &World) -> String {
    said(&plan(world, at(BEGAN)))
}

fn annotated(name: &str) -> Value {
    json!({ "metadata": { "annotations": { name: "" } } })
}

const INFRA_GOES: &str = "delete OpenStackMachine n/m";
const RELEASE: &str = r#"patch Machine n/m {"metadata":{"finalizers":[]}}"#;

#[test]
fn m6_each_step_of_a_deletion_waits_for_the_one_before() {
    let gone = || json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    let ready = || going(json!({}), vec![], cordoned(json!({})), load(vec![]));
    let without = |key: &str| {
        let mut world = ready();
        let all = [hosted(), plane(json!({})), infra(gone()), config(json!({}))];
        let kept = all.into_iter().filter(|object| !key.split(' ').any(|kind| object["kind"] == kind));
        world.objects = kept.map(|object| Arc::new(Object(object))).collect();
        world
    };
    let mut hooked = ready();
    hooked = crate::testing::changed(hooked, |own| {
        own["metadata"]["annotations"] =
            json!({ format!("{PRE_DRAIN_HOOK}/a"): "", format!("{PRE_TERMINATE_HOOK}/b"): "" });
    });
    let mut config_goes = without("OpenStackMachine");
    config_goes.objects.insert(Arc::new(Object(config(gone()))));
    for (what, world, expected) in [
        (
            "pre-drain hooks",
            hooked,
            "wait WaitingForPreDrainHook: waiting for pre-drain hooks to be removed: pre-drain.delete.hook.machine.cluster.x-k8s.io/a",
        ),
        ("cordon", going(json!({}), vec![], node(json!({})), Load::Unread), r#"c: CordonNode { name: "node-m" }"#),
        (
            "pods",
            going(json!({}), vec![], cordoned(json!({})), load(vec![pod("a", json!({})), pod("b", json!({}))])),
            "evict n/a; evict n/b",
        ),
        (
            "pre-terminate hooks",
            going(annotated(PRE_TERMINATE_HOOK), vec![], cordoned(json!({})), load(vec![])),
            "wait WaitingForPreTerminateHook: waiting for pre-terminate hooks to be removed: pre-terminate.delete.hook.machine.cluster.x-k8s.io",
        ),
        ("infrastructure", ready(), INFRA_GOES),
        (
            "infrastructure goes",
            without(""),
            "wait WaitingForInfrastructureDeletion: waiting for OpenStackMachine n/m to be deleted",
        ),
        ("bootstrap config", without("OpenStackMachine"), "delete KubeadmConfig n/m"),
        (
            "bootstrap config goes",
            config_goes,
            "wait WaitingForBootstrapDeletion: waiting for KubeadmConfig n/m to be deleted",
        ),
        ("Node", without("OpenStackMachine KubeadmConfig"), r#"c: DeleteNode { name: "node-m", last_try: false }"#),
    ] {
        assert_eq!(decided(&world), expected, "{what}");
    }
    let mut world = without("OpenStackMachine KubeadmConfig");
    let mut fake = Fake::default();
    fake.pass(&mut world);
    assert!(world.object().finalizers().is_empty());
    assert_eq!(world.facts.tenant, Tenant::NoNode);
}

#[test]
fn m7_the_node_is_left_alone_if_nobody_would_hear_of_it() {
    let gone = || json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    let busy = || load(vec![pod("a", json!({}))]);
    let of = |others: Vec<Value>, control_plane_machines: usize, tenant: Tenant| {
        let mut world = going(json!({}), vec![], tenant, busy());
        world.objects = others.into_iter().map(|object| Arc::new(Object(object))).collect();
        world.facts.control_plane_machines = control_plane_machines;
        world
    };
    let (i, alone) = (|| infra(json!({})), || cluster(json!({})));
    let mut going_cluster = hosted();
    merge(&mut going_cluster, &gone());
    let own = plane(json!({ "status": { "externalManagedControlPlane": false } }));
    let foreign = json!({ "spec": { "controlPlaneRef": { "apiGroup": "example.org", "kind": "Plane", "name": "p" } } });
    let evicts = "evict n/a";
    for (what, world, expected) in [
        ("a hosted control plane", of(vec![hosted(), plane(json!({})), i()], 0, cordoned(json!({}))), evicts),
        ("C9: the Cluster goes", of(vec![going_cluster, plane(json!({})), i()], 0, cordoned(json!({}))), INFRA_GOES),
        ("the Cluster is gone", of(vec![i()], 0, cordoned(json!({}))), INFRA_GOES),
        ("the control plane goes", of(vec![hosted(), plane(gone()), i()], 0, cordoned(json!({}))), INFRA_GOES),
        ("the control plane is gone", of(vec![hosted(), i()], 0, cordoned(json!({}))), INFRA_GOES),
        (
            "a control plane of a kind that nobody here can look at",
            of(vec![cluster(foreign), i()], 0, cordoned(json!({}))),
            evicts,
        ),
        ("no control plane Machines", of(vec![hosted(), own.clone(), i()], 0, cordoned(json!({}))), INFRA_GOES),
        ("control plane Machines", of(vec![hosted(), own, i()], 1, cordoned(json!({}))), evicts),
        (
            "no control plane object, and none of its Machines",
            of(vec![alone(), i()], 0, cordoned(json!({}))),
            INFRA_GOES,
        ),
        ("no control plane object, but its Machines", of(vec![alone(), i()], 3, cordoned(json!({}))), evicts),
        ("no Node", of(vec![hosted(), plane(json!({})), i()], 0, Tenant::NoNode), INFRA_GOES),
        (
            "its infrastructure goes already",
            of(vec![hosted(), plane(json!({})), infra(gone())], 0, cordoned(json!({}))),
            "wait WaitingForInfrastructureDeletion: waiting for OpenStackMachine n/m to be deleted",
        ),
    ] {
        assert_eq!(decided(&world), expected, "{what}");
    }
}

#[test]
fn m7_a_cluster_that_cannot_be_asked_holds_a_machine_that_has_a_node() {
    let c9 = |cluster: Value, tenant: Tenant, fields: Value| {
        let mut world = going(fields, vec![], tenant, Load::Unread);
        world.objects =
            [cluster, plane(json!({})), infra(json!({}))].into_iter().map(|it| Arc::new(Object(it))).collect();
        world
    };
    let gone = || {
        let mut gone = hosted();
        merge(&mut gone, &json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
        gone
    };
    let never = || json!({ "status": { "nodeRef": null } });
    let blocked = "wait DrainingNode: the cluster's API cannot be reached, so its pods cannot be evicted: to delete the Machine all the same, set the annotation machine.cluster.x-k8s.io/exclude-node-draining";
    let connecting = "wait WaitingForNode: waiting for the cluster's API to answer";
    let excluded =
        || json!({ "metadata": { "annotations": { EXCLUDE_DRAIN_ANNOTATION: "", EXCLUDE_DETACH_ANNOTATION: "" } } });
    for (what, world, expected) in [
        ("it had a Node", c9(hosted(), Tenant::Unreachable, json!({})), blocked),
        ("it never had one", c9(hosted(), Tenant::Unreachable, never()), INFRA_GOES),
        ("somebody said so", c9(hosted(), Tenant::Unreachable, excluded()), INFRA_GOES),
        ("C9: the Cluster goes", c9(gone(), Tenant::Unreachable, json!({})), INFRA_GOES),
        ("the first answer is still to come", c9(hosted(), Tenant::Connecting, json!({})), connecting),
        ("it may have one that nobody has seen", c9(hosted(), Tenant::Connecting, never()), connecting),
        ("which does not matter if the Cluster goes", c9(gone(), Tenant::Connecting, json!({})), INFRA_GOES),
    ] {
        assert_eq!(decided(&world), expected, "{what}");
    }
}

#[test]
fn m8_what_would_come_back_or_has_ended_is_not_evicted() {
    let daemon = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true }] } });
    let replica = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "d", "uid": "d", "controller": true }] } });
    let labelled = |value: &str| json!({ "metadata": { "labels": { "cluster.x-k8s.io/drain": value } } });
    let told = |second: i64| json!({ "metadata": { "deletionTimestamp": at(BEGAN + second).to_string() } });
    let unreachable = || cordoned(json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }));
    let left = |what: &str| format!("wait DrainingNode: 1 pods are left on Node node-m\n* n/a: {what}");
    for (what, fields, tenant, expected) in [
        ("a pod of its own", json!({}), cordoned(json!({})), "evict n/a".to_owned()),
        ("of a ReplicaSet", replica, cordoned(json!({})), "evict n/a".into()),
        ("of a DaemonSet", daemon, cordoned(json!({})), INFRA_GOES.into()),
        (
            "static",
            json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "x" } } }),
            cordoned(json!({})),
            INFRA_GOES.into(),
        ),
        ("finished", json!({ "status": { "phase": "Succeeded" } }), cordoned(json!({})), INFRA_GOES.into()),
        ("failed", json!({ "status": { "phase": "Failed" } }), cordoned(json!({})), INFRA_GOES.into()),
        ("to be skipped", labelled("skip"), cordoned(json!({})), INFRA_GOES.into()),
        ("to be waited for", labelled("wait-completed"), cordoned(json!({})), left("waiting for completion")),
        ("told to go", told(-60), cordoned(json!({})), left("evicted, terminating")),
        ("on a Node that does not answer", json!({}), unreachable(), "evict n/a within 1 s".into()),
        ("told to go on a Node that does not answer", told(-2), unreachable(), INFRA_GOES.into()),
        ("told a moment ago", told(0), unreachable(), left("evicted, terminating")),
    ] {
        assert_eq!(decided(&going(json!({}), vec![], tenant, load(vec![pod("a", fields)]))), expected, "{what}");
    }
}

fn rule(name: &str, spec: Value) -> Value {
    object(CORE, "MachineDrainRule", name, json!({ "spec": spec }))
}

#[test]
fn m8_rules_say_what_becomes_of_pods_and_in_which_order() {
    let web = || pod("web", json!({ "metadata": { "labels": { "app": "web" } } }));
    let db = || pod("db", json!({ "metadata": { "labels": { "app": "db" } } }));
    let about = |app: &str, behavior: &str, order: Value| json!({ "drain": { "behavior": behavior, "order": order }, "pods": [{ "selector": { "matchLabels": { "app": app } } }] });
    let for_machines = |selector: Value| {
        let mut spec = about("db", "Skip", Value::Null);
        spec["machines"] = json!([selector]);
        spec
    };
    let in_namespace = |tier: &str| json!({ "drain": { "behavior": "Skip" }, "pods": [{ "namespaceSelector": { "matchLabels": { "tier": tier } } }] });
    let elsewhere = {
        let mut rule = rule("a", about("db", "Skip", Value::Null));
        rule["metadata"]["namespace"] = "other".into();
        rule
    };
    let (both, web_alone) = ("evict n/web; evict n/db", "evict n/web");
    for (what, rules, expected) in [
        ("no rule", vec![], both),
        ("skipped", vec![rule("a", about("db", "Skip", Value::Null))], web_alone),
        ("later", vec![rule("a", about("db", "Drain", json!(10)))], web_alone),
        ("earlier", vec![rule("a", about("web", "Drain", json!(-1)))], web_alone),
        (
            "the first by name decides",
            vec![rule("b", about("db", "Drain", json!(0))), rule("a", about("db", "Skip", Value::Null))],
            web_alone,
        ),
        (
            "for this Machine",
            vec![rule("a", for_machines(json!({ "selector": { "matchLabels": { "pool": "a" } } })))],
            web_alone,
        ),
        (
            "for other Machines",
            vec![rule("a", for_machines(json!({ "selector": { "matchLabels": { "pool": "b" } } })))],
            both,
        ),
        (
            "for this Cluster",
            vec![rule("a", for_machines(json!({ "clusterSelector": { "matchLabels": { "tier": "gold" } } })))],
            web_alone,
        ),
        (
            "for other Clusters",
            vec![rule("a", for_machines(json!({ "clusterSelector": { "matchLabels": { "tier": "iron" } } })))],
            both,
        ),
        ("for another namespace of the tenant", vec![rule("a", in_namespace("x"))], both),
        ("of another namespace here", vec![elsewhere], both),
    ] {
        let mut world = going(json!({}), rules, cordoned(json!({})), load(vec![web(), db()]));
        if let Load::Read(load) = &mut world.facts.load {
            load.namespaces = BTreeMap::from([("n".to_owned(), BTreeMap::from([("tier".to_owned(), "y".to_owned())]))]);
        }
        assert_eq!(decided(&world), expected, "{what}");
    }
    let mut world = going(json!({}), vec![rule("a", in_namespace("y"))], cordoned(json!({})), load(vec![web()]));
    assert!(deletion::needs_namespaces(&world));
    if let Load::Read(load) = &mut world.facts.load {
        load.namespaces = BTreeMap::from([("n".to_owned(), BTreeMap::from([("tier".to_owned(), "y".to_owned())]))]);
    }
    assert_eq!(decided(&world), INFRA_GOES, "by the labels of its namespace");
    let waits = rule("a", about("db", "WaitCompleted", json!(-5)));
    let world = going(json!({}), vec![waits], cordoned(json!({})), load(vec![web(), db()]));
    assert_eq!(
        decided(&world),
        "wait DrainingNode: 2 pods are left on Node node-m\n* n/db: waiting for completion\n* 1 more are evicted after these"
    );
}

#[test]
fn m8_a_refused_eviction_is_told_in_the_budgets_words_and_holds_up_nobody_else() {
    let pods = vec![pod("a", json!({})), pod("b", json!({})), pod("c", json!({}))];
    let mut world = going(json!({}), vec![], cordoned(json!({})), load(pods));
    assert_eq!(decided(&world), "evict n/a; evict n/b; evict n/c", "all in one pass");
    let refused = "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget b needs 1 healthy pods and has 1 currently";
    for (uid, answer) in
        [("a-uid", Evicted::Accepted), ("b-uid", Evicted::Refused(refused.into())), ("c-uid", Evicted::Accepted)]
    {
        world.absorb(&Effect::Tenant(TenantAnswer::PodEvicted { uid: uid.into(), answer }));
    }
    let plan = plan(&world, at(BEGAN));
    let text = format!("3 pods are left on Node node-m\n* n/b: {refused}\n* n/a, n/c: evicted, terminating");
    assert_eq!(said(&plan), format!("wait DrainingNode: {text}"));
    assert_eq!(condition(&plan, "Deleting").unwrap(), ("True".into(), "DrainingNode".into(), text));
    assert_eq!(condition(&plan, "Ready").unwrap().0, "False");
    assert_eq!(plan.status.unwrap()["deletion"]["nodeDrainStartTime"], at(BEGAN).to_string());
}

#[test]
fn m9_a_drain_ends_with_its_timeout_and_0_is_no_timeout() {
    let with = |seconds: Value| {
        let fields = json!({
            "spec": { "deletion": { "nodeDrainTimeoutSeconds": seconds } },
            "status": { "deletion": { "nodeDrainStartTime": at(BEGAN - 100).to_string() } },
        });
        going(
            fields,
            vec![],
            cordoned(json!({})),
            load(vec![pod("a", json!({ "metadata": { "deletionTimestamp": at(BEGAN).to_string() } }))]),
        )
    };
    let waits = "wait DrainingNode: 1 pods are left on Node node-m\n* n/a: evicted, terminating";
    for (what, seconds, expected) in [
        ("none", Value::Null, waits),
        ("0 does not mean that nothing is drained", json!(0), waits),
        ("not yet over", json!(101), waits),
        ("over", json!(100), INFRA_GOES),
    ] {
        assert_eq!(decided(&with(seconds)), expected, "{what}");
    }
    let last = plan(&with(json!(101)), at(BEGAN)).progress.reason().map(|reason| reason.wake);
    assert_eq!(last, Some(crate::Wake::After(std::time::Duration::from_secs(1))), "no longer than it lasts");
    let mut away = with(json!(100));
    (away.facts.tenant, away.facts.load) = (Tenant::Unreachable, Load::Unread);
    let excluded =
        crate::testing::changed(away, |own| own["metadata"]["annotations"] = json!({ EXCLUDE_DETACH_ANNOTATION: "" }));
    assert_eq!(decided(&excluded), INFRA_GOES, "also for an API that cannot be reached");
    let excluded = going(annotated(EXCLUDE_DRAIN_ANNOTATION), vec![], node(json!({})), load(vec![pod("a", json!({}))]));
    assert_eq!(decided(&excluded), INFRA_GOES, "M8: somebody said so");
}

#[test]
fn m9_a_node_that_cannot_be_deleted_holds_its_machine_up_only_for_so_long() {
    let with = |seconds: Value, tenant: Tenant| {
        let fields = json!({ "spec": { "deletion": { "nodeDeletionTimeoutSeconds": seconds } } });
        let mut world = going(fields, vec![], tenant, Load::Unread);
        world.objects = [hosted(), plane(json!({}))].into_iter().map(|it| Arc::new(Object(it))).collect();
        world
    };
    let call = |last: bool| format!(r#"c: DeleteNode {{ name: "node-m", last_try: {last} }}"#);
    let away = "wait DeletingNode: the cluster's API cannot be reached, so Node node-m cannot be deleted".to_owned();
    for (what, seconds, passed, tenant, expected) in [
        ("ten seconds", Value::Null, 9, cordoned(json!({})), call(false)),
        ("are over", Value::Null, 10, cordoned(json!({})), call(true)),
        ("0 is no timeout", json!(0), 10_000, cordoned(json!({})), call(false)),
        ("its own", json!(60), 59, cordoned(json!({})), call(false)),
        ("the API is away", json!(60), 59, Tenant::Unreachable, away.clone()),
        ("for ever", json!(0), 10_000, Tenant::Unreachable, away),
        ("for too long", json!(60), 60, Tenant::Unreachable, RELEASE.into()),
    ] {
        assert_eq!(said(&plan(&with(seconds, tenant), at(BEGAN + passed))), expected, "{what}");
    }
}

#[test]
fn m10_volumes_are_waited_for_unless_pods_that_stay_have_them() {
    let volumes = |attached: &[&str], in_use: &[&str]| {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let volumes = Some(Volumes { attached: set(attached), in_use: set(in_use) });
        Load::Read(NodeLoad { volumes, ..NodeLoad::default() })
    };
    let excluded = annotated(EXCLUDE_DETACH_ANNOTATION);
    let timeout = |seconds: i64| {
        json!({
            "spec": { "deletion": { "nodeVolumeDetachTimeoutSeconds": seconds } },
            "status": { "deletion": { "waitForNodeVolumeDetachStartTime": at(BEGAN - 100).to_string() } },
        })
    };
    let unreachable = || cordoned(json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }));
    let waits = |what: &str| {
        format!(
            "wait WaitingForVolumeDetach: {what}; to delete the Machine all the same, set the annotation {EXCLUDE_DETACH_ANNOTATION}"
        )
    };
    let two = waits("waiting for volumes to be detached from Node node-m: pv-1, pv-2");
    for (what, fields, tenant, load, expected) in [
        ("none", json!({}), cordoned(json!({})), volumes(&[], &[]), INFRA_GOES.to_owned()),
        ("two", json!({}), cordoned(json!({})), volumes(&["pv-1", "pv-2"], &[]), two.clone()),
        ("one stays", json!({}), cordoned(json!({})), volumes(&["pv-1"], &["pv-1"]), INFRA_GOES.into()),
        ("the kubelet does not answer", json!({}), unreachable(), volumes(&["pv-1"], &[]), INFRA_GOES.into()),
        ("somebody said so", excluded, cordoned(json!({})), volumes(&["pv-1"], &[]), INFRA_GOES.into()),
        ("0 is no timeout", timeout(0), cordoned(json!({})), volumes(&["pv-1", "pv-2"], &[]), two),
        ("for too long", timeout(100), cordoned(json!({})), volumes(&["pv-1"], &[]), INFRA_GOES.into()),
    ] {
        assert_eq!(decided(&going(fields, vec![], tenant, load)), expected, "{what}");
    }
    let first = going(json!({}), vec![], cordoned(json!({})), volumes(&["pv-1"], &[]));
    let status = plan(&first, at(BEGAN)).status.unwrap();
    assert_eq!(status["deletion"]["waitForNodeVolumeDetachStartTime"], at(BEGAN).to_string());
}

#[test]
fn m11_hooks_hold_up_their_own_step_and_are_prefixes() {
    let hooks = |prefix: &str| json!({ "metadata": { "annotations": { format!("{prefix}/b"): "x", format!("{prefix}/a"): "" } } });
    let busy = || load(vec![pod("a", json!({}))]);
    let world = going(hooks(PRE_DRAIN_HOOK), vec![], node(json!({})), busy());
    assert!(
        decided(&world).ends_with(&format!("removed: {PRE_DRAIN_HOOK}/a, {PRE_DRAIN_HOOK}/b")),
        "{}",
        decided(&world)
    );
    assert!(!deletion::needs_pods(&world, &world.facts, at(BEGAN)), "nobody asks for pods before");
    let world = going(hooks(PRE_TERMINATE_HOOK), vec![], cordoned(json!({})), busy());
    assert_eq!(decided(&world), "evict n/a", "pods go before");
    let world = going(hooks(PRE_DRAIN_HOOK), vec![], Tenant::NoNode, Load::Unread);
    assert_eq!(decided(&world), INFRA_GOES, "without a Node there is nothing to drain");
    let world = going(hooks(PRE_TERMINATE_HOOK), vec![], Tenant::NoNode, Load::Unread);
    assert!(decided(&world).starts_with("wait WaitingForPreTerminateHook"), "but something to terminate");
}

#[test]
fn questions_are_asked_only_when_their_answers_matter() {
    let pods = || load(vec![pod("a", json!({}))]);
    let world = going(json!({}), vec![], node(json!({})), Load::Unread);
    let needs = |world: &World| {
        let now = at(BEGAN);
        (deletion::needs_pods(world, &world.facts, now), deletion::needs_volumes(world, &world.facts, now))
    };
    assert_eq!(needs(&world), (false, false), "not before the cordon");
    assert_eq!(needs(&going(json!({}), vec![], cordoned(json!({})), pods())), (true, false), "pods come first");
    assert_eq!(needs(&going(json!({}), vec![], cordoned(json!({})), load(vec![]))), (true, true));
    let goes = infra(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    let mut late = going(json!({}), vec![], cordoned(json!({})), Load::Unread);
    late.objects.insert(Arc::new(Object(goes)));
    assert_eq!(needs(&late), (false, false), "what goes already is not drained");
}

/// A tenant decides how many pods it has, not how long others wait.
#[test]
fn m8_a_pass_evicts_so_many_and_no_more() {
    let pods = (0..150).map(|number| pod(&format!("p{number:03}"), json!({}))).collect();
    let mut world = going(json!({}), vec![], cordoned(json!({})), load(pods));
    let mut fake = Fake::default();
    let plan = fake.pass(&mut world);
    assert_eq!(fake.done.len(), 100);
    assert!(
        said(&plan).ends_with("(95 more): evicted, terminating\n* 50 more are evicted after these"),
        "{}",
        said(&plan)
    );
}

#[test]
fn since_when_hooks_hold_a_machine_up_is_in_its_status() {
    for (hook, field) in
        [(PRE_DRAIN_HOOK, "waitForPreDrainHookStartTime"), (PRE_TERMINATE_HOOK, "waitForPreTerminateHookStartTime")]
    {
        let hooks = json!({ "metadata": { "annotations": { hook: "" } } });
        let world = going(hooks, vec![], cordoned(json!({})), load(vec![]));
        let plan = plan(&world, at(BEGAN));
        assert_eq!(plan.status.unwrap()["deletion"][field], at(BEGAN).to_string(), "{hook}");
    }
}
