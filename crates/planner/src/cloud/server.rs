//! One server of one owner.
//! Flows: twins go -> made -> failed ones are replaced while they never ran -> ACTIVE. Holds: of two with one key the older stays; a server that
//! was in use is never made anew, since its Node and its data would be another's.

use std::time::Duration;

use hangar_api::Object;
use hangar_api::conditions::{Condition, Status};
use hangar_api::kinds::{
    OpenStackServerStatusAddress, OpenStackServerStatusResources, OpenStackServerStatusResourcesPort,
};
use hangar_openstack_types::{CreateServer, Server as Nova};
use jiff::Timestamp;

use super::resources::oldest;
use super::{Cloud, CloudCall, ResourceType};
use crate::plan::{Phase, Progress, Reason, Wake};
use crate::planner::Part;
use crate::report::{READY, ready};
use crate::step::Step;

/// The role of a server in its owner's key.
pub const ROLE: &str = "server";
/// Nova does not call back: while a server is built or deleted, it is looked at this often.
pub const LOOK_AGAIN: Duration = Duration::from_millis(900);
/// A server that failed before it ever ran is replaced after this time, so that a passing fault of the cloud heals by itself; seconds.
const REPLACE_FAILED_AFTER: i64 = 30;
/// And after half the time for which it has been tried already, up to this: a fault that stays costs ever fewer servers.
const LONGEST_PATIENCE: i64 = 1800;

/// The server that counts.
pub fn of(cloud: &Cloud) -> Option<&Nova> {
    oldest(&cloud.resources.servers, ROLE)
}

pub fn is_active(server: &Nova) -> bool {
    server.status == "ACTIVE" && !is_deleting(server)
}

/// Nova accepted the deletion; it takes a while.
pub fn is_deleting(server: &Nova) -> bool {
    server.task_state.as_deref() == Some("deleting") || server.status == "DELETED"
}

/// What a cloud keeps of a deleted server for a while, so that an operator can bring it back: for us it is gone (CAPO 2618: it was waited for until the cloud forgot it).
pub fn is_gone(server: &Nova) -> bool {
    server.status == "SOFT_DELETED" || server.vm_state.as_deref() == Some("soft-delete")
}

/// `create` is asked only if there is none: user-data is large.
pub struct Server<'a, F> {
    pub cloud: &'a Cloud,
    /// It was ACTIVE once, and its id was handed on.
    pub was_ready: bool,
    /// Since when there is somebody who wants it.
    pub wanted_since: Option<Timestamp>,
    pub create: F,
}

