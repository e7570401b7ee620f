//! Image: an image in Glance, found by id or filter, or made from a download, as the OpenStack resource controller has it.
//! Flows: project -> image with our key -> the cloud downloads it -> active -> its id. Holds: what another controller holds is left to it; what is imported is never changed
//! and never deleted; a download whose content must be checked or unpacked is refused by name.

use std::collections::BTreeMap;
use std::time::Duration;

use hangar_api::Object;
use hangar_api::conditions::{Condition, Status};
use hangar_api::kinds::{Image, ImageStatusResource, ImageStatusResourceHash};
use hangar_openstack_types::Image as Glance;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::cloud::{self, Cloud, CloudAnswer, CloudCall, Lookup, Resource, ResourceType};
use crate::step::Effect;
use crate::{Absorb, OwnerKey, Phase, Phases, Planner, Progress, Reason, Report, Shared};

pub struct Images;

type World = crate::World<Images>;

const FINALIZER: &str = "hangar.dev/image";
/// The finalizer of the controller that the kind comes from.
const OTHERS_FINALIZER: &str = "openstack.k-orc.cloud/image";
/// The property of an image that holds the owner's key.
pub const KEY_PROPERTY: &str = "hangar_key";
const ROLE: &str = "image";
/// Glance does not call back.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// What somebody changed in the cloud is seen after this time.
const DRIFT: Duration = Duration::from_secs(600);
/// What may yet be uploaded by somebody.
const MISSING: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub cloud: Cloud,
    /// Of an image that is imported.
    pub lookup: Lookup,
    pub found: Option<Glance>,
    /// With our key; the oldest first.
    pub own: Vec<Glance>,
}

impl Absorb for Facts {
    fn absorb(&mut self, effect: &Effect) {
        self.cloud.absorb(effect);
        match effect {
            Effect::Cloud(CloudAnswer::Is(Resource::Image(image))) => {
                self.own.retain(|own| own.id != image.id);
                self.own.push(Glance::clone(image));
            }
            Effect::Cloud(CloudAnswer::Gone(ResourceType::Image, id)) => self.own.retain(|own| own.id != *id),
            _ => {}
        }
    }
}

impl Planner for Images {
    type Kind = Image;
    type Facts = Facts;
    const FINALIZER: Option<&'static str> = Some(FINALIZER);
    const SHARED: Shared = Shared::WhenTrue;
    const READY: bool = false;

    fn is_ours(image: &Object) -> bool {
        !image.finalizers().contains(&OTHERS_FINALIZER)
    }

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(supported).facts().then(imported).then(project).then(made).then(downloaded).then(active)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.facts().then(same_project).then(gone)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<Image>) {
        let before = world.typed().status.clone().unwrap_or_default();
        let image = current(world);
        report.status.id = image.map(|image| image.id.clone()).or(before.id);
        report.status.resource = image.map(described).or(before.resource);
        report.status.download_attempts = before.download_attempts;
        let (available, progressing) = conditions(progress);
        report.condition(available);
        report.condition(progressing);
    }

    fn recheck(_world: &World, _now: Timestamp) -> Option<Duration> {
        Some(DRIFT)
    }
}

/// In the words of the controller that the kind comes from: two of its reasons say that nothing will come of it.
fn conditions(progress: &Progress) -> (Condition, Condition) {
    let (available, progressing, reason) = match progress {
        Progress::Done => (Status::True, Status::False, "Success"),
        Progress::Acting | Progress::Waiting(_) => (Status::False, Status::True, "Progressing"),
        Progress::Blocked(reason) if is_final(reason) => (Status::False, Status::False, "InvalidConfiguration"),
        Progress::Blocked(_) => (Status::False, Status::True, "TransientError"),
    };
    let condition = |kind: &str, status| Condition::new(kind, status, reason, progress.message());
    (condition("Available", available), condition("Progressing", progressing))
}

fn is_final(reason: &Reason) -> bool {
    ["NotBuiltYet", "InvalidConfiguration"].contains(&reason.code)
}

fn is_managed(world: &World) -> bool {
    world.typed().spec.management_policy.as_deref() != Some("unmanaged")
}

fn current(world: &World) -> Option<&Glance> {
    if is_managed(world) { world.facts.own.first() } else { world.facts.found.as_ref() }
}

fn resource(world: &World) -> &Value {
    world.object().get("/spec/resource")
}

/// Said out loud instead of half done.
fn supported(world: &World) -> Phase {
    if !is_managed(world) {
        return match world.typed().spec.import {
            Some(_) => Phase::Done,
            None => Phase::blocked("InvalidConfiguration", "spec.import must name an image that is unmanaged"),
        };
    }
    let download = &resource(world)["content"]["download"];
    let what = if !resource(world)["content"].is_object() {
        return Phase::blocked("InvalidConfiguration", "spec.resource.content must say where the image comes from");
    } else if download["hash"].is_object() {
        "hash"
    } else if download["decompress"].is_string() {
        "decompress"
    } else {
        return Phase::Done;
    };
    Phase::blocked(
        "NotBuiltYet",
        format!(
            "spec.resource.content.download.{what} is not built yet: let the cloud download an image as it is, or upload it and import it (managementPolicy: unmanaged)"
        ),
    )
}

fn imported(world: &World) -> Phase {
    if is_managed(world) {
        return Phase::Done;
    }
    match world.facts.lookup.problem("spec.import", "image") {
        Some(problem) => Phase::wait_for("ImageNotFound", problem, MISSING),
        None => Phase::Done,
    }
}

fn project(world: &World) -> Phase {
    if is_managed(world) { cloud::project(world.object(), &world.facts.cloud) } else { Phase::Done }
}

