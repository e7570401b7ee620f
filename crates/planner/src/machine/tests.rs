use hangar_api::names::NODE_UNINITIALIZED_TAINT;
use serde_json::{Value, json};

use super::node::MACHINE_ANNOTATION;
use super::*;
use crate::testing::{CORE, Fake, at, changed, cluster, condition, merge, object, owner, planned, said, shared};

const INFRA: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const BOOT: &str = "bootstrap.cluster.x-k8s.io/v1beta2";

pub(super) fn config(fields: Value) -> Value {
    child(BOOT, "KubeadmConfig", fields)
}

pub(super) fn infra(fields: Value) -> Value {
    child(INFRA, "OpenStackMachine", fields)
}

/// Made for the machine.
fn child(api_version: &str, kind: &str, fields: Value) -> Value {
    let owner = Object(machine(json!({}))).as_owner(true);
    let metadata = json!({ "labels": { CLUSTER_NAME_LABEL: "c" }, "ownerReferences": [owner] });
    let mut child = object(api_version, kind, "m", json!({ "metadata": metadata }));
    merge(&mut child, &fields);
    child
}

#[test]
fn m1_what_is_made_for_a_machine_keeps_its_label_and_its_owner() {
    let touched = |metadata: Value| {
        let mut touched = infra(json!({}));
        merge(&mut touched["metadata"], &metadata);
        said(&planned(&world(json!({}), vec![cluster(json!({})), config(json!({})), touched], Tenant::NoNode)))
    };
    let none = json!({ "labels": { CLUSTER_NAME_LABEL: null } });
    assert!(touched(json!({})).starts_with("wait"), "{}", touched(json!({})));
    assert!(touched(none.clone()).starts_with("patch OpenStackMachine n/m"), "{}", touched(none));
    let orphan = json!({ "ownerReferences": [] });
    assert!(touched(orphan.clone()).starts_with("patch OpenStackMachine n/m"), "{}", touched(orphan));
    let elses = json!({ "ownerReferences": owner(CORE, "Machine", "other"), "labels": { CLUSTER_NAME_LABEL: null } });
    assert!(touched(elses.clone()).starts_with("wait"), "{}", touched(elses));
}

pub(super) fn provisioned() -> Value {
    infra(json!({ "spec": { "providerID": "p://1" }, "status": { "initialization": { "provisioned": true },
        "addresses": [{ "type": "InternalIP", "address": "10.6.0.5" }] } }))
}

pub(super) fn machine(fields: Value) -> Value {
    let mut own = object(
        CORE,
        "Machine",
        "m",
        json!({
            "metadata": { "finalizers": [MACHINE_FINALIZER], "labels": { CLUSTER_NAME_LABEL: "c" }, "ownerReferences": owner(CORE, "MachineSet", "ms") },
            "spec": { "clusterName": "c", "version": "v1.34.4",
                "bootstrap": { "configRef": { "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": "m" } },
                "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackMachine", "name": "m" } },
        }),
    );
    merge(&mut own, &fields);
    own
}

pub(super) fn world(fields: Value, others: Vec<Value>, tenant: Tenant) -> World {
    let mut world: World = crate::testing::world(machine(fields), others);
    world.facts.tenant = tenant;
    world
}

pub(super) fn node(fields: Value) -> Tenant {
    let mut node = object(
        "v1",
        "Node",
        "node-m",
        json!({ "metadata": { "annotations": { MACHINE_ANNOTATION: "m" } }, "spec": { "providerID": "p://1" },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }], "nodeInfo": { "kubeletVersion": "v1.34.4" } } }),
    );
    merge(&mut node, &fields);
    Tenant::Node(shared(node))
}

pub(super) fn with_data() -> Value {
    json!({ "spec": { "bootstrap": { "dataSecretName": "m" } } })
}

pub(super) fn complete() -> Value {
    json!({ "spec": { "bootstrap": { "dataSecretName": "m" }, "providerID": "p://1" } })
}

