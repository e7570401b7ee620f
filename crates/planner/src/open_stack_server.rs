//! OpenStackServer: one Nova server with its volumes, ports and trunks, for whoever wants a server that is no Machine.
//! Flows: user-data -> names -> project -> volumes -> ports -> trunks -> server. Holds: every create carries our key; nothing without our key is touched; on the way out the
//! server goes first.

use std::time::Duration;

use hangar_api::kinds::{OpenStackMachineSpec, OpenStackServer};
use hangar_api::{Object, ObjectKey};
use jiff::Timestamp;

use crate::cloud::instance::{Instance, Resolved, Whole};
use crate::cloud::quota::{Needs, Quota};
use crate::cloud::{self, Cloud, server};
use crate::open_stack_machine::UserData;
use crate::step::Effect;
use crate::{Absorb, Phase, Phases, Planner, Progress, Report, Shared};

pub struct OpenStackServers;

type World = crate::World<OpenStackServers>;

const FINALIZER: &str = "openstackserver.infrastructure.cluster.x-k8s.io";
/// What somebody changed in the cloud is seen after this time: clouds do not call back.
const DRIFT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub cloud: Cloud,
    pub user_data: Option<UserData>,
    pub resolved: Resolved,
    /// The fields that it shares with machines.
    pub spec: OpenStackMachineSpec,
    pub quota: Quota,
}

impl Absorb for Facts {
    fn absorb(&mut self, effect: &Effect) {
        self.cloud.absorb(effect);
    }
}

impl Planner for OpenStackServers {
    type Kind = OpenStackServer;
    type Facts = Facts;
    const FINALIZER: Option<&'static str> = Some(FINALIZER);
    const SHARED: Shared = Shared::WhenTrue;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(not_built_yet).then(ready_to_start).facts().then(names).then(room).then(project).part(whole)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.facts().then(same_project).part_gone(whole)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<OpenStackServer>) {
        let cloud = &world.facts.cloud;
        let server = server::of(cloud);
        let before = world.typed().status.clone().unwrap_or_default();
        let is_ready = progress.is_done() && server.is_some_and(server::is_active) && !world.object().is_deleting();
        let status = &mut report.status;
        status.ready = is_ready;
        // What was reported before the cloud went silent stays.
        status.instance_id = server.map(|server| server.id.clone()).or(before.instance_id);
        status.instance_state = server.map(|server| server.status.clone()).or(before.instance_state);
        status.addresses = server.filter(|it| server::is_active(it)).map(server::addresses).or(before.addresses);
        status.resolved = before.resolved;
        status.resources = server::resources(cloud, before.resources);
        report.conditions.extend(server::conditions(world.object(), progress, is_ready));
    }

    fn recheck(_world: &World, _now: Timestamp) -> Option<Duration> {
        Some(DRIFT)
    }
}

/// The fields that a server shares with machines have the same names and meanings.
pub fn shared_spec(server: &Object) -> OpenStackMachineSpec {
    serde_json::from_value(server.get("/spec").clone()).unwrap_or_default()
}

fn instance(world: &World) -> Instance<'_> {
    let facts = &world.facts;
    Instance {
        spec: &facts.spec,
        resolved: &facts.resolved,
        name: world.object().name(),
        cluster_name: world.cluster().map_or_else(|| world.object().name(), Object::name),
        cluster_uid: world.cluster().map_or("", Object::uid),
        object_uid: world.object().uid(),
        network_id: "",
        subnet_ids: vec![],
        managed_group: "",
        zone: world.object().text("/spec/availabilityZone"),
        tags: vec![],
        user_data: facts.user_data.as_ref().map(|data| data.0.as_str()),
        note: None,
    }
}

/// Where its user-data is.
pub fn user_data(server: &Object) -> Option<ObjectKey> {
    let name = server.text("/spec/userDataRef/name");
    (!name.is_empty()).then(|| ObjectKey::new("", "Secret", server.namespace(), name))
}

fn not_built_yet(world: &World) -> Phase {
    if world.typed().spec.floating_ip_pool_ref.is_some() {
        return Phase::blocked("NotBuiltYet", "spec.floatingIPPoolRef is not built yet for OpenStackServers");
    }
    // A cluster's network is not known here.
    let mut ports = world.typed().spec.ports.iter();
    match ports.position(|port| port.network.is_none()) {
        Some(index) => Phase::blocked("InvalidServerSpec", format!("spec.ports[{index}].network must name a network")),
        None if world.typed().spec.ports.is_empty() => {
            Phase::blocked("InvalidServerSpec", "spec.ports must have a port at least")
        }
        None => Phase::Done,
    }
}

/// Also the moment from which on the cloud is asked.
pub fn ready_to_start(world: &World) -> Phase {
    match user_data(world.object()) {
        Some(key) if world.facts.user_data.is_none() && world.facts_error.is_none() && !is_there(world) => {
            Phase::wait_for("WaitingForUserData", format!("there is no {key} with a key value yet"), DRIFT)
        }
        _ => Phase::Done,
    }
}

fn is_there(world: &World) -> bool {
    server::of(&world.facts.cloud).is_some() || was_ready(world)
}

fn names(world: &World) -> Phase {
    if let Some(reason) = &world.facts.resolved.image_waits {
        return Phase::Wait(reason.clone());
    }
    match instance(world).problem("spec") {
        Some(problem) => Phase::blocked("InvalidServerSpec", problem),
        None => Phase::Done,
    }
}

/// What is about to be made of it; nothing while something else has to come first.
pub fn needs(world: &World) -> Needs {
    let is_next = !world.object().is_deleting() && !was_ready(world) && world.facts_error.is_none();
    if !is_next || !not_built_yet(world).then(|| ready_to_start(world)).then(|| names(world)).is_done() {
        return Needs::default();
    }
    instance(world).needs(&world.facts.cloud.resources)
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

/// It ran once: it is not made anew behind the back of whoever uses it.
fn was_ready(world: &World) -> bool {
    world
        .typed()
        .status
        .as_ref()
        .is_some_and(|status| status.ready || status.addresses.iter().flatten().next().is_some())
}

fn whole(world: &World) -> Whole<'_> {
    Whole {
        instance: instance(world),
        cloud: &world.facts.cloud,
        was_ready: was_ready(world),
        wanted_since: world.object().created(),
    }
}

#[cfg(test)]
mod tests;
