use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::testing::{
    CORE, Fake, at, changed, cluster, condition, deleting, merge, object, owner, planned, said, shared,
};

const INFRA: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const PLANE: &str = "controlplane.cluster.x-k8s.io/v1alpha2";

fn infra(fields: Value) -> Value {
    object(INFRA, "OpenStackCluster", "i", fields)
}

fn plane(fields: Value) -> Value {
    object(PLANE, "KamajiControlPlane", "p", fields)
}

fn adopted(mut part: Value) -> Value {
    let reference = json!([{ "apiVersion": CORE, "kind": "Cluster", "name": "c", "uid": "c-uid" }]);
    merge(&mut part, &json!({ "metadata": { "ownerReferences": reference, "labels": { CLUSTER_NAME_LABEL: "c" } } }));
    part
}

fn world(fields: Value, others: Vec<Value>) -> World {
    let mut own = cluster(json!({ "metadata": { "finalizers": [CLUSTER_FINALIZER] }, "spec": {
        "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackCluster", "name": "i" },
        "controlPlaneRef": { "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KamajiControlPlane", "name": "p" },
    } }));
    merge(&mut own, &fields);
    crate::testing::world(own, others)
}

fn provisioned_infra() -> Value {
    adopted(infra(json!({ "spec": { "controlPlaneEndpoint": { "host": "10.0.0.1", "port": 6443 } },
        "status": { "initialization": { "provisioned": true } } })))
}

fn deployment(fields: Value) -> Value {
    let mut it = object(CORE, "MachineDeployment", "md", json!({ "spec": { "clusterName": "c", "replicas": 3 } }));
    merge(&mut it, &fields);
    it
}

#[test]
fn c2_c3_c4_each_phase_of_building_says_what_it_does_or_waits_for() {
    let endpoint = json!({ "spec": { "controlPlaneEndpoint": { "host": "10.0.0.9", "port": 6443 } } });
    for (what, fields, others, expected) in [
        (
            "C3: nothing is there yet",
            json!({}),
            vec![],
            "wait WaitingForReference: spec.infrastructureRef: there is no OpenStackCluster i yet",
        ),
        (
            "C3: no control plane yet",
            json!({}),
            vec![adopted(infra(json!({})))],
            "wait WaitingForReference: spec.controlPlaneRef: there is no KamajiControlPlane p yet",
        ),
        (
            "the parts are adopted",
            json!({}),
            vec![infra(json!({})), adopted(plane(json!({})))],
            r#"patch OpenStackCluster n/i {"metadata":{"labels":{"cluster.x-k8s.io/cluster-name":"c"},"ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","name":"c","uid":"c-uid"}]}}"#,
        ),
        (
            "a part that goes is not adopted",
            json!({}),
            vec![
                infra(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })),
                adopted(plane(json!({}))),
            ],
            "done",
        ),
        (
            "C4: the endpoint is copied from the infrastructure",
            json!({}),
            vec![provisioned_infra(), adopted(plane(json!({})))],
            r#"patch Cluster n/c {"spec":{"controlPlaneEndpoint":{"host":"10.0.0.1","port":6443}}}"#,
        ),
        (
            "not before it is provisioned",
            json!({}),
            vec![
                adopted(infra(json!({ "spec": { "controlPlaneEndpoint": { "host": "10.0.0.1", "port": 6443 } } }))),
                adopted(plane(json!({}))),
            ],
            "done",
        ),
        (
            "C4: the endpoint is copied from the control plane",
            json!({}),
            vec![
                adopted(infra(json!({}))),
                adopted(plane(json!({ "spec": { "controlPlaneEndpoint": { "host": "10.0.0.2", "port": 443 } } }))),
            ],
            r#"patch Cluster n/c {"spec":{"controlPlaneEndpoint":{"host":"10.0.0.2","port":443}}}"#,
        ),
        (
            "C4: one that is set is never changed",
            endpoint,
            vec![provisioned_infra(), adopted(plane(json!({})))],
            "done",
        ),
    ] {
        assert_eq!(said(&planned(&world(fields, others))), expected, "{what}");
    }
}