/// M2.
#[test]
fn m2_each_phase_of_building_says_what_it_does_or_waits_for() {
    let c = || cluster(json!({}));
    let told = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "Quota", "message": "Quota exceeded" }] } });
    for (what, world, expected) in [
        ("no Cluster", world(json!({}), vec![], Tenant::NoNode), "wait WaitingForCluster: there is no Cluster c yet"),
        (
            "no bootstrap config",
            world(json!({}), vec![c()], Tenant::NoNode),
            "wait WaitingForBootstrapConfig: its bootstrap config is not there yet",
        ),
        (
            "no data yet",
            world(json!({}), vec![c(), config(json!({}))], Tenant::NoNode),
            "wait WaitingForBootstrapData: KubeadmConfig n/m has no bootstrap data yet",
        ),
        (
            "data",
            world(
                json!({}),
                vec![
                    c(),
                    config(
                        json!({ "status": { "dataSecretName": "m", "initialization": { "dataSecretCreated": true } } }),
                    ),
                ],
                Tenant::NoNode,
            ),
            r#"patch Machine n/m {"spec":{"bootstrap":{"dataSecretName":"m"}}}"#,
        ),
        (
            "no infrastructure",
            world(with_data(), vec![c()], Tenant::NoNode),
            "wait WaitingForInfrastructure: its infrastructure machine is not there yet",
        ),
        (
            "not provisioned",
            world(with_data(), vec![c(), infra(json!({}))], Tenant::NoNode),
            "wait WaitingForInfrastructure: OpenStackMachine n/m is not provisioned yet",
        ),
        (
            "its own words come first",
            world(with_data(), vec![c(), infra(told)], Tenant::NoNode),
            "wait WaitingForInfrastructure: Quota exceeded",
        ),
        (
            "provider id",
            world(with_data(), vec![c(), provisioned()], Tenant::NoNode),
            r#"patch Machine n/m {"spec":{"providerID":"p://1"}}"#,
        ),
        (
            "the API is away",
            world(complete(), vec![c(), provisioned()], Tenant::Unreachable),
            "wait WaitingForNode: the cluster's API cannot be reached",
        ),
        (
            "no Node",
            world(complete(), vec![c(), provisioned()], Tenant::NoNode),
            "wait WaitingForNode: no Node with its provider id has joined yet",
        ),
        ("a Node that is ours", world(complete(), vec![c(), provisioned()], node(json!({}))), "done"),
    ] {
        assert_eq!(said(&planned(&world)), expected, "{what}");
    }
}

#[test]
fn a_node_is_adopted_when_it_lacks_our_annotation_or_has_the_taint_still() {
    for (what, fields) in [
        ("no annotation", json!({ "metadata": { "annotations": null } })),
        ("another machine's annotation", json!({ "metadata": { "annotations": { MACHINE_ANNOTATION: "other" } } })),
        ("the taint", json!({ "spec": { "taints": [{ "key": NODE_UNINITIALIZED_TAINT, "effect": "NoSchedule" }] } })),
    ] {
        let mut world = world(complete(), vec![cluster(json!({})), provisioned()], node(fields));
        let plan = planned(&world);
        let [Step::Tenant { call: TenantCall::AdoptNode(change), .. }] = &plan.steps[..] else {
            panic!("{what}: {plan:?}")
        };
        let taint = (NODE_UNINITIALIZED_TAINT.to_owned(), "NoSchedule".to_owned());
        let owner = ("cluster.x-k8s.io/owner-name".to_owned(), "ms".to_owned());
        assert_eq!(change.name, "node-m", "{what}");
        assert_eq!(change.remove_taints.contains(&taint), what == "the taint");
        assert_eq!(change.annotations.contains(&owner), what != "the taint", "{what}: {change:?}");
        Fake::default().converge(&mut world);
    }
}

