//! How a Machine goes: its Node is emptied first, and forgotten last.
//! Flows: may the Node be touched (M7) -> pre-drain hooks -> pods ([`super::drain`]) -> volumes ([`super::volumes`]) -> pre-terminate hooks ->
//! infrastructure -> bootstrap config -> Node. Holds: a Machine whose cluster cannot be asked is not deleted over the heads of its pods: it waits until
//! a timeout of its own says otherwise or the Cluster goes; what is being torn down already is not drained any more.

use std::time::Duration;

use hangar_api::contract::Foreign;
use hangar_api::kinds::MachineStatusDeletion;
use hangar_api::names::{PRE_DRAIN_HOOK, PRE_TERMINATE_HOOK};
use hangar_api::{Object, references, registry};
use jiff::{SignedDuration, Timestamp};

use super::{
    BOOTSTRAP, CONNECTING, Facts, INFRASTRUCTURE, Machines, Tenant, UNREACHABLE, World, drain, tenant, volumes,
};
use crate::intent;
use crate::step::TenantCall;
use crate::{Phase, Phases, Progress};

const PRE_DRAIN_CODE: &str = "WaitingForPreDrainHook";
const PRE_TERMINATE_CODE: &str = "WaitingForPreTerminateHook";

/// M9.
const NODE_DELETION_SECONDS: i32 = 10;
const LOOK_AGAIN: Duration = Duration::from_secs(20);

pub(super) fn phases(phases: Phases<'_, Machines>) -> Phases<'_, Machines> {
    phases
        .then(known)
        .then(pre_drain_hooks)
        .then_at(drain::drained)
        .then_at(volumes::detached)
        .then(pre_terminate_hooks)
        .then(infrastructure)
        .then(bootstrap)
        .then_at(node)
}

/// Whether the pods of the Node matter to what comes next: else nobody asks for them.
pub fn needs_pods(world: &World, facts: &Facts, now: Timestamp) -> bool {
    let Tenant::Node(node) = &facts.tenant else { return false };
    // As long as pods may still come, nobody knows which ones there are.
    let due =
        if drain::is_due(world, facts, now) { drain::is_cordoned(node) } else { volumes::is_due(world, facts, now) };
    due && hooks(world, PRE_DRAIN_HOOK).is_empty()
}

/// Whether its volumes matter: not before the pods that have them are gone.
pub fn needs_volumes(world: &World, facts: &Facts, now: Timestamp) -> bool {
    volumes::is_due(world, facts, now) && (!drain::is_due(world, facts, now) || drain::is_over(world, facts, now))
}

/// Pods that stay and keep their volumes: their uids.
pub fn keeps_volumes(world: &World, facts: &Facts, now: Timestamp) -> Vec<String> {
    drain::stays(world, facts, now).into_iter().map(|pod| pod.uid().to_owned()).collect()
}

/// Whether some rule says something about namespaces.
pub fn needs_namespaces(world: &World) -> bool {
    drain::asks_for_namespaces(world)
}

/// M7: the Node of a cluster that goes, or whose control plane goes, is left alone, and so is one whose machine goes already.
pub(super) fn touches_node(world: &World, facts: &Facts) -> bool {
    if !cluster_stays(world) || world.referenced(INFRASTRUCTURE).is_none_or(Object::is_deleting) {
        return false;
    }
    let has_node = match &facts.tenant {
        Tenant::Node(_) => true,
        Tenant::NoNode => false,
        Tenant::Unreachable | Tenant::Connecting => !world.object().text("/status/nodeRef/name").is_empty(),
    };
    has_node && has_control_plane(world, facts)
}

fn cluster_stays(world: &World) -> bool {
    world.cluster().is_some_and(|cluster| !cluster.is_deleting())
}

/// Whether somebody is left who would hear of the Node.
fn has_control_plane(world: &World, facts: &Facts) -> bool {
    let target = world.cluster().and_then(|cluster| references::target(cluster, "/spec/controlPlaneRef"));
    match (target, world.cluster_referenced("/spec/controlPlaneRef")) {
        (_, Some(plane)) if plane.is_deleting() => false,
        (_, Some(plane)) if Foreign::new(plane).is_externally_managed_control_plane() => true,
        // It is gone; but nobody can look at kinds that are not known here.
        (Some(target), None) => registry::kind(&target.group, &target.kind).is_none(),
        _ => facts.control_plane_machines > 0,
    }
}

/// What nobody could ask for yet may be there.
fn known(world: &World) -> Phase {
    let going = world.referenced(INFRASTRUCTURE).is_some_and(Object::is_deleting);
    if world.facts.tenant == Tenant::Connecting && cluster_stays(world) && !going {
        return Phase::wait("WaitingForNode", CONNECTING);
    }
    Phase::Done
}

/// M11: annotations that begin so.
fn hooks<'a>(world: &'a World, prefix: &str) -> Vec<&'a str> {
    let annotations = world.object().get("/metadata/annotations").as_object().into_iter().flatten();
    annotations.map(|(name, _)| name.as_str()).filter(|name| name.starts_with(prefix)).collect()
}

