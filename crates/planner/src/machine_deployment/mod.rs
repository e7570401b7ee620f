//! MachineDeployment: one MachineSet for each revision of the template.
//! Flows: owner -> the current revision's set, with its size -> old sets shrink -> empty ones go. Holds: never more Machines than surge allows, never
//! fewer available than maxUnavailable allows. After an own step what was asked for counts, never again what was seen before it: a set that
//! was told to shrink counts with its new size, whatever its status says.

mod manual;
mod revision;
pub(crate) mod rollout;

use hangar_api::Object;
use hangar_api::conditions::{Condition, Status, find};
use hangar_api::kinds::{
    MachineDeployment, MachineDeploymentStatusDeprecated, MachineDeploymentStatusDeprecatedV1beta1, MachineSet,
};
use hangar_api::names::{CLUSTER_NAME_LABEL, MACHINE_DEPLOYMENT_FINALIZER};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::intent;
use crate::names::Names;
use crate::report::present;
use crate::{Phase, Phases, Planner, Progress, Report, Step};

use revision::Revisions;

pub use rollout::is_autoscaled;

pub struct MachineDeployments;

type World = crate::World<MachineDeployments>;

const TEMPLATES: [&str; 2] = ["/spec/template/spec/bootstrap/configRef", "/spec/template/spec/infrastructureRef"];

impl Planner for MachineDeployments {
    type Kind = MachineDeployment;
    type Facts = Facts;
    const FINALIZER: Option<&'static str> = Some(MACHINE_DEPLOYMENT_FINALIZER);
    const READY: bool = false;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(cluster).then_at(prepare).then_at(scale).then_at(remove_empty).then_at(rollout_later)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(delete_sets)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<MachineDeployment>) {
        let sum = |pointer: &str| sets(world).map(|set| rollout::count(set, pointer)).fold(0, i32::saturating_add);
        let (replicas, available) = (sum("/status/replicas"), sum("/status/availableReplicas"));
        let desired = rollout::desired(world.typed());
        let ready = sum("/status/readyReplicas");
        let up_to_date =
            Revisions::of(world, world.facts.now).current.map_or(0, |set| rollout::count(set, "/status/replicas"));
        let status = &mut report.status;
        status.selector = Some(selector_text(world.object().get("/spec/selector/matchLabels")));
        (status.replicas, status.available_replicas) = (Some(replicas), Some(available));
        (status.ready_replicas, status.up_to_date_replicas) = (Some(ready), Some(up_to_date));
        status.deprecated = Some(MachineDeploymentStatusDeprecated {
            v1beta1: Some(MachineDeploymentStatusDeprecatedV1beta1 {
                ready_replicas: Some(ready),
                available_replicas: Some(available),
                updated_replicas: Some(up_to_date),
                unavailable_replicas: Some((desired - available).max(0)),
                ..Default::default()
            }),
        });
        let phase = match (world.object().is_deleting(), replicas.cmp(&desired)) {
            // This kind has no phase of its own for deletion.
            (true, _) | (_, std::cmp::Ordering::Greater) => "ScalingDown",
            (_, std::cmp::Ordering::Less) => "ScalingUp",
            _ => "Running",
        };
        status.phase = Some(phase.to_owned());
        let enough = available >= desired - rollout::max_unavailable(world.typed());
        report.condition(if enough {
            Condition::new("Available", Status::True, "Available", "")
        } else {
            let text = format!("{available} of {desired} machines are available");
            let message = if progress.message().is_empty() { text.as_str() } else { progress.message() };
            Condition::new("Available", Status::False, "NotAvailable", message)
        });
        let scaling = |kind: &str| {
            let on = phase == kind;
            Condition::new(kind, on.into(), if on { kind } else { "NotScaling" }, "")
        };
        report.condition(scaling("ScalingUp"));
        report.condition(scaling("ScalingDown"));
        report.flag("RollingOut", up_to_date < replicas, "NotRollingOut");
        let remediating = |set: &Object| find(&present(set), "Remediating").is_some_and(Condition::is_true);
        report.flag("Remediating", sets(world).any(remediating), "NotRemediating");
    }
}

/// Names for sets, and the time of the pass: `rollout.after` depends on it.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub names: Names,
    pub now: Timestamp,
}

impl crate::Absorb for Facts {
    fn absorb(&mut self, effect: &crate::Effect) {
        self.names.absorb(effect);
    }
}

/// Sets that this deployment controls.
fn sets(world: &World) -> impl Iterator<Item = &Object> {
    world.all::<MachineSet>().filter(|set| set.is_owned_by(world.object().uid()))
}

