//! What controllers inside the tenant made in the cloud and left there: load balancers and floating IPs of Services, volumes of claims.
//!
//! Holds: nothing of it is deleted unless the user says so with an annotation; what keeps our network or router is named, because the cloud would only refuse.

use std::time::Duration;

use hangar_api::Object;

use crate::Phase;
use crate::cloud::ResourceType;

use super::World;

/// On an OpenStackCluster or its Cluster: `load-balancers`, `volumes` or both, with a comma. They are deleted with the cluster. Volumes hold data.
pub const DELETE_ANNOTATION: &str = "hangar.dev/delete-tenant-resources";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftoverSort {
    LoadBalancer,
    FloatingIp,
    SecurityGroup,
    Volume,
}

impl LeftoverSort {
    pub fn resource_type(self) -> ResourceType {
        match self {
            Self::LoadBalancer => ResourceType::LoadBalancer,
            Self::FloatingIp => ResourceType::FloatingIp,
            Self::SecurityGroup => ResourceType::SecurityGroup,
            Self::Volume => ResourceType::Volume,
        }
    }

    /// As the annotation names it.
    fn word(self) -> &'static str {
        match self {
            Self::LoadBalancer | Self::FloatingIp | Self::SecurityGroup => "load-balancers",
            Self::Volume => "volumes",
        }
    }
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    pub sort: LeftoverSort,
    pub id: String,
    pub name: String,
    /// Our network cannot go while it is there.
    pub blocks: bool,
    /// It is on its way out, or must not be touched now.
    pub pending: bool,
}

impl Leftover {
    /// The cloud accepted its deletion; Octavia takes a while.
    pub fn goes(&mut self) {
        self.pending = true;
    }

    pub fn is_gone(&self) -> bool {
        self.pending && self.sort != LeftoverSort::LoadBalancer
    }

    fn described(&self) -> String {
        match self.sort {
            LeftoverSort::LoadBalancer => format!("load balancer {}", self.name),
            LeftoverSort::FloatingIp => format!("floating IP {}", self.name),
            LeftoverSort::SecurityGroup => format!("security group {}", self.name),
            LeftoverSort::Volume => format!("volume {}", self.name),
        }
    }
}

fn is_asked_for(world: &World, leftover: &Leftover) -> bool {
    let objects = [Some(world.object()), world.cluster()];
    let mut values = objects.into_iter().flatten().filter_map(|object: &Object| object.annotation(DELETE_ANNOTATION));
    values.any(|value| value.split(',').any(|word| word.trim() == leftover.sort.word()))
}

pub fn leftovers(world: &World) -> Phase {
    let all = &world.facts.leftovers;
    let (asked, kept): (Vec<_>, Vec<_>) = all.iter().partition(|it| is_asked_for(world, it));
    let steps = asked.iter().filter(|it| !it.pending);
    let delete = |it: &&&Leftover| world.facts.cloud.delete(it.sort.resource_type(), &it.id);
    let phase = Phase::steps(steps.map(|it| delete(&it)));
    if !phase.is_done() {
        return phase;
    }
    if let Some(first) = asked.first() {
        let text = format!("waiting for {} to be deleted", first.described());
        return Phase::wait_for("WaitingForLoadBalancerDeletion", text, Duration::from_secs(2));
    }
    let blocking: Vec<String> = kept.iter().filter(|it| it.blocks).map(|it| it.described()).collect();
    match blocking.len() {
        0 => Phase::Done,
        _ => Phase::blocked(
            "TenantResourcesLeft",
            format!(
                "controllers in the cluster left {} in its network: delete them, or set the annotation {DELETE_ANNOTATION}: load-balancers",
                blocking.join(", ")
            ),
        ),
    }
}
