//! Reading YAML as the Kubernetes tools do: into JSON, several documents in a stream, the last of two equal keys wins.
//!
//! Holds: no crate does all of that alone. yaml_serde has the same scanner family as the Go tools but refuses duplicate keys,
//! so documents are read through a visitor of our own. Not covered yet: YAML 1.1 scalars (`yes`, `0644`) stay strings.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Why a text could not be read.
#[derive(Debug, thiserror::Error)]
#[error("not valid YAML in document {document}: {message}")]
pub struct YamlError {
    /// Counted from 1.
    pub document: usize,
    pub message: String,
}

/// All documents of a stream, empty ones left out.
pub fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    let mut documents = Vec::new();
    for (index, document) in yaml_serde::Deserializer::from_str(text).enumerate() {
        let Lenient(value) = Lenient::deserialize(document)
            .map_err(|error| YamlError { document: index + 1, message: error.to_string() })?;
        if !value.is_null() {
            documents.push(value);
        }
    }
    Ok(documents)
}

/// The one document of a text; an empty text is null.
pub fn document(text: &str) -> Result<Value, YamlError> {
    Ok(documents(text)?.into_iter().next().unwrap_or(Value::Null))
}

struct Lenient(Value);

impl<'de> Deserialize<'de> for Lenient {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LenientVisitor).map(Lenient)
    }
}

struct LenientVisitor;

impl<'de> Visitor<'de> for LenientVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Lenient(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((Lenient(key), Lenient(value))) = entries.next_entry()? {
            let key = match key {
                Value::String(text) => text,
                other => other.to_string(),
            };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, data: A) -> Result<Value, A::Error> {
        // A custom tag such as `!vault`: the value counts, the tag does not.
        let (_tag, content): (String, _) = data.variant()?;
        serde::de::VariantAccess::newtype_variant::<Lenient>(content).map(|Lenient(value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_of_two_equal_keys_wins() {
        assert_eq!(document("a: 1\na: 2\n").unwrap(), json!({"a": 2}));
    }

    #[test]
    fn a_stream_has_many_documents_and_empty_ones_do_not_count() {
        let text = "---\na: 1\n---\n---\nb: [x, 1.5, true, null]\n";
        assert_eq!(documents(text).unwrap(), vec![json!({"a": 1}), json!({"b": ["x", 1.5, true, null]})]);
    }

    #[test]
    fn empty_and_null_stay_what_they_are() {
        let read = document("a: \"\"\nb:\nc: {}\nd: []\n").unwrap();
        assert_eq!(read, json!({"a": "", "b": null, "c": {}, "d": []}));
    }

    #[test]
    fn an_error_names_the_document() {
        let error = documents("a: 1\n---\nb: [\n").unwrap_err();
        assert_eq!(error.document, 2);
    }
}
