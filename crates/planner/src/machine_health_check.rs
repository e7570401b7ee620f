//! MachineHealthCheck: which Machines are unhealthy, and whether they may be replaced.
//! Flows: targets -> unhealthy ones -> within the limit -> deleted, so that their set makes others. Holds: outside of the limit nothing is
//! touched and the status says so; Machines that nobody would replace, that are paused or marked to be left alone are never touched.
//! Built so far: Nodes that are gone or never came, Node conditions with their timeouts, the limit. Not yet: ranges, external remediation.

use std::time::Duration;

use hangar_api::Object;
use hangar_api::conditions::{Condition, Status};
use hangar_api::kinds::{Machine, MachineHealthCheck};
use hangar_api::names::PAUSED_ANNOTATION;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::report::present;
use crate::{Phase, Phases, Planner, Progress, Report, intent};

pub struct MachineHealthChecks;

type World = crate::World<MachineHealthChecks>;

const SKIP_REMEDIATION_ANNOTATION: &str = "cluster.x-k8s.io/skip-remediation";
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
        let allowed = limit(world, targets.len());
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
    if remediation["triggerIf"]["unhealthyInRange"].is_string() {
        let text =
            "ranges (spec.remediation.triggerIf.unhealthyInRange) are not built yet; use unhealthyLessThanOrEqualTo";
        return Phase::blocked("NotBuiltYet", text);
    }
    Phase::Done
}

/// H1: selected, of this cluster, and nobody asked to leave them alone.
fn targets(world: &World) -> Vec<&Object> {
    let selector = world.object().get("/spec/selector/matchLabels").as_object();
    let selected = |machine: &&Object| {
        let mut wanted = selector.into_iter().flatten();
        wanted.all(|(name, value)| machine.label(name) == value.as_str())
    };
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
    let conditions = present(machine);
    let node = conditions.iter().find(|condition| condition.kind == "NodeReady");
    let since = |text: &str| text.parse::<Timestamp>().map_or(SignedDuration::ZERO, |at| now.duration_since(at));
    let after = |seconds: i64, passed: SignedDuration| match SignedDuration::from_secs(seconds).saturating_sub(passed) {
        left if left > SignedDuration::ZERO => Health::Suspect(left),
        _ => Health::Bad,
    };
    if machine.text("/status/nodeRef/name").is_empty() {
        let seconds = world.object().get("/spec/checks/nodeStartupTimeoutSeconds").as_i64();
        return match seconds.unwrap_or(NODE_STARTUP_SECONDS) {
            0 => Health::Good,
            seconds => after(seconds, since(machine.text("/metadata/creationTimestamp"))),
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

/// How long a Node may be in this state, if the check says anything about it.
fn timeout(world: &World, status: &str) -> Option<i64> {
    let checks = world.object().get("/spec/checks/unhealthyNodeConditions").as_array().into_iter().flatten();
    let matching = checks.filter(|check| check["type"] == "Ready" && check["status"] == status);
    matching.filter_map(|check| check["timeoutSeconds"].as_i64()).min()
}

/// H3: how many may be unhealthy and still be replaced.
fn limit(world: &World, targets: usize) -> usize {
    let remediation = world.typed().spec.remediation.as_ref();
    let trigger = remediation.and_then(|remediation| remediation.trigger_if.as_ref());
    match trigger.and_then(|trigger| trigger.unhealthy_less_than_or_equal_to.as_ref()) {
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or(0),
        Some(IntOrString::String(text)) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
            targets.saturating_mul(percent) / 100
        }
        None => targets,
    }
}

fn remediate(world: &World, now: Timestamp) -> Phase {
    let targets = targets(world);
    let unhealthy: Vec<&Object> =
        targets.iter().copied().filter(|machine| health(world, machine, now) == Health::Bad).collect();
    let allowed = limit(world, targets.len());
    if unhealthy.len() > allowed {
        let text = format!(
            "{} of {} Machines are unhealthy, at most {allowed} may be: nothing is remediated",
            unhealthy.len(),
            targets.len()
        );
        return Phase::blocked("TooManyUnhealthy", text);
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
