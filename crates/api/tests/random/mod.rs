//! Random objects of any version, drawn from its own schema and a seed.

#![allow(dead_code, reason = "not every test uses all")]

use hangar_api::Object;
use hangar_api::registry::{KindFacts, VersionFacts};
use serde_json::{Map, Value, json};

/// Strings that conversion looks into (durations, references, addresses), and some that it must leave alone.
const WORDS: &[&str] = &[
    "",
    "a",
    "10m0s",
    "1.5s",
    "0s",
    "2h",
    "1h0m0s",
    "cluster.x-k8s.io/v1beta1",
    "infrastructure.cluster.x-k8s.io/v1alpha3",
    "v1",
    "Cluster",
    "OpenStackMachineTemplate",
    "10.0.0.0/16",
    "grün/~\\\"",
    "a,b",
    "null",
    "0",
    "True",
    "2026-01-01T00:00:00Z",
    "kine",
    "ignition",
];

/// splitmix64: small, fast, and the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or_default()
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// An object of a version: any fields that its schema has, none of them required.
pub fn object(facts: &KindFacts, version: &VersionFacts, random: &mut Random) -> Object {
    let mut object = Object::named(&format!("{}/{}", facts.group, version.name), facts.kind, "default", "x");
    if random.one_in(4) {
        object.0["metadata"]["annotations"] = json!({"a": "b"});
    }
    let properties = version.schema()["properties"].as_object().into_iter().flatten();
    for (name, schema) in properties.filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(&name.as_str())) {
        if !random.one_in(8) {
            let mut budget = 80;
            object.0[name] = value(schema, random, &mut budget);
        }
    }
    object
}

fn value(schema: &Value, random: &mut Random, budget: &mut usize) -> Value {
    *budget = budget.saturating_sub(1);
    if random.one_in(100) {
        return Value::Null;
    }
    if schema.get("x-kubernetes-int-or-string").is_some() {
        return if random.one_in(2) { json!(random.below(100)) } else { json!("25%") };
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => fields(schema, random, budget),
        Some("array") => {
            let length = if *budget == 0 { 0 } else { random.below(4) };
            (0..length).map(|_| value(&schema["items"], random, budget)).collect()
        }
        Some("boolean") => json!(random.one_in(2)),
        Some("integer") => json!(random.below(100_000)),
        Some("number") => json!(random.below(100) as f64 / 4.0),
        Some("string") => json!(WORDS[random.below(WORDS.len())]),
        _ => [json!({"free": ["form", 1]}), json!(1), json!("text"), json!([])][random.below(4)].clone(),
    }
}

fn fields(schema: &Value, random: &mut Random, budget: &mut usize) -> Value {
    let mut map = Map::new();
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        // Half of the fields of a small object, and as many of a large one.
        let chance = properties.len().div_ceil(6).max(2);
        for (name, schema) in properties {
            if *budget > 0 && random.one_in(chance) {
                map.insert(name.clone(), value(schema, random, budget));
            }
        }
    } else if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
        for _ in 0..random.below(3) {
            map.insert(WORDS[random.below(WORDS.len())].to_owned(), value(values, random, budget));
        }
    } else if random.one_in(2) {
        map.insert("any".into(), json!("thing"));
    }
    Value::Object(map)
}

/// Changes one leaf of a value, if it has one.
pub fn edit(place: &mut Value, random: &mut Random) {
    match place {
        Value::Object(fields) if !fields.is_empty() => {
            let chosen = random.below(fields.len());
            if let Some((_, field)) = fields.iter_mut().nth(chosen) {
                edit(field, random);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let chosen = random.below(items.len());
            edit(&mut items[chosen], random);
        }
        Value::Bool(flag) => *flag = !*flag,
        Value::Number(number) => *place = json!(number.as_i64().unwrap_or_default() + 1),
        Value::String(text) => *place = json!(format!("{text}x")),
        _ => {}
    }
}
