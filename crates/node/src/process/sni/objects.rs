//! What is read of the Gateway API's kinds; all versions of a kind are alike in this.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt as _;
use kube::core::{ApiResource, DynamicObject};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(in crate::process) const GROUP: &str = "gateway.networking.k8s.io";

/// An object of which the spec could be read.
#[derive(Debug, Clone)]
pub(super) struct Seen<S> {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub generation: i64,
    pub created: Option<jiff::Timestamp>,
    pub spec: S,
    pub status: Value,
}

impl<S> Seen<S> {
    /// For events about it.
    pub fn reference(&self, kind: &ApiResource) -> ObjectReference {
        ObjectReference {
            api_version: Some(kind.api_version.clone()),
            kind: Some(kind.kind.clone()),
            namespace: Some(self.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }
}

impl<S: DeserializeOwned> Seen<S> {
    /// None: definitions that somebody else made allow what is no such spec, or the object is on its way out.
    pub fn read(object: &DynamicObject) -> Option<Self> {
        let spec = object.data.get("spec").cloned().unwrap_or(Value::Null);
        if object.metadata.deletion_timestamp.is_some() {
            return None;
        }
        Some(Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
            created: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
            spec: serde_json::from_value(spec).ok()?,
            status: object.data.get("status").cloned().unwrap_or(Value::Null),
        })
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClassSpec {
    pub controller_name: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GatewaySpec {
    pub gateway_class_name: String,
    #[serde(default)]
    pub listeners: Vec<Listener>,
    #[serde(default)]
    pub addresses: Vec<Address>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Address {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(default)]
    pub value: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listener {
    pub name: String,
    #[serde(default)]
    pub hostname: String,
    pub port: u16,
    pub protocol: String,
    #[serde(default)]
    pub tls: Tls,
    #[serde(default)]
    pub allowed_routes: AllowedRoutes,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Tls {
    pub mode: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct AllowedRoutes {
    pub namespaces: AllowedNamespaces,
    pub kinds: Vec<RouteKind>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct AllowedNamespaces {
    pub from: Option<String>,
    pub selector: k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RouteKind {
    pub group: Option<String>,
    pub kind: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RouteSpec {
    #[serde(default)]
    pub parent_refs: Vec<Value>,
    #[serde(default)]
    pub hostnames: Vec<String>,
    #[serde(default)]
    pub rules: Vec<Rule>,
}

/// A reference to a parent; the reference itself is repeated in the status as it was written.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ParentRef {
    pub group: Option<String>,
    pub kind: Option<String>,
    pub namespace: Option<String>,
    pub name: String,
    pub section_name: Option<String>,
    pub port: Option<u16>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rule {
    #[serde(default)]
    pub backend_refs: Vec<BackendRef>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct BackendRef {
    pub group: Option<String>,
    pub kind: Option<String>,
    pub namespace: Option<String>,
    pub name: String,
    pub port: Option<i32>,
    pub weight: Option<u32>,
}

pub(super) type Class = Seen<ClassSpec>;
pub(super) type Gateway = Seen<GatewaySpec>;
pub(super) type Route = Seen<RouteSpec>;
