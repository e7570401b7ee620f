//! Which fields an object has, and how two of them are laid over each other: the ground of server-side apply.
//!
//! Flows: (object, shape) -> leaves; leaves are scalars, atomic lists, empty maps, and the items of keyed lists and sets.
//! Holds: an item of a keyed list is one path whatever its position.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// One step into an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Segment {
    Field(String),
    /// An item by its keys, or of a set by its value; as JSON.
    Item(String),
}

pub(super) type Path = Vec<Segment>;

/// What is known about a place in an object.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape<'a> {
    /// The whole object, with its schema if it is one of ours.
    Root(Option<&'a Value>),
    Metadata,
    Schema(&'a Value),
    BuiltIn,
    Opaque,
    Keyed(&'a [&'a str]),
    Set,
}

/// How a list is merged.
pub(super) enum ListType {
    Atomic,
    Set,
    Map(Vec<String>),
}

impl<'a> Shape<'a> {
    pub fn child(self, name: &str) -> Self {
        match (self, name) {
            (Shape::Root(_), "metadata") => Shape::Metadata,
            (Shape::Metadata, "ownerReferences") => Shape::Keyed(&["uid"]),
            (Shape::Metadata, "finalizers") => Shape::Set,
            (Shape::Root(None) | Shape::BuiltIn, "conditions") => Shape::Keyed(&["type"]),
            // Ports of a Service keep their node ports when the Service is applied again.
            (Shape::Root(None) | Shape::BuiltIn, "ports") => Shape::Keyed(&["port", "protocol"]),
            (Shape::Root(None) | Shape::BuiltIn, _) => Shape::BuiltIn,
            (Shape::Root(Some(schema)) | Shape::Schema(schema), _) => {
                let property = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
                property.filter(|schema| schema.is_object()).map_or(Shape::Opaque, Shape::Schema)
            }
            _ => Shape::Opaque,
        }
    }

    pub fn item(self) -> Self {
        match self {
            Shape::Schema(schema) if schema["items"].is_object() => Shape::Schema(&schema["items"]),
            Shape::Keyed(_) => Shape::BuiltIn,
            _ => Shape::Opaque,
        }
    }

    fn atomic_map(self) -> bool {
        matches!(self, Shape::Schema(schema) if schema["x-kubernetes-map-type"] == "atomic")
    }

    /// Items that lack a key make any list atomic.
    pub fn list_type(self, lists: &[&[Value]]) -> ListType {
        let keys: Vec<String> = match self {
            Shape::Set => return ListType::Set,
            Shape::Keyed(keys) => keys.iter().map(|key| (*key).to_owned()).collect(),
            Shape::Schema(schema) => match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => return ListType::Set,
                Some("map") => {
                    let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
                    keys.filter_map(Value::as_str).map(str::to_owned).collect()
                }
                _ => return ListType::Atomic,
            },
            _ => return ListType::Atomic,
        };
        let complete = lists.iter().flat_map(|list| list.iter()).all(|item| {
            keys.iter().all(|key| key == "protocol" || item.get(key).is_some_and(|value| !value.is_null()))
        });
        if complete { ListType::Map(keys) } else { ListType::Atomic }
    }
}

/// The name of an item in its list.
pub(super) fn item_key(item: &Value, keys: &[String]) -> String {
    let key = |key: &String| match item.get(key) {
        None | Some(Value::Null) if key == "protocol" => (key.clone(), "TCP".into()),
        value => (key.clone(), value.cloned().unwrap_or_default()),
    };
    Value::Object(keys.iter().map(key).collect()).to_string()
}

/// Every leaf with its value.
pub(super) fn leaves(value: &Value, shape: Shape<'_>) -> BTreeMap<Path, Value> {
    let mut found = BTreeMap::new();
    walk(value, shape, &mut vec![], &mut found);
    found
}

fn walk(value: &Value, shape: Shape<'_>, path: &mut Path, found: &mut BTreeMap<Path, Value>) {
    match value {
        Value::Object(map) if !map.is_empty() && !shape.atomic_map() => {
            for (name, child) in map {
                if identity(path, name) {
                    continue;
                }
                path.push(Segment::Field(name.clone()));
                walk(child, shape.child(name), path, found);
                path.pop();
            }
        }
        Value::Array(list) => match shape.list_type(&[list]) {
            ListType::Atomic => drop(found.insert(path.clone(), value.clone())),
            ListType::Set => {
                for item in list {
                    path.push(Segment::Item(item.to_string()));
                    found.insert(path.clone(), item.clone());
                    path.pop();
                }
            }
            ListType::Map(keys) => {
                for item in list {
                    path.push(Segment::Item(item_key(item, &keys)));
                    found.insert(path.clone(), Value::Null);
                    walk(item, shape.item(), path, found);
                    path.pop();
                }
            }
        },
        _ => drop(found.insert(path.clone(), value.clone())),
    }
}

/// Who the object is belongs to nobody, and what only the server sets neither.
fn identity(path: &[Segment], name: &str) -> bool {
    const METADATA: &[&str] = &[
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generateName",
    ];
    match path {
        [] => ["apiVersion", "kind"].contains(&name),
        [Segment::Field(first)] if first == "metadata" => METADATA.contains(&name),
        _ => false,
    }
}

/// Lays a configuration over an object.
pub(super) fn lay_over(live: &mut Value, config: &Value, shape: Shape<'_>) {
    match (live, config) {
        (Value::Object(live), Value::Object(config)) if !shape.atomic_map() => {
            for (name, value) in config {
                match live.get_mut(name) {
                    Some(there) => lay_over(there, value, shape.child(name)),
                    None => drop(live.insert(name.clone(), value.clone())),
                }
            }
        }
        (Value::Array(live), Value::Array(config)) => match shape.list_type(&[live, config]) {
            ListType::Atomic => live.clone_from(config),
            ListType::Set => config.iter().for_each(|item| {
                if !live.contains(item) {
                    live.push(item.clone());
                }
            }),
            ListType::Map(keys) => config.iter().for_each(|item| {
                let key = item_key(item, &keys);
                match live.iter_mut().find(|there| item_key(there, &keys) == key) {
                    Some(there) => lay_over(there, item, shape.item()),
                    None => live.push(item.clone()),
                }
            }),
        },
        (live, config) => live.clone_from(config),
    }
}

/// Takes a leaf away, and the maps and lists that it leaves empty.
pub(super) fn take_away(value: &mut Value, path: &[Segment], shape: Shape<'_>) {
    match (value, path) {
        (Value::Object(map), [Segment::Field(name), rest @ ..]) => take_field(map, name, rest, shape),
        (Value::Array(list), [Segment::Item(key), rest @ ..]) => {
            let keys = match shape.list_type(&[list]) {
                ListType::Map(keys) => Some(keys),
                _ => None,
            };
            let named =
                |item: &Value| keys.as_ref().map_or_else(|| item.to_string(), |keys| item_key(item, keys)) == *key;
            if rest.is_empty() {
                list.retain(|item| !named(item));
            } else if let Some(item) = list.iter_mut().find(|item| named(item)) {
                take_away(item, rest, shape.item());
            }
        }
        _ => {}
    }
}

fn take_field(map: &mut Map<String, Value>, name: &str, rest: &[Segment], shape: Shape<'_>) {
    if rest.is_empty() {
        map.remove(name);
        return;
    }
    let Some(child) = map.get_mut(name) else { return };
    let was_empty = is_empty(child);
    take_away(child, rest, shape.child(name));
    if is_empty(child) && !was_empty {
        map.remove(name);
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}