/// MS6: a Machine's labels and taints are its Node's, as far as they are for Nodes; D9.
#[test]
fn ms6_a_node_has_the_labels_and_taints_of_its_machine_and_loses_them_with_it() {
    let labels = |labels: Value| json!({ "metadata": { "labels": labels } });
    let taints = |taints: Value| json!({ "spec": { "taints": taints } });
    let taint = |key: &str, effect: &str| json!({ "key": key, "effect": effect });
    let of = |key: &str, effect: &str, propagation: &str| json!({ "key": key, "effect": effect, "value": "", "propagation": propagation });
    let both = |one: Value, other: Value| {
        let mut both = one;
        merge(&mut both, &other);
        both
    };
    let recorded = |annotation: &str, names: &str| json!({ "metadata": { "annotations": { format!("cluster.x-k8s.io/{annotation}-from-machine"): names } } });
    let fresh = || taint(NODE_UNINITIALIZED_TAINT, "NoSchedule");
    let outdated = || taint("node.cluster.x-k8s.io/outdated-revision", "PreferNoSchedule");
    for (what, machine, set, theirs, expected) in [
        ("nothing", json!({}), json!({}), json!({}), json!(null)),
        (
            "labels of other domains",
            labels(json!({ "pool": "a", "example.org/x": "y", "xnode.cluster.x-k8s.io/x": "y" })),
            json!({}),
            json!({}),
            json!(null),
        ),
        (
            "labels for Nodes",
            labels(
                json!({ "node-role.kubernetes.io/worker": "", "a.node-restriction.kubernetes.io/b": "c", "node.cluster.x-k8s.io/d": "e" }),
            ),
            json!({}),
            labels(json!({ "node.cluster.x-k8s.io/d": "other", "kubernetes.io/os": "linux" })),
            json!({
                "labels": [["a.node-restriction.kubernetes.io/b", "c"], ["node-role.kubernetes.io/worker", ""], ["node.cluster.x-k8s.io/d", "e"]],
                "annotations": [["cluster.x-k8s.io/labels-from-machine", "a.node-restriction.kubernetes.io/b,node-role.kubernetes.io/worker,node.cluster.x-k8s.io/d"]],
            }),
        ),
        (
            "they are there",
            labels(json!({ "node.cluster.x-k8s.io/d": "e" })),
            json!({}),
            both(labels(json!({ "node.cluster.x-k8s.io/d": "e" })), recorded("labels", "node.cluster.x-k8s.io/d")),
            json!(null),
        ),
        (
            "one that the Machine has no more",
            json!({}),
            json!({}),
            both(
                labels(json!({ "node.cluster.x-k8s.io/d": "e", "node.cluster.x-k8s.io/theirs": "" })),
                recorded("labels", "node.cluster.x-k8s.io/d"),
            ),
            json!({ "labels": [["node.cluster.x-k8s.io/d", null]], "annotations": [["cluster.x-k8s.io/labels-from-machine", ""]] }),
        ),
        (
            "taints of a new Node",
            taints(json!([of("a", "NoSchedule", "Always"), of("b", "NoExecute", "OnInitialization")])),
            json!({}),
            taints(json!([fresh(), taint("theirs", "NoSchedule")])),
            json!({
                "taints": [taint("a", "NoSchedule"), taint("b", "NoExecute")], "remove": [[NODE_UNINITIALIZED_TAINT, "NoSchedule"]],
                "annotations": [["cluster.x-k8s.io/taints-from-machine", "a:NoSchedule"]],
            }),
        ),
        (
            "a taint for the beginning is not put on again",
            taints(json!([of("b", "NoExecute", "OnInitialization")])),
            json!({}),
            json!({}),
            json!(null),
        ),
        (
            "a taint that the Machine has no more",
            json!({}),
            json!({}),
            both(
                taints(json!([taint("a", "NoSchedule"), taint("theirs", "NoSchedule")])),
                recorded("taints", "a:NoSchedule"),
            ),
            json!({ "remove": [["a", "NoSchedule"]], "annotations": [["cluster.x-k8s.io/taints-from-machine", ""]] }),
        ),
        (
            "D9: an outdated revision",
            json!({}),
            json!({ "hangar.dev/outdated-revision": "true" }),
            json!({}),
            json!({ "taints": [outdated()] }),
        ),
        (
            "D9: it is told",
            json!({}),
            json!({ "hangar.dev/outdated-revision": "true" }),
            taints(json!([outdated()])),
            json!(null),
        ),
        (
            "D9: current again",
            json!({}),
            json!({}),
            taints(json!([outdated()])),
            json!({ "remove": [["node.cluster.x-k8s.io/outdated-revision", "PreferNoSchedule"]] }),
        ),
    ] {
        let set = object(CORE, "MachineSet", "ms", json!({ "metadata": { "annotations": set } }));
        let world = world(both(complete(), machine), vec![cluster(json!({})), provisioned(), set], node(theirs));
        let plan = planned(&world);
        let found = match &plan.steps[..] {
            [] => json!(null),
            [Step::Tenant { call: TenantCall::AdoptNode(change), .. }] => {
                let all = [
                    ("labels", json!(change.labels)),
                    ("annotations", json!(change.annotations)),
                    ("taints", json!(change.taints)),
                    ("remove", json!(change.remove_taints)),
                ];
                let some = all.into_iter().filter(|(_, list)| *list != json!([]));
                Value::Object(some.map(|(name, list)| (name.to_owned(), list)).collect())
            }
            other => panic!("{what}: {other:?}"),
        };
        assert_eq!(found, expected, "{what}");
    }
}

