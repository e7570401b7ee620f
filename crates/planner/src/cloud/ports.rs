//! The ports of one owner.
//! Flows: surplus ones go -> missing ones are made -> tags. Holds: the role in the key is the position, so a repeated create finds itself; what is
//! attached to a server, or may be on its way to it, is never taken away from it here.

use hangar_openstack_types::{CreatePort, Port, Server};
use jiff::Timestamp;

use super::resources::first;
use super::{Cloud, CloudCall, Owned, ResourceType};
use crate::plan::Phase;
use crate::planner::Part;

/// One port as it should be.
#[derive(Debug, Clone)]
pub struct WantedPort {
    pub role: String,
    /// With the owner's key in its description.
    pub create: CreatePort,
    pub tags: Vec<String>,
}

pub struct Ports<'a> {
    pub cloud: &'a Cloud,
    /// The server that has them: one that is made now would not be attached to it.
    pub server: Option<&'a Server>,
    pub wanted: Vec<WantedPort>,
}

impl Ports<'_> {
    /// Of several with one role the one that the server has; another process may have made the server with a younger one.
    fn of(&self, role: &str) -> Option<&Port> {
        let is_apart = |port: &Port| self.server.is_some_and(|server| server.id != port.device_id);
        first(&self.cloud.resources.ports, role, |port| (is_apart(port), port.age()))
    }

    fn surplus(&self) -> Phase {
        // Nova has not yet said which ones it takes.
        if self.server.is_some_and(|server| server.status == "BUILD") {
            return Phase::Done;
        }
        let ports = &self.cloud.resources.ports;
        let needed: Vec<&str> =
            self.wanted.iter().filter_map(|port| self.of(&port.role)).map(|port| port.id.as_str()).collect();
        let surplus = ports.values().filter(|port| !needed.contains(&port.id.as_str()) && port.device_id.is_empty());
        Phase::steps(surplus.map(|port| self.cloud.step(CloudCall::Delete(ResourceType::Port, port.id.clone()))))
    }

    fn missing(&self) -> Phase {
        let mut missing = self.wanted.iter().filter(|port| self.of(&port.role).is_none()).peekable();
        if let (Some(server), Some(port)) = (self.server, missing.peek()) {
            let (name, server) = (&port.create.name, &server.name);
            return Phase::blocked(
                "PortDeleted",
                format!(
                    "port {name} of server {server} was deleted in the cloud; delete the Machine to have it replaced"
                ),
            );
        }
        Phase::steps(missing.map(|port| self.cloud.step(CloudCall::CreatePort(Box::new(port.create.clone())))))
    }

    /// Tags that a port was to have from the start and has not: a death or a fault came in between.
    fn tags(&self) -> Phase {
        Phase::steps(self.wanted.iter().filter_map(|wanted| {
            let port = self.of(&wanted.role)?;
            let complete = wanted.tags.iter().all(|tag| port.tags.contains(tag));
            let tag = || CloudCall::Tag { of: ResourceType::Port, id: port.id.clone(), tags: wanted.tags.clone() };
            (!complete).then(|| self.cloud.step(tag()))
        }))
    }
}

impl Part for Ports<'_> {
    fn build(&self, _now: Timestamp) -> Phase {
        self.surplus().then(|| self.missing()).then(|| self.tags())
    }

    fn delete(&self, _now: Timestamp) -> Phase {
        let all = self.cloud.resources.ports.keys();
        Phase::steps(all.map(|id| self.cloud.step(CloudCall::Delete(ResourceType::Port, id.clone()))))
    }
}
