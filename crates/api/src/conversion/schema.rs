//! What a version's schema knows: everything else would be dropped by the API server without a word.

use serde_json::Value;

/// Removes every field that the schema does not have, or has with another type; `false` if the value itself is of another type.
pub fn prune(value: &mut Value, schema: &Value) -> bool {
    if !fits(value, schema) {
        return false;
    }
    match value {
        Value::Object(fields) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let others = schema.get("additionalProperties").filter(|others| others.is_object());
            let open = schema.get("x-kubernetes-preserve-unknown-fields").is_some_and(|open| open == true);
            fields.retain(|name, field| match (properties.and_then(|properties| properties.get(name)), others) {
                (Some(known), _) | (None, Some(known)) => prune(field, known),
                (None, None) => open,
            });
            true
        }
        // A list with one item that does not fit is another list: it is set aside as a whole.
        Value::Array(items) => match schema.get("items") {
            Some(schema) => items.iter_mut().all(|item| prune(item, schema)),
            None => true,
        },
        _ => true,
    }
}

fn fits(value: &Value, schema: &Value) -> bool {
    if value.is_null() {
        return true;
    }
    if schema.get("x-kubernetes-int-or-string").is_some_and(|either| either == true) {
        return value.is_i64() || value.is_u64() || value.is_string();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        _ => true,
    }
}
