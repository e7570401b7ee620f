//! The law of conversion: there and back is the same object, and an edit made there comes through, for every pair of versions of every kind.
//!
//! A thousand random objects for each pair; `cargo xtask soak --count N` draws more. A failure prints the seed that draws its object again.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test says what went wrong by panicking, and takes its size from the environment"
)]

mod random;

use std::sync::atomic::{AtomicUsize, Ordering};

use hangar_api::conversion::{REMAINDER_PREFIX, convert};
use hangar_api::registry::{KindFacts, VersionFacts, kinds};
use hangar_api::{Object, registry};
use random::{Random, edit, object};
use serde_json::Value;

type Pair = (&'static KindFacts, &'static VersionFacts, &'static VersionFacts);

fn pairs() -> Vec<Pair> {
    let of_kind = |facts: &'static KindFacts| {
        let all = facts.versions.iter().flat_map(move |from| facts.versions.iter().map(move |to| (facts, from, to)));
        all.filter(|(_, from, to)| from.name != to.name)
    };
    kinds().iter().flat_map(of_kind).collect()
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn there_and_back_is_the_same_object() {
    let (count, seed) = (number("HANGAR_SOAK_COUNT", 1000), number("HANGAR_SOAK_SEED", 1));
    let (pairs, next) = (pairs(), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(pair) = pairs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    (0..count).for_each(|index| holds(pair, seed.wrapping_mul(0x1000_0000).wrapping_add(index)));
                }
            });
        }
    });
    println!("{} pairs of versions, {} objects", pairs.len(), pairs.len() as u64 * count);
}

fn holds((facts, from, to): &Pair, seed: u64) {
    let mut random = Random::new(seed);
    let drawn = object(facts, from, &mut random);
    let there = convert(&drawn, to.name).unwrap();
    let back = convert(&there, from.name).unwrap();
    let what =
        || format!("{} {} -> {}, seed {seed}\n{:#}\nthere:\n{:#}", facts.kind, from.name, to.name, drawn.0, there.0);
    assert!(back == drawn, "{}\nback:\n{:#}", what(), back.0);
    if !random.one_in(4) {
        return;
    }
    let mut edited = there.clone();
    edit(&mut edited.0["spec"], &mut random);
    let again = convert(&convert(&edited, from.name).unwrap(), to.name).unwrap();
    let (wanted, found) = (body(&edited), body(&again));
    assert!(found == wanted, "after an edit, {} {}", what(), difference(&wanted, &found));
}

/// The first place where two values differ.
fn difference(wanted: &Value, found: &Value) -> String {
    if let (Value::Object(left), Value::Object(right)) = (wanted, found) {
        let names = left.keys().chain(right.keys());
        let differing = names.into_iter().find(|name| left.get(*name) != right.get(*name));
        if let Some(name) = differing {
            return format!(".{name}{}", difference(&wanted[name], &found[name]));
        }
    }
    format!(": wanted {wanted}, found {found}")
}

/// Everything but what conversion set aside.
fn body(object: &Object) -> Value {
    let mut value = object.0.clone();
    let annotations = value["metadata"].as_object_mut().and_then(|metadata| metadata.remove("annotations"));
    let kept = annotations.as_ref().and_then(Value::as_object).into_iter().flatten();
    let kept: Vec<_> = kept.filter(|(name, _)| !name.starts_with(REMAINDER_PREFIX)).collect();
    value["kept"] = serde_json::to_value(kept).unwrap();
    value
}

#[test]
fn every_kind_of_several_versions_is_drawn() {
    let several = registry::kinds().iter().filter(|facts| facts.versions.len() > 1).count();
    assert!(several >= 35, "{several} kinds have more than one version");
    assert!(pairs().len() >= 100, "{} pairs", pairs().len());
}
