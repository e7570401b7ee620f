//! MachineSet: so many Machines, each with its bootstrap config and its infrastructure machine.
//! Flows: what each Machine needs -> surplus goes -> templates, preflight -> names are reserved -> Machines. Holds: the Machine comes first and owns the
//! other two, so nothing can be orphaned; a name is reserved on the set before it is used, and never used twice.

mod machine;
mod preflight;
mod remediation;

use std::time::Duration;

use hangar_api::Object;
use hangar_api::conditions::{Condition, Status, aggregate, find};
use hangar_api::kinds::{Machine, MachineSet, MachineSetStatusDeprecated, MachineSetStatusDeprecatedV1beta1};
use hangar_api::names::{
    CLUSTER_NAME_LABEL, DELETE_MACHINE_ANNOTATION, DISABLE_CREATE_ANNOTATION, MACHINE_SET_FINALIZER,
};

use crate::intent;
use crate::machine_deployment::rollout::autoscaled_or_one;
use crate::machine_deployment::selector_text;
use crate::machine_health_check::is_being_remediated;
use crate::names::Names;
use crate::report::present;
use crate::{Phase, Phases, Planner, Progress, Reason, Report, Step};

pub struct MachineSets;

type World = crate::World<MachineSets>;

/// Machines that one pass makes: a number in a manifest must neither fill the memory with steps nor keep everybody else waiting.
const BATCH: usize = 50;
/// Until the next ones, so that others have their turn.
const PAUSE: Duration = Duration::from_secs(1);

const BOOTSTRAP_TEMPLATE: &str = "/spec/template/spec/bootstrap/configRef";
const INFRASTRUCTURE_TEMPLATE: &str = "/spec/template/spec/infrastructureRef";

impl Planner for MachineSets {
    type Kind = MachineSet;
    type Facts = Names;
    const FINALIZER: Option<&'static str> = Some(MACHINE_SET_FINALIZER);
    const READY: bool = false;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases
            .then(owner)
            .then(complete)
            .then(in_place)
            .then(remediation::unhealthy)
            .then(surplus)
            .then(templates)
            .then(preflight::checked)
            .then(reserve)
            .then(missing)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(delete_all)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<MachineSet>) {
        let machines: Vec<(String, Vec<Condition>)> =
            machines(world).map(|machine| (machine.name().to_owned(), present(machine))).collect();
        let count = |kind: &str| {
            let holds = |conditions: &[Condition]| find(conditions, kind).is_some_and(Condition::is_true);
            Some(machines.iter().filter(|(_, conditions)| holds(conditions)).count().try_into().unwrap_or(i32::MAX))
        };
        let total = Some(machines.len().try_into().unwrap_or(i32::MAX));
        let status = &mut report.status;
        status.selector = Some(selector_text(world.object().get("/spec/selector/matchLabels")));
        (status.replicas, status.up_to_date_replicas) = (total, total);
        (status.ready_replicas, status.available_replicas) = (count("Ready"), count("Available"));
        status.deprecated = Some(MachineSetStatusDeprecated {
            v1beta1: Some(MachineSetStatusDeprecatedV1beta1 {
                ready_replicas: status.ready_replicas,
                available_replicas: status.available_replicas,
                fully_labeled_replicas: total,
                ..Default::default()
            }),
        });
        let parts: Vec<(String, Option<&Condition>)> =
            machines.iter().map(|(name, conditions)| (name.clone(), find(conditions, "Ready"))).collect();
        report.condition(match progress {
            Progress::Blocked(reason) => {
                Condition::new("MachinesReady", Status::False, reason.code, reason.message.clone())
            }
            _ => aggregate("MachinesReady", &parts),
        });
        let scaling = |kind: &str, on: bool| Condition::new(kind, on.into(), if on { kind } else { "NotScaling" }, "");
        report.condition(scaling("ScalingUp", missing_count(world) > 0));
        report.condition(scaling("ScalingDown", machines.len() > desired(world)));
        report.flag("Remediating", self::machines(world).any(is_being_remediated), "NotRemediating");
    }
}

/// Machines that this set controls.
fn machines(world: &World) -> impl Iterator<Item = &Object> {
    world.all::<Machine>().filter(|machine| machine.is_owned_by(world.object().uid()))
}

fn living(world: &World) -> impl Iterator<Item = &Object> {
    machines(world).filter(|machine| !machine.is_deleting())
}

fn delete_all(world: &World) -> Phase {
    let steps: Vec<Step> = machines(world).filter_map(intent::delete).collect();
    let left = machines(world).count();
    if steps.is_empty() && left > 0 {
        return Phase::wait("WaitingForMachines", format!("waiting for {left} Machines to be deleted"));
    }
    Phase::steps(steps)
}

fn owner(world: &World) -> Phase {
    let name = &world.typed().spec.cluster_name;
    if world.cluster().is_none() {
        return Phase::wait("WaitingForCluster", format!("there is no Cluster {name} yet"));
    }
    let labels = [(CLUSTER_NAME_LABEL, name.as_str())];
    Phase::steps(intent::adopt(world.object(), Some(MACHINE_SET_FINALIZER), None, &labels))
}