/// M1.
#[test]
fn m1_only_a_machine_that_stands_alone_belongs_to_the_cluster() {
    for (what, owners, expected) in
        [("of a set", owner(CORE, "MachineSet", "ms"), "MachineSet"), ("made by hand", json!(null), "Cluster")]
    {
        let mut world = world(
            json!({ "metadata": { "ownerReferences": owners, "labels": null } }),
            vec![cluster(json!({}))],
            Tenant::NoNode,
        );
        Fake::default().converge(&mut world);
        assert_eq!(world.object().owners()[0].kind, expected, "{what}");
        assert_eq!(world.object().label(CLUSTER_NAME_LABEL), Some("c"), "{what}");
    }
}

/// M5.
#[test]
fn m5_the_phase_follows_from_data_infrastructure_and_node() {
    let c = || cluster(json!({}));
    for (what, fields, others, tenant, expected) in [
        ("nothing", json!({}), vec![c()], Tenant::NoNode, "Pending"),
        ("data", with_data(), vec![c()], Tenant::NoNode, "Provisioning"),
        ("infrastructure", complete(), vec![c(), provisioned()], Tenant::NoNode, "Provisioned"),
        ("Node", complete(), vec![c(), provisioned()], node(json!({})), "Running"),
    ] {
        assert_eq!(planned(&world(fields, others, tenant)).status.unwrap()["phase"], expected, "{what}");
    }
}

/// M3, M4.
#[test]
fn m4_a_machine_is_ready_with_data_infrastructure_and_a_healthy_node() {
    let known = || {
        let mut fields = complete();
        merge(&mut fields, &json!({ "status": { "nodeRef": { "name": "node-m" } } }));
        fields
    };
    let not_ready =
        json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "message": "no CNI" }] } });
    let pressed = |status: &str| json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "DiskPressure", "status": status }] } });
    let silent = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    for (what, fields, tenant, healthy, reason, ready) in [
        ("healthy", complete(), node(json!({})), "True", "NodeHealthy", "True"),
        ("not ready", complete(), node(not_ready), "False", "NodeNotHealthy", "False"),
        (
            "silent",
            complete(),
            node(json!({ "status": { "conditions": null } })),
            "Unknown",
            "NodeHealthUnknown",
            "Unknown",
        ),
        ("pressed", complete(), node(pressed("True")), "False", "NodeNotHealthy", "False"),
        ("perhaps pressed", complete(), node(pressed("Unknown")), "Unknown", "NodeHealthUnknown", "Unknown"),
        ("not pressed", complete(), node(pressed("False")), "True", "NodeHealthy", "True"),
        ("its kubelet is silent", complete(), node(silent), "Unknown", "NodeHealthUnknown", "Unknown"),
        ("not yet", complete(), Tenant::NoNode, "Unknown", "NodeNotYetJoined", "Unknown"),
        ("M3: gone", known(), Tenant::NoNode, "False", "NodeDeleted", "False"),
        ("M3: the API is away", known(), Tenant::Unreachable, "Unknown", "ConnectionDown", "Unknown"),
    ] {
        let plan = planned(&world(fields, vec![cluster(json!({})), provisioned()], tenant));
        let (status, said, _) = condition(&plan, "NodeHealthy").unwrap();
        assert_eq!((status.as_str(), said.as_str()), (healthy, reason), "{what}");
        assert_eq!(condition(&plan, "Ready").unwrap().0, ready, "{what}");
        assert_eq!(condition(&plan, "Available").unwrap().0, ready, "{what}");
    }
    let away = planned(&world(known(), vec![cluster(json!({})), provisioned()], Tenant::Unreachable));
    let status = away.status.unwrap();
    assert_eq!(status["nodeRef"]["name"], "node-m", "a Node that was seen is not forgotten");
    assert_eq!(status["addresses"][0]["address"], "10.6.0.5");
}

