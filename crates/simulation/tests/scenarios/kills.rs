//! The process dies between any two steps, and another one goes on.
//!
//! A normal run dies at every call of the hook until the cluster is there, and at every fifth while it grows, shrinks and goes;
//! `HANGAR_DEATHS=all` dies at every call there too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hangar_engine::pass::StepHook;

use hangar_simulation::Simulation;

use crate::grow_and_go;

const STRIDE: usize = 5;

/// Counts the calls of the hook, and kills at one of them.
pub fn killer(at: Option<u64>) -> (StepHook, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let hook: StepHook = Arc::new(move |_, _| Some(counted.fetch_add(1, Ordering::Relaxed)) == at);
    (hook, count)
}

/// How many calls of the hook there were until the cluster was there, and in all.
struct Calls {
    coming: u64,
    all: u64,
}

/// A life with a death at the given call of the hook. Those who die young are spared growing and shrinking.
async fn live_and_die(at: Option<u64>, grows: bool) -> Calls {
    let (hook, count) = killer(at);
    let mut simulation = Simulation::new(3);
    simulation.start(Some(hook));
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    let coming = count.load(Ordering::Relaxed);
    if grows {
        grow_and_go(&simulation).await;
    } else {
        simulation.delete_cluster().await;
    }
    simulation.stop().await;
    Calls { coming, all: count.load(Ordering::Relaxed) }
}

fn run(at: Option<u64>, grows: bool) -> Calls {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let calls = runtime.block_on(live_and_die(at, grows));
    assert!(calls.coming > 50 && calls.all > calls.coming, "the steps were not counted");
    calls
}

fn deaths_while_coming(first: u64) {
    let coming = run(None, false).coming;
    for at in (first..coming).step_by(2) {
        println!("death at call {at} of {coming}");
        run(Some(at), false);
    }
}

#[test]
fn a_death_before_any_step_of_coming_does_no_harm() {
    deaths_while_coming(0);
}

#[test]
fn a_death_after_any_step_of_coming_does_no_harm() {
    deaths_while_coming(1);
}

#[test]
fn a_death_at_every_fifth_step_of_growing_shrinking_and_going_does_no_harm() {
    let all = std::env::var("HANGAR_DEATHS").is_ok_and(|value| value == "all");
    let calls = run(None, true);
    for at in (calls.coming..calls.all).step_by(if all { 1 } else { STRIDE }) {
        println!("death at call {at} of {}", calls.all);
        run(Some(at), true);
    }
}
