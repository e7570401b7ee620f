//! Each call that the life of a machine takes, with two volumes, a trunk and a floating IP from a pool, goes wrong once: lost on its way, its answer lost, late, asked twice.
//! It converges, nothing is there twice and nothing is left. `HANGAR_CALLS=all` tries each of them in each way; a normal run every third one where calls are late or lists fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hangar_simulation::cloud_transport::Trouble;
use hangar_simulation::{NAMESPACE, Simulation};

use crate::infrastructure::INFRASTRUCTURE;
use crate::machine_shapes::{POOL, apply_with_pool, name, run, shape};

const KINDS: [&str; 5] = ["server", "port", "volume", "trunk", "floating-ip"];

fn counts(simulation: &Simulation) -> [usize; 5] {
    KINDS.map(|kind| simulation.in_cloud(kind).len())
}

/// Which calls go wrong.
#[derive(Clone, Copy, PartialEq)]
enum Calls {
    Reads,
    Writes,
}

/// A life in which one of these calls goes wrong; how many there were.
async fn life(at: Option<u64>, calls: Calls, trouble: Trouble) -> u64 {
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let mut simulation = Simulation::new(801);
    // A lost answer makes something twice, for a while.
    simulation.laws.excuse_duplicates();
    name(&simulation).await;
    apply_with_pool(&simulation, shape).await;
    simulation.transport.set_hook(Some(Arc::new(move |request| {
        let is_token = request.uri().path().ends_with("/auth/tokens");
        let is_one = !is_token && (request.method() == http::Method::GET) == (calls == Calls::Reads);
        let is_it = is_one && Some(counted.fetch_add(1, Ordering::Relaxed)) == at;
        if is_it { trouble } else { Trouble::None }
    })));
    simulation.start(None);
    simulation.becomes_available(1).await;
    simulation.until("there is one of each", || counts(&simulation) == [1, 1, 2, 1, 1]).await;
    let bound = simulation.cloud_client().floating_ips(&hangar_openstack::FloatingIpQuery::default()).await.unwrap();
    assert_eq!(bound.iter().filter(|ip| ip.port_id.is_some()).count(), 1);
    simulation.management.delete(INFRASTRUCTURE, POOL, NAMESPACE, "public");
    simulation.delete_cluster().await;
    simulation.stop().await;
    count.load(Ordering::Relaxed)
}

fn each(calls: Calls, trouble: Trouble) {
    every(1, calls, trouble);
}

fn every(stride: usize, calls: Calls, trouble: Trouble) {
    let all = run(life(None, calls, Trouble::None));
    assert!(all > 15, "{all} calls: they were not counted");
    let is_all = std::env::var("HANGAR_CALLS").is_ok_and(|value| value == "all");
    for at in (0..all).step_by(if is_all { 1 } else { stride }) {
        println!("{trouble:?} at call {at} of {all}");
        run(life(Some(at), calls, trouble));
    }
}

#[test]
fn om12_each_call_of_a_machine_may_be_lost_on_its_way() {
    each(Calls::Writes, Trouble::LostThere);
}

#[test]
fn om12_each_answer_of_a_machine_may_be_lost() {
    each(Calls::Writes, Trouble::LostBack);
}

#[test]
fn om12_each_call_of_a_machine_may_arrive_after_it_was_given_up() {
    every(3, Calls::Writes, Trouble::SlowThere(Duration::from_secs(40)));
}

#[test]
fn om12_each_answer_of_a_machine_may_come_after_it_was_given_up() {
    every(3, Calls::Writes, Trouble::SlowBack(Duration::from_secs(40)));
}

#[test]
fn om12_each_call_of_a_machine_may_be_asked_twice() {
    each(Calls::Writes, Trouble::Twice);
}

#[test]
fn om12_each_list_of_a_machine_may_fail() {
    every(3, Calls::Reads, Trouble::LostThere);
}
