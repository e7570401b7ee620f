//! JSON merge patch, and strategic merge patch as far as conditions and addresses go.

use serde_json::{Map, Value};

/// RFC 7386. With `strategic`, lists whose items have a known key are merged by it.
pub(super) fn merge(target: &mut Value, patch: &Value, strategic: bool) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, value) in patch {
        match (value, fields.get_mut(name)) {
            (Value::Null, _) => drop(fields.remove(name)),
            (_, _) if strategic && name.starts_with('$') => {}
            (Value::Array(items), Some(Value::Array(there))) if strategic && merge_key(name).is_some() => {
                merge_list(there, items, merge_key(name).unwrap_or_default());
            }
            (_, Some(there)) => merge(there, value, strategic),
            (_, None) => {
                let mut fresh = Value::Null;
                merge(&mut fresh, value, strategic);
                fields.insert(name.clone(), fresh);
            }
        }
    }
}

fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "conditions" | "addresses" => Some("type"),
        "ownerReferences" => Some("uid"),
        "containers" | "initContainers" | "volumes" | "env" => Some("name"),
        _ => None,
    }
}

fn merge_list(there: &mut Vec<Value>, items: &[Value], key: &str) {
    for item in items {
        let found = there.iter_mut().find(|known| known.get(key) == item.get(key));
        if item["$patch"] == "delete" {
            there.retain(|known| known.get(key) != item.get(key));
        } else if let Some(known) = found {
            merge(known, item, true);
        } else {
            there.push(item.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patches() {
        let rows = [
            (json!({"a": 1, "b": {"c": 2}}), json!({"b": {"c": null, "d": 3}}), false, json!({"a": 1, "b": {"d": 3}})),
            (json!({}), json!({"a": {"b": null, "c": 1}}), false, json!({"a": {"c": 1}})),
            (
                json!({"conditions": [{"type": "A"}]}),
                json!({"conditions": [{"type": "B"}]}),
                false,
                json!({"conditions": [{"type": "B"}]}),
            ),
            (
                json!({"conditions": [{"type": "A", "s": 1}]}),
                json!({"conditions": [{"type": "A", "s": 2}, {"type": "B"}], "$setElementOrder/conditions": []}),
                true,
                json!({"conditions": [{"type": "A", "s": 2}, {"type": "B"}]}),
            ),
        ];
        for (mut target, patch, strategic, expected) in rows {
            merge(&mut target, &patch, strategic);
            assert_eq!(target, expected);
        }
    }
}