/// After a start nothing was heard of the cluster yet: that is no news of the machine.
#[test]
fn a_machine_keeps_its_status_until_its_cluster_was_asked() {
    let others = || vec![cluster(json!({})), provisioned()];
    let before = planned(&world(complete(), others(), node(json!({})))).status.unwrap();
    let mut fields = complete();
    merge(&mut fields, &json!({ "status": before }));
    assert_eq!(planned(&world(fields.clone(), others(), Tenant::Connecting)).status.unwrap(), before);
    let away = planned(&world(fields, others(), Tenant::Unreachable));
    assert_eq!(condition(&away, "Ready").unwrap().0, "Unknown", "a cluster that does not answer is news");
    let new = planned(&world(complete(), others(), Tenant::Connecting));
    assert_eq!(
        condition(&new, "NodeHealthy").unwrap().0,
        "Unknown",
        "a machine that never had a Node has nothing to keep"
    );
}

/// M3.
#[test]
fn m3_a_tenant_that_does_not_answer_is_news_after_five_minutes() {
    let others = || vec![cluster(json!({})), provisioned()];
    let before = planned(&world(complete(), others(), node(json!({})))).status.unwrap();
    let mut known = complete();
    merge(&mut known, &json!({ "status": before }));
    for (what, fields, tenant, seconds, expected) in [
        ("listed, silent for a while", known.clone(), node(json!({})), 299, "True"),
        ("listed, silent for too long", known.clone(), node(json!({})), 300, "Unknown"),
        ("never listed, for a while", known.clone(), Tenant::Unreachable, 299, "True"),
        ("never listed, for too long", known, Tenant::Unreachable, 300, "Unknown"),
        ("nothing was ever known", complete(), Tenant::Unreachable, 1, "Unknown"),
    ] {
        let mut world = world(fields, others(), tenant);
        world.facts.silent_for = Some(Duration::from_secs(seconds));
        let plan = planned(&world);
        for kind in ["NodeReady", "NodeHealthy", "Ready"] {
            assert_eq!(condition(&plan, kind).unwrap().0, expected, "{what}: {kind}");
        }
    }
}

/// M4.
#[test]
fn m4_gates_and_health_checks_count_and_conditions_of_others_stay_theirs() {
    let said = |kind: &str, status: &str| json!({ "type": kind, "status": status, "reason": "R", "message": "words" });
    let gate = |kind: &str, polarity: Value| json!([{ "conditionType": kind, "polarity": polarity }]);
    for (what, gates, conditions, expected, message) in [
        ("no gates", json!(null), json!([]), "True", ""),
        (
            "a gate that nobody answered",
            gate("Net", json!(null)),
            json!([]),
            "Unknown",
            "* Net: Condition Net not yet reported",
        ),
        ("a gate that is open", gate("Net", json!(null)), json!([said("Net", "True")]), "True", "* Net: words"),
        ("a gate that is closed", gate("Net", json!(null)), json!([said("Net", "False")]), "False", "* Net: words"),
        (
            "a gate that is good when it is false",
            gate("Bad", json!("Negative")),
            json!([said("Bad", "True")]),
            "False",
            "* Bad: words",
        ),
        ("a gate that would wait for itself", gate("Available", json!(null)), json!([]), "True", ""),
        (
            "an unhealthy one",
            json!(null),
            json!([said("HealthCheckSucceeded", "False")]),
            "False",
            "* HealthCheckSucceeded: words",
        ),
        (
            "one that waits for its owner",
            json!(null),
            json!([said("OwnerRemediated", "False")]),
            "False",
            "* OwnerRemediated: words",
        ),
        ("somebody else's", json!(null), json!([said("Other", "False")]), "True", ""),
    ] {
        let mut fields = complete();
        merge(&mut fields, &json!({ "spec": { "readinessGates": gates }, "status": { "conditions": conditions } }));
        let plan = planned(&world(fields, vec![cluster(json!({})), provisioned()], node(json!({}))));
        let (status, _, words) = condition(&plan, "Ready").unwrap();
        assert_eq!((status.as_str(), words.as_str()), (expected, message), "{what}");
        assert!(plan.own_part(json!({ "conditions": conditions })) == json!({ "conditions": [] }), "{what}");
        assert!(!plan.is_shared(plan.status.as_ref().unwrap()), "{what}: only our own are written");
    }
}

