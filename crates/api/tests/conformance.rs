//! Every field that upstream's schema has at a version is in ours with the same type, and no more of them are required.
//!
//! `upstream/facts.json.gz` holds the facts of upstream's definitions, one entry for each of our schema files; where we differ on purpose,
//! `upstream/differences.json` says where and why. A difference that is not there any more is an error too.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use hangar_api::registry::{self, VersionFacts};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    files: Vec<String>,
    fields: Vec<String>,
    difference: String,
    reason: String,
}

/// Without the ending: `plural.group.version`.
fn upstream() -> BTreeMap<String, Value> {
    let packed: &[u8] = include_bytes!("upstream/facts.json.gz");
    let all: BTreeMap<String, Value> = serde_json::from_reader(flate2::read::GzDecoder::new(packed)).unwrap();
    all.into_iter().map(|(file, facts)| (file.trim_end_matches(".json").to_owned(), facts)).collect()
}

/// Where we may differ: file, field, how.
fn allowed() -> BTreeSet<(String, String, String)> {
    let all: Vec<Difference> = serde_json::from_str(include_str!("upstream/differences.json")).unwrap();
    let mut allowed = BTreeSet::new();
    for difference in all {
        assert!(difference.reason.len() > 40, "a difference needs a reason: {:?}", difference.fields);
        for file in &difference.files {
            let entries =
                difference.fields.iter().map(|field| (file.clone(), field.clone(), difference.difference.clone()));
            allowed.extend(entries);
        }
    }
    allowed
}

fn ours(file: &str) -> Option<&'static VersionFacts> {
    let mut all = registry::kinds().iter().flat_map(|facts| facts.versions.iter().map(move |version| (facts, version)));
    all.find(|(facts, version)| format!("{}.{}.{}", facts.plural(), facts.group, version.name) == file)
        .map(|(_, version)| version)
}

fn kind_of(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "int-or-string".into();
    }
    schema["type"].as_str().unwrap_or("any").to_owned()
}

/// Compares a schema and everything below; what differs is reported as field and how.
fn compare(theirs: &Value, ours: &Value, path: &str, found: &mut Vec<(String, String)>) {
    if kind_of(theirs) != kind_of(ours) {
        found.push((path.to_owned(), "type".into()));
        return;
    }
    let names = |schema: &Value| -> BTreeSet<String> {
        schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect()
    };
    let (their_required, our_required) = (names(theirs), names(ours));
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    found.extend(our_required.difference(&their_required).map(|name| (below(name), "required".into())));
    found.extend(their_required.difference(&our_required).map(|name| (below(name), "optional".into())));
    for (name, schema) in theirs["properties"].as_object().into_iter().flatten() {
        match ours["properties"].get(name) {
            Some(own) => compare(schema, own, &below(name), found),
            None => found.push((below(name), "missing".into())),
        }
    }
    for (part, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if theirs[part].is_object() {
            compare(&theirs[part], &ours[part], &format!("{path}{mark}"), found);
        }
    }
    if theirs["x-kubernetes-preserve-unknown-fields"] == true && ours["x-kubernetes-preserve-unknown-fields"] != true {
        found.push((path.to_owned(), "closed".into()));
    }
    // What upstream takes must be taken here: a bound may be laxer, never tighter.
    for bound in [
        "minLength",
        "minItems",
        "minProperties",
        "minimum",
        "maxLength",
        "maxItems",
        "maxProperties",
        "maximum",
        "pattern",
        "enum",
        "format",
        "default",
    ] {
        if !ours[bound].is_null() && ours[bound] != theirs[bound] {
            found.push((path.to_owned(), bound.into()));
        }
    }
}

#[test]
fn every_field_of_upstream_is_here_with_its_type() {
    let mut allowed = allowed();
    let mut offences = vec![];
    let mut fields = 0;
    for (file, theirs) in upstream() {
        let Some(version) = ours(&file) else {
            offences.push(format!("{file}: not served"));
            continue;
        };
        let mut found = vec![];
        compare(&theirs["schema"], version.schema(), "", &mut found);
        fields += count(&theirs["schema"]);
        for (field, how) in found {
            if !allowed.remove(&(file.clone(), field.clone(), how.clone())) {
                offences.push(format!("{file}: {field}: {how}"));
            }
        }
    }
    offences.extend(
        allowed
            .into_iter()
            .map(|(file, field, how)| format!("{file}: {field}: is not {how} any more, drop it from differences.json")),
    );
    assert!(offences.is_empty(), "{}", offences.join("\n"));
    assert!(fields > 15_000, "only {fields} fields were compared");
}

fn count(schema: &Value) -> usize {
    let below =
        schema["properties"].as_object().into_iter().flatten().map(|(_, schema)| 1 + count(schema)).sum::<usize>();
    let parts = ["items", "additionalProperties"].iter().filter(|part| schema[**part].is_object());
    below + parts.map(|part| count(&schema[*part])).sum::<usize>()
}

#[test]
fn columns_names_and_subresources_are_upstreams() {
    for (file, theirs) in upstream() {
        let facts = ours(&file).unwrap().facts();
        for part in ["printerColumns", "shortNames", "categories", "subresources", "scope"] {
            assert_eq!(facts[part], theirs[part], "{file}: {part}");
        }
        // The hub carries the labels of the whole kind; those that upstream's definitions have must be among them.
        for (label, value) in theirs["contractLabels"].as_object().into_iter().flatten() {
            assert_eq!(facts["contractLabels"][label], *value, "{file}: {label}");
        }
    }
}

#[test]
fn every_field_of_a_hub_says_what_it_is() {
    let mut silent = vec![];
    for facts in registry::kinds() {
        let schema = facts.hub().schema();
        assert!(schema["description"].as_str().is_some_and(|text| !text.is_empty()), "{} says nothing", facts.kind);
        for (name, schema) in schema["properties"].as_object().unwrap() {
            if !["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                undescribed(schema, &format!("{} {name}", facts.kind), &mut silent);
            }
        }
    }
    assert!(silent.is_empty(), "without a description: {}", silent.join("\n"));
}

fn undescribed(schema: &Value, path: &str, silent: &mut Vec<String>) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if schema["description"].as_str().is_none_or(str::is_empty) {
            silent.push(path.clone());
        }
        undescribed(schema, &path, silent);
    }
    for part in ["items", "additionalProperties"].iter().filter(|part| schema[**part].is_object()) {
        undescribed(&schema[*part], path, silent);
    }
}
