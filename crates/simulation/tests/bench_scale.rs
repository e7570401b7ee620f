//! `cargo xtask bench scale`: what a cluster costs the controllers, with 10, 100 and 1000 of them in one process.
//!
//! Each run makes N clusters with one worker each, lets them come to rest and deletes them, all in memory on one thread with paused time.
//! One JSON line for each N; `ratio` compares with the first N of the same run. `HANGAR_SCALE=10,100` chooses others.
//!
//! Counted as the controllers': CPU time of the process without what the simulated API, cloud, tenants, the rest of Kubernetes and
//! this benchmark take (see `meter`). So it includes keys and certificates, and both halves of the clients: writing requests and reading
//! answers and watches. `memoryKiB` is the heap that becomes free when the engine is dropped with all clusters at rest, less the same in
//! an empty world: caches, queues, sessions and the clients of tenants, with the simulated end of their connections.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cap::Cap;
use hangar_simulation::meter::{Meter, process_time};
use hangar_simulation::{CAPI, NAMESPACE, Options, Simulation, condition};
use serde_json::json;
use tokio::time::Instant;

/// The allocator of the program, and how much it has given out.
#[global_allocator]
static HEAP: Cap<mimalloc::MiMalloc> = Cap::new(mimalloc::MiMalloc, usize::MAX);

/// In simulated time.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Clusters and Machines by name: all there are, and those that are available.
#[derive(Default)]
struct Census {
    clusters: BTreeSet<String>,
    ready: BTreeSet<String>,
    machines: BTreeSet<String>,
}

impl Census {
    fn counts(&self) -> String {
        let (clusters, ready, machines) = (self.clusters.len(), self.ready.len(), self.machines.len());
        format!("{clusters} clusters, {ready} available, {machines} machines available")
    }
}

fn census(simulation: &Simulation) -> Arc<Mutex<Census>> {
    let census = Arc::new(Mutex::new(Census::default()));
    let kept = census.clone();
    simulation.management.observe(Arc::new(move |write| {
        if write.key.group != CAPI {
            return;
        }
        let (mut census, name) = (kept.lock().unwrap(), &write.key.name);
        let available = write.after.is_some_and(|object| condition(object, "Available"));
        let mut note = |set: fn(&mut Census) -> &mut BTreeSet<String>, there: bool| {
            let set = set(&mut census);
            if there {
                set.insert(name.clone())
            } else {
                set.remove(name)
            };
        };
        match write.key.kind.as_str() {
            "Cluster" => {
                note(|census| &mut census.clusters, write.after.is_some());
                note(|census| &mut census.ready, available);
            }
            "Machine" => note(|census| &mut census.machines, available),
            _ => {}
        }
    }));
    census
}

async fn until(what: &str, census: &Mutex<Census>, reached: impl Fn(&Census) -> bool) {
    let began = Instant::now();
    while !reached(&census.lock().unwrap()) {
        assert!(began.elapsed() < PATIENCE, "{what}: {}", census.lock().unwrap().counts());
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// What N clusters cost.
struct Cost {
    create: Duration,
    delete: Duration,
    fakes: Duration,
    requests: u64,
    calls: u64,
    heap: usize,
    simulated: Duration,
}

async fn cost(count: usize) -> Cost {
    let meter = Meter::on();
    let mut simulation = Simulation::with(Options { seed: 1, meter: meter.clone(), forgetful: true });
    let census = census(&simulation);
    let names: Vec<String> = (0..count).map(|number| format!("fleet-{number}")).collect();
    let began = Instant::now();
    // Of the process, less what the fakes and this benchmark took.
    let spent = |since: (Duration, Duration)| process_time() - since.0 - (meter.total() - since.1);
    let start = (process_time(), meter.total());
    simulation.start(None);
    let applied = async {
        for name in &names {
            simulation.apply_cluster(name).await;
        }
        until("creation", &census, |now| now.ready.len() == count && now.machines.len() == count).await;
        // Whatever follows from the last change is done by then.
        tokio::time::sleep(Duration::from_secs(60)).await;
    };
    meter.future(applied).await;
    let create = spent(start);
    let full = HEAP.allocated();
    simulation.stop_engines().await;
    let heap = full.saturating_sub(HEAP.allocated());
    simulation.start(None);
    meter.future(tokio::time::sleep(Duration::from_secs(60))).await;
    let start = (process_time(), meter.total());
    let deleted = async {
        for name in &names {
            simulation.management.delete(CAPI, "Cluster", NAMESPACE, name);
        }
        until("deletion", &census, |now| now.clusters.is_empty()).await;
    };
    meter.future(deleted).await;
    let delete = spent(start);
    simulation.stop().await;
    assert!(simulation.cloud.inventory().is_empty(), "something is left in the cloud");
    let (requests, calls) = (simulation.management.request_count(), simulation.cloud.call_count());
    Cost { create, delete, fakes: meter.total(), requests, calls, heap, simulated: began.elapsed() }
}

fn measured(count: usize) -> Cost {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(cost(count))
}

#[test]
#[ignore = "a benchmark: cargo xtask bench scale"]
fn scale() {
    let counts = std::env::var("HANGAR_SCALE").unwrap_or_else(|_| "10,100,1000".to_owned());
    let empty = measured(0).heap;
    let mut first: Option<(f64, f64)> = None;
    for count in counts.split(',').map(|text| text.trim().parse::<usize>().unwrap()) {
        let cost = measured(count);
        let each = |total: f64| (total / count as f64 * 1000.0).round() / 1000.0;
        let millis = |time: Duration| each(time.as_secs_f64() * 1000.0);
        let (cpu, memory) = (millis(cost.create + cost.delete), each(cost.heap.saturating_sub(empty) as f64 / 1024.0));
        let base = *first.get_or_insert((cpu, memory));
        let ratio = |now: f64, then: f64| (now / then * 100.0).round() / 100.0;
        let line = json!({
            "benchmark": "scale", "clusters": count, "controllerCpuMs": cpu, "createCpuMs": millis(cost.create),
            "deleteCpuMs": millis(cost.delete), "fakesCpuMs": millis(cost.fakes),
            "managementRequests": each(cost.requests as f64), "cloudCalls": each(cost.calls as f64), "memoryKiB": memory,
            "ratio": { "controllerCpu": ratio(cpu, base.0), "memory": ratio(memory, base.1) },
            "simulatedSeconds": cost.simulated.as_secs(),
        });
        println!("{line}");
    }
}
