//! Each law finds what it is there to find: violations are planted by hand, through the client that the engine uses.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

use std::time::Duration;

use hangar_openstack::{Cloud, CloudConfig, CreatePort};
use hangar_simulation::laws::HANGAR;
use hangar_simulation::{CAPI, CLUSTER, NAMESPACE, Simulation};
use hangar_simulator::starter;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

const DEPLOYMENT: &str = "capi-quickstart-md-0";

/// The example, and no engine.
async fn world() -> Simulation {
    let simulation = Simulation::new(1);
    simulation.apply_example().await;
    simulation.laws.check();
    simulation
}

fn api(simulation: &Simulation, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(simulation.management.client_as(HANGAR), NAMESPACE, &resource)
}

fn machines(simulation: &Simulation) -> Api<DynamicObject> {
    api(simulation, CAPI, "v1beta2", "Machine")
}

/// As a MachineSet makes them; available, because another field of the status is not asked for.
async fn machine(simulation: &Simulation, name: &str, available: bool) {
    let body = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {
            "name": name, "finalizers": ["machine.cluster.x-k8s.io"],
            "labels": { "cluster.x-k8s.io/cluster-name": CLUSTER, "cluster.x-k8s.io/deployment-name": DEPLOYMENT },
        },
        "spec": {
            "clusterName": CLUSTER, "bootstrap": { "dataSecretName": "s" },
            "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackMachine", "name": name },
        },
    });
    machines(simulation).patch(name, &PatchParams::apply(HANGAR), &Patch::Apply(&body)).await.unwrap();
    if available {
        simulation.management.edit(CAPI, "Machine", NAMESPACE, name, |machine| {
            machine["status"]["conditions"] = json!([{
                "type": "Available", "status": "True", "reason": "Available", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
        });
    }
}

async fn delete(simulation: &Simulation, name: &str) {
    machines(simulation).delete(name, &DeleteParams::default()).await.unwrap();
}

fn broken(simulation: &Simulation) -> Vec<&'static str> {
    simulation.laws.violations().iter().map(|violation| violation.law).collect()
}

fn deployment(simulation: &Simulation, replicas: i64, surge: i64, unavailable: i64) {
    simulation.edit_deployment(|deployment| {
        deployment["spec"]["replicas"] = replicas.into();
        deployment["spec"]["rollout"]["strategy"] =
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } });
    });
}

