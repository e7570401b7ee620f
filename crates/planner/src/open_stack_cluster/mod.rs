//! OpenStackCluster: the network and the security groups that machines are in.
//! Flows: owner -> network and subnets -> project -> security groups and rules -> endpoint. Holds: every group carries our key from its create call;
//! nothing else is deleted; with a hosted control plane no endpoint is ever allocated here.

use std::collections::BTreeMap;
use std::time::Duration;

use hangar_api::Object;
use hangar_api::kinds::{
    OpenStackCluster, OpenStackClusterStatus, OpenStackClusterStatusFailureDomainsValue,
    OpenStackClusterStatusInitialization, OpenStackClusterStatusNetwork, OpenStackClusterStatusNetworkSubnet,
    OpenStackClusterStatusWorkerSecurityGroup, OpenStackMachine,
};
use hangar_api::names::OPENSTACK_CLUSTER_FINALIZER;
use hangar_openstack_types::{Network, Subnet};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cloud::rules::Role;
use crate::cloud::security_groups::{self, SecurityGroups};
use crate::cloud::{self, Cloud, Lookup};
use crate::step::Effect;
use crate::{Absorb, Phase, Phases, Planner, Progress, Report, Shared, hosted, intent};

pub struct OpenStackClusters;

type World = crate::World<OpenStackClusters>;

/// What somebody changed in the cloud is seen after this time: clouds do not call back.
const DRIFT: Duration = Duration::from_secs(600);

/// What the cloud has for this cluster.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub cloud: Cloud,
    pub lookup: Lookup,
    pub network: Option<Network>,
    pub subnets: Vec<Subnet>,
    pub zones: Vec<String>,
}

impl Absorb for Facts {
    fn absorb(&mut self, effect: &Effect) {
        self.cloud.absorb(effect);
    }
}

impl Planner for OpenStackClusters {
    type Kind = OpenStackCluster;
    type Facts = Facts;
    const FINALIZER: Option<&'static str> = Some(OPENSTACK_CLUSTER_FINALIZER);
    const SHARED: Shared = Shared::WhenTrue;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(owner).then(not_built_yet).facts().then(network).then(project).part(groups).then(endpoint)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(machines_gone).facts().then(same_project).part_gone(groups)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<OpenStackCluster>) {
        let ready = progress.is_done() && !world.object().is_deleting();
        let before = world.typed().status.clone().unwrap_or_default();
        let was_provisioned = before.initialization.as_ref().and_then(|flags| flags.provisioned) == Some(true);
        report.status = describe(world, before);
        report.status.ready = ready;
        report.status.initialization =
            Some(OpenStackClusterStatusInitialization { provisioned: Some(ready || was_provisioned) });
    }

    fn recheck(_world: &World, _now: Timestamp) -> Option<Duration> {
        Some(DRIFT)
    }
}

fn groups(world: &World) -> SecurityGroups<'_> {
    SecurityGroups {
        cloud: &world.facts.cloud,
        spec: world.object().get("/spec/managedSecurityGroups"),
        namespace: world.object().namespace(),
        cluster_name: world.cluster().map_or_else(|| world.object().name(), Object::name),
        cluster_uid: world.cluster().map_or("", Object::uid),
        object_uid: world.object().uid(),
        cidrs: world.facts.subnets.iter().map(|subnet| subnet.cidr.as_str()).collect(),
    }
}

fn machines_gone(world: &World) -> Phase {
    match world.all::<OpenStackMachine>().count() {
        0 => Phase::Done,
        left => Phase::wait("WaitingForMachines", format!("waiting for {left} OpenStackMachines to be deleted")),
    }
}

fn owner(world: &World) -> Phase {
    match world.cluster() {
        Some(_) => Phase::Done,
        None => Phase::wait("WaitingForCluster", "no Cluster refers to it yet"),
    }
}

