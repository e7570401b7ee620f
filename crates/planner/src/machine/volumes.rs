//! Volumes are waited for: whoever deletes a server with a volume attached risks what was not written yet.
//! Flows: what the Node and the VolumeAttachments say is attached -> without what pods that stay have -> wait. Holds: M10; a Node whose kubelet does not answer
//! detaches nothing, and is not waited for; a timeout of 0 is none (M9).

use std::collections::BTreeSet;
use std::time::Duration;

use hangar_api::names::EXCLUDE_DETACH_ANNOTATION;
use jiff::Timestamp;

use super::deletion::{began, left, touches_node};
use super::drain::several;
use super::{Facts, Load, Tenant, World, pods};
use crate::Phase;

pub(super) const CODE: &str = "WaitingForVolumeDetach";
const WHILE_ATTACHED: Duration = Duration::from_secs(5);

/// What is attached to a Node: names of volumes as the Node has them, or of PersistentVolumes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Volumes {
    pub attached: BTreeSet<String>,
    /// Of pods that stay.
    pub in_use: BTreeSet<String>,
}

pub(super) fn is_due(world: &World, facts: &Facts, now: Timestamp) -> bool {
    let excluded = world.object().annotation(EXCLUDE_DETACH_ANNOTATION).is_some();
    let unreachable = matches!(&facts.tenant, Tenant::Node(node) if pods::is_unreachable(node));
    !excluded && !unreachable && touches_node(world, facts) && time_left(world, now) != Some(Duration::ZERO)
}

fn time_left(world: &World, now: Timestamp) -> Option<Duration> {
    let deletion = world.typed().spec.deletion.as_ref();
    let seconds = deletion.and_then(|deletion| deletion.node_volume_detach_timeout_seconds);
    left(seconds, began(world, "waitForNodeVolumeDetachStartTime", now), now)
}

pub(super) fn detached(world: &World, now: Timestamp) -> Phase {
    if !is_due(world, &world.facts, now) {
        return Phase::Done;
    }
    let wait = |message: String| {
        let text =
            format!("{message}; to delete the Machine all the same, set the annotation {EXCLUDE_DETACH_ANNOTATION}");
        Phase::wait_for(CODE, text, time_left(world, now).map_or(WHILE_ATTACHED, |left| left.min(WHILE_ATTACHED)))
    };
    let name = world.object().text("/status/nodeRef/name");
    let volumes = match &world.facts.load {
        Load::Read(load) => load.volumes.as_ref(),
        Load::Unknown(why) => return wait(format!("the volumes of Node {name} are not known: {why}")),
        Load::Unread => None,
    };
    let Some(volumes) = volumes else { return wait(format!("the volumes of Node {name} are not known yet")) };
    let left: Vec<String> = volumes.attached.difference(&volumes.in_use).cloned().collect();
    if left.is_empty() {
        return Phase::Done;
    }
    wait(format!("waiting for volumes to be detached from Node {name}: {}", several(&left)))
}
