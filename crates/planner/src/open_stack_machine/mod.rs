//! OpenStackMachine: one Nova server with its ports.
//! Flows: owner -> network and bootstrap data are there -> ports -> server -> ACTIVE -> provider id. Holds: every create carries our key;
//! what carries our key and is not needed goes; nothing else is touched; on the way out the server goes before its ports.

mod wanted;

use std::time::Duration;

use hangar_api::Object;
use hangar_api::conditions::{Condition, Status, settle};
use hangar_api::kinds::OpenStackMachine;
use hangar_api::names::OPENSTACK_MACHINE_FINALIZER;
use jiff::Timestamp;
use serde_json::{Value, json};

use self::wanted::{new_port, new_server, port_specs};

use crate::cloud::{CloudCall, Port, Server, oldest};
use crate::intent;
use crate::open_stack_cluster::old_style;
use crate::{OwnerKey, Phase, Phases, Plan, Progress, Reason, Step};

/// The metadata entry of a server that holds the owner's key.
pub const KEY_METADATA: &str = "hangar-key";
/// Nova does not call back: while a server builds or goes, it is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_millis(900);
/// A server that failed before it ever ran is replaced after this time, so that a passing fault of the cloud heals by itself.
const REPLACE_FAILED_AFTER: i64 = 30;

#[derive(Debug, Clone)]
pub struct World {
    pub object: Object,
    pub machine: OpenStackMachine,
    /// The Machine that owns it.
    pub owner: Option<Object>,
    pub cluster: Option<Object>,
    /// The cluster's OpenStackCluster.
    pub infrastructure: Option<Object>,
    pub user_data: Option<UserData>,
    pub cloud: Option<CloudView>,
    pub refusal: Option<Reason>,
}

/// Hidden from logs: it holds a bootstrap token.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData(pub String);

impl std::fmt::Debug for UserData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserData(..)")
    }
}

/// What the cloud has for this machine, and what the names in its spec mean there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudView {
    /// With our key.
    pub servers: Vec<Server>,
    pub ports: Vec<Port>,
    pub flavor: Named,
    pub image: Named,
    /// By position in spec.ports; `None` where the filter matches nothing.
    pub port_networks: Vec<Option<String>>,
}

/// A name that the cloud was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Named {
    #[default]
    NotAsked,
    Id(String),
    /// With what there is instead.
    Unknown {
        wanted: String,
        known: Vec<String>,
    },
}

pub fn plan(world: &World, now: Timestamp) -> Plan {
    if world.object.is_deleting() {
        return Phases::of(world, now)
            .unless_refused(world.refusal.as_ref())
            .then(delete_server)
            .then(delete_ports)
            .then(release)
            .report(status);
    }
    Phases::of(world, now)
        .then(owner)
        .then(ready_to_start)
        .then(not_built_yet)
        .unless_refused(world.refusal.as_ref())
        .then(names)
        .then(duplicates)
        .then(ports)
        .then(port_tags)
        .then(server)
        .then(active)
        .then(provider_id)
        .report(status)
}

fn delete_server(world: &World, _now: Timestamp) -> Phase {
    let Some(cloud) = &world.cloud else {
        return Phase::wait("WaitingForCloud", "the cloud has not answered yet");
    };
    let servers: Vec<&Server> = cloud.servers.iter().collect();
    let steps: Vec<Step> =
        servers.iter().filter(|server| server.status != "DELETING").map(|server| delete_of(server)).collect();
    if steps.is_empty() && !servers.is_empty() {
        return Phase::wait_for("WaitingForServerDeletion", "the server is still going", LOOK_AGAIN);
    }
    Phase::steps(steps)
}

fn delete_of(server: &Server) -> Step {
    Step::Cloud(CloudCall::DeleteServer { id: server.id.clone() })
}

fn delete_ports(world: &World, _now: Timestamp) -> Phase {
    let ports = world.cloud.iter().flat_map(|cloud| &cloud.ports);
    Phase::steps(ports.map(|port| Step::Cloud(CloudCall::DeletePort { id: port.id.clone() })))
}

fn release(world: &World, _now: Timestamp) -> Phase {
    Phase::steps(intent::release(&world.object, OPENSTACK_MACHINE_FINALIZER))
}

fn owner(world: &World, _now: Timestamp) -> Phase {
    match (&world.owner, &world.cluster) {
        (None, _) => Phase::wait("WaitingForMachine", "no Machine owns it yet"),
        (_, None) => Phase::wait("WaitingForCluster", "its Cluster is not there yet"),
        _ => Phase::steps(intent::adopt(&world.object, Some(OPENSTACK_MACHINE_FINALIZER), None, &[])),
    }
}

