//! One sort of trouble at a time, from a seed: slow calls, stale lists, lost answers, data stores that fail. (`faults.rs` has all at once.)

use std::sync::Arc;
use std::time::Duration;

use hangar_simulation::chance::Die;
use hangar_simulation::cloud_transport::Trouble;
use hangar_simulation::{Simulation, datastores};

use crate::lifecycle;

/// A few lifecycles, each with trouble of its own.
fn with(seeds: std::ops::Range<u64>, trouble: impl Fn(&Simulation, Arc<Die>)) {
    for seed in seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut simulation = Simulation::new(seed);
            simulation.apply_example().await;
            trouble(&simulation, Die::new(seed));
            simulation.start(None);
            simulation.becomes_available(1).await;
            crate::grow_and_go(&simulation).await;
            simulation.stop().await;
        });
    }
}

#[test]
fn slow_calls_do_no_harm() {
    with(61..66, |simulation, die| {
        let (api, tenants) = (die.clone(), die.clone());
        let pause = |die: &Die| Duration::from_millis(die.throw() * 20);
        simulation.laws.excuse_late_calls(Duration::from_secs(20));
        simulation.management.set_fault_hook(Arc::new(move |_| match api.throw() {
            0..100 => hangar_kubesim::Fault::Delay(pause(&api)),
            _ => hangar_kubesim::Fault::None,
        }));
        simulation.tenants.set_faults(Some(Arc::new(move |_| match tenants.throw() {
            0..100 => hangar_kubesim::Fault::Delay(pause(&tenants)),
            _ => hangar_kubesim::Fault::None,
        })));
        simulation.transport.set_hook(Some(Arc::new(move |_| match die.throw() {
            0..100 => Trouble::SlowThere(Duration::from_millis(die.throw() * 20)),
            100..200 => Trouble::SlowBack(Duration::from_millis(die.throw() * 20)),
            _ => Trouble::None,
        })));
    });
}

#[test]
fn stale_lists_do_no_harm() {
    with(71..81, |simulation, die| {
        simulation.laws.excuse_duplicates();
        simulation.transport.set_hook(Some(Arc::new(move |request| {
            let list = ["ports", "security-groups", "detail", "servers"];
            let is_list = request.uri().path().rsplit('/').next().is_some_and(|last| list.contains(&last));
            if is_list && die.throw() < 300 { Trouble::Stale } else { Trouble::None }
        })));
    });
}

#[test]
fn lost_answers_of_the_cloud_do_no_harm() {
    with(81..86, |simulation, die| {
        simulation.laws.excuse_duplicates();
        simulation.cloud.set_fault_hook(Arc::new(move |call| match die.throw() {
            0..250 if call.method != "GET" => hangar_simulator::Fault::After,
            _ => hangar_simulator::Fault::None,
        }));
    });
}

#[test]
fn data_stores_that_fail_before_or_after_the_deed_do_no_harm() {
    with(91..96, |simulation, die| {
        simulation.datastores.set_faults(Some(Arc::new(move || match die.throw() {
            0..300 => datastores::Fault::Before,
            300..600 => datastores::Fault::After,
            _ => datastores::Fault::None,
        })));
    });
}

/// Nobody waits for ever for a call that is never answered: the deadline of a pass ends it.
#[tokio::test(start_paused = true)]
async fn calls_that_take_longer_than_a_pass_may_do_no_harm() {
    let mut simulation = Simulation::new(99);
    simulation.laws.excuse_duplicates();
    let die = Die::new(99);
    simulation.transport.set_hook(Some(Arc::new(move |_| match die.throw() {
        0..20 => Trouble::SlowBack(Duration::from_secs(60)),
        _ => Trouble::None,
    })));
    simulation.start(None);
    lifecycle(&simulation).await;
    simulation.stop().await;
}