/// Every living Machine has its bootstrap config and its infrastructure machine.
fn complete(world: &World) -> Phase {
    let pairs =
        [("/spec/bootstrap/configRef", BOOTSTRAP_TEMPLATE), ("/spec/infrastructureRef", INFRASTRUCTURE_TEMPLATE)];
    let steps: Result<Vec<Option<Step>>, Reason> = living(world)
        .flat_map(|machine| pairs.iter().map(move |(reference, template)| (machine, *reference, *template)))
        .filter(|(machine, reference, _)| {
            machine.get(reference).is_object() && world.objects.referenced(machine, reference).is_none()
        })
        .filter_map(|(machine, _, template)| Some((machine, world.referenced(template)?)))
        .map(|(machine, template)| intent::ensure(machine, None, machine::clone_of(template, machine, world.object())))
        .collect();
    Phase::attempt(steps.map(|steps| steps.into_iter().flatten().collect()))
}

/// MS6: what does not make another machine is changed on those that are there; also on those that go, whose timeouts may be what matters.
fn in_place(world: &World) -> Phase {
    let set = world.object();
    let steps = machines(world).flat_map(|machine| {
        let changed = machine::update(set, machine);
        let clones = ["/spec/bootstrap/configRef", "/spec/infrastructureRef"]
            .into_iter()
            .filter_map(|reference| world.objects.referenced(machine, reference))
            .filter(|clone| clone.is_owned_by(machine.uid()) && !clone.is_deleting())
            .filter_map(|clone| machine::told(set, clone));
        changed.into_iter().chain(clones).collect::<Vec<_>>()
    });
    Phase::steps(steps)
}

fn templates(world: &World) -> Phase {
    if missing_count(world) == 0 {
        return Phase::Done;
    }
    let needed = [
        (BOOTSTRAP_TEMPLATE, "WaitingForBootstrapTemplate"),
        (INFRASTRUCTURE_TEMPLATE, "WaitingForInfrastructureTemplate"),
    ];
    for (pointer, code) in needed {
        let reference = world.object().get(pointer);
        if reference.is_object() && world.referenced(pointer).is_none() {
            let text = |field: &str| reference[field].as_str().unwrap_or_default();
            return Phase::wait(code, format!("there is no {} {} yet", text("kind"), text("name")));
        }
    }
    Phase::Done
}

/// Names are given out before they are used: whatever happens then, no name comes twice.
fn reserve(world: &World) -> Phase {
    let missing = batch(world);
    if missing == 0 || unused(world).count() >= missing {
        return Phase::Done;
    }
    if world.facts.has_reserved() {
        let left = missing_count(world);
        return Phase::wait_for("ScalingUp", format!("{left} Machines are to be made after these"), PAUSE);
    }
    Phase::Steps(vec![Step::Patch {
        key: world.object().key(),
        uid: world.object().uid().to_owned(),
        // Whoever looks at an older set must not give out the same names.
        resource_version: Some(world.object().resource_version().to_owned()),
        fields: Names::reservation(world.object(), missing),
    }])
}

/// Names that may be used and are not.
fn unused(world: &World) -> impl Iterator<Item = String> {
    let taken: Vec<&str> = machines(world).map(Object::name).collect();
    world.facts.usable(world.object()).filter(move |name| !taken.contains(&name.as_str()))
}

fn missing(world: &World) -> Phase {
    let steps: Result<Vec<Option<Step>>, Reason> = unused(world)
        .take(batch(world))
        .map(|name| intent::ensure(world.object(), None, machine::machine(world.object(), &name)))
        .collect();
    Phase::attempt(steps.map(|steps| steps.into_iter().flatten().collect()))
}

/// MS4: those that are marked go first, then those that are not ready, then by the set's order.
fn surplus(world: &World) -> Phase {
    let mut living: Vec<&Object> = living(world).collect();
    let excess = living.len().saturating_sub(desired(world));
    if excess == 0 {
        return Phase::Done;
    }
    let deletion = world.typed().spec.deletion.as_ref();
    let oldest_first = deletion.and_then(|deletion| deletion.order.as_deref()) == Some("Oldest");
    let ready = |machine: &Object| find(&present(machine), "Ready").is_some_and(Condition::is_true);
    let created = |machine: &Object| machine.text("/metadata/creationTimestamp").to_owned();
    living.sort_by(|one, other| {
        let age = created(one).cmp(&created(other));
        let marked = |machine: &Object| machine.annotation(DELETE_MACHINE_ANNOTATION).is_none();
        (marked(one), ready(one))
            .cmp(&(marked(other), ready(other)))
            .then(if oldest_first { age } else { age.reverse() })
            .then(one.name().cmp(other.name()))
    });
    Phase::steps(living.into_iter().take(excess).filter_map(intent::delete_as_seen))
}

/// MS1.
fn desired(world: &World) -> usize {
    let annotation = |name: &str| world.object().annotation(name).map(str::to_owned);
    let replicas = world.typed().spec.replicas.unwrap_or_else(|| autoscaled_or_one(annotation));
    usize::try_from(replicas).unwrap_or(0)
}

/// What is made next; the rest when these are there.
fn batch(world: &World) -> usize {
    missing_count(world).min(BATCH)
}

/// D6: a set may be told to make no Machines: whoever deletes one of them wants one of the current revision.
fn missing_count(world: &World) -> usize {
    if world.object().annotation(DISABLE_CREATE_ANNOTATION).is_some() {
        return 0;
    }
    desired(world).saturating_sub(living(world).count())
}

#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod tests;
