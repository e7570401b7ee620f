//! Faults from a seed: requests and answers that get lost on the way to the management cluster, the cloud and the tenants, and watches
//! that break; and now and then the process dies. The same seed is the same run.

use std::sync::Arc;

use hangar_kubesim::{ApiCall, Fault};
use hangar_simulator::Call;

use hangar_simulation::Simulation;
use hangar_simulation::chance::Die;

use crate::grow_and_go;

/// How many seeds a normal run tries; `HANGAR_SEEDS` for more, `HANGAR_SEED` for a single one with a log of every step.
const SEEDS: u64 = 30;

/// In a thousand calls of the step hook.
const DEATHS: u64 = 10;

fn api_fault(number: u64) -> Fault {
    match number {
        0..30 => Fault::Before(500),
        30..60 => Fault::After,
        60..63 => Fault::DropWatches,
        63..65 => Fault::Expire,
        65..75 => Fault::Before(429),
        _ => Fault::None,
    }
}

fn cloud_fault(number: u64) -> hangar_simulator::Fault {
    match number {
        0..40 => hangar_simulator::Fault::Before,
        40..80 => hangar_simulator::Fault::After,
        _ => hangar_simulator::Fault::None,
    }
}

/// A lifecycle with faults all along; what the management cluster and the cloud were asked.
async fn troubled(seed: u64) -> (Vec<ApiCall>, Vec<Call>) {
    let mut simulation = Simulation::new(seed);
    simulation.apply_example().await;
    // A lost answer or a fault of a list may make something twice, for a while.
    simulation.laws.excuse_duplicates();
    let die = Die::new(seed);
    let (api, cloud, tenants) = (die.clone(), die.clone(), die.clone());
    simulation.management.set_fault_hook(Arc::new(move |_| api_fault(api.throw())));
    simulation.cloud.set_fault_hook(Arc::new(move |_| cloud_fault(cloud.throw())));
    simulation.tenants.set_faults(Some(Arc::new(move |_: &ApiCall| api_fault(tenants.throw()))));
    simulation.start(Some(Arc::new(move |_, _| die.throw() < DEATHS)));
    simulation.becomes_available(1).await;
    grow_and_go(&simulation).await;
    simulation.stop().await;
    (simulation.management.requests(), simulation.cloud.journal())
}

fn run(seed: u64) -> (Vec<ApiCall>, Vec<Call>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(troubled(seed))
}

#[test]
fn random_faults_do_no_harm() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(seed) = number("HANGAR_SEED") {
        tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false).init();
        run(seed);
        return;
    }
    for seed in 0..number("HANGAR_SEEDS").unwrap_or(SEEDS) {
        println!("seed {seed}");
        run(seed);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [7, 8] {
        let (first, second) = (run(seed), run(seed));
        same(seed, &first.0, &second.0);
        same(seed, &first.1, &second.1);
    }
}

fn same<T: std::fmt::Debug + PartialEq>(seed: u64, first: &[T], second: &[T]) {
    for (number, (one, other)) in first.iter().zip(second).enumerate() {
        let before = &first[number.saturating_sub(5)..number];
        assert_eq!(one, other, "seed {seed}, request {number}, after {before:#?}");
    }
    assert_eq!(first.len(), second.len(), "seed {seed}");
}
