//! The process dies between any two steps, and another one goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hangar_engine::pass::StepHook;

use crate::lifecycle;
use crate::simulation::Simulation;

/// Counts the calls of the hook, and kills at one of them.
fn killer(at: Option<u64>) -> (StepHook, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let hook: StepHook = Arc::new(move |_, _| Some(counted.fetch_add(1, Ordering::Relaxed)) == at);
    (hook, count)
}

/// The whole lifecycle, with a death at the given call of the hook; how many calls there were.
async fn live_and_die(at: Option<u64>) -> u64 {
    let (hook, count) = killer(at);
    let mut simulation = Simulation::new(3);
    simulation.start(Some(hook));
    lifecycle(&simulation).await;
    simulation.stop().await;
    count.load(Ordering::Relaxed)
}

fn run(at: Option<u64>) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(live_and_die(at))
}

/// Every `parts`-th death from `part` on: the parts run side by side.
fn deaths(part: u64, parts: u64) {
    let calls = run(None);
    assert!(calls > 100, "only {calls} calls of the hook: the lifecycle was not counted");
    for at in (part..calls).step_by(usize::try_from(parts).unwrap()) {
        println!("death at call {at} of {calls}");
        run(Some(at));
    }
}

#[test]
fn a_death_between_any_two_steps_does_no_harm_part_1() {
    deaths(0, 2);
}

#[test]
fn a_death_between_any_two_steps_does_no_harm_part_2() {
    deaths(1, 2);
}
