//! What a Cluster says of itself: its parts, whether they answer, and what goes on with its machines.
//!
//! Flows: infrastructure, control plane, workers, connection, gates -> Available; counts and words of workers and control plane -> RollingOut, ScalingUp, ScalingDown,
//! Remediating. Holds: what is not known after a start stays as it was said before.

use hangar_api::Object;
use hangar_api::conditions::{Condition, Part, Polarity, Status, aggregate, find, mirror, summarize};
use hangar_api::contract::Foreign;

use super::{Connection, World, control_plane, deployments_and_pools, has_control_plane, infrastructure, was_there};
use crate::Progress;
use crate::report::{DELETING, PAUSED, present};

/// What is written here; whatever else stands on a Cluster is somebody else's word, such as that of a gate.
pub(super) const OWN: &[&str] = &[
    AVAILABLE,
    "InfrastructureReady",
    "ControlPlaneInitialized",
    "ControlPlaneAvailable",
    "WorkersAvailable",
    PROBE,
    ROLLING_OUT,
    SCALING_UP,
    SCALING_DOWN,
    REMEDIATING,
    DELETING,
    PAUSED,
];

const AVAILABLE: &str = "Available";
const PROBE: &str = "RemoteConnectionProbe";
const ROLLING_OUT: &str = "RollingOut";
const SCALING_UP: &str = "ScalingUp";
const SCALING_DOWN: &str = "ScalingDown";
const REMEDIATING: &str = "Remediating";

/// C7.
pub(super) fn of(world: &World, progress: &Progress, initialized: bool) -> Vec<Condition> {
    let infrastructure =
        mirrored(world, "InfrastructureReady", "infrastructureRef", infrastructure(world), &["Ready"], |part| {
            part.provisioned()
        });
    let plane = mirrored(
        world,
        "ControlPlaneAvailable",
        "controlPlaneRef",
        control_plane(world),
        &["Available", "Ready"],
        |part| part.control_plane_initialized(),
    );
    let workers = workers(world);
    let refers =
        world.object().get("/spec/infrastructureRef").is_object() || world.object().get("/spec/topology").is_object();
    let infrastructure = Some(infrastructure).filter(|_| refers);
    let plane = Some(plane).filter(|_| has_control_plane(world));
    let probe = probe(world);
    let parts: Vec<&Condition> =
        [probe.as_ref(), infrastructure.as_ref(), plane.as_ref(), Some(&workers)].into_iter().flatten().collect();
    let available = available(world, progress, &parts);
    let reason = if initialized { "Initialized" } else { "NotInitialized" };
    let started = Condition::new("ControlPlaneInitialized", initialized.into(), reason, "");
    let mut all = vec![available];
    all.extend(infrastructure);
    all.push(started);
    all.extend(plane);
    all.push(workers);
    all.extend(probe);
    all.extend([ROLLING_OUT, SCALING_UP, SCALING_DOWN, REMEDIATING].map(|kind| going_on(world, kind)));
    all
}

fn available(world: &World, progress: &Progress, parts: &[&Condition]) -> Condition {
    if world.object().is_deleting() {
        return Condition::new(AVAILABLE, Status::False, "Deleting", "it is being deleted");
    }
    let said = present(world.object());
    let good = parts.iter().map(|part| Part { kind: &part.kind, condition: Some(part), polarity: Polarity::Positive });
    let mut parts: Vec<Part> = good.collect();
    let gates = world.typed().spec.availability_gates.as_deref().unwrap_or_default();
    // A gate that waits for what it decides would never open.
    for gate in gates.iter().filter(|gate| gate.condition_type != AVAILABLE) {
        let negative = gate.polarity.as_deref() == Some("Negative");
        let polarity = if negative { Polarity::Negative } else { Polarity::Positive };
        parts.push(Part { kind: &gate.condition_type, condition: find(&said, &gate.condition_type), polarity });
    }
    let mut available = summarize(AVAILABLE, &parts);
    if !available.is_true() && !progress.message().is_empty() {
        available.message = format!("{}\n{}", progress.message(), available.message);
    }
    available
}

