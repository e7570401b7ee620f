//! Reading YAML as the Kubernetes tools do: into JSON, several documents in a stream, the last of two equal keys wins.
//!
//! Holds: no crate does all of that alone. yaml_serde has the same scanner family as the Go tools but refuses duplicate keys,
//! so documents are read through a visitor of our own. What a text becomes is bounded by its own size: aliases may repeat parts of it, but not
//! multiply them (yaml_serde limits how often aliases are followed, not how large their targets are). Not covered yet: YAML 1.1 scalars (`yes`,
//! `0644`) stay strings.

use std::cell::Cell;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The largest text that is read; the manifests of whole distributions have a few MiB.
pub const LARGEST: usize = 32 << 20;

/// The scanner looks at every open bracket for every token: 100,000 of them take a minute.
const MOST_OPENINGS: usize = 5_000;

/// What aliases may add to a document of any size, in nodes and bytes of scalars: plenty for anchors that people write.
const ALIAS_ALLOWANCE: usize = 256 << 10;

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
    if text.len() > LARGEST {
        let message = format!("the text has {} bytes, at most {LARGEST} are accepted", text.len());
        return Err(YamlError { document: 1, message });
    }
    // Each node and each byte of a scalar has at least one byte of text, aliases aside.
    let budget = Budget(Cell::new(text.len().saturating_mul(2).saturating_add(ALIAS_ALLOWANCE)));
    let mut documents = Vec::new();
    for (index, document) in yaml_serde::Deserializer::from_str(text).enumerate() {
        let value = Lenient(&budget)
            .deserialize(document)
            .map_err(|error| YamlError { document: index + 1, message: error.to_string() })?;
        if !value.is_null() {
            documents.push(value);
        }
    }
    Ok(documents)
}

/// The one document of a text that may be anybody's, such as one from a Secret; an empty text is null.
pub fn document(text: &str) -> Result<Value, YamlError> {
    let openings = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if openings > MOST_OPENINGS {
        // JSON has no such weakness.
        return serde_json::from_str(text).map_err(|_| YamlError {
            document: 1,
            message: format!("it has {openings} opening brackets, at most {MOST_OPENINGS} are accepted"),
        });
    }
    Ok(documents(text)?.into_iter().next().unwrap_or(Value::Null))
}

/// All documents of a text that may be anybody's; of a JSON list, its items.
pub fn untrusted(text: &str) -> Result<Vec<Value>, YamlError> {
    // JSON has no such weakness as below, and is read faster.
    if text.trim_start().starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str::<Value>(text)
    {
        return Ok(match value {
            Value::Array(items) => items,
            one => vec![one],
        });
    }
    let openings = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if openings > MOST_OPENINGS {
        let message = format!("it has {openings} opening brackets, at most {MOST_OPENINGS} are accepted");
        return Err(YamlError { document: 1, message });
    }
    documents(text)
}

/// How many nodes and bytes may still be made.
struct Budget(Cell<usize>);

impl Budget {
    fn spend<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        let left = self.0.get().checked_sub(bytes.saturating_add(1));
        self.0.set(left.ok_or_else(|| E::custom("aliases make it many times as large as its text"))?);
        Ok(())
    }
}

/// Reads one node with all below it.
#[derive(Clone, Copy)]
struct Lenient<'a>(&'a Budget);

impl<'de> DeserializeSeed<'de> for Lenient<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.spend(0)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Lenient<'_> {
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

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.0.spend(value.len())?;
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
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, value)) = entries.next_entry_seed(self, self)? {
            let key = match key {
                Value::String(text) => text,
                Value::Array(_) | Value::Object(_) => return Err(A::Error::custom("a key must be a scalar")),
                other => other.to_string(),
            };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, data: A) -> Result<Value, A::Error> {
        // A custom tag such as `!vault`: the value counts, the tag does not.
        let (_tag, content): (String, _) = data.variant()?;
        serde::de::VariantAccess::newtype_variant_seed(content, self)
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

    #[test]
    fn aliases_repeat_but_do_not_multiply() {
        let shared = "base: &base {image: x, flavor: y}\nsets: [*base, *base, *base]\n";
        assert_eq!(document(shared).unwrap()["sets"][2], json!({"image": "x", "flavor": "y"}));
        // Ten times ten times ten ...: a billion, from a few hundred bytes.
        let levels =
            (1..10).map(|level| format!("l{level}: &l{level} [{}]\n", vec![format!("*l{}", level - 1); 10].join(",")));
        let billion = format!("l0: &l0 [x, x, x, x]\n{}", levels.collect::<String>());
        // Long lists and long strings, referred to often: below every limit on the number of aliases.
        let list = format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(20_000), "*a,".repeat(20_000));
        let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(20_000), "*a,".repeat(20_000));
        for bomb in [billion, list, text] {
            let refused = document(&bomb).unwrap_err().to_string();
            assert!(refused.contains("aliases make it") || refused.contains("repetition"), "{refused}");
        }
    }

    #[test]
    fn a_text_of_anybody_has_many_documents_and_few_brackets() {
        assert_eq!(untrusted("a: 1\n---\nb: 2\n").unwrap(), vec![json!({"a": 1}), json!({"b": 2})]);
        assert_eq!(untrusted(r#" [{"a":1},{"a":2}]"#).unwrap(), vec![json!({"a": 1}), json!({"a": 2})]);
        assert_eq!(untrusted(r#"{"a":1}"#).unwrap(), vec![json!({"a": 1})]);
        assert_eq!(untrusted("{a: 1}").unwrap(), vec![json!({"a": 1})]);
        assert!(untrusted(&"[".repeat(10_000)).unwrap_err().to_string().contains("10000 opening brackets"));
    }

    #[test]
    fn a_text_that_is_too_large_or_too_deep_is_refused() {
        assert!(document(&"x".repeat(LARGEST + 1)).unwrap_err().to_string().contains("at most"));
        for deep in ["[", "{a: ", "- ", "? ", "a: [", "!x "] {
            assert!(document(&deep.repeat(100_000)).is_err(), "{deep}");
            assert!(documents(&deep.repeat(1000)).is_err(), "{deep}");
        }
        let wide = format!("[{}{{}}]", "{},".repeat(MOST_OPENINGS));
        assert_eq!(document(&wide).unwrap().as_array().unwrap().len(), MOST_OPENINGS + 1, "JSON may have many");
        assert!(document("? {a: 1}\n: b\n").unwrap_err().to_string().contains("scalar"));
    }
}
