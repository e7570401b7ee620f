//! What a version's schema knows: everything else would be dropped by the API server without a word.

use serde_json::Value;

/// Removes every field that the schema does not have, or has with another type.
pub fn prune(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            let properties = schema["properties"].as_object();
            let others = &schema["additionalProperties"];
            let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
            fields.retain(|name, field| match properties.and_then(|properties| properties.get(name)) {
                Some(known) => {
                    prune(field, known);
                    fits(field, known)
                }
                None if others.is_object() => {
                    prune(field, others);
                    fits(field, others)
                }
                None => open,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(|item| prune(item, &schema["items"])),
        _ => {}
    }
}

fn fits(value: &Value, schema: &Value) -> bool {
    if schema["x-kubernetes-int-or-string"] == true {
        return value.is_i64() || value.is_u64() || value.is_string();
    }
    match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        _ => true,
    }
}