fn workers(world: &World) -> Condition {
    let name = |object: &Object| format!("{} {}", object.kind(), object.name());
    let theirs: Vec<(String, Vec<Condition>)> =
        deployments_and_pools(world).map(|object| (name(object), present(object))).collect();
    let parts: Vec<(String, Option<&Condition>)> =
        theirs.iter().map(|(name, conditions)| (name.clone(), find(conditions, AVAILABLE))).collect();
    aggregate("WorkersAvailable", &parts)
}

/// C8.
fn probe(world: &World) -> Option<Condition> {
    match &world.facts.connection {
        Connection::Answers => Some(Condition::new(PROBE, Status::True, "ProbeSucceeded", "")),
        Connection::Away => {
            Some(Condition::new(PROBE, Status::False, "ProbeFailed", "the control plane does not answer"))
        }
        Connection::Refused(why) => Some(Condition::new(PROBE, Status::False, "InvalidKubeconfig", why.clone())),
        Connection::Unknown => find(&present(world.object()), PROBE).cloned(),
    }
}

/// Another object's own condition, or its flag where it has none.
fn mirrored(
    world: &World,
    kind: &str,
    field: &str,
    object: Option<&Object>,
    theirs: &[&str],
    flag: fn(&Foreign<'_>) -> Option<bool>,
) -> Condition {
    let Some(object) = object else {
        if was_there(world, field) && !world.object().is_deleting() {
            let text = format!("the object that spec.{field} names has been deleted");
            return Condition::new(kind, Status::False, "Deleted", text);
        }
        return Condition::new(kind, Status::Unknown, "NotFound", "the object that the Cluster names is not there");
    };
    let foreign = Foreign::new(object);
    let found = theirs.iter().find_map(|name| foreign.condition(name));
    let mut condition = mirror(kind, object.kind(), found.as_ref(), flag(&foreign));
    if condition.reason.is_empty() {
        condition.reason = kind.to_owned();
    }
    condition.severity = None;
    condition
}

/// Whether something goes on with the control plane or with workers, by the counts that the Cluster looks at in any case, or by their own word.
fn going_on(world: &World, kind: &str) -> Condition {
    let plane = control_plane(world).filter(|plane| {
        let own = Foreign::new(plane).condition(kind);
        own.map_or_else(|| counts(kind, &plane_counts(plane)), |own| own.is_true())
    });
    let deployments = deployments_and_pools(world).filter(|it| match kind {
        REMEDIATING => find(&present(it), kind).is_some_and(Condition::is_true),
        _ => counts(kind, &worker_counts(it)),
    });
    let names: Vec<String> =
        plane.into_iter().chain(deployments).map(|it| format!("{} {}", it.kind(), it.name())).collect();
    if names.is_empty() {
        return Condition::new(kind, Status::False, &format!("Not{kind}"), "");
    }
    let more = names.len().saturating_sub(3);
    let shown = names.into_iter().take(3).collect::<Vec<_>>().join(", ");
    let message = if more > 0 { format!("{shown}, ... ({more} more)") } else { shown };
    Condition::new(kind, Status::True, kind, message)
}

/// Wanted, there, up to date.
struct Counts(Option<i64>, i64, i64);

fn counts(kind: &str, Counts(wanted, there, up_to_date): &Counts) -> bool {
    match kind {
        SCALING_UP => wanted.is_some_and(|wanted| there < &wanted),
        SCALING_DOWN => wanted.is_some_and(|wanted| there > &wanted),
        ROLLING_OUT => up_to_date < there,
        _ => false,
    }
}

fn worker_counts(deployment: &Object) -> Counts {
    let number = |pointer: &str| deployment.get(pointer).as_i64();
    let there = number("/status/replicas").unwrap_or(0);
    Counts(number("/spec/replicas"), there, number("/status/upToDateReplicas").unwrap_or(0))
}

/// One that does not count has nothing to scale.
fn plane_counts(plane: &Object) -> Counts {
    match Foreign::new(plane).replicas().filter(|_| plane.get("/status/replicas").is_number()) {
        Some(replicas) => Counts(Some(replicas.desired), replicas.total, replicas.up_to_date),
        None => Counts(None, 0, 0),
    }
}
