//! What steps of a lifecycle cost in calls to the cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use hangar_simulation::Simulation;
use hangar_simulation::laws::HANGAR;

/// Calls since the last look, by method and the end of their path; ids are left out.
fn calls(simulation: &Simulation) -> BTreeMap<String, usize> {
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    for call in simulation.cloud.journal() {
        let path: Vec<&str> = call.path.split('/').filter(|part| !part.contains('-') || part.len() < 30).collect();
        *calls.entry(format!("{} {}", call.method, path.join("/"))).or_default() += 1;
    }
    simulation.cloud.clear_journal();
    calls
}

#[tokio::test(start_paused = true)]
async fn a_worker_costs_a_handful_of_calls_to_make_and_to_delete() {
    let mut simulation = Simulation::new(131);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let first = calls(&simulation);
    println!("first {first:#?}");
    let of_worker = |path: &&String| ["/servers", "/ports", "/flavors"].iter().any(|part| path.contains(part));
    let worker: usize = first.keys().filter(of_worker).map(|path| first[path]).sum();
    assert!(worker <= 6, "{first:#?}");
    let mut requests: BTreeMap<String, usize> = BTreeMap::new();
    let all = simulation.management.requests().into_iter();
    for call in all.filter(|call| *call.user == *HANGAR && (call.is_write() || call.verb == "get")) {
        *requests.entry(format!("{} {} {}", call.verb, call.resource, call.subresource)).or_default() += 1;
    }
    let count: usize = requests.values().sum();
    println!("{count} requests {requests:#?}");
    assert!(count <= 70, "{requests:#?}");
    simulation.scale(5);
    simulation.becomes_available(5).await;
    let up = calls(&simulation);
    println!("up {up:#?}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    calls(&simulation);
    let began = tokio::time::Instant::now();
    simulation.scale(1);
    simulation.becomes_available(1).await;
    let (down, took) = (calls(&simulation), began.elapsed());
    println!("down {took:?} {down:#?}");
    let total = |calls: &BTreeMap<String, usize>| calls.values().sum::<usize>();
    assert!(total(&up) <= 4 * 6, "{up:#?}");
    assert!(total(&down) <= 4 * 5, "{down:#?}");
    assert!(took < Duration::from_secs(30), "deleted servers are seen to be gone at once, not after {took:?}");
    simulation.delete_cluster().await;
    simulation.stop().await;
}

fn count(simulation: &Simulation) -> (usize, usize) {
    let journal = simulation.cloud.journal();
    let tokens = journal.iter().filter(|call| call.path.ends_with("/auth/tokens") && call.method == "POST").count();
    simulation.cloud.clear_journal();
    (journal.len() - tokens, tokens)
}

async fn rests(simulation: &Simulation, seconds: u64) -> (usize, usize) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    count(simulation)
}

/// The table in docs/src/infrastructure.md, beside what upstream takes for the same.
#[tokio::test(start_paused = true)]
async fn oc23_each_step_of_a_fleet_costs_no_more_calls_than_written_down() {
    let mut simulation = Simulation::new(132);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    rests(&simulation, 120).await;
    let mut told = vec![];
    let mut costs = |what: &str, (calls, tokens): (usize, usize), of: usize, most: f64| {
        let each = calls as f64 / of as f64;
        told.push(format!("{what}: {calls} calls, {each:.1} each, {tokens} tokens"));
        assert!(each <= most && tokens <= 1, "{told:#?}");
    };
    let settle = async |replicas: usize| {
        simulation.scale(replicas);
        simulation.becomes_available(replicas).await;
        count(&simulation)
    };
    costs("one worker more", settle(2).await, 1, 6.0);
    rests(&simulation, 120).await;
    costs("five workers", settle(5).await, 3, 4.0);
    costs("twenty workers", settle(20).await, 15, 2.5);
    rests(&simulation, 120).await;
    costs("ten minutes at rest with twenty", rests(&simulation, 600).await, 1, 30.0);
    costs("one worker less", settle(19).await, 1, 5.0);
    costs("eighteen workers less", settle(1).await, 18, 3.0);
    costs("twenty workers at once", settle(20).await, 19, 2.5);
    rests(&simulation, 120).await;
    simulation.stop_engines().await;
    simulation.cloud.clear_journal();
    simulation.start(None);
    costs("a restart with twenty", rests(&simulation, 30).await, 1, 8.0);
    println!("{told:#?}");
    simulation.delete_cluster().await;
    simulation.stop().await;
}