fn delete_sets(world: &World) -> Phase {
    let steps: Vec<_> = sets(world).filter_map(intent::delete).collect();
    let left = sets(world).count();
    if steps.is_empty() && left > 0 {
        return Phase::wait("WaitingForMachineSets", format!("waiting for {left} MachineSets to be deleted"));
    }
    Phase::steps(steps)
}

fn cluster(world: &World) -> Phase {
    match world.cluster() {
        Some(_) => Phase::Done,
        None => Phase::wait("WaitingForCluster", format!("there is no Cluster {} yet", world.cluster_name())),
    }
}

/// Owner and labels, and the name of a set that has to be made, in one request.
fn prepare(world: &World, now: Timestamp) -> Phase {
    let owner = world.cluster().map(|cluster| cluster.as_owner(false));
    let name = world.cluster_name();
    let labels = [(CLUSTER_NAME_LABEL, name.as_str())];
    let mut own = intent::adopt(world.object(), Some(MACHINE_DEPLOYMENT_FINALIZER), owner.as_ref(), &labels);
    let unnamed = world.facts.names.usable(world.object()).next().is_none();
    if Revisions::of(world, now).current.is_none() && unnamed && !is_paused(world) {
        let mut step = own.take().unwrap_or_else(|| Step::Patch {
            key: world.object().key(),
            uid: world.object().uid().to_owned(),
            resource_version: Some(world.object().resource_version().to_owned()),
            fields: json!({}),
        });
        if let Step::Patch { fields, .. } = &mut step {
            let reservation = Names::reservation(world.object(), 1);
            fields["metadata"]["annotations"] = reservation["metadata"]["annotations"].clone();
        }
        own = Some(step);
    }
    // Templates go with the cluster, as upstream has it.
    let templates = TEMPLATES.iter().filter_map(|pointer| world.referenced(pointer));
    let adopted = templates
        .filter(|template| !template.is_deleting())
        .filter_map(|template| intent::adopt(template, None, owner.as_ref(), &[]));
    Phase::steps(own.into_iter().chain(adopted))
}

/// D7: no new revision, no rollout.
fn is_paused(world: &World) -> bool {
    world.typed().spec.paused == Some(true)
}

/// The current revision's set, with its size, and all others with theirs.
fn scale(world: &World, now: Timestamp) -> Phase {
    let revisions = Revisions::of(world, now);
    let resized = |sizes: Vec<(&Object, i32)>| {
        sizes
            .into_iter()
            .filter_map(|(set, size)| intent::touch(set, json!({ "spec": { "replicas": size } })))
            .collect::<Vec<_>>()
    };
    if is_paused(world) {
        let all: Vec<&Object> = revisions.old.iter().copied().chain(revisions.current).collect();
        return Phase::steps(resized(manual::proportional(world.typed(), &all)));
    }
    let Some(name) =
        revisions.current.map(|set| set.name().to_owned()).or_else(|| world.facts.names.usable(world.object()).next())
    else {
        return Phase::Done;
    };
    let size = rollout::new_size(world.typed(), &revisions);
    let wanted = revision::set_object(world.object(), revisions.current, &name, size, now);
    let current = intent::ensure(world.object(), revisions.current, wanted);
    let shrunk = resized(rollout::shrink(world.typed(), &revisions));
    let on_delete = manual::is_on_delete(world.typed());
    let told = revisions.old.iter().filter_map(|set| revision::update_old(world.object(), set, on_delete, now));
    let told = told.chain(revisions.current.and_then(revision::update_current));
    Phase::attempt(current.map(|step| step.into_iter().chain(shrunk).chain(told).collect()))
}

/// D8.
fn remove_empty(world: &World, now: Timestamp) -> Phase {
    if is_paused(world) {
        return Phase::Done;
    }
    let empty = Revisions::of(world, now).old.into_iter().filter(|set| {
        rollout::count(set, "/spec/replicas") == 0
            && rollout::count(set, "/status/replicas") == 0
            && rollout::is_current(set)
    });
    Phase::steps(empty.filter_map(intent::delete))
}

/// A rollout that is asked for at a later time begins then.
fn rollout_later(world: &World, now: Timestamp) -> Phase {
    match revision::rollout_after(world.object()).filter(|after| *after > now) {
        Some(after) => {
            let wait = std::time::Duration::try_from(after.duration_since(now)).unwrap_or_default();
            Phase::wait_for("WaitingForRollout", format!("the rollout begins at {after}"), wait)
        }
        None => Phase::Done,
    }
}

/// `a=b,c=d`, as the scale subresource wants it.
pub(crate) fn selector_text(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten();
    pairs.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