/// C1.
#[test]
fn c1_the_phase_follows_from_references_infrastructure_and_endpoint() {
    let none = json!({ "spec": { "infrastructureRef": null, "controlPlaneRef": null } });
    let endpoint = json!({ "spec": { "controlPlaneEndpoint": { "host": "h", "port": 1 } } });
    let latched = json!({ "spec": { "controlPlaneEndpoint": { "host": "h", "port": 1 } }, "status": { "initialization": { "infrastructureProvisioned": true } } });
    for (what, fields, others, expected) in [
        ("no reference", none, vec![], "Pending"),
        ("a reference", json!({}), vec![], "Provisioning"),
        (
            "an endpoint alone",
            endpoint.clone(),
            vec![adopted(infra(json!({}))), adopted(plane(json!({})))],
            "Provisioning",
        ),
        ("endpoint and infrastructure", endpoint, vec![provisioned_infra(), adopted(plane(json!({})))], "Provisioned"),
        (
            "what was once provisioned stays so",
            latched,
            vec![adopted(infra(json!({}))), adopted(plane(json!({})))],
            "Provisioned",
        ),
    ] {
        let plan = planned(&world(fields, others));
        assert_eq!(plan.status.unwrap()["phase"], expected, "{what}");
    }
    let plan = planned(&deleting(
        world(json!({}), vec![plane(json!({ "metadata": { "deletionTimestamp": "x" } }))]),
        Some(CLUSTER_FINALIZER),
    ));
    assert_eq!(plan.status.unwrap()["phase"], "Deleting");
}

