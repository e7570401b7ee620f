//! Control planes that run as pods.

use serde_json::Value;

use super::Refusal;
use super::check::{FIXED, changed, default, field, upgrade, version};
use crate::object::Object;
use crate::version::KubeVersion;
use crate::{control_plane_arguments, data_store_names, references};

pub fn kamaji_control_plane(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    let mut refusals = version(object, old, "/spec/version");
    refusals.extend(upgrade(object, old, "/spec/version"));
    refusals.extend(data_store_names(object, old));
    refusals.extend(data_store_stays(object, old));
    for component in ["apiServer", "controllerManager", "scheduler"] {
        refusals.extend(arguments(object, old, &format!("/spec/{component}/extraArgs")));
    }
    refusals
}

fn arguments(object: &Object, old: Option<&Object>, pointer: &str) -> Vec<Refusal> {
    if !changed(object, old, pointer) {
        return vec![];
    }
    let list = object.get(pointer).as_array().into_iter().flatten().filter_map(Value::as_str);
    let problems = list.filter_map(control_plane_arguments::problem);
    problems.map(|problem| Refusal::new(field(pointer), problem)).collect()
}

/// Its user and schema name nobody else's. What was stored before this was checked is told by a condition.
fn data_store_names(object: &Object, old: Option<&Object>) -> Vec<Refusal> {
    let mut refusals = vec![];
    for field in ["dataStoreUsername", "dataStoreSchema"] {
        let (pointer, place) = (format!("/spec/{field}"), format!("spec.{field}"));
        let name = object.text(&pointer);
        if !name.is_empty()
            && changed(object, old, &pointer)
            && let Some(problem) = data_store_names::problem(name, object.uid())
        {
            refusals.push(Refusal::new(&place, problem));
        }
    }
    refusals
}

/// Another store, user or schema would be another, empty cluster: that is a migration, not an edit.
fn data_store_stays(object: &Object, old: Option<&Object>) -> Vec<Refusal> {
    let Some(old) = old else { return vec![] };
    let store = |plane: &Object| references::data_store(plane).name;
    let mut moved = vec![("dataStoreName", store(old) != store(object))];
    for field in ["dataStoreUsername", "dataStoreSchema"] {
        let pointer = format!("/spec/{field}");
        moved.push((field, old.text(&pointer) != object.text(&pointer)));
    }
    let moved = moved.into_iter().filter(|(_, moved)| *moved);
    moved.map(|(field, _)| Refusal::new(format!("spec.{field}"), FIXED)).collect()
}

pub fn tenant_control_plane(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    let mut refusals = version(object, old, "/spec/kubernetes/version");
    refusals.extend(upgrade(object, old, "/spec/kubernetes/version"));
    refusals.extend(data_store_names(object, old));
    refusals
}

pub fn hosted_control_plane(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    let mut refusals = version(object, old, "/spec/version");
    refusals.extend(upgrade(object, old, "/spec/version"));
    let certificates = object.get("/spec/certificates");
    let hours = |name: &str| certificates[name].as_str().and_then(hours);
    if let (Some(root), Some(own)) = (hours("rootCaCertificateDuration"), hours("caCertificateDuration"))
        && root < own
    {
        let message = "is shorter than caCertificateDuration, but signs that one; make it at least as long";
        refusals.push(Refusal::new("spec.certificates.rootCaCertificateDuration", message));
    }
    refusals
}

/// Whole hours of `48h` or `48h0m0s`; anything finer is not compared.
fn hours(text: &str) -> Option<u64> {
    let (number, rest) = text.split_once('h')?;
    ["", "0m0s", "0m"].contains(&rest).then(|| number.parse().ok())?
}

/// k0s has its own build tags: `v1.32.6-k0s.0` and `v1.32.6+k0s.0` are one version.
pub fn k0smotron_control_plane(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    default(&mut object.0["spec"], &[], "replicas", 1);
    if object.get("/spec/replicas") == 0
        && let Some(replicas) = object.0.pointer_mut("/spec/replicas")
    {
        // Upstream turns 0 into 1; a control plane that sleeps is not k0smotron's.
        *replicas = 1.into();
    }
    let text = object.text("/spec/version");
    if !text.is_empty()
        && changed(object, old, "/spec/version")
        && KubeVersion::parse(&text.replace("-k0s", "+k0s")).is_none()
    {
        let message = format!("{text:?} is not a version of k0s; write it as v1.32.6-k0s.0");
        return vec![Refusal::new("spec.version", message)];
    }
    nats(object, old)
}

fn nats(object: &Object, old: Option<&Object>) -> Vec<Refusal> {
    let nats = object.get("/spec/storage").get("type").is_some_and(|kind: &Value| kind == "nats");
    if nats && old.is_some() && changed(object, old, "/spec/replicas") {
        return vec![Refusal::new(
            "spec.replicas",
            "cannot be changed with storage of type nats; make a new control plane",
        )];
    }
    vec![]
}
