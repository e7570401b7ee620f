//! OpenStackCluster: everything that a cluster has in its cloud beside its machines.
//! Flows: owner -> what names mean -> project -> network -> router -> security groups -> load balancer -> floating IP -> endpoint -> bastion. Holds: whatever is made carries our
//! key from its create call; nothing else is deleted; with a hosted control plane no endpoint is ever allocated here; the bastion keeps nobody waiting.

mod bastion;
mod endpoint;
mod leftovers;
mod names;
mod parts;
mod room;
mod status;

use std::time::Duration;

use hangar_api::kinds::{OpenStackCluster, OpenStackMachine};
use hangar_api::names::OPENSTACK_CLUSTER_FINALIZER;
use hangar_openstack_types::{FloatingIp, Network, Port, Router, Subnet};
use jiff::Timestamp;

use crate::cloud::instance::Resolved;
use crate::cloud::quota::Quota;
use crate::cloud::{self, Cloud, CloudAnswer, Lookup, load_balancer};
use crate::planner::Part;
use crate::step::Effect;
use crate::{Absorb, Phase, Phases, Planner, Progress, Report, Shared};

pub use bastion::FINGERPRINT_METADATA;
pub use endpoint::API_ADDRESS_ANNOTATION;
pub use leftovers::{DELETE_ANNOTATION, Leftover, LeftoverSort};
pub use parts::{
    bastion_enabled, is_managed, needs_floating_ips, needs_load_balancers, told_to_machines, wants_external,
};
pub use room::{bastion_needs, needs};

pub struct OpenStackClusters;

type World = crate::World<OpenStackClusters>;

/// What somebody changed in the cloud is seen after this time: clouds do not call back.
const DRIFT: Duration = Duration::from_secs(60);

/// What the cloud has for this cluster.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub cloud: Cloud,
    pub found: Found,
    pub zones: Vec<String>,
    /// What the names in the bastion's spec mean; they are asked for only while there is no server.
    pub bastion: Resolved,
    /// Every port in our network, when it is about to go.
    pub network_ports: Vec<Port>,
    /// What controllers in the tenant made, when the cluster is about to go.
    pub leftovers: Vec<Leftover>,
    pub quota: Quota,
}

/// What the spec's names and filters mean.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    pub external: Lookup,
    pub external_network: Option<Network>,
    pub network_lookup: Lookup,
    pub network: Option<Network>,
    /// By position in `spec.subnets`; nothing if all of the network's subnets are meant.
    pub subnet_lookups: Vec<Lookup>,
    pub subnets: Vec<Subnet>,
    pub router_lookup: Lookup,
    pub router: Option<Router>,
    /// By position in `spec.externalRouterIPs`.
    pub external_subnets: Vec<Lookup>,
    pub balancer_network: Lookup,
    pub balancer_subnet: Lookup,
    pub balancer_flavor: Lookup,
    /// The user's floating IPs with the addresses in the spec.
    pub api_address: Option<FloatingIp>,
    pub bastion_address: Option<FloatingIp>,
}

impl Absorb for Facts {
    fn absorb(&mut self, effect: &Effect) {
        self.cloud.absorb(effect);
        if let Effect::Cloud(CloudAnswer::Gone(of, id)) = effect {
            self.leftovers
                .iter_mut()
                .filter(|it| it.sort.resource_type() == *of && it.id == *id)
                .for_each(Leftover::goes);
            self.leftovers.retain(|it| !it.is_gone());
            self.network_ports.retain(|port| port.id != *id);
        }
    }
}

impl Planner for OpenStackClusters {
    type Kind = OpenStackCluster;
    type Facts = Facts;
    const FINALIZER: Option<&'static str> = Some(OPENSTACK_CLUSTER_FINALIZER);
    const SHARED: Shared = Shared::WhenTrue;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases
            .then(owner)
            .facts()
            .then(names::names)
            .then(room::room)
            .then(project)
            .part(parts::network_part)
            .part(parts::router_part)
            .then(parts::surplus)
            .part(parts::groups)
            .then_at(endpoint::balancer)
            .then_at(endpoint::address)
            .then(endpoint::endpoint)
            .then_at(bastion::build)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases
            .then(machines_gone)
            .facts()
            .then(same_project)
            .then_at(bastion::delete)
            .then_at(|world, now| load_balancer::gone(&world.facts.cloud, now))
            .then_at(|world, now| endpoint::api_address(world).delete(now))
            .then(leftovers::leftovers)
            .then(|world| parts::network_part(world).part.kept())
            .part_gone(parts::router_part)
            .part_gone(parts::network_part)
            .part_gone(parts::groups)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<OpenStackCluster>) {
        status::write(world, progress, report);
    }

    fn recheck(_world: &World, _now: Timestamp) -> Option<Duration> {
        Some(DRIFT)
    }
}

/// Everything that machines and the control plane wait for.
fn infrastructure(world: &World, now: Timestamp) -> Phase {
    if let Some(reason) = &world.facts_error {
        return Phase::Blocked(reason.clone());
    }
    owner(world)
        .then(|| names::names(world))
        .then(|| room::room(world))
        .then(|| project(world))
        .then(|| parts::network_part(world).build(now))
        .then(|| parts::router_part(world).build(now))
        .then(|| parts::surplus(world))
        .then(|| parts::groups(world).build(now))
        .then(|| endpoint::balancer(world, now))
        .then(|| endpoint::address(world, now))
        .then(|| endpoint::endpoint(world))
}

fn machines_gone(world: &World) -> Phase {
    match world.all::<OpenStackMachine>().count() {
        0 => Phase::Done,
        left => Phase::wait("WaitingForMachines", format!("waiting for {left} OpenStackMachines to be deleted")),
    }
}

/// Also the moment from which on the cloud is asked.
pub fn owner(world: &World) -> Phase {
    match world.cluster() {
        Some(_) => Phase::Done,
        None => Phase::wait("WaitingForCluster", "no Cluster refers to it yet"),
    }
}

fn project(world: &World) -> Phase {
    cloud::project(world.object(), &world.facts.cloud)
}

fn same_project(world: &World) -> Phase {
    cloud::same_project(world.object(), &world.facts.cloud)
}

#[cfg(test)]
mod infrastructure_tests;
#[cfg(test)]
mod tests;
