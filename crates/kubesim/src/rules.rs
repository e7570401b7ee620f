//! What holds for every write, whichever verb it came by: who may touch what, what the server fills in, and what is refused.
//!
//! Flows: (old, proposed) -> the object to store, or the reason against it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::{Object, admission};
use serde_json::{Map, Value, json};

use super::refusal::Refusal;
use super::resource::Resource;
use super::schema;
use super::store::{Store, finalizers, is_deleting, text};

/// What only the server sets.
const SERVER_FIELDS: &[&str] =
    &["uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// The proposed object under the rules of a create.
pub(super) fn created(store: &mut Store, resource: &Resource, mut new: Value, now: &str) -> Result<Value, Refusal> {
    let uid = store.new_uid();
    let Some(metadata) = new["metadata"].as_object_mut() else {
        return Err(Refusal::plain(400, "metadata must be an object"));
    };
    SERVER_FIELDS.iter().chain(&["managedFields", "selfLink"]).for_each(|field| drop(metadata.remove(*field)));
    metadata.insert("uid".into(), uid.into());
    metadata.insert("creationTimestamp".into(), now.into());
    if resource.status
        && let Some(fields) = new.as_object_mut()
    {
        fields.remove("status");
    }
    fill_in(store, resource, None, &mut new);
    let new = admitted(resource, None, new)?;
    checked(store, resource, new)
}

/// The proposed object under the rules of an update; `status` says that it came through the status subresource.
pub(super) fn updated(
    store: &mut Store,
    resource: &Resource,
    old: &Value,
    mut new: Value,
    status: bool,
) -> Result<Value, Refusal> {
    if status {
        let mut kept = old.clone();
        move_status(&new, &mut kept);
        fit(resource, &mut kept);
        return checked(store, resource, kept);
    }
    if resource.status {
        move_status(old, &mut new);
    }
    keep_server_fields(old, &mut new);
    let late: Vec<&str> = finalizers(&new).filter(|new| !finalizers(old).any(|old| old == *new)).collect();
    if is_deleting(old) && !late.is_empty() {
        let why = format!(
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {late:?}"
        );
        return Err(Refusal::invalid(resource, text(old, "name"), &why));
    }
    fill_in(store, resource, Some(old), &mut new);
    let new = admitted(resource, Some(old), new)?;
    checked(store, resource, new)
}

fn move_status(from: &Value, to: &mut Value) {
    let Some(fields) = to.as_object_mut() else { return };
    match from.get("status") {
        Some(status) => drop(fields.insert("status".into(), status.clone())),
        None => drop(fields.remove("status")),
    }
}

fn keep_server_fields(old: &Value, new: &mut Value) {
    if !new["metadata"].is_object() {
        new["metadata"] = json!({});
    }
    let Some(metadata) = new["metadata"].as_object_mut() else { return };
    for field in SERVER_FIELDS.iter().chain(&["name", "namespace"]) {
        match old["metadata"].get(*field) {
            Some(value) => drop(metadata.insert((*field).into(), value.clone())),
            None => drop(metadata.remove(*field)),
        }
    }
    metadata.remove("managedFields");
}

fn fill_in(store: &mut Store, resource: &Resource, old: Option<&Value>, new: &mut Value) {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Secret") => secret(new),
        ("", "Service") => service(store, old, new),
        _ => fit(resource, new),
    }
    drop_empty_metadata(new);
}

/// Unknown fields go, defaults come.
fn fit(resource: &Resource, new: &mut Value) {
    if let Some(schema) = schema::installed(resource) {
        schema::prune(new, schema);
        schema::fill_in(new, schema);
    }
}

fn checked(store: &Store, resource: &Resource, new: Value) -> Result<Value, Refusal> {
    let Some(schema) = schema::installed(resource) else { return Ok(new) };
    let faults = schema::check(&new, schema, &store.patterns);
    if faults.is_empty() { Ok(new) } else { Err(Refusal::invalid(resource, text(&new, "name"), &faults.join(", "))) }
}

/// What an applied configuration says that the schema does not know is an error, not an oversight.
pub(super) fn declared(resource: &Resource, config: &Value) -> Result<(), Refusal> {
    let Some(schema) = schema::installed(resource) else { return Ok(()) };
    let unknown = schema::prune(&mut config.clone(), schema);
    if unknown.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = unknown.iter().map(|path| format!("{path}: field not declared in schema")).collect();
    let name = text(config, "name");
    let words = format!("failed to create typed patch object ({name}; {}): {}", resource.kind, list.join(", "));
    Err(Refusal::plain(500, &words))
}

/// Empty lists and maps of the metadata are not kept.
fn drop_empty_metadata(new: &mut Value) {
    let Some(metadata) = new["metadata"].as_object_mut() else { return };
    let empty = |value: &Value| {
        value.is_null() || value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
    };
    metadata.retain(|_, value| !empty(value));
}

/// `stringData` is only for writing.
pub(super) fn secret(new: &mut Value) {
    let Some(fields) = new.as_object_mut() else { return };
    fields.entry("type").or_insert_with(|| "Opaque".into());
    let Some(Value::Object(texts)) = fields.remove("stringData") else { return };
    let data = fields.entry("data").or_insert_with(|| json!({}));
    for (name, value) in texts {
        data[name] = STANDARD.encode(value.as_str().unwrap_or_default()).into();
    }
}

fn service(store: &mut Store, old: Option<&Value>, new: &mut Value) {
    let spec = &mut new["spec"];
    if spec["type"].is_null() {
        spec["type"] = "ClusterIP".into();
    }
    if spec["clusterIP"].as_str().unwrap_or_default().is_empty() {
        let kept = old.map(|old| old["spec"]["clusterIP"].clone()).filter(Value::is_string);
        spec["clusterIP"] = kept.unwrap_or_else(|| store.new_address().into());
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    let outside = ["NodePort", "LoadBalancer"].iter().any(|outside| spec["type"] == *outside);
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        if port["protocol"].is_null() {
            port["protocol"] = "TCP".into();
        }
        if port["targetPort"].is_null() {
            port["targetPort"] = port["port"].clone();
        }
        if outside && port["nodePort"].is_null() {
            port["nodePort"] = store.new_node_port().into();
        }
    }
}

fn admitted(resource: &Resource, old: Option<&Value>, new: Value) -> Result<Value, Refusal> {
    if resource.facts.is_none() {
        return Ok(new);
    }
    let old = old.map(|old| Object(old.clone()));
    match admission::admit(&Object(new), old.as_ref()) {
        Ok(admitted) => Ok(admitted.0),
        Err(refusals) => {
            let reasons = refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            Err(Refusal::plain(422, &format!("admission webhook \"admit.hangar.dev\" denied the request: {reasons}")))
        }
    }
}
