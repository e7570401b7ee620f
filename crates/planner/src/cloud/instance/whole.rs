//! A server with all that hangs on it, made and taken away in the right order.
//! Flows: volumes -> ports -> trunks -> server; on the way out the server goes first.

use jiff::Timestamp;

use super::Instance;
use crate::cloud::Cloud;
use crate::cloud::ports::Ports;
use crate::cloud::server::{self, Server};
use crate::cloud::trunks::Trunks;
use crate::cloud::volumes::Volumes;
use crate::plan::Phase;
use crate::planner::Part;

pub struct Whole<'a> {
    pub instance: Instance<'a>,
    pub cloud: &'a Cloud,
    /// The server was ACTIVE once, and its id was handed on.
    pub was_ready: bool,
    /// Since when there is somebody who wants it.
    pub wanted_since: Option<Timestamp>,
}

impl Whole<'_> {
    fn volumes(&self) -> Volumes<'_> {
        let has_server = server::of(self.cloud).is_some() || self.was_ready;
        Volumes { cloud: self.cloud, has_server, wanted: self.instance.volumes() }
    }

    fn ports(&self) -> Ports<'_> {
        // One that goes has nothing any more.
        let server = server::of(self.cloud).filter(|server| !server::is_deleting(server));
        Ports { cloud: self.cloud, server, wanted: self.instance.ports() }
    }

    fn trunks(&self) -> Trunks<'_> {
        let has_server = server::of(self.cloud).is_some();
        Trunks { cloud: self.cloud, has_server, wanted: self.instance.trunks() }
    }

    fn server(&self) -> impl Part {
        Server {
            cloud: self.cloud,
            was_ready: self.was_ready,
            wanted_since: self.wanted_since,
            create: || self.instance.server(&self.cloud.resources),
        }
    }
}

impl Part for Whole<'_> {
    fn build(&self, now: Timestamp) -> Phase {
        let volumes = self.volumes().build(now);
        let ports = volumes.then(|| self.ports().build(now));
        ports.then(|| self.trunks().build(now)).then(|| self.server().build(now))
    }

    fn delete(&self, now: Timestamp) -> Phase {
        let server = self.server().delete(now);
        let ports = server.then(|| self.trunks().delete(now)).then(|| self.ports().delete(now));
        ports.then(|| self.volumes().delete(now))
    }
}