fn ready_to_start(world: &World, _now: Timestamp) -> Phase {
    let provisioned =
        world.infrastructure.as_ref().is_some_and(|cluster| cluster.get("/status/initialization/provisioned") == true);
    if !provisioned {
        return Phase::wait("WaitingForClusterInfrastructure", "the cluster's infrastructure is not ready yet");
    }
    match world.user_data {
        Some(_) => Phase::Done,
        None => Phase::wait("WaitingForBootstrapData", "its bootstrap data is not there yet"),
    }
}

fn not_built_yet(world: &World, _now: Timestamp) -> Phase {
    let spec = &world.machine.spec;
    let missing = if spec.root_volume.is_some() || spec.additional_block_devices.is_some() {
        "volumes (spec.rootVolume, spec.additionalBlockDevices) are not built yet"
    } else if spec.floating_ip_pool_ref.is_some() {
        "floating IP pools (spec.floatingIPPoolRef) are not built yet"
    } else if spec.trunk == Some(true) {
        "trunks (spec.trunk) are not built yet"
    } else if spec.image.image_ref.is_some() {
        "images by reference (spec.image.imageRef) are not built yet; name the image's id"
    } else {
        return Phase::Done;
    };
    Phase::blocked("NotBuiltYet", missing)
}

fn names(world: &World, _now: Timestamp) -> Phase {
    let Some(cloud) = &world.cloud else {
        return Phase::wait("WaitingForCloud", "the cloud has not answered yet");
    };
    for (what, named) in [("flavor", &cloud.flavor), ("image", &cloud.image)] {
        if let Named::Unknown { wanted, known } = named {
            let list = known.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
            return Phase::blocked("InvalidMachineSpec", format!("the cloud has no {what} {wanted}; it has {list}"));
        }
    }
    match cloud.port_networks.iter().position(Option::is_none) {
        Some(index) => {
            Phase::blocked("InvalidMachineSpec", format!("spec.ports[{index}].network matches no network of the cloud"))
        }
        None => Phase::Done,
    }
}

/// Two resources with one key: an answer was lost. The older one stays.
fn duplicates(world: &World, _now: Timestamp) -> Phase {
    let Some(cloud) = &world.cloud else { return Phase::Done };
    let mut steps = vec![];
    if let Some(first) = our_server(cloud) {
        let others = cloud.servers.iter().filter(|server| server.id != first.id && server.status != "DELETING");
        steps.extend(others.map(delete_of));
    }
    let needed: Vec<&str> =
        (0..port_specs(world).len()).filter_map(|index| our_port(world, index)).map(|port| port.id.as_str()).collect();
    let surplus = cloud.ports.iter().filter(|port| !needed.contains(&port.id.as_str()) && port.device_id.is_empty());
    steps.extend(surplus.map(|port| Step::Cloud(CloudCall::DeletePort { id: port.id.clone() })));
    Phase::steps(steps)
}

fn ports(world: &World, _now: Timestamp) -> Phase {
    let missing = (0..port_specs(world).len()).filter(|index| our_port(world, *index).is_none());
    Phase::steps(missing.map(|index| Step::Cloud(CloudCall::CreatePort(new_port(world, index)))))
}

/// Tags that a port was to have from the start and has not: a death or a fault came in between.
fn port_tags(world: &World, _now: Timestamp) -> Phase {
    Phase::steps((0..port_specs(world).len()).filter_map(|index| {
        let port = our_port(world, index)?;
        let tags = new_port(world, index).tags;
        let complete = tags.iter().all(|tag| port.tags.contains(tag));
        (!complete).then(|| Step::Cloud(CloudCall::TagPort { id: port.id.clone(), tags }))
    }))
}

fn server(world: &World, now: Timestamp) -> Phase {
    let Some(cloud) = &world.cloud else { return Phase::Done };
    match our_server(cloud) {
        None => Phase::Steps(vec![Step::Cloud(CloudCall::CreateServer(new_server(world)))]),
        Some(server) if server.has_failed() && !was_ready(world) => failed(server, now),
        Some(_) => Phase::Done,
    }
}

