//! Manifests as people write them: a file or standard input, with variables to fill in.
//!
//! Holds: a field that is written with an empty value counts as absent, as it does for `kubectl create`.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use hangar_api::{Object, yaml};
use serde_json::Value;

/// A manifest that was read, once: standard input cannot be read twice, and a file may change.
pub struct Manifest {
    /// How people know it.
    pub name: String,
    text: String,
}

impl Manifest {
    /// `-` is standard input.
    pub fn read(path: &Path) -> Result<Self> {
        let (name, text) = if path == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read the manifest from standard input")?;
            ("standard input".to_owned(), text)
        } else {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the manifest {name}"))?;
            (name, text)
        };
        Ok(Self { name, text })
    }

    /// Its objects, variables filled in.
    pub fn objects(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Object>> {
        let text = filled_in(&self.text, variable).with_context(|| format!("in {}", self.name))?;
        let documents = yaml::documents(&text).with_context(|| format!("in {}", self.name))?;
        let mut objects = vec![];
        for (index, document) in documents.into_iter().enumerate() {
            let parts = match document.get("items").and_then(Value::as_array) {
                Some(items) if document["kind"] == "List" => items.clone(),
                _ => vec![document],
            };
            for object in parts.into_iter().map(without_nulls) {
                if object.kind().is_empty() || object.api_version().is_empty() || object.name().is_empty() {
                    bail!("document {} of {} has no apiVersion, kind or metadata.name", index + 1, self.name);
                }
                objects.push(object);
            }
        }
        if objects.is_empty() {
            bail!("{} contains no objects", self.name);
        }
        Ok(objects)
    }
}

/// On a create, the API server drops nulls of custom resources before it validates them; server-side apply, which we use, refuses them. Metadata and
/// built-in kinds (their groups have no dot) are left alone: there a null is decoded in both cases, and in a map of strings it means "".
fn without_nulls(mut document: Value) -> Object {
    let is_custom = document["apiVersion"]
        .as_str()
        .is_some_and(|version| version.split_once('/').is_some_and(|(group, _)| group.contains('.')));
    if is_custom && let Value::Object(fields) = &mut document {
        fields.retain(|_, value| !value.is_null());
        fields.iter_mut().filter(|(name, _)| *name != "metadata").for_each(|(_, value)| drop_nulls(value));
    }
    Object(document)
}

/// Removes null fields at every depth; nulls that are items of a list stay.
pub fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// `${NAME}`, `${NAME:=default}` and `${NAME:-default}`; comments are left alone; all missing names are listed at once.
fn filled_in(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String> {
    let mut missing = std::collections::BTreeSet::new();
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('#') {
            out.push_str(line);
            continue;
        }
        let mut rest = line;
        while let Some(start) = rest.find("${") {
            let Some(length) = rest[start..].find('}') else { break };
            let inner = &rest[start + 2..start + length];
            let (name, default) = match inner.split_once(":=").or_else(|| inner.split_once(":-")) {
                Some((name, default)) => (name.trim(), Some(default)),
                None => (inner.trim(), None),
            };
            out.push_str(&rest[..start]);
            match variable(name).or_else(|| default.map(str::to_owned)) {
                Some(value) => out.push_str(&value),
                None => drop(missing.insert(name.to_owned())),
            }
            rest = &rest[start + length + 1..];
        }
        out.push_str(rest);
    }
    if missing.is_empty() {
        return Ok(out);
    }
    let names: Vec<String> = missing.into_iter().collect();
    bail!("variables without a value: {}; set them in the environment", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_all_missing_ones_are_named() {
        let known = |name: &str| (name == "A").then(|| "1".to_owned());
        assert_eq!(filled_in("x: ${A} ${B:=2} ${ A }\n# ${C}\n", &known).unwrap(), "x: 1 2 1\n# ${C}\n");
        let error = filled_in("${D} ${C}", &known).unwrap_err().to_string();
        assert!(error.contains("C, D"), "{error}");
    }

    #[test]
    fn an_empty_value_is_an_absent_field_of_a_custom_resource() {
        let objects = |text: &str| Manifest { name: "x.yaml".into(), text: text.into() }.objects(&|_| None).unwrap();
        let control_plane = "
apiVersion: controlplane.cluster.x-k8s.io/v1alpha1
kind: KamajiControlPlane
metadata: {name: a, labels: {role: }}
spec:
  deployment:
  network: {gateway: {name: , namespace: b}}
  list: [{name: }, ]
status:
";
        let expected = serde_json::json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1alpha1",
            "kind": "KamajiControlPlane",
            "metadata": {"name": "a", "labels": {"role": null}},
            "spec": {"network": {"gateway": {"namespace": "b"}}, "list": [{}]},
        });
        assert_eq!(objects(control_plane)[0].0, expected);
        let map = objects("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {key: }}");
        assert_eq!(map[0].0["data"], serde_json::json!({"key": null}), "the API server reads it as an empty string");
    }

    #[test]
    fn a_list_is_its_items_and_what_has_no_name_is_counted() {
        let objects = |text: &str| Manifest { name: "x.yaml".into(), text: text.into() }.objects(&|_| None);
        let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n";
        assert_eq!(objects(list).unwrap().iter().map(Object::name).collect::<Vec<_>>(), ["a"]);
        let error = objects(&format!("{list}---\nkind: Secret\n")).unwrap_err().to_string();
        assert!(error.contains("document 2 of x.yaml"), "{error}");
        assert!(objects("# nothing\n").unwrap_err().to_string().contains("x.yaml contains no objects"));
    }
}