/// Whether the control plane runs elsewhere than on machines of this cloud.
fn is_hosted(world: &World) -> bool {
    let reference = world.cluster().map_or(&Value::Null, |cluster| cluster.get("/spec/controlPlaneRef"));
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    hosted::KINDS.contains(&(text("apiGroup"), text("kind")))
}

/// Said out loud instead of half done. Also the moment from which on the cloud is asked.
pub fn not_built_yet(world: &World) -> Phase {
    let spec = world.object().get("/spec");
    let list = |field: &str| spec[field].as_array().into_iter().flatten();
    let missing = if list("managedSubnets").next().is_some() {
        "managed networks (spec.managedSubnets) are not built yet; name an existing network and subnet"
    } else if list("subnets").any(|subnet| subnet["filter"].as_object().is_some_and(|filter| !filter.is_empty())) {
        "subnets by filter (spec.subnets) are not built yet; name their ids"
    } else if !is_hosted(world) {
        "control planes on machines of this cloud are not built yet; use a hosted control plane"
    } else if spec["bastion"]["enabled"] == true {
        "bastions (spec.bastion) are not built yet; leave it out"
    } else {
        return Phase::Done;
    };
    Phase::blocked("NotBuiltYet", missing)
}

fn network(world: &World) -> Phase {
    match world.facts.lookup.problem("spec.network", "network") {
        Some(problem) => Phase::blocked("NetworkNotFound", problem),
        None => Phase::Done,
    }
}

fn project(world: &World) -> Phase {
    cloud::project(world.object(), &world.facts.cloud)
}

fn same_project(world: &World) -> Phase {
    cloud::same_project(world.object(), &world.facts.cloud)
}

/// The control plane brings the address; here it is only put where Cluster API looks for it.
fn endpoint(world: &World) -> Phase {
    let spec = world.object().get("/spec");
    let host = spec["apiServerFixedIP"].as_str().unwrap_or_default();
    let set = spec["controlPlaneEndpoint"]["host"].as_str().unwrap_or_default();
    if host.is_empty() || !set.is_empty() {
        return Phase::Done;
    }
    let endpoint = json!({ "host": host, "port": spec["apiServerPort"].as_i64().unwrap_or(6443) });
    Phase::steps(intent::touch(world.object(), json!({ "spec": { "controlPlaneEndpoint": endpoint } })))
}

/// What was reported before the cloud went silent stays.
fn describe(world: &World, before: OpenStackClusterStatus) -> OpenStackClusterStatus {
    let facts = &world.facts;
    let Some(network) = &facts.network else { return before };
    let subnets = facts.subnets.iter().map(|subnet| OpenStackClusterStatusNetworkSubnet {
        id: subnet.id.clone(),
        name: subnet.name.clone(),
        cidr: subnet.cidr.clone(),
        ..Default::default()
    });
    let group = |role| {
        security_groups::of(&facts.cloud, role)
            .map(|group| OpenStackClusterStatusWorkerSecurityGroup { id: group.id.clone(), name: group.name.clone() })
    };
    OpenStackClusterStatus {
        network: Some(OpenStackClusterStatusNetwork {
            id: network.id.clone(),
            name: network.name.clone(),
            subnets: Some(subnets.collect()),
            ..Default::default()
        }),
        failure_domains: Some(failure_domains(world)),
        control_plane_security_group: group(Role::ControlPlane),
        worker_security_group: group(Role::Worker),
        ..OpenStackClusterStatus::default()
    }
}

fn failure_domains(world: &World) -> BTreeMap<String, OpenStackClusterStatusFailureDomainsValue> {
    let planes = world.object().get("/spec/controlPlaneAvailabilityZones").as_array();
    let domain = |zone: &String| OpenStackClusterStatusFailureDomainsValue {
        control_plane: Some(planes.is_none_or(|planes| planes.iter().any(|plane| plane == zone))),
        ..Default::default()
    };
    world.facts.zones.iter().map(|zone| (zone.clone(), domain(zone))).collect()
}

#[cfg(test)]
mod tests;