/// C5.
#[test]
fn c5_workers_go_first_then_the_control_plane_then_the_infrastructure() {
    let gone = || json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    let machine = |name: &str, fields: Value| object(CORE, "Machine", name, fields);
    let of_set = json!({ "metadata": { "ownerReferences": owner(CORE, "MachineSet", "ms") } });
    for (what, others, expected) in [
        (
            "all workers at once, but none that has an owner",
            vec![
                infra(json!({})),
                plane(json!({})),
                deployment(json!({})),
                object(
                    CORE,
                    "MachineSet",
                    "ms",
                    json!({ "metadata": { "ownerReferences": owner(CORE, "MachineDeployment", "md") } }),
                ),
                object(CORE, "MachineSet", "alone", json!({})),
                machine("m", of_set.clone()),
                machine("single", json!({})),
            ],
            "delete MachineDeployment n/md; delete MachineSet n/alone; delete Machine n/single",
        ),
        (
            "those that go are waited for",
            vec![infra(json!({})), plane(json!({})), deployment(gone()), machine("m", of_set)],
            "wait WaitingForWorkersDeletion: waiting for 1 Machines to be deleted",
        ),
        ("the control plane", vec![infra(json!({})), plane(json!({}))], "delete KamajiControlPlane n/p"),
        (
            "the control plane goes",
            vec![infra(json!({})), plane(gone())],
            "wait WaitingForControlPlaneDeletion: waiting for KamajiControlPlane n/p to be deleted",
        ),
        ("the infrastructure", vec![infra(json!({}))], "delete OpenStackCluster n/i"),
        (
            "the infrastructure goes",
            vec![infra(gone())],
            "wait WaitingForInfrastructureDeletion: waiting for OpenStackCluster n/i to be deleted",
        ),
        ("nothing is left", vec![], r#"patch Cluster n/c {"metadata":{"finalizers":[]}}"#),
    ] {
        assert_eq!(said(&planned(&deleting(world(json!({}), others), Some(CLUSTER_FINALIZER)))), expected, "{what}");
    }
}

/// C3: what was there and is gone is another thing than what is not there yet.
#[test]
fn c3_what_was_there_and_is_gone_is_false_for_a_reason_of_its_own() {
    let latched = json!({ "spec": { "controlPlaneEndpoint": { "host": "h", "port": 1 } }, "status": { "initialization": { "infrastructureProvisioned": true, "controlPlaneInitialized": true } } });
    let plan = planned(&world(latched.clone(), vec![adopted(plane(json!({})))]));
    let gone = "spec.infrastructureRef: OpenStackCluster i is gone: make it again, or delete the Cluster";
    assert_eq!(said(&plan), format!("wait ReferenceDeleted: {gone}"));
    let (status, reason, message) = condition(&plan, "InfrastructureReady").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Deleted"));
    assert_eq!(message, "the object that spec.infrastructureRef names has been deleted");
    let (status, _, message) = condition(&plan, "Available").unwrap();
    assert!(status == "False" && message.starts_with(gone), "{message}");
    let plan = planned(&world(latched, vec![provisioned_infra()]));
    assert_eq!(condition(&plan, "ControlPlaneAvailable").unwrap().1, "Deleted");
    let plan = planned(&world(json!({}), vec![]));
    assert_eq!(condition(&plan, "InfrastructureReady").unwrap().0, "Unknown", "not there yet");
}

fn secret(name: &str, fields: Value) -> Value {
    object("v1", "Secret", name, fields)
}

fn authority(text: &str) -> Value {
    secret("c-ca", json!({ "data": { "tls.crt": STANDARD.encode(text), "tls.key": STANDARD.encode("key") } }))
}

/// C2: only where there is no controlPlaneRef; one that a user made stays.
#[test]
fn c2_a_cluster_without_a_control_plane_gets_a_kubeconfig() {
    let alone = |others: Vec<Value>| {
        let fields = json!({ "spec": { "controlPlaneRef": null, "infrastructureRef": null, "controlPlaneEndpoint": { "host": "fd00::1", "port": 6443 } } });
        world(fields, others)
    };
    let own = |renew: i64| {
        secret(
            "c-kubeconfig",
            json!({ "metadata": {
            "ownerReferences": owner(CORE, "Cluster", "c"),
            "annotations": { "hangar.dev/issued-for": crate::intent::fingerprint(&json!(["https://[fd00::1]:6443", "ca"])), "hangar.dev/renew-after": at(renew).to_string() },
        } }),
        )
    };
    let issues = "issue Secret n/c-kubeconfig";
    for (what, others, expected) in [
        ("no authority", vec![], "done"),
        ("an authority without a key", vec![secret("c-ca", json!({ "data": { "tls.crt": "YQ==" } }))], "done"),
        ("an authority", vec![authority("ca")], issues),
        ("it is there", vec![authority("ca"), own(1000)], "done"),
        ("it is due", vec![authority("ca"), own(0)], issues),
        ("another authority", vec![authority("other"), own(1000)], issues),
        ("the user's", vec![authority("ca"), secret("c-kubeconfig", json!({}))], "done"),
    ] {
        assert_eq!(said(&planned(&alone(others))), expected, "{what}");
    }
    let plan = planned(&alone(vec![authority("ca"), own(1000)]));
    assert_eq!(plan.recheck, Some(Duration::from_secs(1000)));
    let Step::Issue(issue) = &planned(&alone(vec![authority("ca")])).steps[0] else { panic!() };
    assert!(!issue.replaces && issue.secret.is_owned_by("c-uid"));
    assert_eq!(issue.secret.label(CLUSTER_NAME_LABEL), Some("c"));
    let hosted = world(json!({}), vec![provisioned_infra(), adopted(plane(json!({}))), authority("ca")]);
    assert!(!said(&planned(&hosted)).contains("issue"));
}

/// C2, B2: whoever has no control plane to refer to waits for a Machine of it.
#[test]
fn c2_a_cluster_without_a_control_plane_is_initialized_by_its_first_machine() {
    let fields = || json!({ "spec": { "controlPlaneRef": null, "infrastructureRef": null } });
    let machine = |labels: Value, status: Value| {
        object(CORE, "Machine", "m", json!({ "metadata": { "labels": labels }, "status": status }))
    };
    let (of_plane, joined) = (json!({ CONTROL_PLANE_LABEL: "" }), json!({ "nodeRef": { "name": "m" } }));
    for (machine, expected) in [
        (machine(json!({}), joined.clone()), false),
        (machine(of_plane.clone(), json!({})), false),
        (machine(of_plane, joined), true),
    ] {
        let status = planned(&world(fields(), vec![machine])).status.unwrap();
        assert_eq!(
            status["initialization"],
            json!({ "infrastructureProvisioned": true, "controlPlaneInitialized": expected })
        );
    }
}

/// C8.
#[test]
fn c8_a_tenant_that_is_away_is_said_and_what_is_not_known_stays() {
    let said = |connection: Connection, before: Value| {
        let fields = json!({ "spec": { "controlPlaneEndpoint": { "host": "h", "port": 1 } }, "status": { "conditions": before } });
        let mut world = world(fields, vec![provisioned_infra(), adopted(plane(json!({})))]);
        world.facts.connection = connection;
        let plan = planned(&world);
        condition(&plan, "RemoteConnectionProbe")
            .map(|(status, reason, message)| format!("{status} {reason} {message}"))
    };
    let before =
        || json!([{ "type": "RemoteConnectionProbe", "status": "False", "reason": "ProbeFailed", "message": "x" }]);
    for (connection, before, expected) in [
        (Connection::Unknown, json!([]), None),
        (Connection::Unknown, before(), Some("False ProbeFailed x")),
        (Connection::Answers, before(), Some("True ProbeSucceeded ")),
        (Connection::Away, json!([]), Some("False ProbeFailed the control plane does not answer")),
        (Connection::Refused("no".into()), json!([]), Some("False InvalidKubeconfig no")),
    ] {
        assert_eq!(said(connection, before).as_deref(), expected);
    }
}

#[test]
fn c7_what_goes_on_is_seen_from_counts_and_from_the_control_planes_word() {
    let plane_of = |status: Value| adopted(plane(json!({ "spec": { "replicas": 3 }, "status": status })));
    let deployment_of = |status: Value| deployment(json!({ "status": status }));
    let calm = || json!({ "replicas": 3, "upToDateReplicas": 3, "readyReplicas": 3, "availableReplicas": 3 });
    let saying =
        |kind: &str| json!({ "conditions": [{ "type": kind, "status": "True", "reason": kind, "message": "" }] });
    for (what, plane, deployment, expected) in [
        ("nothing", plane_of(calm()), deployment_of(calm()), vec![]),
        (
            "the control plane grows",
            plane_of(json!({ "replicas": 1, "upToDateReplicas": 1 })),
            deployment_of(calm()),
            vec!["ScalingUp"],
        ),
        ("a control plane that does not count", plane_of(json!({})), deployment_of(calm()), vec![]),
        ("the control plane says so", plane_of(saying("Remediating")), deployment_of(calm()), vec!["Remediating"]),
        (
            "workers roll",
            plane_of(calm()),
            deployment_of(json!({ "replicas": 4, "upToDateReplicas": 1 })),
            vec!["RollingOut", "ScalingDown"],
        ),
        (
            "workers are replaced",
            plane_of(calm()),
            deployment_of(
                json!({ "replicas": 3, "upToDateReplicas": 3, "conditions": saying("Remediating")["conditions"] }),
            ),
            vec!["Remediating"],
        ),
    ] {
        let endpoint = json!({ "spec": { "controlPlaneEndpoint": { "host": "h", "port": 1 } } });
        let plan = planned(&world(endpoint, vec![provisioned_infra(), plane, deployment]));
        let all = ["RollingOut", "ScalingUp", "ScalingDown", "Remediating"];
        let on: Vec<&str> = all.into_iter().filter(|kind| condition(&plan, kind).unwrap().0 == "True").collect();
        assert_eq!(on, expected, "{what}");
    }
}

/// C7: gates of others count, and their conditions stay theirs.
#[test]
fn c7_availability_gates_count() {
    let ready = |kind: &str| json!([{ "type": kind, "status": "True", "reason": kind, "message": "" }]);
    let mut infra = provisioned_infra();
    infra["status"]["conditions"] = ready("Ready");
    let plane = adopted(plane(
        json!({ "status": { "initialization": { "controlPlaneInitialized": true }, "conditions": ready("Available") } }),
    ));
    for (gate, theirs, expected) in [
        (json!({ "conditionType": "Backup" }), json!([]), "Unknown"),
        (json!({ "conditionType": "Backup" }), ready("Backup"), "True"),
        (json!({ "conditionType": "Broken", "polarity": "Negative" }), ready("Broken"), "False"),
        (json!({ "conditionType": "Available" }), json!([]), "True"),
    ] {
        let fields = json!({
            "spec": { "availabilityGates": [gate], "controlPlaneEndpoint": { "host": "h", "port": 1 } },
            "status": { "conditions": theirs },
        });
        let plan = planned(&world(fields, vec![infra.clone(), plane.clone()]));
        assert_eq!(condition(&plan, "Available").unwrap().0, expected, "{gate} {theirs}");
        assert_eq!(condition(&plan, "Backup"), None, "it is not ours to write");
    }
}

/// C7, the parts that every Cluster has.
#[test]
fn c7_availability_is_that_of_infrastructure_control_plane_and_workers() {
    let ready =
        |kind: &str| json!({ "status": { "conditions": [{ "type": kind, "status": "True", "reason": kind }] } });
    let mut infra = provisioned_infra();
    merge(&mut infra, &ready("Ready"));
    let mut plane_ready =
        adopted(plane(json!({ "status": { "initialization": { "controlPlaneInitialized": true } } })));
    merge(&mut plane_ready, &json!({ "status": { "conditions": ready("Available")["status"]["conditions"] } }));
    let endpoint = || json!({ "spec": { "controlPlaneEndpoint": { "host": "h", "port": 1 } } });
    let status_of = |others: Vec<Value>| condition(&planned(&world(endpoint(), others)), "Available").unwrap();
    assert_eq!(status_of(vec![infra.clone(), plane_ready.clone()]).0, "True");
    let broken = deployment(
        json!({ "status": { "conditions": [{ "type": "Available", "status": "False", "reason": "No", "message": "1 of 3" }] } }),
    );
    let (status, _, message) = status_of(vec![infra.clone(), plane_ready.clone(), broken]);
    assert_eq!(status, "False");
    assert!(message.contains("MachineDeployment md: 1 of 3"), "{message}");
    let plan = planned(&world(endpoint(), vec![infra, plane_ready]));
    assert_eq!(condition(&plan, "ControlPlaneInitialized").unwrap().0, "True");
    assert_eq!(condition(&plan, "Ready"), None, "Clusters are Available, not Ready");
    assert_eq!(condition(&plan, "Paused").unwrap().0, "False");
    let waiting = planned(&world(json!({}), vec![]));
    let (status, _, message) = condition(&waiting, "Available").unwrap();
    assert_eq!(status, "Unknown");
    assert!(message.starts_with("spec.infrastructureRef: there is no OpenStackCluster i yet\n"), "{message}");
}

#[test]
fn the_status_counts_workers_and_replicas_of_the_control_plane_and_lists_failure_domains() {
    let infra = adopted(infra(
        json!({ "status": { "failureDomains": { "z2": { "controlPlane": false }, "z1": { "controlPlane": true } } } }),
    ));
    let plane = adopted(plane(json!({ "spec": { "replicas": 2 }, "status": { "replicas": 2, "readyReplicas": 1 } })));
    let workers = deployment(
        json!({ "status": { "replicas": 3, "readyReplicas": 2, "availableReplicas": 2, "upToDateReplicas": 1 } }),
    );
    let status = planned(&world(json!({}), vec![infra, plane, workers])).status.unwrap();
    assert_eq!(
        status["workers"],
        json!({ "desiredReplicas": 3, "replicas": 3, "readyReplicas": 2, "availableReplicas": 2, "upToDateReplicas": 1 })
    );
    assert_eq!(status["controlPlane"]["desiredReplicas"], 2);
    assert_eq!(status["controlPlane"]["readyReplicas"], 1);
    assert_eq!(status["failureDomains"][0]["name"], "z1");
    assert_eq!(status["failureDomains"][1]["controlPlane"], false);
}

#[test]
fn a_cluster_comes_to_rest_and_goes_with_what_it_refers_to_and_nothing_else() {
    let mut world = world(
        json!({ "metadata": { "finalizers": null } }),
        vec![
            infra(
                json!({ "spec": { "controlPlaneEndpoint": { "host": "h", "port": 1 } }, "status": { "initialization": { "provisioned": true } } }),
            ),
            plane(json!({})),
        ],
    );
    let mut fake = Fake::default();
    fake.converge(&mut world);
    assert_eq!(world.object().finalizers(), [CLUSTER_FINALIZER]);
    assert_eq!(world.object().text("/spec/controlPlaneEndpoint/host"), "h");
    // One of another cluster was not read, one of the same kind with another name is not referred to.
    world.objects.insert(shared(object(INFRA, "OpenStackCluster", "other", json!({}))));
    let mut world = changed(world, |own| own["metadata"]["deletionTimestamp"] = at(0).to_string().into());
    fake.pass(&mut world);
    assert!(world.object().finalizers().is_empty());
    assert!(!fake.done.iter().any(|step| step.contains("other")), "{:?}", fake.done);
}
