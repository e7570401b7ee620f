//! MachineHealthCheck: which Machines are unhealthy, and whether they may be replaced.
//! Flows: targets -> unhealthy ones -> within the limit -> deleted, so that their set makes others. Holds: outside of the limit nothing is
//! touched and the status says so; Machines that nobody would replace, that are paused or marked to be left alone are never touched.
//! Built so far: Nodes that are gone or never came, the Node's condition Ready and conditions of the Machine with their timeouts, limits and ranges.
//! Not yet: external remediation.

use std::time::Duration;

use hangar_api::conditions::{Condition, Status, find};
use hangar_api::kinds::{Machine, MachineHealthCheck};
use hangar_api::names::PAUSED_ANNOTATION;
use hangar_api::{Object, selector};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use crate::report::present;
use crate::{Phase, Phases, Planner, Progress, Report, intent};

pub struct MachineHealthChecks;

type World = crate::World<MachineHealthChecks>;

const SKIP_REMEDIATION_ANNOTATION: &str = "cluster.x-k8s.io/skip-remediation";
const REMEDIATE_ANNOTATION: &str = "cluster.x-k8s.io/remediate-machine";
/// H2.
const NODE_STARTUP_SECONDS: i64 = 600;

/// The time of the pass: health is a matter of how long.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    pub now: Timestamp,
}

impl crate::Absorb for Facts {
    fn absorb(&mut self, _effect: &crate::Effect) {}
}

impl Planner for MachineHealthChecks {
    type Kind = MachineHealthCheck;
    type Facts = Facts;
    const READY: bool = false;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(not_built_yet).then_at(remediate).then_at(later)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<MachineHealthCheck>) {
        let (targets, now) = (targets(world), world.facts.now);
        let unhealthy = targets.iter().filter(|machine| health(world, machine, now) == Health::Bad).count();
        let allowed = limits(world, targets.len()).map_or(0, |(_, most)| most);
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
}

/// What a look at a Machine comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Good,
    /// Not good, and so it will be bad after this time.
    Suspect(SignedDuration),
    Bad,
}

fn not_built_yet(world: &World) -> Phase {
    let remediation = world.object().get("/spec/remediation");
    if remediation["templateRef"].is_object() {
        return Phase::blocked("NotBuiltYet", "external remediation (spec.remediation.templateRef) is not built yet");
    }
    Phase::Done
}

/// H1: selected, of this cluster, and nobody asked to leave them alone.
fn targets(world: &World) -> Vec<&Object> {
    let selected = |machine: &&Object| selector::matches(world.object().get("/spec/selector"), &machine.labels());
    let left_alone = |machine: &&Object| {
        machine.annotation(PAUSED_ANNOTATION).is_some() || machine.annotation(SKIP_REMEDIATION_ANNOTATION).is_some()
    };
    world.all::<Machine>().filter(selected).filter(|machine| !left_alone(machine)).collect()
}

/// H2.
fn health(world: &World, machine: &Object, now: Timestamp) -> Health {
    if machine.is_deleting() {
        return Health::Good;
    }
    if machine.annotation(REMEDIATE_ANNOTATION).is_some() {
        return Health::Bad;
    }
    let conditions = present(machine);
    let node = conditions.iter().find(|condition| condition.kind == "NodeReady");
    let since = |text: &str| text.parse::<Timestamp>().map_or(SignedDuration::ZERO, |at| now.duration_since(at));
    let after = |seconds: i64, passed: SignedDuration| match SignedDuration::from_secs(seconds).saturating_sub(passed) {
        left if left > SignedDuration::ZERO => Health::Suspect(left),
        _ => Health::Bad,
    };
    let of_machine = worst(world.object().get("/spec/checks/unhealthyMachineConditions"), &conditions, now);
    if of_machine != Health::Good {
        return of_machine;
    }
    if machine.text("/status/nodeRef/name").is_empty() {
        let seconds = world.object().get("/spec/checks/nodeStartupTimeoutSeconds").as_i64();
        return match seconds.unwrap_or(NODE_STARTUP_SECONDS) {
            0 => Health::Good,
            seconds => after(seconds, since(machine.text("/metadata/creationTimestamp")).min(startable(world, now))),
        };
    }
    match node {
        Some(node) if node.reason == "NodeDeleted" => Health::Bad,
        // Nobody could ask: that says nothing about the Node, and a whole cluster would be replaced at once.
        Some(node) if node.reason == "ConnectionDown" => Health::Good,
        Some(node) if !node.is_true() => match timeout(world, &node.status) {
            Some(seconds) => after(seconds, since(node.last_transition_time.as_deref().unwrap_or_default())),
            None => Health::Good,
        },
        _ => Health::Good,
    }
}