#[tokio::test(start_paused = true)]
async fn deleting_an_available_machine_too_many_is_found() {
    let simulation = world().await;
    deployment(&simulation, 2, 2, 1);
    for name in ["a", "b", "c"] {
        machine(&simulation, name, true).await;
    }
    machine(&simulation, "d", false).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    delete(&simulation, "d").await;
    delete(&simulation, "a").await;
    delete(&simulation, "b").await;
    simulation.laws.check();
    delete(&simulation, "c").await;
    assert_eq!(broken(&simulation), ["rollout"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_above_the_surge_is_found() {
    let simulation = world().await;
    deployment(&simulation, 1, 1, 0);
    tokio::time::sleep(Duration::from_secs(5)).await;
    machine(&simulation, "a", true).await;
    machine(&simulation, "b", false).await;
    simulation.laws.check();
    machine(&simulation, "c", false).await;
    assert_eq!(broken(&simulation), ["rollout"]);
}

#[tokio::test(start_paused = true)]
async fn a_scale_down_by_the_user_is_no_violation() {
    let simulation = world().await;
    deployment(&simulation, 3, 1, 0);
    for name in ["a", "b", "c"] {
        machine(&simulation, name, true).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    deployment(&simulation, 1, 1, 0);
    delete(&simulation, "a").await;
    delete(&simulation, "b").await;
    simulation.laws.check();
}

fn pause(simulation: &Simulation) {
    simulation.management.edit(CAPI, "Cluster", NAMESPACE, CLUSTER, |cluster| cluster["spec"]["paused"] = true.into());
}

#[tokio::test(start_paused = true)]
async fn a_write_to_a_paused_cluster_is_found_and_a_condition_is_not() {
    let simulation = world().await;
    let clusters = api(&simulation, CAPI, "v1beta2", "Cluster");
    pause(&simulation);
    let finalizer = json!({ "metadata": { "finalizers": ["cluster.cluster.x-k8s.io"] } });
    clusters.patch(CLUSTER, &PatchParams::default(), &Patch::Merge(&finalizer)).await.unwrap();
    simulation.laws.check();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let condition = json!({ "type": "Paused", "status": "True", "reason": "Paused", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let status = json!({ "status": { "conditions": [condition], "observedGeneration": 2 } });
    clusters.patch_status(CLUSTER, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    simulation.laws.check();
    let phase = json!({ "status": { "phase": "Provisioned" } });
    clusters.patch_status(CLUSTER, &PatchParams::default(), &Patch::Merge(&phase)).await.unwrap();
    machine(&simulation, "a", false).await;
    assert_eq!(broken(&simulation)[..2], ["paused", "paused"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_to_an_object_with_the_paused_annotation_is_found() {
    let simulation = world().await;
    machine(&simulation, "a", false).await;
    simulation.management.edit(CAPI, "Machine", NAMESPACE, "a", |machine| {
        machine["metadata"]["annotations"]["cluster.x-k8s.io/paused"] = "".into();
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    simulation.laws.check();
    delete(&simulation, "a").await;
    assert_eq!(broken(&simulation), ["paused"]);
}

fn cloud(simulation: &Simulation) -> Cloud {
    let text = simulation.cloud.clouds_yaml("http://cloud.test");
    let config = CloudConfig::parse(text.as_bytes(), "openstack", None, None).unwrap();
    Cloud::new(config, simulation.cloud.transport())
}

fn port(simulation: &Simulation, role: &str) -> CreatePort {
    let cluster = simulation.management.get(CAPI, "Cluster", NAMESPACE, CLUSTER).unwrap();
    let uid = cluster["metadata"]["uid"].as_str().unwrap();
    CreatePort {
        network_id: starter::NETWORK_ID.to_owned(),
        name: "port".to_owned(),
        description: Some(format!("a port [hangar:{uid}/{uid}/{role}]")),
        ..CreatePort::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_made_for_what_is_being_deleted_is_found() {
    let simulation = world().await;
    let cloud = cloud(&simulation);
    simulation.management.edit(CAPI, "Cluster", NAMESPACE, CLUSTER, |cluster| {
        cluster["metadata"]["finalizers"] = json!(["somebody.example.com/waits"]);
    });
    simulation.management.delete(CAPI, "Cluster", NAMESPACE, CLUSTER);
    cloud.create_port(&port(&simulation, "port-0")).await.unwrap();
    simulation.laws.check();
    tokio::time::sleep(Duration::from_secs(5)).await;
    cloud.create_port(&port(&simulation, "port-1")).await.unwrap();
    assert_eq!(broken(&simulation), ["deleting"]);
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_made_or_deleted_for_a_paused_cluster_is_found() {
    let simulation = world().await;
    let cloud = cloud(&simulation);
    let before = cloud.create_port(&port(&simulation, "port-0")).await.unwrap();
    pause(&simulation);
    tokio::time::sleep(Duration::from_secs(5)).await;
    simulation.laws.check();
    cloud.create_port(&port(&simulation, "port-1")).await.unwrap();
    cloud.delete_port(&before.id).await.unwrap();
    assert_eq!(broken(&simulation), ["paused", "paused"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_there_twice_is_found() {
    let simulation = world().await;
    let cloud = cloud(&simulation);
    let first = cloud.create_port(&port(&simulation, "port-0")).await.unwrap();
    cloud.delete_port(&first.id).await.unwrap();
    cloud.create_port(&port(&simulation, "port-0")).await.unwrap();
    cloud.create_port(&port(&simulation, "port-1")).await.unwrap();
    simulation.laws.check();
    cloud.create_port(&port(&simulation, "port-0")).await.unwrap();
    assert_eq!(broken(&simulation), ["key"]);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "at the end")]
async fn a_key_that_is_there_twice_at_the_end_has_no_excuse() {
    let simulation = world().await;
    simulation.laws.excuse_duplicates();
    let cloud = cloud(&simulation);
    for _ in 0..2 {
        cloud.create_port(&port(&simulation, "port-0")).await.unwrap();
    }
    simulation.laws.check();
    simulation.laws.check_at_the_end();
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_used_again_is_found() {
    let simulation = world().await;
    machine(&simulation, "a", false).await;
    simulation
        .management
        .edit(CAPI, "Machine", NAMESPACE, "a", |machine| machine["metadata"]["finalizers"] = json!([]));
    delete(&simulation, "a").await;
    simulation.laws.check();
    machine(&simulation, "a", false).await;
    assert_eq!(broken(&simulation), ["name"]);
}

/// What belongs to Machine a, as its set makes it; the one that was there before goes.
async fn make_again(simulation: &Simulation, kind: &str) {
    let (group, version, spec) = if kind == "OpenStackMachine" {
        let spec = json!({ "flavor": "m1", "image": { "filter": { "name": "i" } } });
        ("infrastructure.cluster.x-k8s.io", "v1beta1", spec)
    } else {
        ("bootstrap.cluster.x-k8s.io", "v1beta2", json!({ "verbosity": 5 }))
    };
    let owner = simulation.management.get(CAPI, "Machine", NAMESPACE, "a").unwrap();
    let body = json!({
        "apiVersion": format!("{group}/{version}"), "kind": kind,
        "metadata": { "name": "a", "ownerReferences": [{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "a", "uid": owner["metadata"]["uid"], "controller": true,
        }] },
        "spec": spec,
    });
    let objects = api(simulation, group, version, kind);
    if objects.get_opt("a").await.unwrap().is_some() {
        objects.delete("a", &DeleteParams::default()).await.unwrap();
    }
    objects.patch("a", &PatchParams::apply(HANGAR), &Patch::Apply(&body)).await.unwrap();
}

/// Only a second process that could not know yet that the Machine goes is excused.
#[tokio::test(start_paused = true)]
async fn what_belongs_to_a_machine_and_is_made_again_is_found() {
    for (two, goes, late, expected) in [
        (true, true, 0, vec![]),
        (true, true, 1_001, vec!["name"]),
        (true, false, 0, vec!["name"]),
        (false, true, 0, vec!["name"]),
    ] {
        for kind in ["OpenStackMachine", "KubeadmConfig"] {
            let simulation = world().await;
            if two {
                simulation.laws.excuse_two_at_once();
            }
            machine(&simulation, "a", false).await;
            make_again(&simulation, kind).await;
            simulation.laws.check();
            if goes {
                delete(&simulation, "a").await;
            }
            tokio::time::sleep(Duration::from_millis(late)).await;
            make_again(&simulation, kind).await;
            assert_eq!(broken(&simulation), expected, "{kind}: two {two}, goes {goes}, after {late} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hand_on_foreign_things_is_found() {
    let simulation = world().await;
    let cloud = cloud(&simulation);
    let group = simulation.cloud.inventory().of_kind("security-group").next().unwrap().id.clone();
    assert!(simulation.laws.knows_foreign(&group));
    cloud.delete_security_group(&group).await.unwrap();
    let foreign_port = simulation.cloud.inventory().of_kind("port").next().unwrap().id.clone();
    cloud.update_port(&foreign_port, &json!({ "description": "adopted" }), None).await.unwrap();
    let label: Value = json!({ "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": CLUSTER } } });
    let secrets = api(&simulation, "", "v1", "Secret");
    secrets.patch("foreign", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    delete(&simulation, "foreign").await;
    assert_eq!(broken(&simulation), ["foreign"; 4]);
}

/// The server of a Machine that goes is deleted while a pod runs on its Node.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_deleted_under_its_pods_is_found() {
    for (limit, expected) in [(json!({}), vec!["drain"]), (json!({ "nodeDrainTimeoutSeconds": 1 }), vec![])] {
        let mut simulation = Simulation::new(1);
        simulation.start(None);
        simulation.apply_example().await;
        simulation.becomes_available(1).await;
        simulation.stop_engines().await;
        let server = simulation.in_cloud("server").remove(0);
        let machine = simulation.machines().remove(0);
        let (name, node) = (machine["metadata"]["name"].as_str().unwrap(), &machine["status"]["nodeRef"]["name"]);
        simulation.tenants.apis()[0].put(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "namespace": "default" }, "spec": { "nodeName": node },
        }));
        simulation
            .management
            .edit(CAPI, "Machine", NAMESPACE, name, |machine| machine["spec"]["deletion"] = limit.clone());
        simulation.management.delete(CAPI, "Machine", NAMESPACE, name);
        cloud(&simulation).delete_server(&server.id).await.unwrap();
        assert_eq!(broken(&simulation), expected);
    }
}
