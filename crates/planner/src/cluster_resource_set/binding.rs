//! What stands in a ClusterResourceSetBinding: entries by set, and in them resources with a hash and whether they were applied.
//!
//! Holds: the list of entries is whole, so it is only written at the version that was read; why a resource was not applied is in an annotation, because the kind has
//! no status.

use std::collections::BTreeMap;

use hangar_api::Object;
use serde_json::{Value, json};

use crate::{Step, intent};

/// By set, and by kind and name of a resource.
pub const PROBLEMS_ANNOTATION: &str = "hangar.dev/not-applied";

pub type Problems = BTreeMap<String, BTreeMap<String, String>>;

pub fn entries(binding: &Object) -> &[Value] {
    binding.get("/spec/bindings").as_array().map_or(&[], Vec::as_slice)
}

pub fn entry<'a>(binding: &'a Object, set: &str) -> Option<&'a Value> {
    entries(binding).iter().find(|entry| entry["clusterResourceSetName"] == set)
}

/// The resource in an entry, or null.
pub fn resource<'a>(entry: Option<&'a Value>, kind: &str, name: &str) -> &'a Value {
    let mut all = entry.and_then(|entry| entry["resources"].as_array()).into_iter().flatten();
    all.find(|one| one["kind"] == kind && one["name"] == name).unwrap_or(&Value::Null)
}

pub fn all_problems(binding: &Object) -> Problems {
    binding.annotation(PROBLEMS_ANNOTATION).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Why resources of a set were not applied, by kind and name.
pub fn problems(binding: &Object, set: &str) -> BTreeMap<String, String> {
    all_problems(binding).remove(set).unwrap_or_default()
}

/// The binding with only the entries of these sets; it goes if none is left.
pub fn without(binding: &Object, stays: impl Fn(&str) -> bool) -> Option<Step> {
    let name = |entry: &&Value| entry["clusterResourceSetName"].as_str().is_some_and(&stays);
    let left: Vec<Value> = entries(binding).iter().filter(name).cloned().collect();
    if left.is_empty() {
        return intent::delete_as_seen(binding);
    }
    let mut problems = all_problems(binding);
    problems.retain(|set, _| stays(set));
    write(binding, &left, &problems)
}

/// The step that makes it say this, or nothing.
pub fn write(binding: &Object, entries: &[Value], problems: &Problems) -> Option<Step> {
    let problems = if problems.is_empty() { Value::Null } else { json!(problems).to_string().into() };
    let stands = binding.annotation(PROBLEMS_ANNOTATION);
    if self::entries(binding) == entries && stands == problems.as_str() {
        return None;
    }
    Some(Step::Patch {
        key: binding.key(),
        uid: binding.uid().to_owned(),
        resource_version: Some(binding.resource_version().to_owned()),
        fields: json!({
            "metadata": { "annotations": { PROBLEMS_ANNOTATION: problems } },
            "spec": { "bindings": entries },
        }),
    })
}
