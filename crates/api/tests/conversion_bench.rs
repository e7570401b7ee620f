//! How many objects a second are converted, for each kind. Run by `cargo xtask bench`.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark says what went wrong by panicking, and looks at the clock"
)]

mod random;

use std::time::{Duration, Instant};

use hangar_api::conversion::convert;
use hangar_api::registry::kinds;
use random::{Random, object};
use serde_json::{Map, json};

const LONG_ENOUGH: Duration = Duration::from_millis(200);

#[test]
#[ignore = "a measurement, not a test: `cargo xtask bench` runs it"]
fn conversion_by_kind() {
    let mut rows = Map::new();
    for facts in kinds().iter().filter(|facts| facts.versions.len() > 1) {
        let (oldest, hub) = (&facts.versions[0], facts.hub());
        let drawn: Vec<_> = (0..50).map(|seed| object(facts, oldest, &mut Random::new(seed))).collect();
        // The first conversion unpacks the schemas.
        drop(convert(&drawn[0], hub.name).unwrap());
        let (began, mut count) = (Instant::now(), 0_u32);
        while began.elapsed() < LONG_ENOUGH {
            for object in &drawn {
                drop(convert(object, hub.name).unwrap());
                count += 1;
            }
        }
        let rate = f64::from(count) / began.elapsed().as_secs_f64();
        let name = format!("conversion, {} {} to {}, objects/s", facts.kind, oldest.name, hub.name);
        println!("| {name:<80} | {rate:>10.0} |");
        rows.insert(name, json!(rate.round()));
    }
    println!("{}", serde_json::Value::Object(rows));
}
