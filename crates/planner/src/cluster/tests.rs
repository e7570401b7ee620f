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

/// C7, as far as it is built.
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