/// A Machine's own conditions, each with its timeout.
fn worst(checks: &Value, conditions: &[Condition], now: Timestamp) -> Health {
    let looked_at = checks.as_array().into_iter().flatten().filter_map(|check| {
        let found = conditions.iter().find(|one| check["type"] == *one.kind && check["status"] == *one.status)?;
        let since: Timestamp = found.last_transition_time.as_deref()?.parse().ok()?;
        let timeout = SignedDuration::from_secs(check["timeoutSeconds"].as_i64().unwrap_or(0));
        Some(timeout.saturating_sub(now.duration_since(since)))
    });
    match looked_at.min() {
        Some(left) if left > SignedDuration::ZERO => Health::Suspect(left),
        Some(_) => Health::Bad,
        None => Health::Good,
    }
}

/// For how long the cluster has had what a Node needs to join.
fn startable(world: &World, now: Timestamp) -> SignedDuration {
    let conditions = world.cluster().map(present).unwrap_or_default();
    let needed = ["ControlPlaneInitialized", "InfrastructureReady"];
    let since = needed.iter().filter_map(|kind| {
        let condition = find(&conditions, kind).filter(|condition| condition.is_true())?;
        Some(now.duration_since(condition.last_transition_time.as_deref()?.parse().ok()?))
    });
    since.min().unwrap_or(SignedDuration::MAX)
}

/// How long a Node may be in this state, if the check says anything about it.
fn timeout(world: &World, status: &str) -> Option<i64> {
    let checks = world.object().get("/spec/checks/unhealthyNodeConditions").as_array().into_iter().flatten();
    let matching = checks.filter(|check| check["type"] == "Ready" && check["status"] == status);
    matching.filter_map(|check| check["timeoutSeconds"].as_i64()).min()
}

/// H3: how many must and may be unhealthy for something to be done about it; nothing if that cannot be understood.
fn limits(world: &World, targets: usize) -> Option<(usize, usize)> {
    let remediation = world.typed().spec.remediation.as_ref();
    let Some(trigger) = remediation.and_then(|remediation| remediation.trigger_if.as_ref()) else {
        return Some((0, targets));
    };
    if let Some(range) = &trigger.unhealthy_in_range {
        let (least, most) = range.strip_prefix('[')?.strip_suffix(']')?.split_once('-')?;
        let (least, most) = (least.trim().parse().ok()?, most.trim().parse().ok()?);
        return (least <= most).then_some((least, most));
    }
    match &trigger.unhealthy_less_than_or_equal_to {
        Some(IntOrString::Int(number)) => Some((0, usize::try_from(*number).unwrap_or(0))),
        Some(IntOrString::String(text)) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
            Some((0, targets.saturating_mul(percent) / 100))
        }
        None => Some((0, targets)),
    }
}

fn remediate(world: &World, now: Timestamp) -> Phase {
    let targets = targets(world);
    let unhealthy: Vec<&Object> =
        targets.iter().copied().filter(|machine| health(world, machine, now) == Health::Bad).collect();
    let count = format!("{} of {} Machines are unhealthy", unhealthy.len(), targets.len());
    let Some((least, most)) = limits(world, targets.len()) else {
        let text = "spec.remediation.triggerIf.unhealthyInRange must be two numbers, such as [1-3]";
        return Phase::blocked("InvalidRange", text);
    };
    if unhealthy.len() > most {
        return Phase::blocked("TooManyUnhealthy", format!("{count}, at most {most} may be: nothing is remediated"));
    }
    if !unhealthy.is_empty() && unhealthy.len() < least {
        let text = format!("{count}, remediation begins with {least}: nothing is remediated");
        return Phase::blocked("TooFewUnhealthy", text);
    }
    // Without a set nobody would make another one.
    let replaceable = unhealthy.into_iter().filter(|machine| machine.controller().is_some());
    Phase::steps(replaceable.filter_map(intent::delete_as_seen))
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
