//! The Machine that a set makes, and what is cloned for it from the set's templates.

use hangar_api::kinds::Machine;
use hangar_api::names::{
    CLONED_FROM_GROUP_KIND, CLONED_FROM_NAME, CLUSTER_NAME_LABEL, MACHINE_FINALIZER, SET_NAME_LABEL,
};
use hangar_api::{Kind, Object};
use serde_json::{Value, json};

use crate::{Step, intent};

/// A Machine of the set, under a name that was reserved for it.
pub fn machine(set: &Object, name: &str) -> Object {
    let template = set.get("/spec/template");
    let api_version = format!("{}/{}", Machine::GROUP, Machine::VERSION);
    let mut object = Object::named(&api_version, Machine::KIND, set.namespace(), name);
    object.0["metadata"]["labels"] = labels(set);
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

/// Places of a Machine where it says what it is: another value would be another machine.
const KEPT: [&str; 4] =
    ["/spec/version", "/spec/failureDomain", "/spec/bootstrap/configRef", "/spec/infrastructureRef"];

/// The step that tells a Machine of the set what has changed in place.
pub fn update(set: &Object, current: &Object) -> Option<Step> {
    let mut wanted = machine(set, current.name());
    if !current.finalizers().contains(&MACHINE_FINALIZER)
        && let Some(metadata) = wanted.0["metadata"].as_object_mut()
    {
        metadata.remove("finalizers");
    }
    intent::update(set, current, wanted, &KEPT)
}

/// The step that tells what was cloned for a Machine its labels and annotations, without those that it had from it before and has no more.
pub fn told(set: &Object, clone: &Object) -> Option<Step> {
    let (labels, annotations) = (labels(set), annotations(set));
    let mut metadata = json!({ "labels": labels, "annotations": annotations });
    for (field, annotation, wanted) in
        [("labels", LABELS_ANNOTATION, &labels), ("annotations", ANNOTATIONS_ANNOTATION, &annotations)]
    {
        let before = clone.annotation(annotation).unwrap_or_default().split(',');
        for gone in before.filter(|name| !name.is_empty() && wanted.get(*name).is_none()) {
            metadata[field][gone] = Value::Null;
        }
        let names = names(wanted);
        if clone.annotation(annotation).unwrap_or_default() != names {
            metadata["annotations"][annotation] = names.into();
        }
    }
    intent::touch(clone, json!({ "metadata": metadata }))
}

/// On what is cloned for a Machine: which labels and annotations it has from there.
const LABELS_ANNOTATION: &str = "hangar.dev/labels-from-machine";
const ANNOTATIONS_ANNOTATION: &str = "hangar.dev/annotations-from-machine";

fn names(map: &Value) -> String {
    map.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(",")
}

/// Labels of a Machine of the set and of what is cloned for it.
fn labels(set: &Object) -> Value {
    let mut labels = set.get("/spec/template/metadata/labels").clone();
    labels[CLUSTER_NAME_LABEL] = set.get("/spec/clusterName").clone();
    labels[SET_NAME_LABEL] = set.name().into();
    labels
}

fn annotations(set: &Object) -> Value {
    let annotations = set.get("/spec/template/metadata/annotations");
    if annotations.is_object() { annotations.clone() } else { json!({}) }
}

/// What a template describes, for one Machine of the set. Its own controller puts on the finalizer that it needs.
pub fn clone_of(template: &Object, machine: &Object, set: &Object) -> Object {
    let kind = template.kind().trim_end_matches("Template");
    let mut object = Object::named(template.api_version(), kind, machine.namespace(), machine.name());
    let inner = template.get("/spec/template");
    object.0["spec"] = if inner["spec"].is_object() { inner["spec"].clone() } else { json!({}) };
    let merged = |field: &str, more: Value| {
        let mut all = inner["metadata"][field].clone();
        if !all.is_object() {
            all = json!({});
        }
        more.as_object().into_iter().flatten().for_each(|(name, value)| all[name.as_str()] = value.clone());
        all
    };
    let (labels, annotations) = (labels(set), annotations(set));
    object.0["metadata"]["labels"] = merged("labels", labels.clone());
    object.0["metadata"]["annotations"] = merged("annotations", annotations.clone());
    let own = &mut object.0["metadata"]["annotations"];
    own[CLONED_FROM_NAME] = template.name().into();
    own[CLONED_FROM_GROUP_KIND] = format!("{}.{}", template.kind(), template.group()).into();
    own[LABELS_ANNOTATION] = names(&labels).into();
    if annotations != json!({}) {
        own[ANNOTATIONS_ANNOTATION] = names(&annotations).into();
    }
    object
}
