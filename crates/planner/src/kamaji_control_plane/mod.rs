//! KamajiControlPlane: a control plane as pods, its data in a shared etcd.
//! Flows: owner -> translation into the model of hosted control planes -> its phases. Holds: names, labels and conditions are Kamaji's; everything else is
//! decided in [`crate::hosted`].

mod status;
mod translate;

use std::time::Duration;

use hangar_api::Object;
use hangar_api::kinds::KamajiControlPlane;
use hangar_api::names::{CLUSTER_NAME_LABEL, KAMAJI_FINALIZER};

use jiff::Timestamp;

use crate::hosted::{Facts, Hosting};
use crate::{Gauge, Phase, Phases, Planner, Progress, Report, Shared, intent};

pub struct KamajiControlPlanes;

type World = crate::World<KamajiControlPlanes>;

impl Planner for KamajiControlPlanes {
    type Kind = KamajiControlPlane;
    type Facts = Facts;
    const FINALIZER: Option<&'static str> = Some(KAMAJI_FINALIZER);
    const SHARED: Shared = Shared::WhenTrue;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(owner).facts().part(hosting)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.facts().part_gone(hosting)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<KamajiControlPlane>) {
        status::status(world, progress, report);
    }

    fn gauges(world: &World, now: Timestamp) -> Vec<Gauge> {
        hosting_objects(world).renewal(now).gauges()
    }

    /// The next certificate that is due, or the next step of a rotation.
    fn recheck(world: &World, now: Timestamp) -> Option<Duration> {
        let hosting = hosting_objects(world);
        [hosting.renewal(now).remaining(), hosting.rotation_remaining(now)].into_iter().flatten().min()
    }
}

fn owner(world: &World) -> Phase {
    match world.cluster() {
        None => Phase::wait("WaitingForCluster", "no Cluster refers to it yet"),
        Some(cluster) => {
            let labels = [(CLUSTER_NAME_LABEL, cluster.name())];
            Phase::steps(intent::adopt(world.object(), None, None, &labels))
        }
    }
}

pub(crate) fn hosting(world: &World) -> Hosting<'_> {
    Hosting {
        owner: world.object(),
        model: translate::control_plane(world),
        objects: &world.objects,
        facts: &world.facts,
        infrastructure: world.cluster_referenced("/spec/infrastructureRef"),
    }
}

/// The Deployment of its API server.
pub fn api_server(world: &World) -> Option<&Object> {
    hosting_objects(world).deployment("")
}

/// Without the model, where only objects are looked at.
fn hosting_objects(world: &World) -> Hosting<'_> {
    Hosting {
        owner: world.object(),
        model: Err(String::new()),
        objects: &world.objects,
        facts: &world.facts,
        infrastructure: None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
