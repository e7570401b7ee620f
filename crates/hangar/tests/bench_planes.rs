//! Several planes at once beside as many sets of bare processes. Run by `cargo xtask bench planes`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark says what went wrong by panicking")]

mod baseline;
mod plane;

use std::time::{Duration, Instant};

use plane::Plane;
use serde_json::json;

#[test]
#[ignore = "a measurement, not a test: `cargo xtask bench planes` runs it"]
fn planes_side_by_side() {
    let count: usize = std::env::var("HANGAR_PLANES").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let (bare_time, bare_memory) = bare(count);
    let (time, memory) = planes(count);
    let per = |total: f64| total / count as f64;
    let (faster, smaller) = (time.as_secs_f64() / bare_time.as_secs_f64(), memory / bare_memory);
    println!("| {count} bare sets of processes: {:.1} s, {:.0} MiB each |", bare_time.as_secs_f64(), per(bare_memory));
    println!(
        "| {count} planes: {:.1} s ({faster:.2} times), {:.0} MiB each ({smaller:.2} times) |",
        time.as_secs_f64(),
        per(memory)
    );
    println!("{}", json!({ "planes": count, "timeRatio": faster, "memoryRatio": smaller, "mibEach": per(memory) }));
}

fn bare(count: usize) -> (Duration, f64) {
    let began = Instant::now();
    let sets: Vec<_> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..count).map(|_| scope.spawn(baseline::plane_by_hand)).collect();
        starting.into_iter().map(|one| one.join().unwrap().1).collect()
    });
    let time = began.elapsed();
    (time, sets.iter().flat_map(baseline::Processes::pids).map(memory_of).sum())
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
    let homes: Vec<String> = planes.iter().map(|plane| plane.home().display().to_string()).collect();
    let belongs = |pid: u32| {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let text = [read("environ"), read("cmdline")].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        homes.iter().any(|home| text.contains(home.as_str()))
    };
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    (time, all.filter(|pid| belongs(*pid)).map(memory_of).sum())
}

/// Its own part of the memory, shared pages divided among those who share them, in MiB.
fn memory_of(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}
