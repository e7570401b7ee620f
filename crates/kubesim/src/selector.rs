//! Label and field selectors, as lists and watches use them.

use serde_json::Value;

/// All requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    /// Path, value, and whether it is wanted or not wanted.
    fields: Vec<(String, String, bool)>,
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Selector {
    /// An empty namespace is all of them. The error says which part cannot be understood.
    pub fn parse(namespace: &str, labels: &str, fields: &str) -> Result<Self, String> {
        let labels = split(labels).into_iter().map(requirement).collect::<Result<_, _>>()?;
        let fields = fields.split(',').filter(|part| !part.is_empty()).map(field).collect::<Result<_, _>>()?;
        Ok(Self { labels, fields, namespace: namespace.to_owned() })
    }

    pub fn matches(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let label = |name: &str| metadata["labels"].get(name).and_then(Value::as_str);
        let at_home = self.namespace.is_empty() || metadata["namespace"] == self.namespace.as_str();
        let labelled = self.labels.iter().all(|requirement| match requirement {
            Requirement::In(name, values) => label(name).is_some_and(|is| values.iter().any(|value| value == is)),
            Requirement::NotIn(name, values) => !label(name).is_some_and(|is| values.iter().any(|value| value == is)),
            Requirement::Exists(name) => label(name).is_some(),
            Requirement::Absent(name) => label(name).is_none(),
        });
        let text = |path: &str| object.pointer(&format!("/{}", path.replace('.', "/"))).and_then(Value::as_str);
        at_home
            && labelled
            && self.fields.iter().all(|(path, value, wanted)| (text(path).unwrap_or_default() == value) == *wanted)
    }
}

/// At commas that are not inside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (vec![], 0, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

fn requirement(part: &str) -> Result<Requirement, String> {
    let values =
        |list: &str| list.trim_matches(['(', ')', ' ']).split(',').map(|value| value.trim().to_owned()).collect();
    let name = |text: &str| text.trim().to_owned();
    if let Some((key, list)) = part.split_once(" notin ") {
        return Ok(Requirement::NotIn(name(key), values(list)));
    }
    if let Some((key, list)) = part.split_once(" in ") {
        return Ok(Requirement::In(name(key), values(list)));
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Ok(Requirement::NotIn(name(key), vec![name(value)]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Requirement::In(name(key), vec![name(value)]));
    }
    match part.strip_prefix('!') {
        Some(key) => Ok(Requirement::Absent(name(key))),
        None if part.contains(char::is_whitespace) => Err(format!("unable to parse requirement: {part}")),
        None => Ok(Requirement::Exists(name(part))),
    }
}

fn field(part: &str) -> Result<(String, String, bool), String> {
    let unequal = part.split_once("!=").map(|pair| (pair, false));
    let equal = || part.split_once("==").or_else(|| part.split_once('=')).map(|pair| (pair, true));
    let ((path, value), wanted) = unequal.or_else(equal).ok_or_else(|| {
        format!("invalid field selector: {part}: only equality is understood here, such as metadata.name=NAME")
    })?;
    if !["metadata.name", "metadata.namespace", "spec.nodeName", "type"].contains(&path) {
        return Err(format!("field label not supported: {path}"));
    }
    Ok((path.to_owned(), value.to_owned(), wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requirements() {
        let object = json!({"metadata": {"name": "x", "namespace": "n", "labels": {"a": "b", "c.io/d": "e"}}});
        let rows = [
            ("", "", true),
            ("a=b", "", true),
            ("a==b,c.io/d=e", "", true),
            ("a=c", "", false),
            ("a!=c,z!=y", "", true),
            ("a", "", true),
            ("!a", "", false),
            ("!z", "", true),
            ("a in (b, c),c.io/d notin (f)", "", true),
            ("a notin (b)", "", false),
            ("", "metadata.name=x", true),
            ("", "metadata.name=y", false),
            ("", "metadata.name!=y", true),
            ("", "metadata.name!=x", false),
        ];
        for (labels, fields, expected) in rows {
            assert_eq!(Selector::parse("", labels, fields).unwrap().matches(&object), expected, "{labels} {fields}");
        }
        assert!(!Selector::parse("other", "", "").unwrap().matches(&object));
        assert!(Selector::parse("", "a b", "").is_err());
        assert!(Selector::parse("", "", "spec.x=1").is_err());
    }
}
