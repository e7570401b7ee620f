//! An object as it comes over the wire, read in one go.
//!
//! Flows: bytes of an answer or a watch -> [`Received`] -> [`Object`]. Holds: nothing but `managedFields` is left out: a fifth of the memory, and nobody
//! here reads them. `DynamicObject` would be read twice, first into its parts and then into JSON again, which cost more than all planning.

use std::borrow::Cow;
use std::fmt;

use hangar_api::Object;
use kube::Resource;
use kube::api::ApiResource;
use kube::core::{DynamicResourceScope, ObjectMeta};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

/// What the client needs of an object (its name and version), and the object.
#[derive(Clone, Debug)]
pub struct Received {
    metadata: ObjectMeta,
    object: Object,
}

impl Received {
    pub fn into_object(self) -> Object {
        self.object
    }

    /// Items of a list of built-in kinds do not say what they are; without it they would not be found in the cache.
    pub fn into_listed(mut self, resource: &ApiResource) -> Object {
        if let Some(fields) = self.object.0.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| resource.api_version.clone().into());
            fields.entry("kind").or_insert_with(|| resource.kind.clone().into());
        }
        self.object
    }
}

impl Resource for Received {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<'de> Deserialize<'de> for Received {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Object(deserializer.deserialize_map(Fields { within: Some("metadata"), left_out: "" })?);
        let text = |pointer: &str| Some(object.text(pointer).to_owned()).filter(|text| !text.is_empty());
        let metadata = ObjectMeta {
            name: text("/metadata/name"),
            namespace: text("/metadata/namespace"),
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, object })
    }
}

/// Reads a map without one of its fields; of the field `within`, a map without `managedFields`.
struct Fields {
    within: Option<&'static str>,
    left_out: &'static str,
}

impl<'de> Visitor<'de> for Fields {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of Kubernetes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == self.left_out {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = if self.within == Some(name.as_str()) {
                map.next_value_seed(Self { within: None, left_out: "managedFields" })?
            } else {
                map.next_value()?
            };
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;
    use kube::core::{GroupVersionKind, WatchEvent};
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_is_read_but_managed_fields() {
        let sent = json!({
            "apiVersion": "v1", "kind": "Secret", "data": { "a": "YQ==" }, "other": [1, 2.5, null],
            "metadata": {
                "name": "s", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": { "managedFields": "kept" },
                "managedFields": [{ "manager": "x", "fieldsV1": { "f:data": {} } }],
            },
        });
        let received: Received = serde_json::from_str(&sent.to_string()).unwrap();
        assert_eq!((received.name_any().as_str(), received.resource_version().as_deref()), ("s", Some("7")));
        let mut expected = sent;
        expected["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(received.into_object().0, expected);
    }

    #[test]
    fn items_of_lists_are_told_what_they_are() {
        let secrets = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
        let listed: Received = serde_json::from_value(json!({ "metadata": { "name": "s" } })).unwrap();
        let object = listed.into_listed(&secrets);
        assert_eq!((object.api_version(), object.kind()), ("v1", "Secret"));
        let other: Received = serde_json::from_value(json!({ "kind": "Other", "metadata": null })).unwrap();
        assert_eq!(other.into_listed(&secrets).kind(), "Other");
    }

    #[test]
    fn watches_deliver_it_whatever_the_order_of_their_fields() {
        for event in [
            r#"{"type":"ADDED","object":{"metadata":{"name":"s"}}}"#,
            r#"{"object":{"metadata":{"name":"s"}},"type":"ADDED"}"#,
        ] {
            let event: WatchEvent<Received> = serde_json::from_str(event).unwrap();
            assert!(matches!(event, WatchEvent::Added(object) if object.name_any() == "s"));
        }
        assert!(serde_json::from_str::<Received>("[]").is_err());
    }
}
