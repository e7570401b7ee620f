//! What the definitions of our kinds say about an object: unknown fields, defaults, and what is refused.
//!
//! Holds: as in a real server, an unknown field is an error for apply and is dropped by every other verb; expressions (CEL) are not evaluated.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use regex::Regex;
use serde_json::Value;

use super::resource::Resource;

/// The schema of a kind's hub as it is installed, if the kind is ours.
pub(super) fn installed(resource: &Resource) -> Option<&'static Value> {
    Some(resource.facts?.hub().schema())
}

/// Patterns that have been compiled, which takes longer than anything else here.
#[derive(Default)]
pub(super) struct Patterns(Mutex<BTreeMap<String, Option<Regex>>>);

impl Patterns {
    /// What cannot be compiled matches everything.
    fn matches(&self, pattern: &str, text: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let compiled = known.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).ok());
        compiled.as_ref().is_none_or(|regex| regex.is_match(text))
    }
}

/// What every object has, whatever its schema says.
const ALWAYS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops what the schema does not know; the paths of what was dropped.
pub(super) fn prune(object: &mut Value, schema: &Value) -> Vec<String> {
    let mut dropped = vec![];
    prune_at(object, schema, "", &mut dropped);
    dropped
}

fn prune_at(value: &mut Value, schema: &Value, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
            let (properties, others) = (&schema["properties"], &schema["additionalProperties"]);
            fields.retain(|name, _| {
                let known = (path.is_empty() && ALWAYS.contains(&name.as_str()))
                    || open
                    || properties.get(name).is_some()
                    || others.is_object()
                    || *others == true;
                if !known {
                    dropped.push(format!("{path}.{name}"));
                }
                known
            });
            for (name, child) in fields {
                if !(path.is_empty() && ALWAYS.contains(&name.as_str())) {
                    let below = properties.get(name).unwrap_or(others);
                    // Below an open place without a schema, everything may stay.
                    if below.is_object() {
                        prune_at(child, below, &format!("{path}.{name}"), dropped);
                    }
                }
            }
        }
        Value::Array(items) if schema["items"].is_object() => {
            for (index, item) in items.iter_mut().enumerate() {
                prune_at(item, &schema["items"], &format!("{path}[{index}]"), dropped);
            }
        }
        _ => {}
    }
}

/// Fills in defaults where the place for them is there.
pub(super) fn fill_in(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            let properties = schema["properties"].as_object();
            for (name, property) in properties.into_iter().flatten() {
                let default = &property["default"];
                if !default.is_null()
                    && fields.get(name).is_none_or(|value| value.is_null() && property["nullable"] != true)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, child) in fields {
                let below = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                fill_in(child, below);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_in(item, &schema["items"])),
        _ => {}
    }
}

/// Everything that the schema has against an object.
pub(super) fn check(object: &Value, schema: &Value, patterns: &Patterns) -> Vec<String> {
    let mut faults = vec![];
    check_at(object, schema, patterns, "", &mut faults);
    faults
}

