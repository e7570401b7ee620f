//! A MachineDeployment changes all of its Machines, one after the other; the laws look on.

use hangar_simulation::manifests::CLUSTER;
use hangar_simulation::{Simulation, condition};
use serde_json::json;

/// Three Machines, of which none may be missing and one may be too many.
async fn three_machines(seed: u64) -> Simulation {
    let mut simulation = Simulation::new(seed);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    simulation.edit_deployment(|deployment| {
        deployment["spec"]["replicas"] = 3.into();
        deployment["spec"]["rollout"]["strategy"] =
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } });
    });
    simulation.becomes_available(3).await;
    simulation
}

#[tokio::test(start_paused = true)]
async fn a_new_version_replaces_machines_one_by_one() {
    let mut simulation = three_machines(11).await;
    simulation.edit_deployment(|deployment| deployment["spec"]["template"]["spec"]["version"] = "v1.28.11".into());
    let new = |machine: &serde_json::Value| machine["spec"]["version"] == "v1.28.11" && condition(machine, "Available");
    simulation
        .until("all machines are new", || {
            let machines = simulation.machines();
            machines.len() == 3 && machines.iter().all(new)
        })
        .await;
    simulation.becomes_available(3).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_template_replaces_machines_one_by_one() {
    let mut simulation = three_machines(12).await;
    let (group, kind) = ("infrastructure.cluster.x-k8s.io", "OpenStackMachineTemplate");
    let mut template = simulation.management.object(group, kind, "default", &format!("{CLUSTER}-md-0")).unwrap();
    template["metadata"] = json!({ "name": format!("{CLUSTER}-md-1"), "namespace": "default" });
    template["spec"]["template"]["spec"]["flavor"] = "m1.medium".into();
    simulation.apply(&template).await;
    simulation.edit_deployment(|deployment| {
        deployment["spec"]["template"]["spec"]["infrastructureRef"]["name"] = format!("{CLUSTER}-md-1").into();
    });
    simulation
        .until("all machines are new", || {
            let machines = simulation.management.list(group, "OpenStackMachine");
            machines.len() == 3 && machines.iter().all(|machine| machine["spec"]["flavor"] == "m1.medium")
        })
        .await;
    simulation.becomes_available(3).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// MS6: from the template to the Node, and back again, and nothing is replaced.
#[tokio::test(start_paused = true)]
async fn ms6_labels_and_timeouts_reach_machines_and_nodes_in_place() {
    let mut simulation = three_machines(13).await;
    let names = |simulation: &Simulation| -> Vec<String> {
        simulation.machines().iter().map(|machine| machine["metadata"]["name"].to_string()).collect()
    };
    let nodes = |simulation: &Simulation| simulation.tenants.apis()[0].list("", "Node");
    let before = names(&simulation);
    let role = "node-role.kubernetes.io/worker";
    simulation.edit_deployment(|deployment| {
        deployment["spec"]["template"]["metadata"]["labels"][role] = "".into();
        deployment["spec"]["template"]["spec"]["deletion"] = json!({ "nodeDrainTimeoutSeconds": 120 });
    });
    simulation
        .until("all Nodes have the label", || {
            nodes(&simulation).iter().all(|node| node["metadata"]["labels"][role] == "")
        })
        .await;
    let told = |machine: &serde_json::Value| machine["spec"]["deletion"]["nodeDrainTimeoutSeconds"] == 120;
    assert!(simulation.machines().iter().all(told));
    let labels = simulation.management.list("infrastructure.cluster.x-k8s.io", "OpenStackMachine");
    assert!(labels.iter().all(|machine| machine["metadata"]["labels"][role] == ""));
    simulation.edit_deployment(|deployment| {
        deployment["spec"]["template"]["metadata"]["labels"].as_object_mut().unwrap().remove(role);
    });
    simulation
        .until("no Node has it", || {
            nodes(&simulation).iter().all(|node| node["metadata"]["labels"].get(role).is_none())
        })
        .await;
    simulation.becomes_available(3).await;
    assert_eq!(names(&simulation), before);
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// D6, D9: only what a user deletes is replaced, by the new revision.
#[tokio::test(start_paused = true)]
async fn d6_on_delete_waits_for_users() {
    let mut simulation = three_machines(14).await;
    simulation.edit_deployment(|deployment| {
        deployment["spec"]["rollout"]["strategy"] = json!({ "type": "OnDelete" });
        deployment["spec"]["template"]["spec"]["version"] = "v1.28.11".into();
    });
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    let new = |simulation: &Simulation| {
        simulation.machines().iter().filter(|machine| machine["spec"]["version"] == "v1.28.11").count()
    };
    assert_eq!((new(&simulation), simulation.machines().len()), (0, 3));
    let nodes = simulation.tenants.apis()[0].list("", "Node");
    let outdated = |node: &serde_json::Value| node["spec"]["taints"].to_string().contains("outdated-revision");
    assert!(nodes.len() == 3 && nodes.iter().all(outdated), "{nodes:#?}");
    let name = simulation.machines()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    simulation.management.delete(hangar_simulation::CAPI, "Machine", hangar_simulation::NAMESPACE, &name);
    simulation.until("one is new", || new(&simulation) == 1 && simulation.machines().len() == 3).await;
    simulation.becomes_available(3).await;
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    assert_eq!(new(&simulation), 1);
    let nodes = simulation.tenants.apis()[0].list("", "Node");
    assert_eq!(nodes.iter().filter(|node| outdated(node)).count(), 2);
    simulation.delete_cluster().await;
    simulation.stop().await;
}
