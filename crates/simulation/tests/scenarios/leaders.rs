//! Several processes of which one acts: it holds the Lease. Nothing is excused here: with a Lease nothing is made twice, not even for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hangar_kubesim::{ApiCall, Fault};
use hangar_simulation::Simulation;
use hangar_simulation::chance::Die;

use crate::grow_and_go;

fn holder(simulation: &Simulation) -> String {
    let lease = simulation.management.get("coordination.k8s.io", "Lease", "hangar-system", "hangar");
    lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned)).unwrap_or_default()
}

/// Counts what happens.
fn happens(it_does: bool, count: &AtomicU64) -> bool {
    count.fetch_add(u64::from(it_does), Ordering::Relaxed);
    it_does
}

/// As a rollout of Hangar itself does it, at every moment of a cluster's creation.
#[tokio::test(start_paused = true)]
async fn processes_hand_over_while_a_cluster_is_made() {
    for moment in 0..12 {
        let mut simulation = Simulation::new(900 + moment);
        let first = simulation.start_candidate("first", None);
        simulation.until("the first one leads", || holder(&simulation) == "first").await;
        simulation.start_candidate("second", None);
        simulation.apply_example().await;
        simulation.wait(Duration::from_millis(1500 * moment)).await;
        assert_eq!(holder(&simulation), "first");
        first.cancel();
        simulation.until("the second one leads", || holder(&simulation) == "second").await;
        simulation.becomes_available(1).await;
        grow_and_go(&simulation).await;
        simulation.stop().await;
        assert_eq!(holder(&simulation), "", "whoever stops gives it back");
    }
}

/// Of three processes the leader dies again and again, in the middle of a pass.
#[tokio::test(start_paused = true)]
async fn leaders_die_and_others_go_on() {
    for seed in 920..928 {
        let mut simulation = Simulation::new(seed);
        let deaths = Arc::new(AtomicU64::new(0));
        for identity in ["a", "b", "c"] {
            let (die, deaths) = (Die::new(seed ^ u64::from(identity.as_bytes()[0])), deaths.clone());
            simulation.start_candidate(identity, Some(Arc::new(move |_, _| happens(die.throw() < 50, &deaths))));
        }
        simulation.apply_example().await;
        simulation.becomes_available(1).await;
        grow_and_go(&simulation).await;
        simulation.stop().await;
        assert!(deaths.load(Ordering::Relaxed) >= 3, "too few died for a test");
    }
}

/// A leader whose renewals are not answered stops before another one begins, even though all of its other requests go through.
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_in_time() {
    let late = Arc::new(AtomicU64::new(0));
    for seed in 940..948 {
        let mut simulation = Simulation::new(seed);
        let die = Die::new(seed);
        let counted = late.clone();
        simulation.management.set_fault_hook(Arc::new(move |call: &ApiCall| {
            let is_late = call.resource == "leases" && call.verb == "patch" && die.throw() < 600;
            if happens(is_late, &counted) { Fault::Delay(Duration::from_secs(30)) } else { Fault::None }
        }));
        simulation.start_candidate("a", None);
        simulation.start_candidate("b", None);
        simulation.apply_example().await;
        simulation.becomes_available(1).await;
        grow_and_go(&simulation).await;
        simulation.management.clear_fault_hook();
        simulation.stop().await;
    }
    assert!(late.load(Ordering::Relaxed) >= 8, "too few renewals were late for a test: {late:?}");
}
