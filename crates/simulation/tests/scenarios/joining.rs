//! Nodes join by a token that is good for their own name only, and Hangar is who says so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hangar_engine::pass::StepHook;
use hangar_kubesim::{ApiCall, Fault};
use hangar_planner::Step;
use hangar_planner::step::TenantCall;
use hangar_simulation::Simulation;

/// Requests to tenants about what nodes ask for, from now on.
fn count(simulation: &Simulation) -> Arc<Mutex<BTreeMap<String, usize>>> {
    let calls: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let counted = calls.clone();
    simulation.tenants.set_faults(Some(Arc::new(move |call: &ApiCall| {
        if call.resource == "certificatesigningrequests" {
            *counted.lock().unwrap().entry(format!("{} {}", call.verb, call.subresource)).or_default() += 1;
        }
        Fault::None
    })));
    calls
}

#[tokio::test(start_paused = true)]
async fn a_node_costs_one_approval_and_a_cluster_one_watch_for_as_long_as_somebody_joins() {
    let mut simulation = Simulation::new(161);
    let calls = count(&simulation);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    let taken = || std::mem::take(&mut *calls.lock().unwrap());
    let expected = |nodes: usize| {
        BTreeMap::from(
            [("list ", 1), ("patch approval", nodes), ("watch ", 1)].map(|(what, count)| (what.to_owned(), count)),
        )
    };
    assert_eq!(taken(), expected(1));
    // Nobody joins: nothing is watched.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(taken(), BTreeMap::new());
    simulation.scale(5);
    simulation.becomes_available(5).await;
    assert_eq!(taken(), expected(4));
    simulation.tenants.set_faults(None);
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// Before and after each decision; nothing else is disturbed.
#[tokio::test(start_paused = true)]
async fn a_death_at_a_decision_keeps_no_node_out() {
    for after in [false, true] {
        let mut simulation = Simulation::new(162);
        let deaths: Arc<Mutex<usize>> = Arc::default();
        let counted = deaths.clone();
        let hook: StepHook = Arc::new(move |step, is_after| {
            let is_decision = matches!(step, Step::Tenant { call: TenantCall::DecideRequest { .. }, .. });
            let mut deaths = counted.lock().unwrap();
            let dies = is_decision && is_after == after && *deaths < 3;
            *deaths += usize::from(dies);
            dies
        });
        simulation.start(Some(hook));
        simulation.apply_example().await;
        simulation.becomes_available(1).await;
        simulation.scale(3);
        simulation.becomes_available(3).await;
        assert_eq!(*deaths.lock().unwrap(), 3);
        simulation.delete_cluster().await;
        simulation.stop().await;
    }
}
