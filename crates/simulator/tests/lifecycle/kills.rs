//! The process dies between any two steps, and another one goes on.
//!
//! A normal run dies at every call of the hook while a cluster comes and goes, and at every seventh while it grows and shrinks, since
//! that is more of the same; `HANGAR_DEATHS=all` dies at every call there too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hangar_engine::pass::StepHook;

use crate::simulation::Simulation;
use crate::{come_and_go, lifecycle};

const STRIDE: usize = 7;

/// What the dying process was about.
#[derive(Clone, Copy)]
enum Story {
    ComeAndGo,
    Lifecycle,
}

/// Counts the calls of the hook, and kills at one of them.
fn killer(at: Option<u64>) -> (StepHook, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let hook: StepHook = Arc::new(move |_, _| Some(counted.fetch_add(1, Ordering::Relaxed)) == at);
    (hook, count)
}

/// A story with a death at the given call of the hook; how many calls there were.
async fn live_and_die(story: Story, at: Option<u64>) -> u64 {
    let (hook, count) = killer(at);
    let mut simulation = Simulation::new(3);
    simulation.start(Some(hook));
    match story {
        Story::ComeAndGo => come_and_go(&simulation).await,
        Story::Lifecycle => lifecycle(&simulation).await,
    }
    simulation.stop().await;
    count.load(Ordering::Relaxed)
}

fn run(story: Story, at: Option<u64>) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(live_and_die(story, at))
}

/// Dies at every `stride`-th call from `first` on.
fn deaths(story: Story, first: u64, stride: usize) {
    let calls = run(story, None);
    assert!(calls > 50, "only {calls} calls of the hook: the steps were not counted");
    for at in (first..calls).step_by(stride) {
        println!("death at call {at} of {calls}");
        run(story, Some(at));
    }
}

#[test]
fn a_death_before_any_step_of_coming_and_going_does_no_harm() {
    deaths(Story::ComeAndGo, 0, 2);
}

#[test]
fn a_death_after_any_step_of_coming_and_going_does_no_harm() {
    deaths(Story::ComeAndGo, 1, 2);
}

#[test]
fn a_death_at_every_seventh_step_of_a_whole_lifecycle_does_no_harm() {
    let all = std::env::var("HANGAR_DEATHS").is_ok_and(|value| value == "all");
    deaths(Story::Lifecycle, 0, if all { 1 } else { STRIDE });
}
