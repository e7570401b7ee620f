//! Whole lifecycles of a cluster: create, scale, delete; undisturbed, killed between any two steps, and with faults from a seed.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

mod simulation;
mod surroundings;
mod tenants;

use simulation::Simulation;

#[tokio::test(start_paused = true)]
async fn a_cluster_comes_grows_shrinks_and_goes_without_a_trace() {
    let mut simulation = Simulation::new(1);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    simulation.scale(3);
    simulation.becomes_available(3).await;
    simulation.scale(1);
    simulation.becomes_available(1).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
    println!("{} requests to the management cluster", simulation.management.requests().len());
    println!("{} calls to the cloud", simulation.cloud.journal().len());
}
