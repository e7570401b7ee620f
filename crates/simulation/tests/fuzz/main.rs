//! `cargo xtask fuzz --time SECONDS`: what others write, changed at random, through everything that reads it.
//!
//! Flows: examples -> [`mutation`] -> [`targets`] -> executions, seconds and crashes for each target. Holds: no panic, no overflow (tests are built with
//! checks), no input that takes longer than [`SLOW`]. The same seed makes the same inputs; a crash prints its input. It is a plain program, because
//! cargo-fuzz needs a nightly compiler; it knows nothing of coverage, and makes up for that with changes that keep documents readable.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of a test file are tests too")]

mod mutation;
mod targets;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use mutation::Random;
use targets::{Target, all};

/// Nothing that a user may write takes this long, without optimisation and on a busy machine.
const SLOW: Duration = Duration::from_secs(10);

/// Where the last panic was.
static PLACE: Mutex<String> = Mutex::new(String::new());

fn number(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

struct Crash {
    times: u64,
    input: Vec<u8>,
}

fn fuzz(target: &Target, time: Duration, seed: u64) -> BTreeMap<String, Crash> {
    let mut random = Random::new(seed);
    let mut crashes: BTreeMap<String, Crash> = BTreeMap::new();
    let (began, mut executions, mut slowest) = (Instant::now(), 0_u64, Duration::ZERO);
    while began.elapsed() < time || executions < 50 {
        let input = target.input(&mut random);
        let at = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        let took = at.elapsed();
        executions += 1;
        slowest = slowest.max(took);
        let trouble = match outcome {
            Err(_) => Some(PLACE.lock().unwrap().clone()),
            Ok(()) if took > SLOW => Some("slow".to_owned()),
            Ok(()) => None,
        };
        if let Some(place) = trouble {
            crashes.entry(place).or_insert(Crash { times: 0, input }).times += 1;
        }
    }
    let (seconds, slowest) = (began.elapsed().as_secs_f64(), slowest.as_millis());
    let name = target.name;
    println!(
        "{name:20} {executions:>10} executions {seconds:>7.1} s {:>4} crashes, slowest {slowest} ms",
        crashes.len()
    );
    crashes
}

#[test]
fn no_input_makes_it_panic() {
    let time = Duration::from_secs_f64(number("HANGAR_FUZZ_SECONDS", 0.5));
    let seed = number("HANGAR_FUZZ_SEED", 1.0) as u64;
    let only = std::env::var("HANGAR_FUZZ_TARGET").unwrap_or_default();
    std::panic::set_hook(Box::new(|panic| *PLACE.lock().unwrap() = panic.to_string()));
    let crashes: Vec<_> = all()
        .iter()
        .filter(|target| target.name.contains(&only))
        .map(|target| (target.name, fuzz(target, time, seed)))
        .collect();
    drop(std::panic::take_hook());
    let plans = targets::PLANS.load(std::sync::atomic::Ordering::Relaxed);
    println!("manifest: {plans} plans");
    assert!(plans > 0 || !"manifest".contains(&only), "no planner was reached");
    let mut count = 0;
    for (name, crashes) in crashes {
        for (place, crash) in crashes {
            count += 1;
            println!("{name}: {} times: {place}\n{}\n", crash.times, String::from_utf8_lossy(&crash.input));
        }
    }
    assert_eq!(count, 0, "crashes");
}
