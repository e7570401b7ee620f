//! How a value changes on its way between two versions.

use serde_json::{Map, Value, json};

use super::duration::{duration, seconds};
use crate::registry;

/// `None` of either way means that the other version cannot say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Same value, other place.
    Move,
    /// `1m30s` in the old version, 90 in the new one.
    Seconds,
    /// A full object reference in the old version, group, kind and name in the new one.
    Reference,
    /// A full object reference in the old version, the name alone in the new one.
    NodeName,
    /// A map in the old version, a list of objects with these two fields in the new one.
    Pairs(&'static str, &'static str),
    /// A map by name in the old version, a list with names in the new one.
    Named,
    /// One value in the old version, a list in the new one.
    First,
    /// `true` for `false`, upward only: the new field is known to the old version too.
    Not,
    /// `true` for `false`, both ways.
    Inverted,
}

impl How {
    /// Whether the way back is the value's own, without this rule.
    pub fn is_upward_only(self) -> bool {
        self == Self::Not
    }

    /// From the old version to the new one.
    pub fn up(self, value: &Value) -> Option<Value> {
        match self {
            Self::Move => Some(value.clone()),
            Self::Seconds => seconds(value.as_str()?).map(Value::from),
            Self::Reference => {
                let group = value["apiVersion"].as_str()?.split_once('/').map_or("", |(group, _)| group);
                Some(json!({ "apiGroup": group, "kind": value["kind"].as_str()?, "name": value["name"].as_str()? }))
            }
            Self::NodeName => Some(json!({ "name": value["name"].as_str()? })),
            Self::Pairs(name, content) => {
                let pair = |(key, value): (&String, &Value)| {
                    Value::Object(Map::from_iter([(name.to_owned(), json!(key)), (content.to_owned(), value.clone())]))
                };
                Some(value.as_object()?.iter().map(pair).collect())
            }
            Self::Named => Some(value.as_object()?.iter().map(|(name, domain)| with_name(name, domain)).collect()),
            Self::First => Some(json!([value])),
            Self::Not | Self::Inverted => Some(json!(!value.as_bool()?)),
        }
    }

    /// From the new version to the old one.
    pub fn down(self, value: &Value) -> Option<Value> {
        match self {
            Self::Move => Some(value.clone()),
            Self::Seconds => value.as_i64().filter(|seconds| *seconds >= 0).map(|seconds| duration(seconds).into()),
            Self::Reference => {
                let (group, kind) = (value["apiGroup"].as_str()?, value["kind"].as_str()?);
                // The version in a reference means nothing; a reader of the old version finds one that is served.
                let version = registry::kind(group, kind).map_or("v1beta1", |facts| facts.hub().name);
                let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
                Some(json!({ "apiVersion": api_version, "kind": kind, "name": value["name"].as_str()? }))
            }
            Self::NodeName => Some(json!({ "apiVersion": "v1", "kind": "Node", "name": value["name"].as_str()? })),
            Self::Pairs(name, content) => {
                // Equal names are legal in a list only; there the map keeps the last one and the list is set aside.
                let pair = |pair: &Value| Some((pair.get(name)?.as_str()?.to_owned(), pair.get(content)?.clone()));
                Some(Value::Object(value.as_array()?.iter().map(pair).collect::<Option<Map<_, _>>>()?))
            }
            Self::Named => {
                Some(Value::Object(value.as_array()?.iter().map(without_name).collect::<Option<Map<_, _>>>()?))
            }
            Self::First => value.as_array()?.first().cloned(),
            Self::Not => None,
            Self::Inverted => Some(json!(!value.as_bool()?)),
        }
    }
}

fn with_name(name: &str, domain: &Value) -> Value {
    let mut domain = domain.as_object().cloned().unwrap_or_default();
    domain.insert("name".into(), name.into());
    Value::Object(domain)
}

fn without_name(domain: &Value) -> Option<(String, Value)> {
    let mut domain = domain.as_object()?.clone();
    let name = domain.remove("name")?;
    Some((name.as_str()?.to_owned(), Value::Object(domain)))
}
