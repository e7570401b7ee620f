//! What a ConfigMap or Secret says that clusters are to have.
//!
//! Flows: values in the order of their keys -> documents -> objects, those that others need first. Holds: what users wrote is bounded, and an object that is no
//! object is named; the words of a Secret are repeated nowhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::{Object, yaml};
use serde_json::Value;

/// The type that a Secret must have: others are not for clusters.
pub const SECRET_TYPE: &str = "addons.cluster.x-k8s.io/resource-set";
/// More than any add-on has.
const MOST_OBJECTS: usize = 1_000;
/// What Kubernetes takes of a ConfigMap or Secret.
const MOST_BYTES: usize = 1 << 20;

/// In which order they are made; all others come after them.
const FIRST: [&str; 12] = [
    "Namespace",
    "CustomResourceDefinition",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Secret",
    "ConfigMap",
    "ServiceAccount",
    "LimitRange",
    "Pod",
    "ReplicaSet",
    "Endpoints",
];

/// What was read of a resource.
#[derive(Clone, PartialEq)]
pub struct Manifest {
    /// Of the values in the order of their keys, as Cluster API has it: `sha256:...`.
    pub hash: String,
    /// Or what is wrong with it.
    pub objects: Result<Vec<Object>, String>,
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Manifest({}, {})", self.hash, self.objects.as_ref().map_or(0, Vec::len))
    }
}

/// The values of a ConfigMap or Secret, by key.
pub fn texts(resource: &Object) -> Result<Vec<(String, String)>, String> {
    let is_secret = resource.kind() == "Secret";
    if is_secret && resource.text("/type") != SECRET_TYPE {
        return Err(format!("{} is of type {}, not {SECRET_TYPE}", resource.key(), resource.text("/type")));
    }
    let all = resource.get("/data").as_object().into_iter().flatten();
    let mut texts = vec![];
    for (key, value) in all {
        let text = match value.as_str() {
            Some(encoded) if is_secret => STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok()),
            text => text.map(str::to_owned),
        };
        texts.push((key.clone(), text.ok_or_else(|| format!("key {key} of {} is not text", resource.key()))?));
    }
    texts.sort();
    match texts.iter().map(|(_, text)| text.len()).sum::<usize>() {
        0 => Err(format!("{} has no data", resource.key())),
        bytes if bytes > MOST_BYTES => Err(format!("{} has more than {MOST_BYTES} bytes", resource.key())),
        _ => Ok(texts),
    }
}

/// The objects in the values of a resource, in the order in which they are made.
pub fn objects(resource: &Object, texts: &[(String, String)]) -> Result<Vec<Object>, String> {
    let mut all = vec![];
    for (key, text) in texts {
        let place = format!("key {key} of {}", resource.key());
        let documents = yaml::untrusted(text).map_err(|error| match resource.kind() {
            "Secret" => format!("{place}: document {} is not valid YAML", error.document),
            _ => format!("{place}: {error}"),
        })?;
        let mut of_key = documents.into_iter().flat_map(items).map(|value| object(value, &place));
        let mut of_key = of_key.by_ref().collect::<Result<Vec<_>, _>>()?;
        of_key.sort_by_key(|object| FIRST.iter().position(|kind| *kind == object.kind()).unwrap_or(FIRST.len()));
        all.extend(of_key);
        if all.len() > MOST_OBJECTS {
            return Err(format!("{} has more than {MOST_OBJECTS} objects: split it", resource.key()));
        }
    }
    Ok(all)
}

/// A list, as JSON has it or as `kubectl get` writes it, is its items.
fn items(document: Value) -> Vec<Value> {
    let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match document {
        Value::Array(items) => items.into_iter().filter(|item| !item.is_null()).collect(),
        Value::Object(mut fields) if is_list => match fields.remove("items") {
            Some(Value::Array(items)) => items,
            _ => vec![],
        },
        one => vec![one],
    }
}

