//! Filters: v1alpha3 has them flat, with an id among the rest and tags in one text; v1beta1 has either an id or a filter.

use serde_json::{Map, Value, json};

/// Fields of a filter that only changed their spelling.
const SPELLING: &[(&str, &str)] =
    &[("projectId", "projectID"), ("gateway_ip", "gatewayIP"), ("ipv6RaMode", "ipv6RAMode")];
const TAGS: &[&str] = &["tags", "tagsAny", "notTags", "notTagsAny"];

/// `{id, name, ...}` becomes `{id}` or `{filter: {name, ...}}`.
pub fn parameter_up(place: &mut Value) {
    let Some(flat) = place.as_object() else { return };
    *place = match flat.get("id").filter(|id| id.as_str().is_some_and(|id| !id.is_empty())) {
        Some(id) => json!({ "id": id }),
        None => json!({ "filter": filter_up(flat) }),
    };
}

pub fn parameter_down(place: &mut Value) {
    let Some(parameter) = place.as_object() else { return };
    *place = match (parameter.get("id"), parameter.get("filter").and_then(Value::as_object)) {
        (Some(id), _) => json!({ "id": id }),
        (None, Some(filter)) => filter_down(filter),
        (None, None) => json!({}),
    };
}

/// `{uuid, filter: {id, name, ...}}` becomes `{id}` or `{filter: {name, ...}}`.
pub fn nested_up(place: &mut Value) {
    let Some(nested) = place.as_object() else { return };
    let filter = nested.get("filter").and_then(Value::as_object);
    let id = [nested.get("uuid"), filter.and_then(|filter| filter.get("id"))];
    let id = id.into_iter().flatten().find(|id| id.as_str().is_some_and(|id| !id.is_empty()));
    *place = match (id, filter) {
        (Some(id), _) => json!({ "id": id }),
        (None, Some(filter)) => json!({ "filter": filter_up(filter) }),
        (None, None) => json!({}),
    };
}

pub fn nested_down(place: &mut Value) {
    let Some(parameter) = place.as_object() else { return };
    *place = match (parameter.get("id"), parameter.get("filter").and_then(Value::as_object)) {
        (Some(id), _) => json!({ "uuid": id }),
        (None, Some(filter)) => json!({ "filter": filter_down(filter) }),
        (None, None) => json!({}),
    };
}

pub fn filter_up(flat: &Map<String, Value>) -> Value {
    let mut filter = flat.clone();
    for (old, new) in SPELLING {
        if let Some(value) = filter.remove(*old) {
            filter.insert((*new).to_owned(), value);
        }
    }
    if let Some(tenant) = filter.remove("tenantId") {
        filter.entry("projectID").or_insert(tenant);
    }
    for name in TAGS {
        if let Some(text) = filter.get(*name).and_then(Value::as_str) {
            let tags: Vec<&str> = text.split(',').filter(|tag| !tag.is_empty()).collect();
            filter.insert((*name).to_owned(), json!(tags));
        }
    }
    Value::Object(filter)
}

pub fn filter_down(filter: &Map<String, Value>) -> Value {
    let mut flat = filter.clone();
    for (old, new) in SPELLING {
        if let Some(value) = flat.remove(*new) {
            flat.insert((*old).to_owned(), value);
        }
    }
    for name in TAGS {
        if let Some(tags) = flat.get(*name).and_then(Value::as_array) {
            let tags: Vec<&str> = tags.iter().filter_map(Value::as_str).collect();
            flat.insert((*name).to_owned(), json!(tags.join(",")));
        }
    }
    Value::Object(flat)
}
