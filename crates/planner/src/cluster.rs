//! Cluster: joins infrastructure, control plane and workers.
//! Flows: owners of what it refers to -> endpoint -> kubeconfig, if nobody else makes one -> what is still missing. Holds: references are resolved by group and kind; the endpoint is
//! copied once; on the way out workers go first, then the control plane, then the infrastructure.

mod conditions;
mod kubeconfig;

use std::time::Duration;

use hangar_api::Object;
use hangar_api::contract::Foreign;
use hangar_api::kinds::{
    Cluster, ClusterStatusFailureDomain, ClusterStatusInitialization, ClusterStatusWorkers, Machine, MachineDeployment,
    MachinePool, MachineSet,
};
use hangar_api::names::{CLUSTER_FINALIZER, CLUSTER_NAME_LABEL, CONTROL_PLANE_LABEL};
use jiff::Timestamp;
use serde_json::json;

use crate::intent;
use crate::{Phase, Phases, Planner, Progress, Report, Step};

pub struct Clusters;

type World = crate::World<Clusters>;

const INFRASTRUCTURE: &str = "/spec/infrastructureRef";
const CONTROL_PLANE: &str = "/spec/controlPlaneRef";

impl Planner for Clusters {
    type Kind = Cluster;
    type Facts = Facts;
    const FINALIZER: Option<&'static str> = Some(CLUSTER_FINALIZER);
    const CONDITIONS: &'static [&'static str] = conditions::OWN;
    /// Clusters are Available, not Ready.
    const READY: bool = false;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(owners).then(endpoint).then_at(kubeconfig::issued).then(waiting)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(delete_workers).then(delete_control_plane).then(delete_infrastructure)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<Cluster>) {
        let before = world.object().get("/status/initialization");
        // Both latch: what was once true stays true.
        let provisioned = before["infrastructureProvisioned"] == true || is_provisioned(world);
        let initialized = is_initialized(world);
        report.status.initialization = Some(ClusterStatusInitialization {
            infrastructure_provisioned: Some(provisioned),
            control_plane_initialized: Some(initialized),
        });
        report.status.phase = Some(phase(world, provisioned).to_owned());
        report.status.workers = Some(workers(world));
        report.status.control_plane = control_plane(world).and_then(control_plane_replicas);
        report.status.failure_domains = infrastructure(world).and_then(failure_domains);
        report.conditions = conditions::of(world, progress, initialized);
    }

    fn recheck(world: &World, now: Timestamp) -> Option<Duration> {
        kubeconfig::renewal(world, now)
    }
}

/// What is known of the connection to the cluster's own API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Connection {
    /// Nothing new: whatever was said of it stands.
    #[default]
    Unknown,
    Answers,
    /// C8: it has not answered for a while, and not several times.
    Away,
    /// The kubeconfig cannot be used: why.
    Refused(String),
}

#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub connection: Connection,
}

impl crate::Absorb for Facts {
    fn absorb(&mut self, _effect: &crate::Effect) {}
}

fn infrastructure(world: &World) -> Option<&Object> {
    world.referenced(INFRASTRUCTURE)
}

fn control_plane(world: &World) -> Option<&Object> {
    world.referenced(CONTROL_PLANE)
}

/// Whoever refers to no infrastructure has what it needs.
fn is_provisioned(world: &World) -> bool {
    let refers = world.object().get(INFRASTRUCTURE).is_object() || world.object().get("/spec/topology").is_object();
    if refers { infrastructure(world).is_some_and(provisioned) } else { true }
}

/// Latches; without a control plane to refer to it is a Machine of it that has joined.
pub fn is_initialized(world: &World) -> bool {
    if world.object().get("/status/initialization/controlPlaneInitialized") == true {
        return true;
    }
    if has_control_plane(world) {
        return control_plane(world).is_some_and(initialized);
    }
    let of_plane = |machine: &&Object| machine.label(CONTROL_PLANE_LABEL).is_some();
    world.all::<Machine>().filter(of_plane).any(|machine| machine.get("/status/nodeRef/name").is_string())
}

/// Or one comes with the topology.
fn has_control_plane(world: &World) -> bool {
    world.object().get(CONTROL_PLANE).is_object() || world.object().get("/spec/topology").is_object()
}

fn provisioned(infrastructure: &Object) -> bool {
    Foreign::new(infrastructure).provisioned() == Some(true)
}

fn initialized(control_plane: &Object) -> bool {
    Foreign::new(control_plane).control_plane_initialized() == Some(true)
}

fn delete_workers(world: &World) -> Phase {
    let standalone = |object: &&Object| object.controller().is_none();
    let deletable = deployments_and_pools(world)
        .chain(world.all::<MachineSet>().filter(standalone))
        .chain(world.all::<Machine>().filter(standalone));
    let steps: Vec<Step> = deletable.filter_map(intent::delete).collect();
    let machines = world.all::<Machine>().count();
    let pools = world.all::<MachinePool>().count();
    let left = deployments_and_pools(world).count() + world.all::<MachineSet>().count() + machines;
    if steps.is_empty() && left > 0 {
        let also = if pools > 0 { format!(" and {pools} MachinePools") } else { String::new() };
        let text = format!("waiting for {machines} Machines{also} to be deleted");
        return Phase::wait("WaitingForWorkersDeletion", text);
    }
    Phase::steps(steps)
}

