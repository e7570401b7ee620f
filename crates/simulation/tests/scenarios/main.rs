//! Whole lifecycles of clusters: create, scale, roll out, pause, delete; undisturbed, killed between any two steps, and with trouble from a seed.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

mod by_hand;
mod cluster_calls;
mod clusters;
mod costs;
mod drain;
mod each_call;
mod encryption;
mod events;
mod fairness;
mod faults;
mod health;
mod infrastructure;
mod joining;
mod kills;
mod leaders;
mod leaks;
mod machine_calls;
mod machine_shapes;
mod pause;
mod probes;
mod project_quota;
mod providers;
mod quota;
mod refusals;
mod resource_sets;
mod rollout;
mod rotation;
mod tenants;
mod trouble;
mod years;

use std::collections::BTreeMap;
use std::time::Duration;

use hangar_simulation::Simulation;

/// The example with so many Machines.
async fn available(seed: u64, replicas: usize) -> Simulation {
    let mut simulation = Simulation::new(seed);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    if replicas != 1 {
        simulation.scale(replicas);
        simulation.becomes_available(replicas).await;
    }
    simulation
}

async fn goes(mut simulation: Simulation) {
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// Create, grow, shrink, delete.
async fn lifecycle(simulation: &Simulation) {
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    grow_and_go(simulation).await;
}

/// The lifecycle of a cluster that is there.
async fn grow_and_go(simulation: &Simulation) {
    simulation.scale(3);
    simulation.becomes_available(3).await;
    simulation.scale(1);
    simulation.becomes_available(1).await;
    simulation.delete_cluster().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_comes_grows_shrinks_and_goes_without_a_trace() {
    let mut simulation = Simulation::new(1);
    simulation.start(None);
    lifecycle(&simulation).await;
    simulation.stop().await;
    let mut requests: BTreeMap<String, usize> = BTreeMap::new();
    for call in simulation.management.requests() {
        *requests.entry(format!("{} {}", call.verb, call.resource)).or_default() += 1;
    }
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    for call in simulation.cloud.journal() {
        *calls.entry(format!("{} {}", call.method, call.service)).or_default() += 1;
    }
    println!("{} requests to the management cluster: {requests:#?}", requests.values().sum::<usize>());
    println!("{} calls to the cloud: {calls:#?}", calls.values().sum::<usize>());
}

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_written() {
    let mut simulation = Simulation::new(2);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    // Whatever follows from the last change is done by then.
    tokio::time::sleep(Duration::from_secs(30)).await;
    simulation.management.clear_requests();
    simulation.cloud.clear_journal();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let writes: Vec<_> = simulation.management.requests().into_iter().filter(|call| call.is_write()).collect();
    assert!(writes.is_empty(), "{writes:#?}");
    let calls = simulation.cloud.journal();
    let touched: Vec<_> = calls.iter().filter(|call| call.method != "GET" && call.service != "identity").collect();
    assert!(touched.is_empty(), "{touched:#?}");
    println!("{} cloud calls in ten minutes at rest", calls.len());
    simulation.stop().await;
}

/// What was known before is known afterwards: a restart must not make a fleet look lost for a moment.
#[tokio::test(start_paused = true)]
async fn a_restart_writes_nothing() {
    let mut simulation = Simulation::new(4);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    simulation.stop_engines().await;
    simulation.management.clear_requests();
    simulation.start(None);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let writes: Vec<_> = simulation.management.requests().into_iter().filter(|call| call.is_write()).collect();
    assert!(writes.is_empty(), "{writes:#?}");
    simulation.delete_cluster().await;
    simulation.stop().await;
}