fn object(value: Value, place: &str) -> Result<Object, String> {
    let mut object = Object(value);
    let is_word =
        |text: &str| !text.is_empty() && text.chars().all(|one| one.is_ascii_alphanumeric() || "-.".contains(one));
    let api_version = object.api_version();
    let (group, version) = api_version.split_once('/').unwrap_or(("v1", api_version));
    if !is_word(group) || !is_word(version) || !is_word(object.kind()) {
        return Err(format!("{place}: an object has no apiVersion and kind"));
    }
    // Names become parts of paths.
    let is_segment = |text: &str| ![".", ".."].contains(&text) && !text.contains(['/', '%', '?', '#']);
    if object.name().is_empty() || !is_segment(object.name()) || !is_segment(object.namespace()) {
        return Err(format!("{place}: a {} has no name that Kubernetes takes", object.kind()));
    }
    if let Some(metadata) = object.0["metadata"].as_object_mut() {
        // What the server writes, in a manifest that was taken from another cluster.
        ["managedFields", "resourceVersion", "uid", "creationTimestamp", "selfLink", "generation"]
            .iter()
            .for_each(|field| drop(metadata.remove(*field)));
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(data: Value) -> Object {
        let mut map = Object::named("v1", "ConfigMap", "n", "r");
        map.0["data"] = data;
        map
    }

    fn secret(kind: &str, text: &str) -> Object {
        let mut secret = Object::named("v1", "Secret", "n", "r");
        secret.0["type"] = kind.into();
        secret.0["data"] = json!({ "a": STANDARD.encode(text) });
        secret
    }

    fn read(resource: &Object) -> Result<Vec<String>, String> {
        let texts = texts(resource)?;
        let objects = objects(resource, &texts)?;
        Ok(objects.iter().map(|object| object.key().to_string()).collect())
    }

    #[test]
    fn r2_many_documents_are_made_in_the_order_in_which_they_need_each_other() {
        let one = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: x}\n---\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: x}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n";
        let list = json!([{ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" } }]).to_string();
        let written =
            "kind: ConfigMapList\napiVersion: v1\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: i}}\n";
        let read = read(&map(json!({ "b": one, "a": list, "c": written }))).unwrap();
        let expected = ["Secret/s", "Namespace/x", "ConfigMap x/c", "Deployment x/d", "ConfigMap/i"];
        assert_eq!(read, expected, "keys in their order, and within each what others need first");
    }

    #[test]
    fn r2_a_secret_must_be_of_the_type_and_its_words_are_not_repeated() {
        let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n";
        assert_eq!(read(&secret(SECRET_TYPE, text)).unwrap(), ["Secret/s"]);
        let other = read(&secret("Opaque", text)).unwrap_err();
        assert_eq!(other, "Secret n/r is of type Opaque, not addons.cluster.x-k8s.io/resource-set");
        let broken = read(&secret(SECRET_TYPE, "password: [hunter2\n")).unwrap_err();
        assert_eq!(broken, "key a of Secret n/r: document 1 is not valid YAML");
    }

    #[test]
    fn what_cannot_be_an_object_is_named() {
        let many = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n".repeat(MOST_OBJECTS + 1);
        for (text, why) in [
            ("", "ConfigMap n/r has no data"),
            ("just words", "key a of ConfigMap n/r: an object has no apiVersion and kind"),
            (
                "apiVersion: v1\nkind: ConfigMap\n",
                "key a of ConfigMap n/r: a ConfigMap has no name that Kubernetes takes",
            ),
            (
                "apiVersion: v1/../x\nkind: ConfigMap\nmetadata: {name: x}",
                "key a of ConfigMap n/r: an object has no apiVersion and kind",
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ../../x}",
                "key a of ConfigMap n/r: a ConfigMap has no name that Kubernetes takes",
            ),
            (&many, "ConfigMap n/r has more than 1000 objects: split it"),
            (
                &"[".repeat(10_000),
                "key a of ConfigMap n/r: not valid YAML in document 1: it has 10000 opening brackets, at most 5000 are accepted",
            ),
            (&"x".repeat(MOST_BYTES + 1), "ConfigMap n/r has more than 1048576 bytes"),
        ] {
            assert_eq!(read(&map(json!({ "a": text }))).unwrap_err(), why);
        }
    }

    /// R7: upstream looks at the first 32 bytes.
    #[test]
    fn r7_a_small_payload_is_read() {
        let read = read(&map(json!({ "a": r#"{"apiVersion":"v1","kind":"X","metadata":{"name":"x"}}"# }))).unwrap();
        assert_eq!(read, ["X/x"]);
        assert!(self::read(&map(json!({ "a": "{}" }))).unwrap_err().contains("no apiVersion"));
    }
}