fn delete_control_plane(world: &World) -> Phase {
    intent::gone(control_plane(world), "WaitingForControlPlaneDeletion")
}

fn delete_infrastructure(world: &World) -> Phase {
    intent::gone(infrastructure(world), "WaitingForInfrastructureDeletion")
}

fn owners(world: &World) -> Phase {
    let owner = world.object().as_owner(false);
    let labels = [(CLUSTER_NAME_LABEL, world.object().name())];
    let parts = [infrastructure(world), control_plane(world)].into_iter().flatten();
    let living = parts.filter(|part| !part.is_deleting());
    Phase::steps(living.filter_map(|part| intent::adopt(part, None, Some(&owner), &labels)))
}

fn endpoint(world: &World) -> Phase {
    if !world.object().text("/spec/controlPlaneEndpoint/host").is_empty() {
        return Phase::Done;
    }
    let infrastructure = infrastructure(world).filter(|object| provisioned(object));
    let sources = [infrastructure, control_plane(world)];
    match sources.into_iter().flatten().find_map(|object| Foreign::new(object).endpoint()) {
        Some(endpoint) => {
            let endpoint = json!({ "host": endpoint.host, "port": endpoint.port });
            Phase::steps(intent::touch(world.object(), json!({ "spec": { "controlPlaneEndpoint": endpoint } })))
        }
        None => Phase::Done,
    }
}

/// C3: what is not there yet is waited for; what was there and is gone is told of.
fn waiting(world: &World) -> Phase {
    let named = [("infrastructureRef", infrastructure(world)), ("controlPlaneRef", control_plane(world))];
    for (field, found) in named {
        let reference = &world.object().get("/spec")[field];
        if let (Some(kind), Some(name), None) = (reference["kind"].as_str(), reference["name"].as_str(), found) {
            if was_there(world, field) {
                let text = format!("spec.{field}: {kind} {name} is gone: make it again, or delete the Cluster");
                return Phase::wait("ReferenceDeleted", text);
            }
            let text = format!("spec.{field}: there is no {kind} {name} yet");
            return Phase::wait("WaitingForReference", text);
        }
    }
    Phase::Done
}

/// It has once done its work.
fn was_there(world: &World, field: &str) -> bool {
    let latch = if field == "infrastructureRef" { "infrastructureProvisioned" } else { "controlPlaneInitialized" };
    world.object().get("/status/initialization")[latch] == true
}

/// C1.
fn phase(world: &World, provisioned: bool) -> &'static str {
    let object = world.object();
    let has_endpoint = !object.text("/spec/controlPlaneEndpoint/host").is_empty();
    match (object.is_deleting(), provisioned && has_endpoint, object.get(INFRASTRUCTURE).is_object()) {
        (true, ..) => "Deleting",
        (_, true, _) => "Provisioned",
        (_, _, true) => "Provisioning",
        _ => "Pending",
    }
}

/// A map by name (contract v1beta1) or a list (v1beta2); sorted either way.
fn failure_domains(infrastructure: &Object) -> Option<Vec<ClusterStatusFailureDomain>> {
    let domains = Foreign::new(infrastructure).failure_domains();
    let listed = domains.into_iter().map(|domain| ClusterStatusFailureDomain {
        name: domain.name,
        control_plane: Some(domain.control_plane),
        attributes: Some(domain.attributes).filter(|attributes| !attributes.is_empty()),
    });
    Some(listed.collect()).filter(|list: &Vec<_>| !list.is_empty())
}

/// What has workers and counts them.
fn deployments_and_pools(world: &World) -> impl Iterator<Item = &Object> {
    world.all::<MachineDeployment>().chain(world.all::<MachinePool>())
}

fn workers(world: &World) -> ClusterStatusWorkers {
    let sum = |pointer: &str| {
        let counts = deployments_and_pools(world).filter_map(|object| object.get(pointer).as_i64());
        Some(counts.fold(0, i64::saturating_add).clamp(0, i32::MAX.into()) as i32)
    };
    ClusterStatusWorkers {
        desired_replicas: sum("/spec/replicas"),
        replicas: sum("/status/replicas"),
        ready_replicas: sum("/status/readyReplicas"),
        available_replicas: sum("/status/availableReplicas"),
        up_to_date_replicas: sum("/status/upToDateReplicas"),
        ..ClusterStatusWorkers::default()
    }
}

fn control_plane_replicas(plane: &Object) -> Option<ClusterStatusWorkers> {
    let replicas = Foreign::new(plane).replicas()?;
    let number = |count: i64| Some(count.clamp(0, i32::MAX.into()) as i32);
    Some(ClusterStatusWorkers {
        desired_replicas: number(replicas.desired),
        replicas: number(replicas.total),
        ready_replicas: number(replicas.ready),
        available_replicas: number(replicas.available),
        up_to_date_replicas: number(replicas.up_to_date),
        ..ClusterStatusWorkers::default()
    })
}

#[cfg(test)]
mod tests;