/// A server that never ran is replaced after a while; the reason stays visible until then.
fn failed(server: &Server, now: Timestamp) -> Phase {
    let fault = server.fault.clone().unwrap_or_else(|| "the cloud gave no reason".into());
    let age = server
        .created_at
        .parse::<Timestamp>()
        .map_or(REPLACE_FAILED_AFTER, |created| now.as_second() - created.as_second());
    if age >= REPLACE_FAILED_AFTER {
        return Phase::Steps(vec![delete_of(server)]);
    }
    let wait = Duration::from_secs(u64::try_from(REPLACE_FAILED_AFTER - age).unwrap_or(1).max(1));
    Phase::Blocked(Reason {
        code: "InstanceStateError",
        message: format!("server {} failed: {fault}; it will be replaced", server.name),
        wake: crate::Wake::After(wait),
    })
}

fn active(world: &World, _now: Timestamp) -> Phase {
    let Some(server) = world.cloud.as_ref().and_then(our_server) else { return Phase::Done };
    match server.status.as_str() {
        "ACTIVE" => Phase::Done,
        "ERROR" => {
            let fault = server.fault.clone().unwrap_or_else(|| "the cloud gave no reason".into());
            Phase::blocked("InstanceStateError", format!("server {} failed: {fault}", server.name))
        }
        "DELETING" => Phase::wait_for("ServerGoing", "a failed server is still going", LOOK_AGAIN),
        "SHUTOFF" | "PAUSED" | "SUSPENDED" => {
            Phase::blocked("InstanceNotReady", format!("server {} is {}; start it", server.name, server.status))
        }
        _ => Phase::wait_for("InstanceNotReady", "the server is being built", LOOK_AGAIN),
    }
}

fn provider_id(world: &World, _now: Timestamp) -> Phase {
    let Some(server) = world.cloud.as_ref().and_then(our_server) else { return Phase::Done };
    let region =
        world.machine.spec.identity_ref.as_ref().and_then(|identity| identity.region.as_deref()).unwrap_or_default();
    let id = format!("openstack://{region}/{}", server.id);
    Phase::steps(intent::touch(&world.object, json!({ "spec": { "providerID": id } })))
}

fn was_ready(world: &World) -> bool {
    world.object.get("/status/initialization/provisioned") == true
}

/// Every server in the view carries our key: there is one for each machine.
fn our_server(cloud: &CloudView) -> Option<&Server> {
    oldest(cloud.servers.iter(), |server| (&server.created_at, &server.id))
}

fn our_port(world: &World, index: usize) -> Option<&Port> {
    let role = port_role(index);
    let ours = world.cloud.iter().flat_map(|cloud| &cloud.ports);
    oldest(ours.filter(|port| port.key.as_ref().is_some_and(|key| key.role == role)), |port| {
        (&port.created_at, &port.id)
    })
}

fn port_role(index: usize) -> String {
    format!("port-{index}")
}

fn key(world: &World, role: &str) -> OwnerKey {
    OwnerKey::new(world.cluster.as_ref().map_or("", Object::uid), world.object.uid(), role)
}

fn status(world: &World, progress: &Progress, now: Timestamp) -> Option<Value> {
    if world.object.is_deleting() && *progress == Progress::Acting {
        return None;
    }
    let server = world.cloud.as_ref().and_then(our_server);
    let ready = *progress == Progress::Done && server.is_some_and(Server::is_active) && !world.object.is_deleting();
    let say = |kind: &str| match progress.reason() {
        Some(reason) => Condition::new(kind, Status::False, reason.code, reason.message.clone()),
        None if ready => Condition::new(kind, Status::True, kind, ""),
        None => Condition::new(kind, Status::False, "InstanceNotReady", "the server is being made"),
    };
    let present: Vec<Condition> =
        serde_json::from_value(world.object.get("/status/conditions").clone()).unwrap_or_default();
    let mut status = json!({
        "ready": ready,
        "initialization": { "provisioned": ready || was_ready(world) },
        "conditions": old_style(settle(vec![say("Ready"), say("InstanceReady")], &present, now)),
    });
    if let Some(server) = server {
        status["instanceID"] = server.id.clone().into();
        status["instanceState"] = server.status.clone().into();
        status["addresses"] = addresses(server);
    }
    if let Some(cloud) = &world.cloud {
        let ports: Vec<Value> = cloud.ports.iter().map(|port| json!({ "id": port.id })).collect();
        status["resources"] = json!({ "ports": ports });
    }
    Some(status)
}

fn addresses(server: &Server) -> Value {
    let mut list: Vec<Value> = server
        .addresses
        .iter()
        .map(|(kind, address)| json!({ "type": if kind == "floating" { "ExternalIP" } else { "InternalIP" }, "address": address }))
        .collect();
    list.push(json!({ "type": "InternalDNS", "address": server.name }));
    list.into()
}

#[cfg(test)]
mod tests;
