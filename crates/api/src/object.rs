//! An object of any kind, as JSON with typed access to its metadata.
//!
//! Holds: an [`Object`] is exactly what the API server sent (less `managedFields`), so fields that no typed hub knows are never lost.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Kind;

/// Names one object in a cluster: its group and kind (never a version), namespace and name. Ordered by kind first, which tells most keys apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    pub kind: String,
    pub group: String,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self { group: group.into(), kind: kind.into(), namespace: namespace.into(), name: name.into() }
    }

    pub fn of<K: Kind>(namespace: &str, name: &str) -> Self {
        Self::new(K::GROUP, K::KIND, namespace, name)
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}/{}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// Whoever an object belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub controller: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub block_owner_deletion: bool,
}

impl Owner {
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// By group and kind: others have kinds of the same name, and the version does not matter.
    pub fn is<K: Kind>(&self) -> bool {
        (self.group(), self.kind.as_str()) == (K::GROUP, K::KIND)
    }
}

/// What is at a JSON pointer, or null.
///
/// Pointers of ours have no escapes, and are followed many times in each pass: `Value::pointer` would copy each name of them.
pub fn value_at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    if pointer.contains('~') {
        return value.pointer(pointer).unwrap_or(&Value::Null);
    }
    pointer.split('/').skip(1).fold(value, |value, name| match value {
        Value::Object(fields) => fields.get(name).unwrap_or(&Value::Null),
        Value::Array(items) => name.parse::<usize>().ok().and_then(|at| items.get(at)).unwrap_or(&Value::Null),
        _ => &Value::Null,
    })
}

/// An object as the API server knows it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Object(pub Value);

/// Logs show what an object is, never what it keeps secret: the data of Secrets, and files and commands of bootstrap configs.
impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = self.0.clone();
        let mut hidden: Vec<String> = vec![];
        if self.kind() == "Secret" {
            hidden.extend(["/data", "/stringData"].map(str::to_owned));
        }
        for spec in ["/spec", "/spec/template/spec"] {
            let fields = ["files", "users", "preKubeadmCommands", "postKubeadmCommands"];
            hidden.extend(fields.map(|field| format!("{spec}/{field}")));
        }
        // What kubectl remembers of an applied Secret is the Secret.
        hidden.push("/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration".to_owned());
        for pointer in hidden {
            shown.pointer_mut(&pointer).into_iter().for_each(hide);
        }
        write!(f, "{shown}")
    }
}

/// Names stay, values go.
fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(hide),
        Value::Null => {}
        other => *other = "(hidden)".into(),
    }
}

impl Object {
    /// An object that says nothing but who it is.
    pub fn named(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let mut metadata = json!({ "name": name });
        if !namespace.is_empty() {
            metadata["namespace"] = namespace.into();
        }
        Self(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata }))
    }

    /// The typed hub of this object; fields that do not fit are an error that says which.
    pub fn typed<K: Kind>(&self) -> Result<K, serde_json::Error> {
        K::deserialize(&self.0)
    }

    pub fn get(&self, pointer: &str) -> &Value {
        value_at(&self.0, pointer)
    }

    pub fn text(&self, pointer: &str) -> &str {
        self.get(pointer).as_str().unwrap_or_default()
    }

    pub fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    pub fn group(&self) -> &str {
        self.api_version().split_once('/').map_or("", |(group, _)| group)
    }

    /// By group and kind: others have kinds of the same name, and the version does not matter.
    pub fn is<K: Kind>(&self) -> bool {
        (self.group(), self.kind()) == (K::GROUP, K::KIND)
    }

    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    pub fn resource_version(&self) -> &str {
        self.text("/metadata/resourceVersion")
    }

    pub fn generation(&self) -> i64 {
        self.get("/metadata/generation").as_i64().unwrap_or_default()
    }

    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.group(), self.kind(), self.namespace(), self.name())
    }

    pub fn is_deleting(&self) -> bool {
        self.get("/metadata/deletionTimestamp").is_string()
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.get("/metadata/labels").get(name).and_then(Value::as_str)
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.get("/metadata/annotations").get(name).and_then(Value::as_str)
    }

    pub fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::deserialize(self.get("/metadata/labels")).unwrap_or_default()
    }

    /// When the API server took it in.
    pub fn created(&self) -> Option<jiff::Timestamp> {
        self.text("/metadata/creationTimestamp").parse().ok()
    }

    pub fn finalizers(&self) -> Vec<&str> {
        self.get("/metadata/finalizers").as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    pub fn owners(&self) -> Vec<Owner> {
        Vec::deserialize(self.get("/metadata/ownerReferences")).unwrap_or_default()
    }

    pub fn controller(&self) -> Option<Owner> {
        self.owners().into_iter().find(|owner| owner.controller)
    }

    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.get("/metadata/ownerReferences").as_array().into_iter().flatten().any(|owner| owner["uid"] == uid)
    }

    /// A reference from a child to this object.
    pub fn as_owner(&self, controller: bool) -> Owner {
        Owner {
            api_version: self.api_version().into(),
            kind: self.kind().into(),
            name: self.name().into(),
            uid: self.uid().into(),
            controller,
            block_owner_deletion: controller,
        }
    }

    /// A value of a Secret's `data`, decoded, as text.
    pub fn secret_text(&self, key: &str) -> Option<String> {
        let encoded = self.get("/data").get(key)?.as_str()?;
        String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
    }

    /// Field by field comparison that ignores what the server fills in.
    pub fn without_server_fields(&self) -> Value {
        let mut value = self.0.clone();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"] {
                metadata.remove(field);
            }
        }
        value
    }
}
