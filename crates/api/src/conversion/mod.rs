//! Conversion between the served versions of a kind, lossless in both directions.
//!
//! Flows: object -> rename rules, step by step -> what the target's schema knows -> what an earlier conversion had set aside is put back
//! -> whatever the way back would not reproduce is set aside in an annotation. Holds: converting there and back gives the same object;
//! a field without a rule is therefore never lost, rules only give it meaning; an edit made in one version wins over what was set aside.

mod derived;
mod remainder;
mod rules;
mod schema;

use serde_json::{Map, Value};

use crate::object::Object;
use crate::registry::{self, KindFacts, VersionFacts};

/// What a version could not say, kept for the way back, as annotation `conversion.hangar.dev/<version>`.
pub const REMAINDER_PREFIX: &str = "conversion.hangar.dev/";

/// Why an object cannot be converted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    #[error("{group} has no kind {kind} here")]
    UnknownKind { group: String, kind: String },
    #[error("{kind} has no version {version} here; served are {served}")]
    UnknownVersion { kind: String, version: String, served: String },
}

/// The same object in another version; `version` is without the group.
pub fn convert(object: &Object, version: &str) -> Result<Object, ConversionError> {
    let facts = registry::kind(object.group(), object.kind()).ok_or_else(|| ConversionError::UnknownKind {
        group: object.group().to_owned(),
        kind: object.kind().to_owned(),
    })?;
    let from_name = object.api_version().rsplit('/').next().unwrap_or_default();
    let from = lookup(facts, from_name)?;
    let to = lookup(facts, version)?;
    if from.name == to.name {
        return Ok(object.clone());
    }
    // Through the hub, where what an older version could not say has been put back.
    let hub = facts.hub().name;
    if from.name != hub && to.name != hub {
        return convert(&convert(object, hub)?, version);
    }
    let mut converted = one_way(facts, from, to, body(object));
    remainder::restore(&mut converted, annotation(object, to.name));
    let back = one_way(facts, to, from, converted.clone());
    let lost = remainder::between(&back, &body(object));
    Ok(assemble(facts, object, to.name, converted, from.name, lost))
}

fn lookup<'a>(facts: &'a KindFacts, version: &str) -> Result<&'a VersionFacts, ConversionError> {
    facts.version(version).ok_or_else(|| ConversionError::UnknownVersion {
        kind: facts.kind.to_owned(),
        version: version.to_owned(),
        served: facts.versions.iter().map(|version| version.name).collect::<Vec<_>>().join(", "),
    })
}

/// Spec and status: everything but who the object is.
fn body(object: &Object) -> Value {
    let mut body = object.0.as_object().cloned().unwrap_or_default();
    for field in ["apiVersion", "kind", "metadata"] {
        body.remove(field);
    }
    Value::Object(body)
}

/// Along all versions between the two, then only what the last one knows.
fn one_way(facts: &KindFacts, from: &VersionFacts, to: &VersionFacts, mut body: Value) -> Value {
    let steps = rules::of(facts);
    let index = |wanted: &VersionFacts| facts.versions.iter().position(|version| version.name == wanted.name);
    let (from, at) = (index(from).unwrap_or_default(), index(to).unwrap_or_default());
    for step in steps.iter().take(at).skip(from) {
        step.iter().for_each(|rule| rule.up(&mut body));
    }
    for step in steps.iter().take(from).skip(at).rev() {
        step.iter().rev().for_each(|rule| rule.down(&mut body));
        derived::fill(facts.kind, &mut body);
    }
    schema::prune(&mut body, to.schema());
    body
}

fn annotation<'a>(object: &'a Object, version: &str) -> Option<&'a str> {
    object.annotation(&format!("{REMAINDER_PREFIX}{version}"))
}

fn assemble(facts: &KindFacts, object: &Object, to: &str, body: Value, from: &str, lost: Option<String>) -> Object {
    let mut whole = Map::new();
    whole.insert("apiVersion".into(), format!("{}/{to}", facts.group).into());
    whole.insert("kind".into(), facts.kind.into());
    let mut metadata = object.get("/metadata").as_object().cloned().unwrap_or_default();
    let mut annotations = metadata.get("annotations").and_then(Value::as_object).cloned().unwrap_or_default();
    annotations.remove(&format!("{REMAINDER_PREFIX}{to}"));
    annotations.remove(&format!("{REMAINDER_PREFIX}{from}"));
    if let Some(lost) = lost {
        annotations.insert(format!("{REMAINDER_PREFIX}{from}"), lost.into());
    }
    // An empty map that the user wrote stays; one that only held our annotation goes.
    if annotations.is_empty() && !object.get("/metadata/annotations").as_object().is_some_and(Map::is_empty) {
        metadata.remove("annotations");
    } else {
        metadata.insert("annotations".into(), Value::Object(annotations));
    }
    whole.insert("metadata".into(), Value::Object(metadata));
    if let Value::Object(fields) = body {
        whole.extend(fields);
    }
    Object(Value::Object(whole))
}

#[cfg(test)]
mod tests;
