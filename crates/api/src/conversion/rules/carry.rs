//! Taking a value from one place of an object to another, also in every item of a list.
//!
//! Holds: nothing is overwritten, and what cannot be changed or has no free place stays where it was; an object that became empty by
//! giving its last value away goes with it.

use serde_json::{Map, Value};

/// `spec.ports[].network`: keys, through any number of lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// The ways to lists, each from an item of the one before.
    lists: Vec<Vec<String>>,
    /// The way from there.
    keys: Vec<String>,
}

impl Path {
    pub fn of(text: &str) -> Self {
        let keys = |text: &str| text.split('.').filter(|key| !key.is_empty()).map(str::to_owned).collect();
        let mut parts: Vec<Vec<String>> = text.split("[]").map(keys).collect();
        let last = parts.pop().unwrap_or_default();
        Self { lists: parts, keys: last }
    }

    /// Hands the value at this place, in every list on the way, to a function.
    pub fn each(&self, body: &mut Value, act: fn(&mut Value)) {
        each_scope(body, &self.lists, &mut |scope| {
            if let Some(place) = lookup_mut(scope, &self.keys) {
                act(place);
            }
        });
    }
}

/// Takes the value at `from`, changes it and puts it at `to`. Both ways lead through the same lists.
pub fn carry(body: &mut Value, from: &Path, to: &Path, change: &dyn Fn(&Value) -> Option<Value>) {
    each_scope(body, &from.lists, &mut |scope| {
        let Some(changed) = lookup(scope, &from.keys).and_then(change) else { return };
        let Some(taken) = take(scope, &from.keys) else { return };
        if let Err(unplaced) = put(scope, &to.keys, changed) {
            drop(unplaced);
            drop(put(scope, &from.keys, taken));
        }
    });
}

fn each_scope(value: &mut Value, lists: &[Vec<String>], act: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = lists.split_first() else { return act(value) };
    let items = lookup_mut(value, first).and_then(Value::as_array_mut);
    items.into_iter().flatten().for_each(|item| each_scope(item, rest, act));
}

fn lookup<'a>(value: &'a Value, keys: &[String]) -> Option<&'a Value> {
    keys.iter().try_fold(value, |value, key| value.as_object()?.get(key))
}

fn lookup_mut<'a>(value: &'a mut Value, keys: &[String]) -> Option<&'a mut Value> {
    keys.iter().try_fold(value, |value, key| value.as_object_mut()?.get_mut(key))
}

/// Takes a value out, and every object below the top that it leaves empty.
fn take(value: &mut Value, keys: &[String]) -> Option<Value> {
    let (last, parents) = keys.split_last()?;
    let taken = lookup_mut(value, parents)?.as_object_mut()?.remove(last);
    for depth in (1..keys.len()).rev() {
        let Some(parent) = lookup_mut(value, &keys[..depth - 1]).and_then(Value::as_object_mut) else { break };
        if !parent.get(&keys[depth - 1]).and_then(Value::as_object).is_some_and(Map::is_empty) || depth == 1 {
            break;
        }
        parent.remove(&keys[depth - 1]);
    }
    taken
}

/// Puts a value where nothing stands, or returns it.
fn put(value: &mut Value, keys: &[String], new: Value) -> Result<(), Value> {
    let Some((last, parents)) = keys.split_last() else { return Err(new) };
    let mut place = value;
    for key in parents {
        let Some(map) = place.as_object_mut() else { return Err(new) };
        place = map.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
    }
    match place.as_object_mut() {
        Some(map) if !map.contains_key(last) => {
            map.insert(last.clone(), new);
            Ok(())
        }
        _ => Err(new),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn carried(mut body: Value, from: &str, to: &str) -> Value {
        carry(&mut body, &Path::of(from), &Path::of(to), &|value| Some(value.clone()));
        body
    }

    #[test]
    fn values_move_within_the_items_of_lists() {
        let body = json!({"spec": {"a": [{"b": [{"x": 1}, {"y": 2}]}, {}]}});
        assert_eq!(
            carried(body, "spec.a[].b[].x", "spec.a[].b[].deep.z"),
            json!({"spec": {"a": [{"b": [{"deep": {"z": 1}}, {"y": 2}]}, {}]}})
        );
    }

    #[test]
    fn what_a_move_leaves_empty_goes_and_what_was_empty_stays() {
        assert_eq!(carried(json!({"spec": {"a": {"b": {"c": 1}}}}), "spec.a.b.c", "spec.d"), json!({"spec": {"d": 1}}));
        assert_eq!(
            carried(json!({"spec": {"a": {"b": {}, "c": 1}}}), "spec.a.c", "spec.d"),
            json!({"spec": {"a": {"b": {}}, "d": 1}})
        );
    }

    #[test]
    fn a_value_may_become_an_object_at_its_own_place_and_come_back() {
        let body = json!({"spec": {"image": "ubuntu"}});
        let there = carried(body.clone(), "spec.image", "spec.image.filter.name");
        assert_eq!(there, json!({"spec": {"image": {"filter": {"name": "ubuntu"}}}}));
        assert_eq!(carried(there, "spec.image.filter.name", "spec.image"), body);
    }

    #[test]
    fn nothing_is_overwritten_and_nothing_is_lost() {
        for body in [json!({"spec": {"a": 1, "b": 2}}), json!({"spec": {"a": 1, "b": null}}), json!({"spec": "text"})] {
            assert_eq!(carried(body.clone(), "spec.a", "spec.b"), body);
        }
        let crowded = json!({"spec": {"image": {"filter": {"name": "x", "tags": ["t"]}}}});
        assert_eq!(carried(crowded.clone(), "spec.image.filter.name", "spec.image"), crowded);
    }
}
