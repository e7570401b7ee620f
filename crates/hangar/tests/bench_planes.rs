//! Several planes at once beside as many sets of bare processes. Run by `cargo xtask bench planes`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark says what went wrong by panicking")]

mod baseline;
mod measure;
mod plane;

use std::path::Path;
use std::time::{Duration, Instant};

use plane::Plane;
use serde_json::json;

#[test]
#[ignore = "a measurement, not a test: `cargo xtask bench planes` runs it"]
fn planes_side_by_side() {
    let count: usize = std::env::var("HANGAR_PLANES").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let bare = bare(count, None);
    let directory = tempfile::tempdir().unwrap();
    let definitions = directory.path().join("definitions.json");
    std::fs::write(&definitions, Plane::new().ok(&["crds", "--output", "json"])).unwrap();
    let defined = self::bare(count, Some(&definitions));
    let ours = planes(count);
    let row = |name: &str, (time, memory): (Duration, f64), (than_time, than_memory): (Duration, f64)| {
        let (time, memory) = (time.as_secs_f64(), memory / count as f64);
        let (slower, larger) = (time / than_time.as_secs_f64(), memory / (than_memory / count as f64));
        println!("| {count} {name}: {time:.1} s ({slower:.2} times), {memory:.0} MiB each ({larger:.2} times) |");
        json!({ "seconds": time, "mibEach": memory, "timeRatio": slower, "memoryRatio": larger })
    };
    row("bare sets of processes", bare, bare);
    row("bare sets with the same definitions", defined, bare);
    let beside_bare = row("planes, beside bare sets", ours, bare);
    let beside_defined = row("planes, beside sets with the same definitions", ours, defined);
    println!("{}", json!({ "planes": count, "besideBare": beside_bare, "besideDefined": beside_defined }));
}

/// Sets of processes without Hangar, with these definitions if there are any.
fn bare(count: usize, definitions: Option<&Path>) -> (Duration, f64) {
    let began = Instant::now();
    let start = || {
        let (_, processes) = baseline::plane_by_hand();
        if let Some(definitions) = definitions {
            baseline::install_definitions(&processes, definitions);
        }
        processes
    };
    let sets: Vec<_> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..count).map(|_| scope.spawn(start)).collect();
        starting.into_iter().map(|one| one.join().unwrap()).collect()
    });
    (began.elapsed(), memory_at_rest(&sets.iter().flat_map(baseline::Processes::pids).collect::<Vec<_>>()))
}

fn planes(count: usize) -> (Duration, f64) {
    let planes: Vec<Plane> = (0..count).map(|_| Plane::new()).collect();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for plane in &planes {
            scope.spawn(|| plane.ok(&["up"]));
        }
    });
    let time = began.elapsed();
    let wait = |plane: &Plane| {
        plane.kubectl(&["rollout", "status", "statefulset/etcd", "-n", "kamaji-system", "--timeout=600s"]);
    };
    planes.iter().for_each(wait);
    (time, memory_at_rest(&planes.iter().flat_map(|plane| plane.pids()).collect::<Vec<_>>()))
}

/// When what follows a start is done: until then it is still growing, and by how much depends on the moment.
fn memory_at_rest(pids: &[u32]) -> f64 {
    measure::settled(pids);
    pids.iter().copied().map(measure::memory).sum()
}
