//! The Machine that a set makes, and what is cloned for it from the set's templates.

use hangar_api::kinds::Machine;
use hangar_api::names::{
    CLONED_FROM_GROUP_KIND, CLONED_FROM_NAME, CLUSTER_NAME_LABEL, MACHINE_FINALIZER, SET_NAME_LABEL,
};
use hangar_api::{Kind, Object};
use serde_json::{Value, json};

/// A Machine of the set, under a name that was reserved for it.
pub fn machine(set: &Object, name: &str) -> Object {
    let template = set.get("/spec/template");
    let api_version = format!("{}/{}", Machine::GROUP, Machine::VERSION);
    let mut object = Object::named(&api_version, Machine::KIND, set.namespace(), name);
    object.0["metadata"]["labels"] = template["metadata"]["labels"].clone();
    object.0["metadata"]["labels"][CLUSTER_NAME_LABEL] = set.get("/spec/clusterName").clone();
    object.0["metadata"]["labels"][SET_NAME_LABEL] = set.name().into();
    if template["metadata"]["annotations"].is_object() {
        object.0["metadata"]["annotations"] = template["metadata"]["annotations"].clone();
    }
    // It owns others from the start, and must not go before them.
    object.0["metadata"]["finalizers"] = json!([MACHINE_FINALIZER]);
    let mut spec = template["spec"].clone();
    if let Some(reference) = spec["bootstrap"].get_mut("configRef") {
        *reference = child_reference(reference, name);
    }
    spec["infrastructureRef"] = child_reference(&spec["infrastructureRef"], name);
    object.0["spec"] = spec;
    object
}

/// From a reference to a template to one to what is made from it.
fn child_reference(template: &Value, name: &str) -> Value {
    let kind = template["kind"].as_str().unwrap_or_default().trim_end_matches("Template");
    json!({ "apiGroup": template["apiGroup"], "kind": kind, "name": name })
}

/// What a template describes, for one Machine. Its own controller puts on the finalizer that it needs.
pub fn clone_of(template: &Object, machine: &Object) -> Object {
    let kind = template.kind().trim_end_matches("Template");
    let mut object = Object::named(template.api_version(), kind, machine.namespace(), machine.name());
    let inner = template.get("/spec/template");
    object.0["spec"] = if inner["spec"].is_object() { inner["spec"].clone() } else { json!({}) };
    object.0["metadata"]["labels"] = json!(machine.labels());
    object.0["metadata"]["annotations"] = json!({
        CLONED_FROM_NAME: template.name(),
        CLONED_FROM_GROUP_KIND: format!("{}.{}", template.kind(), template.group()),
    });
    object
}
