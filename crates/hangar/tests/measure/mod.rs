//! What processes cost, as the system counts it.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a benchmark says what went wrong by panicking; not every one uses all"
)]

use std::time::{Duration, Instant};

/// Below this share of a core, a process is at rest.
const AT_REST: f64 = 0.03;
/// After this time they are taken as they are: many together may never rest.
const PATIENCE: Duration = Duration::from_secs(60);

/// Seconds of a core that a process has used so far; none if it is gone.
pub fn cpu(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// A process's own part of the memory, shared pages divided among those who share them, in MiB.
pub fn memory(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// Until these have done what they do after a start.
pub fn settled(pids: &[u32]) {
    let used = || pids.iter().copied().map(cpu).sum::<f64>();
    let (began, mut before) = (Instant::now(), used());
    while began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_secs(1));
        let now = used();
        if now - before < AT_REST * pids.len() as f64 {
            return;
        }
        before = now;
    }
}
