//! What a Machine says of itself: its bootstrap config, its infrastructure, its Node, and what follows from them.

use std::time::Duration;

use hangar_api::conditions::{Condition, Part, Polarity, Status, find, summarize};
use hangar_api::contract::Foreign;
use hangar_api::{KubeVersion, Object};
use jiff::{SignedDuration, Timestamp};

use super::{BOOTSTRAP, CONNECTING, INFRASTRUCTURE, Tenant, UNREACHABLE, World};
use crate::Progress;
use crate::report::{DELETING, PAUSED, READY, present};

/// What is written here; whatever else stands on a Machine is somebody else's word.
pub(super) const OWN: &[&str] = &[
    "Available",
    READY,
    "BootstrapConfigReady",
    "InfrastructureReady",
    "NodeReady",
    "NodeHealthy",
    "UpToDate",
    DELETING,
    PAUSED,
];
/// Words of health checks, which count if they are there.
const OF_HEALTH_CHECKS: [&str; 2] = ["HealthCheckSucceeded", "OwnerRemediated"];
const PRESSURES: [&str; 3] = ["MemoryPressure", "DiskPressure", "PIDPressure"];

pub(super) fn of(
    world: &World,
    progress: &Progress,
    has_data: bool,
    provisioned: bool,
    now: Timestamp,
) -> Vec<Condition> {
    let mut parts = parts(world, has_data, provisioned);
    let mut ready = ready(world, &parts);
    if let Progress::Blocked(reason) = progress {
        ready = Condition::new(READY, Status::False, reason.code, reason.message.clone());
    } else if world.object().is_deleting() {
        ready = Condition::new(READY, Status::False, "Deleting", "it is being deleted");
    }
    let (available, _) = available(world, &ready, now);
    let mut all = vec![available, ready];
    all.append(&mut parts);
    all.extend(up_to_date(world));
    all
}

/// When it is available although nothing else happens.
pub(super) fn available_in(world: &World, has_data: bool, provisioned: bool, now: Timestamp) -> Option<Duration> {
    available(world, &ready(world, &parts(world, has_data, provisioned)), now).1
}

fn parts(world: &World, has_data: bool, provisioned: bool) -> Vec<Condition> {
    let say = |kind: &str, good: bool, object: Option<&Object>, otherwise: &str| {
        if good {
            return Condition::new(kind, Status::True, kind, "");
        }
        let message = object.map_or_else(|| otherwise.to_owned(), |object| Foreign::new(object).waits_for(otherwise));
        Condition::new(kind, Status::False, &format!("Not{kind}"), message)
    };
    let (config, machine) = (world.referenced(BOOTSTRAP), world.referenced(INFRASTRUCTURE));
    let bootstrap = say("BootstrapConfigReady", has_data, config, "has no bootstrap data yet");
    let infrastructure = say("InfrastructureReady", provisioned, machine, "is not provisioned yet");
    let [node_ready, node_healthy] = node_conditions(world);
    vec![bootstrap, infrastructure, node_ready, node_healthy]
}

/// M4: NodeReady is a part of NodeHealthy; gates count from the moment in which they are asked for.
fn ready(world: &World, parts: &[Condition]) -> Condition {
    let said = present(world.object());
    let mut all: Vec<Part> = parts
        .iter()
        .filter(|part| part.kind != "NodeReady")
        .map(|part| Part { kind: &part.kind, condition: Some(part), polarity: Polarity::Positive })
        .collect();
    for kind in OF_HEALTH_CHECKS {
        let condition = find(&said, kind);
        all.extend(condition.map(|_| Part { kind, condition, polarity: Polarity::Positive }));
    }
    let gates = world.typed().spec.readiness_gates.as_deref().unwrap_or_default();
    // A gate that waits for what it decides would never open.
    for gate in gates.iter().filter(|gate| ![READY, "Available"].contains(&gate.condition_type.as_str())) {
        let negative = gate.polarity.as_deref() == Some("Negative");
        let polarity = if negative { Polarity::Negative } else { Polarity::Positive };
        all.push(Part { kind: &gate.condition_type, condition: find(&said, &gate.condition_type), polarity });
    }
    summarize(READY, &all)
}

