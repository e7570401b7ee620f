//! MachineHealthCheck: which Machines are unhealthy, and whether they may be replaced.
//! Flows: targets -> unhealthy ones -> marked as such -> within the limit, marked for their owner, which makes others, or for somebody else who mends them ([`external`]). Holds: nothing is deleted here;
//! outside of the limit nobody is asked to replace anything and the status says so; Machines that are paused or to be left alone are never touched.

pub mod external;
mod health;
mod limits;
pub(crate) mod marks;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hangar_api::conditions::{Condition, Status};
use hangar_api::kinds::{Machine, MachineHealthCheck};
use hangar_api::names::PAUSED_ANNOTATION;
use hangar_api::{Object, selector};
use jiff::Timestamp;

use crate::{Phase, Phases, Planner, Progress, Report};

use health::{Health, health};

pub struct MachineHealthChecks;

type World = crate::World<MachineHealthChecks>;

const SKIP_REMEDIATION_ANNOTATION: &str = "cluster.x-k8s.io/skip-remediation";
const SUCCEEDED: &str = "HealthCheckSucceeded";
const OWNER_REMEDIATED: &str = "OwnerRemediated";
const EXTERNALLY_REMEDIATED: &str = "ExternallyRemediated";
/// H4: what is said of Machines here, and by nobody else.
pub const MARKS: [&str; 3] = [SUCCEEDED, OWNER_REMEDIATED, EXTERNALLY_REMEDIATED];
/// Conditions of Machines may be anybody's, and not all of them wake who looks at them.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The time of the pass, as health is a matter of how long, and the Nodes.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub now: Timestamp,
    /// Of the cluster, by name and by provider id; nothing if nobody can tell.
    pub nodes: Option<BTreeMap<String, Arc<Object>>>,
    pub requests: external::Requests,
}

impl crate::Absorb for Facts {
    fn absorb(&mut self, effect: &crate::Effect) {
        self.requests.absorb(effect);
    }
}

impl Planner for MachineHealthChecks {
    type Kind = MachineHealthCheck;
    type Facts = Facts;
    const READY: bool = false;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases
            .facts()
            .then(external::known)
            .then_at(external::recovered)
            .then_at(marks::written)
            .then_at(external::asked)
            .then_at(limited)
            .then_at(later)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<MachineHealthCheck>) {
        let targets = targets(world);
        let unhealthy = unhealthy(world, &targets, world.facts.now);
        let allowed = limits::limits(world, targets.len()).map_or(0, |(_, most)| most);
        report.status.expected_machines = Some(targets.len() as i32);
        report.status.current_healthy = Some((targets.len() - unhealthy) as i32);
        report.status.remediations_allowed = Some(allowed.saturating_sub(unhealthy) as i32);
        report.status.targets = Some(targets.iter().map(|machine| machine.name().to_owned()).collect());
        report.condition(match progress {
            Progress::Blocked(reason) => {
                Condition::new("RemediationAllowed", Status::False, reason.code, reason.message.clone())
            }
            _ => Condition::new("RemediationAllowed", Status::True, "RemediationAllowed", ""),
        });
    }

    fn recheck(world: &World, _now: Timestamp) -> Option<Duration> {
        let is_set = |pointer: &str| !world.object().get(pointer).is_null();
        // Nor do requests, which are not watched.
        let asks = is_set("/spec/remediation/templateRef") && world.facts.requests.0.values().next().is_some();
        (asks || is_set("/spec/checks/unhealthyMachineConditions")).then_some(LOOK_AGAIN)
    }
}

/// H1: selected, of this cluster, and nobody asked to leave them alone.
fn targets(world: &World) -> Vec<&Object> {
    let selected = |machine: &&Object| selector::matches(world.object().get("/spec/selector"), &machine.labels());
    world.all::<Machine>().filter(selected).filter(|machine| !is_left_alone(machine)).collect()
}

/// H1: whatever was said of it before.
pub(crate) fn is_left_alone(machine: &Object) -> bool {
    machine.annotation(PAUSED_ANNOTATION).is_some() || machine.annotation(SKIP_REMEDIATION_ANNOTATION).is_some()
}

fn says_false(machine: &Object, kind: &str) -> bool {
    let mut all = machine.get("/status/conditions").as_array().into_iter().flatten();
    all.any(|condition| condition["type"] == kind && condition["status"] == "False")
}

/// H4: a health check has found it unhealthy.
fn is_marked(machine: &Object) -> bool {
    says_false(machine, SUCCEEDED)
}

/// H4: its owner was told to replace it.
pub(crate) fn is_being_remediated(machine: &Object) -> bool {
    is_marked(machine) && says_false(machine, OWNER_REMEDIATED)
}

fn unhealthy(world: &World, targets: &[&Object], now: Timestamp) -> usize {
    targets.iter().filter(|machine| health(world, machine, now).counts(machine)).count()
}

fn limited(world: &World, now: Timestamp) -> Phase {
    let targets = targets(world);
    limits::refusal(world, unhealthy(world, &targets, now), targets.len()).map_or(Phase::Done, Phase::Blocked)
}

/// The next moment at which a Machine may be unhealthy.
fn later(world: &World, now: Timestamp) -> Phase {
    let suspects = targets(world).into_iter().filter_map(|machine| match health(world, machine, now) {
        Health::Suspect(left) => Some((left, machine.name().to_owned())),
        _ => None,
    });
    match suspects.min() {
        Some((left, name)) => {
            let wait = Duration::try_from(left).unwrap_or_default().saturating_add(Duration::from_secs(1));
            Phase::wait_for("MachineSuspect", format!("Machine {name} is not healthy; looking again"), wait)
        }
        None => Phase::Done,
    }
}

#[cfg(test)]
mod tests;
