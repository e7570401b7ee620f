//! What several kinds are checked for, and changes that cannot fail whatever stands there.

use ipnet::IpNet;
use serde_json::{Map, Value};

use super::Refusal;
use crate::object::Object;
use crate::version::KubeVersion;

pub const FIXED: &str = "cannot be changed once set; make a new object, or set it back";

/// The fields of an object, which it becomes if nothing stands there; nothing if something else does.
pub fn fields<'a>(place: &'a mut Value, keys: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut place = place;
    for key in keys {
        place = object(place)?.entry(*key).or_insert(Value::Null);
    }
    object(place)
}

fn object(place: &mut Value) -> Option<&mut Map<String, Value>> {
    if place.is_null() {
        *place = Value::Object(Map::new());
    }
    place.as_object_mut()
}

/// Sets a field that is absent or null.
pub fn default(place: &mut Value, keys: &[&str], name: &str, value: impl Into<Value>) {
    if let Some(fields) = fields(place, keys)
        && fields.get(name).is_none_or(Value::is_null)
    {
        fields.insert(name.to_owned(), value.into());
    }
}

/// `spec.a.b` of a pointer.
pub fn field(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}

/// Whether a value is new or not what it was.
pub fn changed(object: &Object, old: Option<&Object>, pointer: &str) -> bool {
    old.is_none_or(|old| old.get(pointer) != object.get(pointer))
}

/// A version of Kubernetes that can be understood, where one is given.
pub fn version(object: &Object, old: Option<&Object>, pointer: &str) -> Vec<Refusal> {
    let text = object.text(pointer);
    if text.is_empty() || !changed(object, old, pointer) || KubeVersion::parse(text).is_some() {
        return vec![];
    }
    let message = format!("{text:?} is not a version of Kubernetes; write it as v1.33.6");
    vec![Refusal::new(field(pointer), message)]
}

/// A version may only go up, and not leave out a minor one.
pub fn upgrade(object: &Object, old: Option<&Object>, pointer: &str) -> Vec<Refusal> {
    let Some(old) = old else { return vec![] };
    let (Some(from), Some(to)) = (KubeVersion::parse(old.text(pointer)), KubeVersion::parse(object.text(pointer)))
    else {
        return vec![];
    };
    if to < from {
        let message =
            format!("{to} is older than {from}, and Kubernetes cannot go back; set it to {from} or a newer one");
        return vec![Refusal::new(field(pointer), message)];
    }
    if to.major != from.major || to.minor > from.minor + 1 {
        let message = format!(
            "{to} leaves out a minor version after {from}; go through v{}.{} first",
            from.major,
            from.minor + 1
        );
        return vec![Refusal::new(field(pointer), message)];
    }
    vec![]
}

/// Networks in CIDR notation.
pub fn cidrs(object: &Object, old: Option<&Object>, pointer: &str) -> Vec<Refusal> {
    if !changed(object, old, pointer) {
        return vec![];
    }
    let blocks = object.get(pointer).as_array().into_iter().flatten().enumerate();
    let wrong = blocks.filter_map(|(index, block)| Some((index, block.as_str()?)));
    wrong
        .filter(|(_, text)| text.parse::<IpNet>().is_err())
        .map(|(index, text)| Refusal::new(format!("{}[{index}]", field(pointer)), not_a_cidr(text)))
        .collect()
}

pub fn not_a_cidr(text: &str) -> String {
    format!("{text:?} is not a network in CIDR notation; write it as 10.244.0.0/16")
}

/// The names of a spec's fields that differ, apart from those that may.
pub fn differing<'a>(new: &'a Value, old: &'a Value, mutable: &[&str]) -> Vec<&'a str> {
    let names: std::collections::BTreeSet<&String> =
        [new, old].into_iter().filter_map(Value::as_object).flat_map(Map::keys).collect();
    let differs = |name: &&str| new.get(*name).unwrap_or(&Value::Null) != old.get(*name).unwrap_or(&Value::Null);
    names.into_iter().map(String::as_str).filter(|name| !mutable.contains(name)).filter(differs).collect()
}

/// A template is fixed: what was made from it would not be what it says any more.
pub fn template(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    if !old.is_some_and(|old| old.get("/spec/template/spec") != object.get("/spec/template/spec")) {
        return vec![];
    }
    let message = "cannot be changed, machines were made from it; make a new template and refer to that one";
    vec![Refusal::new("spec.template.spec", message)]
}