/// M4: ready for so long; and what is left of that.
fn available(world: &World, ready: &Condition, now: Timestamp) -> (Condition, Option<Duration>) {
    let same = Condition { kind: "Available".into(), ..ready.clone() };
    let seconds = world.typed().spec.min_ready_seconds.unwrap_or(0);
    if !ready.is_true() || seconds <= 0 {
        return (same, None);
    }
    let said = present(world.object());
    let before = find(&said, READY).filter(|condition| condition.is_true());
    let since = before.and_then(|condition| condition.last_transition_time.as_deref()?.parse().ok()).unwrap_or(now);
    let left = SignedDuration::from_secs(seconds.into()).saturating_sub(now.duration_since(since));
    match Duration::try_from(left) {
        Ok(left) if !left.is_zero() => {
            let text = format!("it has to be ready for {seconds} s");
            (Condition::new("Available", Status::False, "WaitingForMinReadySeconds", text), Some(left))
        }
        _ => (same, None),
    }
}

/// M13: whether the node runs what was asked for. Versions are compared by meaning: a build tag or a missing `v` is no difference.
fn up_to_date(world: &World) -> Option<Condition> {
    let Tenant::Node(node) = &world.facts.tenant else { return None };
    let wanted = KubeVersion::parse(world.typed().spec.version.as_deref()?)?;
    let running = KubeVersion::parse(node.text("/status/nodeInfo/kubeletVersion"))?;
    Some(if running == wanted {
        Condition::new("UpToDate", Status::True, "UpToDate", "")
    } else {
        let text = format!("requested {wanted}, its kubelet runs {running}");
        Condition::new("UpToDate", Status::False, "NotUpToDate", text)
    })
}

/// M3: a Node that was there and is gone is not the same as one that has not come yet; NodeReady and NodeHealthy.
fn node_conditions(world: &World) -> [Condition; 2] {
    let both = |status: Status, reason: &str, message: String| {
        ["NodeReady", "NodeHealthy"].map(|kind| Condition::new(kind, status, reason, message.clone()))
    };
    let known = world.object().text("/status/nodeRef/name");
    match &world.facts.tenant {
        Tenant::Node(_) if world.facts.is_silent() => both(Status::Unknown, "ConnectionDown", UNREACHABLE.into()),
        Tenant::Node(node) => [node_ready(node), node_healthy(node)],
        Tenant::Unreachable => both(Status::Unknown, "ConnectionDown", UNREACHABLE.into()),
        Tenant::Connecting => both(Status::Unknown, "ConnectionDown", CONNECTING.into()),
        Tenant::NoNode if !known.is_empty() => both(Status::False, "NodeDeleted", format!("Node {known} was deleted")),
        Tenant::NoNode => {
            both(Status::Unknown, "NodeNotYetJoined", "no Node with its provider id has joined yet".into())
        }
    }
}

/// Status and message of a condition of the Node.
fn of_node<'a>(node: &'a Object, kind: &str) -> Option<(&'a str, &'a str)> {
    let mut all = node.get("/status/conditions").as_array().into_iter().flatten();
    let found = all.find(|condition| condition["type"] == kind)?;
    Some((found["status"].as_str().unwrap_or_default(), found["message"].as_str().unwrap_or_default()))
}

fn node_ready(node: &Object) -> Condition {
    let (status, reason, text) = match of_node(node, READY) {
        Some(("True", _)) => (Status::True, "NodeReady", String::new()),
        Some(("False", text)) => (Status::False, "NodeNotReady", format!("Node {} is not ready: {text}", node.name())),
        Some((_, text)) => (Status::Unknown, "NodeReadyUnknown", format!("Node {} is silent: {text}", node.name())),
        None => (Status::Unknown, "NodeReadyUnknown", format!("Node {} has not reported yet", node.name())),
    };
    Condition::new("NodeReady", status, reason, text)
}

/// Pressure that a kubelet does not report at all is none.
fn node_healthy(node: &Object) -> Condition {
    let pressures = PRESSURES.iter().filter_map(|kind| Some((*kind, of_node(node, kind)?)));
    let pressures: Vec<(&str, (&str, &str))> = pressures.filter(|(_, (status, _))| *status != "False").collect();
    let pressed = pressures.iter().any(|(_, (status, _))| *status == "True");
    let ready = node_ready(node);
    let ill =
        pressures.iter().map(|(kind, (status, text))| format!("Node {} has {kind}={status}: {text}", node.name()));
    let lines: Vec<String> = Some(ready.message).filter(|text| !text.is_empty()).into_iter().chain(ill).collect();
    let (status, reason) = match (ready.status.as_str(), pressed, lines.is_empty()) {
        ("False", ..) | (_, true, _) => (Status::False, "NodeNotHealthy"),
        ("True", false, true) => (Status::True, "NodeHealthy"),
        _ => (Status::Unknown, "NodeHealthUnknown"),
    };
    Condition::new("NodeHealthy", status, reason, lines.join("; "))
}
