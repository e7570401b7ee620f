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
