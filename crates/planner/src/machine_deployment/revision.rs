//! Which set is the current revision: compared by meaning, whatever it is called and whoever made it.

use hangar_api::kinds::MachineSet;
use hangar_api::names::{
    DEPLOYMENT_NAME_LABEL, DISABLE_CREATE_ANNOTATION, MACHINE_SET_FINALIZER, OUTDATED_ANNOTATION, TEMPLATE_HASH_LABEL,
};
use hangar_api::{Kind, KubeVersion, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{World, sets};
use crate::Step;

/// On a set: the `rollout.after` that it was made for. Its creation time says too little: the API server's clock may be behind, and knows whole seconds only.
const MADE_FOR_ANNOTATION: &str = "hangar.dev/rollout-after";

/// The sets of a deployment that are there to stay, told apart.
pub struct Revisions<'a> {
    pub current: Option<&'a Object>,
    pub old: Vec<&'a Object>,
}

impl<'a> Revisions<'a> {
    pub fn of(world: &'a World, now: Timestamp) -> Self {
        let mut living: Vec<&Object> = sets(world).filter(|set| !set.is_deleting()).collect();
        // Of several that fit, the oldest: whoever looks decides alike.
        living.sort_by_key(|set| (set.text("/metadata/creationTimestamp").to_owned(), set.name().to_owned()));
        let position = living.iter().position(|set| is_current(world.object(), set, now));
        let current = position.map(|at| living.remove(at));
        Self { current, old: living }
    }
}

/// D2: only what makes a machine another machine; labels, timeouts and the like are changed in place.
fn is_current(deployment: &Object, set: &Object, now: Timestamp) -> bool {
    let created = set.created();
    let made_for = set.annotation(MADE_FOR_ANNOTATION).and_then(|text| text.parse::<Timestamp>().ok());
    let is_older = |after| created.is_some_and(|created| created < after) && made_for.is_none_or(|made| made < after);
    let outdated = rollout_after(deployment).is_some_and(|after| after <= now && is_older(after));
    !outdated && meaning(deployment.get("/spec/template/spec")) == meaning(set.get("/spec/template/spec"))
}

/// The parts of a template that count, without what does not change their meaning.
fn meaning(spec: &Value) -> Value {
    let reference = |value: &Value| json!([value["apiGroup"], value["kind"], value["name"]]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&spec["version"]);
    json!([
        KubeVersion::parse(&version).map_or(version, |version| version.to_string()),
        reference(&spec["bootstrap"]["configRef"]),
        text(&spec["bootstrap"]["dataSecretName"]),
        reference(&spec["infrastructureRef"]),
        text(&spec["failureDomain"]),
    ])
}

/// Machines from before this time are to be replaced.
pub fn rollout_after(deployment: &Object) -> Option<Timestamp> {
    deployment.text("/spec/rollout/after").parse().ok()
}

/// MS6: timeouts and the like of Machines that are on their way out anyway may be what their deletion hangs on.
pub fn update_old(deployment: &Object, set: &Object, on_delete: bool, now: Timestamp) -> Option<Step> {
    let mut fields = json!({});
    for field in ["deletion", "readinessGates", "minReadySeconds", "taints"] {
        let wanted = &deployment.get("/spec/template/spec")[field];
        if *wanted != set.get("/spec/template/spec")[field] {
            fields[field] = wanted.clone();
            // What is not wanted any more goes, whatever else is.
            let gone = set.get("/spec/template/spec")[field].as_object().into_iter().flatten();
            gone.filter(|(name, _)| wanted.is_object() && wanted.get(name.as_str()).is_none())
                .for_each(|(name, _)| fields[field][name.as_str()] = Value::Null);
        }
    }
    let mut patch = json!({});
    if fields != json!({}) {
        patch["spec"]["template"]["spec"] = fields;
    }
    // D9: its Machines tell their Nodes. D6: nor does it replace what users delete.
    // A twin of the current set is not outdated, only too much.
    let outdated = !is_current(deployment, set, now);
    for (name, wanted) in [(OUTDATED_ANNOTATION, outdated), (DISABLE_CREATE_ANNOTATION, outdated && on_delete)] {
        mark(set, name, wanted, &mut patch);
    }
    (patch != json!({})).then(|| told(set, patch))
}

/// A revision that is current again.
pub fn update_current(set: &Object) -> Option<Step> {
    let mut patch = json!({});
    for name in [OUTDATED_ANNOTATION, DISABLE_CREATE_ANNOTATION] {
        mark(set, name, false, &mut patch);
    }
    (patch != json!({})).then(|| told(set, patch))
}

fn mark(set: &Object, name: &str, wanted: bool, patch: &mut Value) {
    if set.annotation(name).is_some() != wanted {
        patch["metadata"]["annotations"][name] = if wanted { "true".into() } else { Value::Null };
    }
}

fn told(set: &Object, fields: Value) -> Step {
    Step::Patch { key: set.key(), uid: set.uid().to_owned(), resource_version: None, fields }
}

/// The set of the current revision; one that is there already keeps what tells it and its Machines from others.
pub fn set_object(deployment: &Object, current: Option<&Object>, name: &str, replicas: i32, now: Timestamp) -> Object {
    let kept = current.and_then(|set| set.label(TEMPLATE_HASH_LABEL));
    let hash = kept.map_or_else(|| name.rsplit('-').next().unwrap_or_default().to_owned(), str::to_owned);
    let spec = deployment.get("/spec");
    let mut template = spec["template"].clone();
    template["metadata"]["labels"][TEMPLATE_HASH_LABEL] = hash.clone().into();
    template["metadata"]["labels"][DEPLOYMENT_NAME_LABEL] = deployment.name().into();
    let mut selector = spec["selector"].clone();
    selector["matchLabels"][TEMPLATE_HASH_LABEL] = hash.into();
    let api_version = format!("{}/{}", MachineSet::GROUP, MachineSet::VERSION);
    let mut object = Object::named(&api_version, MachineSet::KIND, deployment.namespace(), name);
    object.0["metadata"]["labels"] = template["metadata"]["labels"].clone();
    let due = rollout_after(deployment).filter(|after| *after <= now).map(|after| after.to_string());
    let made_for = current.map_or(due, |set| set.annotation(MADE_FOR_ANNOTATION).map(str::to_owned));
    if let Some(made_for) = made_for {
        object.0["metadata"]["annotations"] = json!({ MADE_FOR_ANNOTATION: made_for });
    }
    // It is born with Machines to take care of.
    object.0["metadata"]["finalizers"] = json!([MACHINE_SET_FINALIZER]);
    object.0["spec"] = json!({
        "clusterName": spec["clusterName"], "replicas": replicas, "selector": selector, "template": template,
    });
    for field in ["deletion", "machineNaming"] {
        if !spec[field].is_null() {
            object.0["spec"][field] = spec[field].clone();
        }
    }
    object
}