fn check_at(value: &Value, schema: &Value, patterns: &Patterns, path: &str, faults: &mut Vec<String>) {
    let mut wrong = |why: String| faults.push(format!("{}: Invalid value: {why}", path.trim_start_matches('.')));
    if !has_type(value, schema) {
        let kind = schema["type"].as_str().unwrap_or_default();
        return wrong(format!("\"{}\": must be of type {kind}", name_of_type(value)));
    }
    let choices = schema["enum"].as_array();
    if choices.is_some_and(|choices| !choices.contains(value)) {
        wrong(format!("{value}: supported values: {}", schema["enum"]));
    }
    match value {
        Value::String(text) => {
            let length = text.chars().count() as u64;
            if schema["minLength"].as_u64().is_some_and(|least| length < least) {
                wrong(format!("\"{text}\": should be at least {} chars long", schema["minLength"]));
            }
            if schema["maxLength"].as_u64().is_some_and(|most| length > most) {
                wrong(format!("\"{text}\": may not be longer than {}", schema["maxLength"]));
            }
            if schema["pattern"].as_str().is_some_and(|pattern| !patterns.matches(pattern, text)) {
                wrong(format!("\"{text}\": should match {}", schema["pattern"]));
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            if schema["minimum"].as_f64().is_some_and(|least| number < least) {
                wrong(format!("{number}: should be greater than or equal to {}", schema["minimum"]));
            }
            if schema["maximum"].as_f64().is_some_and(|most| number > most) {
                wrong(format!("{number}: should be less than or equal to {}", schema["maximum"]));
            }
        }
        Value::Array(items) => {
            let length = items.len() as u64;
            if schema["minItems"].as_u64().is_some_and(|least| length < least) {
                wrong(format!("{length}: must have at least {} items", schema["minItems"]));
            }
            if schema["maxItems"].as_u64().is_some_and(|most| length > most) {
                wrong(format!("{length}: must have at most {} items", schema["maxItems"]));
            }
            for (index, item) in items.iter().enumerate() {
                check_at(item, &schema["items"], patterns, &format!("{path}[{index}]"), faults);
            }
        }
        Value::Object(fields) => {
            if schema["minProperties"].as_u64().is_some_and(|least| (fields.len() as u64) < least) {
                wrong(format!("{value}: must have at least {} properties", schema["minProperties"]));
            }
            for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !fields.contains_key(name) {
                    faults.push(format!("{}: Required value", format!("{path}.{name}").trim_start_matches('.')));
                }
            }
            for (name, child) in fields.iter().filter(|(name, _)| !(path.is_empty() && ALWAYS.contains(&name.as_str())))
            {
                let below = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                check_at(child, below, patterns, &format!("{path}.{name}"), faults);
            }
        }
        _ => {}
    }
}

fn has_type(value: &Value, schema: &Value) -> bool {
    if value.is_null() && schema["nullable"] == true {
        return true;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match schema["type"].as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    }
}

fn name_of_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "required": ["spec"], "properties": {"spec": {
            "type": "object", "properties": {
                "name": {"type": "string", "minLength": 2, "pattern": "^[a-z]+$"},
                "count": {"type": "integer", "minimum": 0, "default": 1},
                "mode": {"type": "string", "enum": ["a", "b"]},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "list": {"type": "array", "maxItems": 1, "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
                "port": {"x-kubernetes-int-or-string": true},
            },
        }}})
    }

    #[test]
    fn unknown_fields_are_found() {
        let mut object = json!({"kind": "K", "metadata": {"any": 1}, "new": 1, "spec": {
            "typo": 1, "labels": {"a": "b"}, "free": {"deep": {"er": 1}}, "list": [{"x": "1", "y": "2"}],
        }});
        assert_eq!(prune(&mut object, &schema()), [".new", ".spec.typo", ".spec.list[0].y"]);
        assert_eq!(object["spec"], json!({"labels": {"a": "b"}, "free": {"deep": {"er": 1}}, "list": [{"x": "1"}]}));
    }

    #[test]
    fn values_are_checked() {
        let rows = [
            (json!({"name": "ab", "count": 1, "mode": "a", "port": 80, "free": {"x": null}}), ""),
            (json!({"port": "http", "labels": {}}), ""),
            (json!({"name": null}), r#"spec.name: Invalid value: "null": must be of type string"#),
            (json!({"name": "a"}), r#"spec.name: Invalid value: "a": should be at least 2 chars long"#),
            (json!({"name": "A1"}), r#"spec.name: Invalid value: "A1": should match "^[a-z]+$""#),
            (json!({"count": -1}), "spec.count: Invalid value: -1: should be greater than or equal to 0"),
            (json!({"count": "1"}), r#"spec.count: Invalid value: "string": must be of type integer"#),
            (json!({"mode": "c"}), r#"spec.mode: Invalid value: "c": supported values: ["a","b"]"#),
            (json!({"labels": {"a": 1}}), r#"spec.labels.a: Invalid value: "number": must be of type string"#),
            (json!({"list": [{}, {}]}), "spec.list: Invalid value: 2: must have at most 1 items"),
        ];
        for (spec, expected) in rows {
            assert_eq!(check(&json!({ "spec": spec }), &schema(), &Patterns::default()).join("; "), expected);
        }
        assert_eq!(check(&json!({}), &schema(), &Patterns::default()), ["spec: Required value"]);
    }

    #[test]
    fn defaults_go_where_there_is_a_place_for_them() {
        let mut object = json!({"spec": {}});
        fill_in(&mut object, &schema());
        assert_eq!(object, json!({"spec": {"count": 1}}));
        let mut empty = json!({});
        fill_in(&mut empty, &schema());
        assert_eq!(empty, json!({}));
    }
}