/// M4.
#[test]
fn m4_a_machine_is_available_when_it_has_been_ready_for_so_long() {
    let ready = |status: &str, since: i64| json!({ "conditions": [{ "type": "Ready", "status": status, "lastTransitionTime": at(since).to_string() }] });
    for (what, seconds, before, expected, again) in [
        ("at once", json!(null), json!({}), "True", None),
        ("it is ready only now", json!(60), ready("False", 0), "False", Some(60)),
        ("it has been for a while", json!(60), ready("True", 70), "False", Some(30)),
        ("it has been for long enough", json!(60), ready("True", 40), "True", None),
    ] {
        let mut fields = complete();
        merge(&mut fields, &json!({ "spec": { "minReadySeconds": seconds }, "status": before }));
        let plan = crate::plan(&world(fields, vec![cluster(json!({})), provisioned()], node(json!({}))), at(100));
        assert_eq!(condition(&plan, "Ready").unwrap().0, "True", "{what}");
        assert_eq!(condition(&plan, "Available").unwrap().0, expected, "{what}");
        assert_eq!(plan.recheck, again.map(Duration::from_secs), "{what}");
    }
}

/// M13.
#[test]
fn m13_versions_are_compared_by_meaning() {
    for (wanted, running, expected) in [
        ("v1.34.4", "v1.34.4", Some("True")),
        ("1.34.4", "v1.34.4", Some("True")),
        ("v1.34.4", "v1.34.4+build5", Some("True")),
        ("v1.34.4", "v1.33.4", Some("False")),
        ("v1.34.4", "", None),
    ] {
        let mut fields = complete();
        merge(&mut fields, &json!({ "spec": { "version": wanted } }));
        let node = node(json!({ "status": { "nodeInfo": { "kubeletVersion": running } } }));
        let plan = planned(&world(fields, vec![cluster(json!({})), provisioned()], node));
        assert_eq!(condition(&plan, "UpToDate").map(|it| it.0).as_deref(), expected, "{wanted} {running}");
    }
}

#[test]
fn facts_that_cannot_be_had_are_said() {
    let mut world = world(complete(), vec![cluster(json!({})), provisioned()], Tenant::NoNode);
    world.facts_error = Some(crate::Reason::retry("TwoNodes", "two Nodes have this provider id"));
    assert_eq!(said(&planned(&world)), "blocked TwoNodes: two Nodes have this provider id");
}

#[test]
fn a_machine_comes_to_rest_and_goes() {
    let data = config(json!({ "status": { "dataSecretName": "m", "initialization": { "dataSecretCreated": true } } }));
    let mut world = world(
        json!({ "metadata": { "finalizers": null } }),
        vec![cluster(json!({})), data, provisioned()],
        node(json!({ "metadata": { "annotations": null } })),
    );
    let mut fake = Fake::default();
    assert_eq!(said(&fake.converge(&mut world)), "done");
    assert_eq!(world.object().finalizers(), [MACHINE_FINALIZER]);
    let mut world = changed(world, |own| own["metadata"]["deletionTimestamp"] = at(0).to_string().into());
    world.facts.control_plane_machines = 1;
    world.facts.load = Load::Read(NodeLoad { volumes: Some(Volumes::default()), ..NodeLoad::default() });
    fake.pass(&mut world);
    assert!(world.object().finalizers().is_empty());
    assert_eq!(world.facts.tenant, Tenant::NoNode);
}
