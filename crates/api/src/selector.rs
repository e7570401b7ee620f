//! Label selectors, as Kubernetes reads them in objects: `matchLabels` and `matchExpressions`.
//!
//! Holds: all requirements must hold; an empty selector matches everything; an operator that is not known matches nothing.

use std::collections::BTreeMap;

use serde_json::Value;

/// Whether labels fulfil a selector. What an absent selector means is for whoever has it to say.
pub fn matches(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let label = |name: &str| labels.get(name).map(String::as_str);
    let mut exact = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    exact.all(|(name, value)| label(name).is_some() && label(name) == value.as_str())
        && expressions.all(|expression| {
            let found = label(expression["key"].as_str().unwrap_or_default());
            let mut values = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
            match expression["operator"].as_str() {
                Some("In") => found.is_some_and(|found| values.any(|value| value == found)),
                Some("NotIn") => found.is_none_or(|found| values.all(|value| value != found)),
                Some("Exists") => found.is_some(),
                Some("DoesNotExist") => found.is_none(),
                _ => false,
            }
        })
}

/// Whether it asks for anything.
pub fn is_empty(selector: &Value) -> bool {
    let none = |value: &Value| value.as_object().is_none_or(serde_json::Map::is_empty);
    none(&selector["matchLabels"]) && selector["matchExpressions"].as_array().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_requirement_must_hold() {
        let labels = BTreeMap::from([("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d".to_owned())]);
        let asks = |key: &str, operator: &str, values: &[&str]| {
            let expression = json!({ "key": key, "operator": operator, "values": values });
            json!({ "matchLabels": { "c": "d" }, "matchExpressions": [expression] })
        };
        for (what, selector, expected) in [
            ("empty", json!({}), true),
            ("absent", Value::Null, true),
            ("a label", json!({ "matchLabels": { "a": "b" } }), true),
            ("another value", json!({ "matchLabels": { "a": "x" } }), false),
            ("another label", json!({ "matchLabels": { "x": "b" } }), false),
            ("a value that is no text", json!({ "matchLabels": { "x": null } }), false),
            ("one of", asks("a", "In", &["x", "b"]), true),
            ("none of", asks("a", "In", &["x"]), false),
            ("not one of", asks("a", "NotIn", &["b"]), false),
            ("absent is not one of", asks("x", "NotIn", &["b"]), true),
            ("there", asks("a", "Exists", &[]), true),
            ("not there", asks("x", "Exists", &[]), false),
            ("should not be there", asks("a", "DoesNotExist", &[]), false),
            ("is not there", asks("x", "DoesNotExist", &[]), true),
            ("an unknown operator", asks("a", "Gt", &["1"]), false),
        ] {
            assert_eq!(matches(&selector, &labels), expected, "{what}");
        }
        assert!(is_empty(&json!({ "matchLabels": {}, "matchExpressions": [] })) && is_empty(&Value::Null));
        assert!(!is_empty(&asks("a", "Exists", &[])));
    }
}
