//! External remediation: requests to somebody else to mend a Machine, made from a template and deleted when the Machine is well again.
//! Holds: H4, H5. A request has the Machine's name and goes with it; whoever waits for one keeps nobody else waiting; requests that others made are left alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use hangar_api::names::{CLONED_FROM_GROUP_KIND, CLONED_FROM_NAME, CLUSTER_NAME_LABEL};
use hangar_api::{Object, ObjectKey, registry};
use jiff::Timestamp;
use serde_json::json;

use super::health::{Health, health};
use super::{EXTERNALLY_REMEDIATED, World, limited, says_false, targets};
use crate::{Effect, Phase, Reason, Step, intent};

/// The template that requests are made from.
pub fn template(check: &Object) -> Option<ObjectKey> {
    let reference = check.get("/spec/remediation/templateRef");
    let (group, _) = reference["apiVersion"].as_str()?.split_once('/')?;
    Some(ObjectKey::new(group, reference["kind"].as_str()?, check.namespace(), reference["name"].as_str()?))
}

/// What is asked for a Machine, wherever that is known how to ask for.
pub fn request(check: &Object, machine: &Object) -> Option<ObjectKey> {
    let template = template(check)?;
    let kind = template.kind.strip_suffix("Template")?;
    registry::kind(&template.group, kind)?;
    Some(ObjectKey::new(&template.group, kind, machine.namespace(), machine.name()))
}

/// Somebody was asked to mend it, or is about to be.
pub fn is_asked_for(machine: &Object) -> bool {
    says_false(machine, EXTERNALLY_REMEDIATED)
}

/// The requests for Machines that one was announced for: as they are, or none.
#[derive(Debug, Clone, Default)]
pub struct Requests(pub BTreeMap<ObjectKey, Option<Arc<Object>>>);

impl crate::Absorb for Requests {
    fn absorb(&mut self, effect: &Effect) {
        match effect {
            Effect::Applied(object) if self.0.contains_key(&object.key()) => {
                self.0.insert(object.key(), Some(object.clone()));
            }
            Effect::Deleted { key, left } if self.0.contains_key(key) => {
                self.0.insert(key.clone(), left.clone());
            }
            _ => {}
        }
    }
}

/// The request for a Machine, if it was looked for.
fn found<'a>(world: &'a World, machine: &Object) -> Option<&'a Option<Arc<Object>>> {
    world.facts.requests.0.get(&request(world.object(), machine)?)
}

/// Before anything else: a kind that nobody here knows cannot be made.
pub(super) fn known(world: &World) -> Phase {
    let reference = world.object().get("/spec/remediation/templateRef");
    if !reference.is_object() {
        return Phase::Done;
    }
    let kind = reference["kind"].as_str().unwrap_or_default();
    let made = template(world.object()).and_then(|key| {
        registry::kind(&key.group, &key.kind)?;
        registry::kind(&key.group, key.kind.strip_suffix("Template")?)
    });
    if made.is_none() {
        let text = format!("spec.remediation.templateRef: {kind} is not a template of a kind that Hangar serves");
        return Phase::blocked("InvalidTemplateRef", text);
    }
    Phase::Done
}

/// H4: who is well again needs no help; before the mark goes by which the request is found.
pub(super) fn recovered(world: &World, now: Timestamp) -> Phase {
    let well = targets(world).into_iter().filter(|machine| health(world, machine, now) == Health::Good);
    Phase::steps(well.filter_map(|machine| {
        let request = found(world, machine)?.as_deref()?;
        intent::delete(request).filter(|_| request.is_owned_by(machine.uid()))
    }))
}

/// H5: for everybody who is ill and marked, whoever else waits already.
pub(super) fn asked(world: &World, now: Timestamp) -> Phase {
    if !limited(world, now).is_done() {
        return Phase::Done;
    }
    let ill = targets(world).into_iter().filter(|machine| matches!(health(world, machine, now), Health::Bad(_)));
    let missing: Vec<&Object> = ill.filter(|machine| found(world, machine).is_some_and(Option::is_none)).collect();
    if missing.is_empty() {
        return Phase::Done;
    }
    let Some(key) = template(world.object()) else { return Phase::Done };
    let Some(template) = world.objects.get(&key) else {
        let text = format!("there is no {} {}, from which remediation is asked for", key.kind, key.name);
        return Phase::blocked("RemediationTemplateNotFound", text);
    };
    let steps: Result<Vec<Option<Step>>, Reason> =
        missing.into_iter().map(|machine| intent::ensure(machine, None, from(template, machine))).collect();
    Phase::attempt(steps.map(|steps| steps.into_iter().flatten().collect()))
}

/// What the template describes, for one Machine.
fn from(template: &Object, machine: &Object) -> Object {
    let kind = template.kind().strip_suffix("Template").unwrap_or_default();
    let mut request = Object::named(template.api_version(), kind, machine.namespace(), machine.name());
    let inner = template.get("/spec/template");
    for field in ["labels", "annotations"] {
        if inner["metadata"][field].is_object() {
            request.0["metadata"][field] = inner["metadata"][field].clone();
        }
    }
    request.0["metadata"]["labels"][CLUSTER_NAME_LABEL] = machine.get("/spec/clusterName").clone();
    request.0["metadata"]["annotations"][CLONED_FROM_NAME] = template.name().into();
    let group_kind = format!("{}.{}", template.kind(), template.group());
    request.0["metadata"]["annotations"][CLONED_FROM_GROUP_KIND] = group_kind.into();
    request.0["spec"] = if inner["spec"].is_object() { inner["spec"].clone() } else { json!({}) };
    request
}

/// What the Machine says about it.
pub(super) fn words(world: &World, machine: &Object) -> Option<String> {
    let key = request(world.object(), machine)?;
    let is_foreign = |request: &Arc<Object>| !request.is_owned_by(machine.uid());
    let foreign = found(world, machine).and_then(Option::as_ref).is_some_and(is_foreign);
    Some(if foreign {
        format!("{} {} exists and was not made for this Machine: rename or delete it", key.kind, key.name)
    } else {
        format!("waiting for {} {} to mend it", key.kind, key.name)
    })
}