impl<F: Fn() -> CreateServer> Server<'_, F> {
    fn delete_of(&self, server: &Nova) -> Step {
        self.cloud.step(CloudCall::Delete(ResourceType::Server, server.id.clone()))
    }

    /// Two with one key: an answer was lost. The older one stays.
    fn twins(&self) -> Phase {
        let Some(first) = of(self.cloud) else { return Phase::Done };
        let all = &self.cloud.resources.servers;
        let others = all.values().filter(|server| server.id != first.id);
        // Only the cloud knows which is the older one, and says so in its next list.
        if all.len() > 1 && all.values().any(|server| server.created.is_empty()) {
            let text = format!("waiting for the cloud to say which server {} is the older one", first.name);
            return Phase::wait_for("InstanceNotReady", text, LOOK_AGAIN);
        }
        Phase::steps(others.filter(|server| !is_deleting(server)).map(|server| self.delete_of(server)))
    }

    fn there(&self, now: Timestamp) -> Phase {
        match of(self.cloud) {
            None if self.was_ready => Phase::blocked(
                "InstanceDeleted",
                "its server was deleted in the cloud; delete the Machine to have it replaced",
            ),
            None => Phase::Steps(vec![self.cloud.step(CloudCall::CreateServer(Box::new((self.create)())))]),
            Some(server) if server.status == "ERROR" && !self.was_ready && !is_deleting(server) => {
                self.failed(server, now)
            }
            Some(_) => Phase::Done,
        }
    }

    /// The reason stays visible until the server is replaced.
    fn failed(&self, server: &Nova, now: Timestamp) -> Phase {
        let created = server.created.parse::<Timestamp>();
        let since = |from: Timestamp, to: Timestamp| to.as_second() - from.as_second();
        let tried_for = match (self.wanted_since, &created) {
            (Some(began), Ok(created)) => since(began, *created),
            _ => 0,
        };
        let patience = (tried_for / 2).clamp(REPLACE_FAILED_AFTER, LONGEST_PATIENCE);
        let age = created.map_or(patience, |created| since(created, now));
        if age >= patience {
            return Phase::Steps(vec![self.delete_of(server)]);
        }
        let wait = Duration::from_secs(u64::try_from(patience - age).unwrap_or(1).max(1));
        Phase::Blocked(Reason {
            code: "InstanceStateError",
            message: format!("server {} failed: {}; it will be replaced", server.name, fault(server)),
            wake: Wake::After(wait),
        })
    }

    fn active(&self) -> Phase {
        let Some(server) = of(self.cloud) else { return Phase::Done };
        let name = &server.name;
        match server.status.as_str() {
            _ if is_deleting(server) => Phase::wait_for(
                "WaitingForServerDeletion",
                format!("waiting for server {name} to be deleted"),
                LOOK_AGAIN,
            ),
            "ACTIVE" => Phase::Done,
            "ERROR" => Phase::blocked("InstanceStateError", format!("server {name} failed: {}", fault(server))),
            status @ ("SHUTOFF" | "PAUSED" | "SUSPENDED") => {
                Phase::blocked("InstanceNotReady", format!("server {name} is {status}; start it"))
            }
            _ => Phase::wait_for("InstanceNotReady", format!("server {name} is being built"), LOOK_AGAIN),
        }
    }
}

impl<F: Fn() -> CreateServer> Part for Server<'_, F> {
    fn build(&self, now: Timestamp) -> Phase {
        self.twins().then(|| self.there(now)).then(|| self.active())
    }

    fn delete(&self, _now: Timestamp) -> Phase {
        let servers = self.cloud.resources.servers.values();
        let steps: Vec<Step> =
            servers.filter(|server| !is_deleting(server)).map(|server| self.delete_of(server)).collect();
        match self.cloud.resources.servers.values().next() {
            Some(server) if steps.is_empty() => Phase::wait_for(
                "WaitingForServerDeletion",
                format!("waiting for server {} to be deleted", server.name),
                LOOK_AGAIN,
            ),
            _ => Phase::steps(steps),
        }
    }
}

fn fault(server: &Nova) -> &str {
    server.fault.as_ref().map_or("the cloud gave no reason", |fault| &fault.message)
}

/// By network, IPv4 first.
pub fn addresses(server: &Nova) -> Vec<OpenStackServerStatusAddress> {
    let mut list = vec![];
    for addresses in server.addresses.values() {
        let mut sorted: Vec<_> = addresses.iter().collect();
        sorted.sort_by_key(|address| address.version);
        list.extend(sorted.into_iter().map(|address| OpenStackServerStatusAddress {
            r#type: if address.kind == "floating" { "ExternalIP" } else { "InternalIP" }.to_owned(),
            address: address.addr.clone(),
        }));
    }
    list.push(OpenStackServerStatusAddress { r#type: "InternalDNS".into(), address: server.name.clone() });
    list
}

/// The ports that a status names; what was reported before the cloud went silent stays.
pub fn resources(
    cloud: &Cloud,
    before: Option<OpenStackServerStatusResources>,
) -> Option<OpenStackServerStatusResources> {
    let ports = cloud.resources.ports.keys().map(|id| OpenStackServerStatusResourcesPort { id: id.clone() });
    let ports: Vec<_> = ports.collect();
    if ports.is_empty() { before } else { Some(OpenStackServerStatusResources { ports: Some(ports) }) }
}

/// Ready and InstanceReady, which say the same.
pub fn conditions(object: &Object, progress: &Progress, is_ready: bool) -> [Condition; 2] {
    let mut condition = ready(object, progress);
    if progress.is_done() && !is_ready {
        condition = Condition::new(READY, Status::False, "InstanceNotReady", "the server is being built");
    }
    [condition.clone(), Condition { kind: "InstanceReady".into(), ..condition }]
}
