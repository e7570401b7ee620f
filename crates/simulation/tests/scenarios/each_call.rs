//! Each call of a whole life (a cluster comes, all its machines are replaced, it goes) fails once, before and after it was carried out: to the management cluster, to the
//! cloud and to the tenant.
//!
//! A normal run takes every 23rd call; `HANGAR_CALLS=all` takes them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hangar_kubesim::{ApiCall, Fault};
use hangar_simulation::laws::HANGAR;
use hangar_simulation::{Simulation, condition};

const STRIDE: usize = 23;
const PLACES: [Place; 3] = [Place::Management, Place::Cloud, Place::Tenant];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Management,
    Cloud,
    Tenant,
}

/// The call that fails, and whether it was carried out all the same.
#[derive(Debug, Clone, Copy)]
struct Failure {
    place: Place,
    number: u64,
    after: bool,
}

/// How often each place was called.
type Counts = [Arc<AtomicU64>; 3];

fn is_due(count: &AtomicU64, place: Place, failure: Option<Failure>) -> Option<bool> {
    let number = count.fetch_add(1, Ordering::Relaxed);
    failure.filter(|failure| failure.place == place && failure.number == number).map(|failure| failure.after)
}

fn disturb(simulation: &Simulation, failure: Option<Failure>) -> Counts {
    let counts = Counts::default();
    let api = |due: Option<bool>| match due {
        Some(true) => Fault::After,
        Some(false) => Fault::Before(500),
        None => Fault::None,
    };
    let [management, cloud, tenant] = counts.clone();
    simulation.management.set_fault_hook(Arc::new(move |call| {
        if &*call.user == HANGAR { api(is_due(&management, Place::Management, failure)) } else { Fault::None }
    }));
    simulation.cloud.set_fault_hook(Arc::new(move |_| match is_due(&cloud, Place::Cloud, failure) {
        Some(true) => hangar_simulator::Fault::After,
        Some(false) => hangar_simulator::Fault::Before,
        None => hangar_simulator::Fault::None,
    }));
    simulation.tenants.set_faults(Some(Arc::new(move |_: &ApiCall| api(is_due(&tenant, Place::Tenant, failure)))));
    counts
}

async fn life(failure: Option<Failure>) -> [u64; 3] {
    let mut simulation = Simulation::new(21);
    if failure.is_some() {
        simulation.laws.excuse_duplicates();
    }
    simulation.apply_example().await;
    let counts = disturb(&simulation, failure);
    simulation.start(None);
    simulation.becomes_available(1).await;
    simulation.edit_deployment(|deployment| deployment["spec"]["template"]["spec"]["version"] = "v1.28.11".into());
    let is_new =
        |machine: &serde_json::Value| machine["spec"]["version"] == "v1.28.11" && condition(machine, "Available");
    simulation
        .until(&format!("the machine is replaced, {failure:?}"), || {
            let machines = simulation.machines();
            machines.len() == 1 && machines.iter().all(is_new)
        })
        .await;
    simulation.delete_cluster().await;
    simulation.stop().await;
    counts.map(|count| count.load(Ordering::Relaxed))
}

fn run(failure: Option<Failure>) -> [u64; 3] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(life(failure))
}

#[test]
fn each_call_of_coming_rolling_and_going_may_fail_before_or_after_it_was_carried_out() {
    let stride = if std::env::var("HANGAR_CALLS").is_ok_and(|value| value == "all") { 1 } else { STRIDE };
    let all = run(None);
    assert!(all[0] > 100 && all[1] > 20 && all[2] > 5, "the calls were not counted: {all:?}");
    let mut failed = 0;
    for (place, count) in PLACES.into_iter().zip(all) {
        for after in [false, true] {
            // Both do not take the same ones.
            for number in (u64::from(after)..count).step_by(stride) {
                let failure = Failure { place, number, after };
                println!("{failure:?} of {count}");
                run(Some(failure));
                failed += 1;
            }
        }
    }
    println!("{failed} lives, each with one call that failed, of {all:?} to management cluster, cloud and tenant");
}