fn hooks_gone(world: &World, prefix: &str, code: &'static str, what: &str) -> Phase {
    let hooks = hooks(world, prefix);
    if hooks.is_empty() {
        return Phase::Done;
    }
    Phase::wait(code, format!("waiting for {what} hooks to be removed: {}", hooks.join(", ")))
}

fn pre_drain_hooks(world: &World) -> Phase {
    if !touches_node(world, &world.facts) {
        return Phase::Done;
    }
    hooks_gone(world, PRE_DRAIN_HOOK, PRE_DRAIN_CODE, "pre-drain")
}

fn pre_terminate_hooks(world: &World) -> Phase {
    hooks_gone(world, PRE_TERMINATE_HOOK, PRE_TERMINATE_CODE, "pre-terminate")
}

fn infrastructure(world: &World) -> Phase {
    intent::gone(world.referenced(INFRASTRUCTURE), "WaitingForInfrastructureDeletion")
}

fn bootstrap(world: &World) -> Phase {
    intent::gone(world.referenced(BOOTSTRAP), "WaitingForBootstrapDeletion")
}

/// M9: a Node that cannot be deleted holds its Machine up only for so long.
fn node(world: &World, now: Timestamp) -> Phase {
    if !cluster_stays(world) || !has_control_plane(world, &world.facts) {
        return Phase::Done;
    }
    let deletion = world.typed().spec.deletion.as_ref();
    let seconds = deletion.and_then(|deletion| deletion.node_deletion_timeout_seconds).unwrap_or(NODE_DELETION_SECONDS);
    let since = world.object().text("/metadata/deletionTimestamp").parse().unwrap_or(now);
    let left = left(Some(seconds), since, now);
    let known = world.object().text("/status/nodeRef/name");
    match (&world.facts.tenant, left) {
        (Tenant::Node(node), left) => {
            let call = TenantCall::DeleteNode { name: node.name().to_owned(), last_try: left == Some(Duration::ZERO) };
            Phase::Steps(vec![tenant(world, call)])
        }
        (Tenant::Connecting, _) => Phase::wait("DeletingNode", CONNECTING),
        (Tenant::Unreachable, left) if !known.is_empty() && left != Some(Duration::ZERO) => {
            let text = format!("{UNREACHABLE}, so Node {known} cannot be deleted");
            Phase::wait_for("DeletingNode", text, left.unwrap_or(LOOK_AGAIN))
        }
        _ => Phase::Done,
    }
}

/// What is left of a timeout; nothing if there is none (M9: 0 is no timeout).
pub(super) fn left(seconds: Option<i32>, since: Timestamp, now: Timestamp) -> Option<Duration> {
    let seconds = seconds.filter(|seconds| *seconds > 0)?;
    let left = SignedDuration::from_secs(seconds.into()).saturating_sub(now.duration_since(since));
    Some(Duration::try_from(left).unwrap_or_default())
}

/// When something began that a timeout limits; it begins now if nothing is written down.
pub(super) fn began(world: &World, field: &str, now: Timestamp) -> Timestamp {
    world.object().text(&format!("/status/deletion/{field}")).parse().unwrap_or(now)
}

/// When draining and waiting began.
pub(super) fn times(world: &World, progress: &Progress, now: Timestamp) -> Option<MachineStatusDeletion> {
    if !world.object().is_deleting() {
        return None;
    }
    let mut times = world.typed().status.as_ref().and_then(|status| status.deletion.clone()).unwrap_or_default();
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    match progress.reason().map(|reason| reason.code) {
        Some(drain::CODE) => drop(times.node_drain_start_time.get_or_insert(now)),
        Some(PRE_DRAIN_CODE) => drop(times.wait_for_pre_drain_hook_start_time.get_or_insert(now)),
        Some(PRE_TERMINATE_CODE) => drop(times.wait_for_pre_terminate_hook_start_time.get_or_insert(now)),
        Some(volumes::CODE) => drop(times.wait_for_node_volume_detach_start_time.get_or_insert(now)),
        _ => {}
    }
    (times != MachineStatusDeletion::default()).then_some(times)
}
