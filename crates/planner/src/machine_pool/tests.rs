use serde_json::{Value, json};

use super::*;
use crate::testing::{CORE, Fake, at, cluster, condition, deleting, merge, object, owner, planned, said, shared};
use crate::{plan, testing};

const INFRA: &str = "infrastructure.example.com/v1";
const BOOT: &str = "bootstrap.cluster.x-k8s.io/v1beta2";

fn pool(fields: Value) -> Value {
    let mut pool = object(
        CORE,
        "MachinePool",
        "mp",
        json!({
            "metadata": { "finalizers": [MACHINE_POOL_FINALIZER], "labels": { CLUSTER_NAME_LABEL: "c" },
                "ownerReferences": [Object(cluster(json!({}))).as_owner(false)] },
            "spec": { "clusterName": "c", "replicas": 2, "template": { "spec": {
                "clusterName": "c", "version": "v1.34.4",
                "bootstrap": { "configRef": { "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": "mp" } },
                "infrastructureRef": { "apiGroup": "infrastructure.example.com", "kind": "MyMachinePool", "name": "mp" } } } },
        }),
    );
    merge(&mut pool, &fields);
    pool
}

fn child(api_version: &str, kind: &str, fields: Value) -> Value {
    let owner = Object(pool(json!({}))).as_owner(true);
    let metadata = json!({ "labels": { CLUSTER_NAME_LABEL: "c" }, "ownerReferences": [owner] });
    let mut child = object(api_version, kind, "mp", json!({ "metadata": metadata }));
    merge(&mut child, &fields);
    child
}

fn config() -> Value {
    child(BOOT, "KubeadmConfig", json!({ "status": { "dataSecretName": "mp" } }))
}

/// With these provider ids.
fn infra(ids: &[&str]) -> Value {
    let status = json!({ "initialization": { "provisioned": true }, "replicas": ids.len() });
    child(INFRA, "MyMachinePool", json!({ "spec": { "providerIDList": ids }, "status": status }))
}

fn complete(ids: &[&str]) -> Value {
    json!({ "spec": { "providerIDList": ids, "template": { "spec": { "bootstrap": { "dataSecretName": "mp" } } } } })
}

fn node(name: &str, ready_since: i64, fields: Value) -> (String, Arc<Object>) {
    let mut node = object(
        "v1",
        "Node",
        name,
        json!({ "metadata": { "annotations": { OWNER_KIND: "MachinePool", OWNER_NAME: "mp" } }, "spec": { "providerID": format!("p://{name}") },
            "status": { "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": at(ready_since).to_string() }],
                "nodeInfo": { "kubeletVersion": "v1.34.4" } } }),
    );
    merge(&mut node, &fields);
    (format!("p://{name}"), shared(node))
}

fn world(fields: Value, others: Vec<Value>, nodes: Option<Vec<(String, Arc<Object>)>>) -> World {
    let mut world: World = testing::world(pool(fields), others);
    world.facts.nodes = nodes.map(|nodes| nodes.into_iter().collect());
    world
}

#[test]
fn each_phase_of_building_says_what_it_does_or_waits_for() {
    let c = || cluster(json!({}));
    let both = ["p://a", "p://b"];
    let told = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "Quota", "message": "Quota exceeded" }] } });
    let elses = json!({ "metadata": { "ownerReferences": owner(CORE, "MachinePool", "other") } });
    let no_data = json!({ "spec": { "template": { "spec": { "bootstrap": { "configRef": null } } } } });
    let one = || Some(vec![node("a", 0, json!({}))]);
    for (what, world, expected) in [
        ("no Cluster", world(json!({}), vec![], None), "wait WaitingForCluster: there is no Cluster c yet"),
        (
            "no config",
            world(json!({}), vec![c()], None),
            "wait WaitingForBootstrapConfig: its bootstrap config is not there yet",
        ),
        (
            "no data at all",
            world(no_data, vec![c()], None),
            "blocked NoBootstrapData: spec.template.spec.bootstrap has neither configRef nor dataSecretName",
        ),
        (
            "a config of somebody else",
            world(json!({}), vec![c(), child(BOOT, "KubeadmConfig", elses)], None),
            "blocked NotOurs: KubeadmConfig n/mp belongs to MachinePool other: name another one",
        ),
        (
            "data",
            world(json!({}), vec![c(), config()], None),
            r#"patch MachinePool n/mp {"spec":{"template":{"spec":{"bootstrap":{"dataSecretName":"mp"}}}}}"#,
        ),
        (
            "infrastructure speaks for itself",
            world(complete(&[]), vec![c(), config(), child(INFRA, "MyMachinePool", told)], None),
            "wait WaitingForInfrastructure: Quota exceeded",
        ),
        (
            "provider ids",
            world(complete(&[]), vec![c(), config(), infra(&both)], None),
            r#"patch MachinePool n/mp {"spec":{"providerIDList":["p://a","p://b"]}}"#,
        ),
        (
            "nobody answers",
            world(complete(&both), vec![c(), config(), infra(&both)], None),
            "wait WaitingForNodes: the cluster's API cannot be reached",
        ),
        (
            "one is missing",
            world(complete(&both), vec![c(), config(), infra(&both)], one()),
            "wait WaitingForNodes: 1 of 2 Nodes have joined",
        ),
    ] {
        assert_eq!(said(&planned(&world)), expected, "{what}");
    }
}

