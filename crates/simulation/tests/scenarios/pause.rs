//! A user pauses a cluster: nothing of it moves, until the user lets it.

use std::time::Duration;

use hangar_simulation::{CAPI, CLUSTER, NAMESPACE, Simulation};
use serde_json::Value;

fn set_paused(simulation: &Simulation, paused: bool) {
    simulation
        .management
        .edit(CAPI, "Cluster", NAMESPACE, CLUSTER, |cluster| cluster["spec"]["paused"] = paused.into());
}

#[tokio::test(start_paused = true)]
async fn a_paused_cluster_does_not_grow() {
    let mut simulation = Simulation::new(51);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    set_paused(&simulation, true);
    tokio::time::sleep(Duration::from_secs(10)).await;
    simulation.scale(3);
    tokio::time::sleep(Duration::from_secs(600)).await;
    simulation.laws.check();
    assert_eq!(simulation.machines().len(), 1);
    set_paused(&simulation, false);
    simulation.becomes_available(3).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_can_be_paused_at_any_moment_of_its_creation() {
    for millis in (0..8000).step_by(500) {
        let mut simulation = Simulation::new(52 + millis);
        simulation.start(None);
        simulation.apply_example().await;
        tokio::time::sleep(Duration::from_millis(millis)).await;
        set_paused(&simulation, true);
        tokio::time::sleep(Duration::from_secs(300)).await;
        simulation.laws.check();
        set_paused(&simulation, false);
        simulation.becomes_available(1).await;
        simulation.delete_cluster().await;
        simulation.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_machine_deployment_does_not_grow() {
    let mut simulation = Simulation::new(53);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    let annotate = |value: Value| {
        simulation.edit_deployment(|deployment| {
            deployment["metadata"]["annotations"]["cluster.x-k8s.io/paused"] = value;
        });
    };
    annotate("".into());
    tokio::time::sleep(Duration::from_secs(10)).await;
    simulation.scale(3);
    tokio::time::sleep(Duration::from_secs(600)).await;
    simulation.laws.check();
    assert_eq!(simulation.machines().len(), 1);
    simulation.edit_deployment(|deployment| {
        deployment["metadata"]["annotations"].as_object_mut().unwrap().remove("cluster.x-k8s.io/paused");
    });
    simulation.becomes_available(3).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
}
