//! What a version cannot express: a list of places with what stood there.
//!
//! Holds: a place is restored only if what conversion made of it is still what it was when it was set aside, so that an edit made
//! in the meantime wins.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Serialize, Deserialize)]
struct Place {
    /// Keys from the top; never through a list, which counts as one value.
    path: Vec<String>,
    /// What conversion alone yields there.
    #[serde(default, deserialize_with = "something", skip_serializing_if = "Option::is_none")]
    was: Option<Value>,
    /// What really stood there.
    #[serde(default, deserialize_with = "something", skip_serializing_if = "Option::is_none")]
    is: Option<Value>,
}

/// A null that is written is a null: only what is not written is nothing.
fn something<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Everything in which `wanted` differs from `converted`, as text, or nothing.
pub fn between(converted: &Value, wanted: &Value) -> Option<String> {
    let mut places = vec![];
    compare(Some(converted), Some(wanted), &mut vec![], &mut places);
    if places.is_empty() { None } else { serde_json::to_string(&places).ok() }
}

/// Puts back what an earlier conversion had set aside.
pub fn restore(body: &mut Value, annotation: Option<&str>) {
    let places: Vec<Place> = annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    // Who an object is was never set aside, whatever an annotation says that somebody wrote.
    let own = |place: &Place| {
        place.path.first().is_some_and(|key| !["apiVersion", "kind", "metadata"].contains(&key.as_str()))
    };
    for place in places.into_iter().filter(own) {
        if lookup(body, &place.path) == place.was.as_ref() {
            put(body, &place.path, place.is);
        }
    }
}

fn compare(converted: Option<&Value>, wanted: Option<&Value>, path: &mut Vec<String>, places: &mut Vec<Place>) {
    if converted == wanted {
        return;
    }
    if let (Some(Value::Object(left)), Some(Value::Object(right))) = (converted, wanted) {
        let keys: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
        for key in keys {
            path.push(key.clone());
            compare(left.get(key), right.get(key), path, places);
            path.pop();
        }
        return;
    }
    places.push(Place { path: path.clone(), was: converted.cloned(), is: wanted.cloned() });
}

fn lookup<'a>(body: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(body, |value, key| value.get(key))
}

fn put(body: &mut Value, path: &[String], value: Option<Value>) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut place = body;
    for key in parents {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Some(map) = place.as_object_mut() else { return };
        place = map.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
    }
    if !place.is_object() {
        *place = Value::Object(Map::new());
    }
    if let Some(map) = place.as_object_mut() {
        match value {
            Some(value) => drop(map.insert(last.clone(), value)),
            None => drop(map.remove(last)),
        }
    }
}
