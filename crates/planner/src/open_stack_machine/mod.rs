//! OpenStackMachine: one Nova server with its volumes, ports and trunks.
//! Flows: owner -> network and bootstrap data are there -> names -> project -> volumes -> ports -> trunks -> server -> provider id. Holds: every create carries our key;
//! nothing without our key is touched; on the way out the server goes first.

pub mod floating_ip;
mod wanted;

use std::time::Duration;

use hangar_api::contract::Foreign;
use hangar_api::kinds::{Machine, OpenStackClusterStatusInitialization, OpenStackMachine};
use hangar_api::names::{CLUSTER_NAME_LABEL, OPENSTACK_MACHINE_FINALIZER};
use hangar_api::{Object, Owner, references};
use hangar_openstack_types::FloatingIp;
use jiff::Timestamp;
use serde_json::json;

use crate::cloud::instance::{Resolved, Whole};
use crate::cloud::quota::{Needs, Quota};
use crate::cloud::{self, Cloud, CloudAnswer, Resource, server};
use crate::intent;
use crate::step::Effect;
use crate::{Absorb, Phase, Phases, Planner, Progress, Report, Shared};

pub struct OpenStackMachines;

type World = crate::World<OpenStackMachines>;

/// What somebody changed in the cloud is seen after this time: clouds do not call back.
const DRIFT: Duration = Duration::from_secs(60);

/// What the cloud has for this machine, and what the names in its spec mean there.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub cloud: Cloud,
    pub user_data: Option<UserData>,
    pub resolved: Resolved,
    /// The one with the address that its claim was given.
    pub floating_ip: Option<FloatingIp>,
    pub quota: Quota,
}

/// Hidden from logs: it holds a bootstrap token.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData(pub String);

impl std::fmt::Debug for UserData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserData(..)")
    }
}

impl Absorb for Facts {
    fn absorb(&mut self, effect: &Effect) {
        self.cloud.absorb(effect);
        if let Effect::Cloud(CloudAnswer::Is(Resource::FloatingIp(ip))) = effect {
            self.floating_ip = Some(FloatingIp::clone(ip));
        }
    }
}

impl Planner for OpenStackMachines {
    type Kind = OpenStackMachine;
    type Facts = Facts;
    const FINALIZER: Option<&'static str> = Some(OPENSTACK_MACHINE_FINALIZER);
    const SHARED: Shared = Shared::WhenTrue;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases
            .then(owner)
            .then(ready_to_start)
            .facts()
            .then(names)
            .then(room)
            .then(project)
            .then(floating_ip::claimed)
            .part(whole)
            .then(provider_id)
            .then(floating_ip::bound)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(floating_ip::unclaimed).facts().then(same_project).part_gone(whole)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<OpenStackMachine>) {
        let cloud = &world.facts.cloud;
        let server = server::of(cloud);
        let is_ready = progress.is_done() && server.is_some_and(server::is_active) && !world.object().is_deleting();
        let before = world.typed().status.clone().unwrap_or_default();
        let status = &mut report.status;
        status.ready = Some(is_ready);
        status.initialization =
            Some(OpenStackClusterStatusInitialization { provisioned: Some(is_ready || was_ready(world)) });
        // What was reported before the cloud went silent stays.
        status.instance_id = server.map(|server| server.id.clone()).or(before.instance_id);
        status.instance_state = server.map(|server| server.status.clone()).or(before.instance_state);
        // Nova hands out addresses one by one: half of them are of no use to anybody, and each change would be written twice.
        status.addresses =
            server.filter(|server| server::is_active(server)).map(server::addresses).or(before.addresses);
        status.resources = server::resources(cloud, before.resources);
        report.conditions.extend(server::conditions(world.object(), progress, is_ready));
    }

    fn recheck(_world: &World, _now: Timestamp) -> Option<Duration> {
        Some(DRIFT)
    }
}

fn machine(world: &World) -> Option<&Object> {
    world.owner::<Machine>()
}