fn same_project(world: &World) -> Phase {
    cloud::same_project(world.object(), &world.facts.cloud)
}

fn made(world: &World) -> Phase {
    if !is_managed(world) {
        return Phase::Done;
    }
    match world.facts.own.as_slice() {
        [] => Phase::Steps(vec![world.facts.cloud.step(CloudCall::CreateImage(Box::new(wanted(world))))]),
        // An answer was lost: the oldest stays.
        [_, twins @ ..] => Phase::steps(twins.iter().map(|twin| delete(world, twin))),
    }
}

fn delete(world: &World, image: &Glance) -> crate::Step {
    world.facts.cloud.step(CloudCall::Delete(ResourceType::Image, image.id.clone()))
}

/// The create call, with our key among the free properties.
fn wanted(world: &World) -> Value {
    let (object, resource) = (world.object(), resource(world));
    let name = resource["name"].as_str().unwrap_or(object.name());
    let content = &resource["content"];
    let container = content["containerFormat"].as_str().unwrap_or("bare");
    let mut fields = Map::new();
    let mut set = |name: &str, value: &Value| {
        if !value.is_null() {
            fields.insert(name.to_owned(), value.clone());
        }
    };
    let properties = &resource["properties"];
    for (field, property) in [
        ("minDiskGB", "min_disk"),
        ("minMemoryMB", "min_ram"),
        ("architecture", "architecture"),
        ("hypervisorType", "hypervisor_type"),
    ] {
        set(property, &properties[field]);
    }
    for (field, value) in properties["hardware"].as_object().into_iter().flatten() {
        set(&format!("hw_{}", snake(field)), &text(value));
    }
    for (field, value) in properties["operatingSystem"].as_object().into_iter().flatten() {
        set(&format!("os_{}", snake(field)), &text(value));
    }
    for field in ["visibility", "protected", "tags"] {
        set(field, &resource[field]);
    }
    // Last: nothing that a user may write replaces them.
    set("name", &name.into());
    set("disk_format", &content["diskFormat"]);
    set("container_format", &container.into());
    set(KEY_PROPERTY, &OwnerKey::new("", object.uid(), ROLE).to_string().into());
    fields.into()
}

/// Properties are text, whatever they mean.
fn text(value: &Value) -> Value {
    match value {
        Value::String(_) | Value::Null => value.clone(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        other => other.to_string().into(),
    }
}

/// `cpuCores` is `cpu_cores` in Glance, and `qemuGuestAgent` `qemu_guest_agent`.
fn snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

fn downloaded(world: &World) -> Phase {
    match current(world) {
        Some(image) if is_managed(world) && image.status == "queued" => {
            let url = resource(world)["content"]["download"]["url"].as_str().unwrap_or_default().to_owned();
            Phase::Steps(vec![world.facts.cloud.step(CloudCall::ImportImage { id: image.id.clone(), url })])
        }
        _ => Phase::Done,
    }
}

fn active(world: &World) -> Phase {
    let Some(image) = current(world) else { return Phase::Done };
    match image.status.as_str() {
        "active" => Phase::Done,
        "killed" | "deleted" | "deactivated" => Phase::blocked(
            "ImageFailed",
            format!("image {} is {} in the cloud: delete it there, and it is made again", image.name, image.status),
        ),
        status => Phase::wait_for("ImageNotReady", format!("image {} is {status}", image.name), LOOK_AGAIN),
    }
}

fn gone(world: &World) -> Phase {
    let options = world.typed().spec.managed_options.as_ref();
    let detaches = options.and_then(|options| options.on_delete.as_deref()) == Some("detach");
    if detaches {
        return Phase::Done;
    }
    Phase::steps(world.facts.own.iter().map(|image| delete(world, image)))
}

fn described(image: &Glance) -> ImageStatusResource {
    let hash = image.os_hash_value.as_ref().zip(image.os_hash_algo.as_ref());
    let bytes = |size: Option<u64>| size.and_then(|size| i64::try_from(size).ok());
    ImageStatusResource {
        hash: hash
            .map(|(value, algorithm)| ImageStatusResourceHash { algorithm: algorithm.clone(), value: value.clone() }),
        name: Some(image.name.clone()),
        protected: Some(image.protected),
        size_b: bytes(image.size),
        status: Some(image.status.clone()),
        tags: Some(image.tags.clone()).filter(|tags| !tags.is_empty()),
        virtual_size_b: bytes(image.virtual_size),
        visibility: Some(image.visibility.clone()),
    }
}

/// What an Image means for whoever names it: its id once it is available.
pub fn lookup(name: &str, image: Option<&Object>) -> Result<Lookup, Reason> {
    let Some(image) = image else {
        let text = format!("there is no Image {name} in this namespace: create it, or correct spec.image.imageRef");
        return Err(Reason { code: "DependencyFailed", message: text, wake: crate::Wake::Event });
    };
    let conditions: BTreeMap<&str, &Value> = image
        .get("/status/conditions")
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|condition| Some((condition["type"].as_str()?, condition)))
        .collect();
    let available = conditions.get("Available").copied().unwrap_or(&Value::Null);
    let id = image.text("/status/id");
    if available["status"] == "True" && !id.is_empty() {
        return Ok(Lookup::Found(id.to_owned()));
    }
    let why = available["message"].as_str().filter(|text| !text.is_empty());
    let why = why.map(|text| format!(": {text}")).unwrap_or_default();
    let text = format!("waiting for Image {name} to be available{why}");
    Err(Reason { code: "DependencyFailed", message: text, wake: crate::Wake::Event })
}

#[cfg(test)]
mod tests;