#[test]
fn nodes_are_told_once_whose_they_are_and_lose_their_first_taint() {
    let ids = ["p://a", "p://b"];
    let new = json!({ "metadata": { "annotations": null }, "spec": { "taints": [
        { "key": NODE_UNINITIALIZED_TAINT, "effect": "NoSchedule" }, { "key": "mine", "effect": "NoExecute" }] } });
    let foreign = node("x", 0, json!({ "metadata": { "annotations": null } }));
    let nodes = vec![node("a", 0, json!({})), node("b", 0, new), foreign];
    let world = world(complete(&ids), vec![cluster(json!({})), config(), infra(&ids)], Some(nodes));
    let plan = planned(&world);
    let [Step::Tenant { call: TenantCall::AdoptNode(change), .. }] = &plan.steps[..] else { panic!("{}", said(&plan)) };
    assert_eq!(
        (change.name.as_str(), &change.remove_taints[..]),
        ("b", &[(NODE_UNINITIALIZED_TAINT.to_owned(), "NoSchedule".to_owned())][..])
    );
    assert!(change.annotations.contains(&(OWNER_NAME.to_owned(), "mp".to_owned())));
}

#[test]
fn its_status_counts_nodes_and_keeps_what_it_knew_while_nobody_answers() {
    let ids = ["p://a", "p://b"];
    let others = || vec![cluster(json!({})), config(), infra(&ids)];
    let ill = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }], "nodeInfo": { "kubeletVersion": "v1.33.1" } } });
    let mut fields = complete(&ids);
    merge(&mut fields, &json!({ "spec": { "template": { "spec": { "minReadySeconds": 30 } } } }));
    let table = [
        (vec![node("a", 0, json!({})), node("b", 90, json!({}))], [2, 2, 1, 2], "Running", "False"),
        (vec![node("a", 0, json!({})), node("b", 0, ill)], [2, 1, 1, 1], "ScalingUp", "False"),
        (vec![node("a", 0, json!({})), node("b", 20, json!({}))], [2, 2, 2, 2], "Running", "True"),
    ];
    for (nodes, counts, phase, available) in table {
        let world = world(fields.clone(), others(), Some(nodes));
        let plan = plan(&world, at(100));
        let status = plan.status.clone().unwrap();
        let fields = ["replicas", "readyReplicas", "availableReplicas", "upToDateReplicas"];
        assert_eq!(fields.map(|field| status[field].as_i64().unwrap()), counts);
        assert_eq!(
            (status["phase"].as_str().unwrap(), condition(&plan, "Available").unwrap().0.as_str()),
            (phase, available)
        );
        assert_eq!(status["nodeRefs"].as_array().unwrap().len(), 2);
    }
    let mut silent = fields;
    merge(&mut silent, &json!({ "status": { "readyReplicas": 2, "nodeRefs": [{ "name": "a" }] } }));
    let status = planned(&world(silent, others(), None)).status.unwrap();
    assert_eq!((&status["readyReplicas"], &status["nodeRefs"][0]["name"]), (&json!(2), &json!("a")));
}

#[test]
fn infrastructure_goes_first_and_nodes_only_of_a_cluster_that_stays() {
    let ids = ["p://a"];
    let gone = |cluster_goes: bool| {
        let mut c = cluster(json!({}));
        if cluster_goes {
            c["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        let nodes = Some(vec![node("a", 0, json!({})), node("x", 0, json!({}))]);
        let others = vec![c, config(), infra(&ids)];
        let mut world = deleting(world(complete(&ids), others, nodes), Some(MACHINE_POOL_FINALIZER));
        let mut fake = Fake::default();
        fake.pass(&mut world);
        fake.done
    };
    let staying = gone(false);
    assert_eq!(staying[..2], ["delete MyMachinePool n/mp", "delete KubeadmConfig n/mp"]);
    assert!(staying[2].contains("DeleteNode") && staying[2].contains("\"a\""), "{staying:?}");
    assert_eq!(staying.len(), 4, "{staying:?}");
    assert_eq!(gone(true).len(), 3);
}