/// The cluster's OpenStackCluster.
fn infrastructure(world: &World) -> Option<&Object> {
    world.cluster_referenced("/spec/infrastructureRef")
}

fn whole(world: &World) -> Whole<'_> {
    Whole {
        instance: wanted::instance(world),
        cloud: &world.facts.cloud,
        was_ready: was_ready(world),
        wanted_since: world.object().created(),
    }
}

fn owner(world: &World) -> Phase {
    match (machine(world), world.cluster()) {
        (None, _) => Phase::wait("WaitingForMachine", "no Machine owns it yet"),
        (_, None) => Phase::wait("WaitingForCluster", "its Cluster is not there yet"),
        _ => Phase::Done,
    }
}

/// Whether a server can be made: also the moment from which on the cloud is asked.
pub fn ready_to_start(world: &World) -> Phase {
    if infrastructure(world).and_then(|cluster| Foreign::new(cluster).provisioned()) != Some(true) {
        return Phase::wait("WaitingForClusterInfrastructure", "the cluster's infrastructure is not ready yet");
    }
    if user_data_secret(world).is_some() {
        return Phase::Done;
    }
    let named = machine(world).map_or("", |machine| machine.text("/spec/bootstrap/dataSecretName"));
    let is_users = machine(world).is_some_and(|it| references::target(it, "/spec/bootstrap/configRef").is_none());
    // Secrets are watched by that label, which bootstrap providers set.
    let text = match is_users && !named.is_empty() {
        true => format!("waiting for Secret {named} with the label {CLUSTER_NAME_LABEL} and its bootstrap data"),
        false => "its bootstrap data is not there yet".to_owned(),
    };
    Phase::wait("WaitingForBootstrapData", text)
}

/// The Secret with the bootstrap data, if it is the one of this machine: made by its bootstrap config, or named by the user where there is none.
/// Another one would bring up a server with somebody else's token.
pub fn user_data_secret(world: &World) -> Option<&Object> {
    let machine = machine(world)?;
    let name = machine.text("/spec/bootstrap/dataSecretName");
    let secret = world.named("", "Secret", name).filter(|_| !name.is_empty())?;
    let ours = references::target(machine, "/spec/bootstrap/configRef").is_none_or(|config| {
        let made_by =
            |owner: &Owner| (owner.group(), &owner.kind, &owner.name) == (&config.group, &config.kind, &config.name);
        secret.owners().iter().any(made_by)
    });
    ours.then_some(secret)
}

fn names(world: &World) -> Phase {
    if let Some(reason) = &world.facts.resolved.image_waits {
        return Phase::Wait(reason.clone());
    }
    match wanted::instance(world).problem("spec") {
        Some(problem) => Phase::blocked("InvalidMachineSpec", problem),
        None => Phase::Done,
    }
}

/// What is about to be made of it; nothing while something else has to come first.
pub fn needs(world: &World) -> Needs {
    let is_next = !world.object().is_deleting() && !was_ready(world) && world.facts_error.is_none();
    if !is_next || !owner(world).then(|| ready_to_start(world)).then(|| names(world)).is_done() {
        return Needs::default();
    }
    wanted::instance(world).needs(&world.facts.cloud.resources)
}

fn room(world: &World) -> Phase {
    world.facts.quota.room(&needs(world))
}

fn project(world: &World) -> Phase {
    cloud::project(world.object(), &world.facts.cloud)
}

fn same_project(world: &World) -> Phase {
    cloud::same_project(world.object(), &world.facts.cloud)
}

fn provider_id(world: &World) -> Phase {
    let Some(server) = server::of(&world.facts.cloud) else { return Phase::Done };
    let identity = world.typed().spec.identity_ref.as_ref();
    let region = identity.and_then(|identity| identity.region.as_deref()).unwrap_or_default();
    let id = format!("openstack://{region}/{}", server.id);
    Phase::steps(intent::touch(world.object(), json!({ "spec": { "providerID": id } })))
}

fn was_ready(world: &World) -> bool {
    Foreign::new(world.object()).is_provisioned_machine()
}

#[cfg(test)]
mod tests;
