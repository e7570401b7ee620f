//! The fabric's process.
//!
//! Flows: namespaces -> socket -> one request after the other. Holds: guests are children of its first thread, so that they end when it does,
//! however it ends; the namespaces are made before there is a second thread, as the system demands.

use std::io::Result;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};

use super::guests::Guests;
use super::message;
use super::places::Places;
use super::{Answer, Request};
use crate::network::NetNamespace;

/// Whoever connects has something to say.
const PATIENCE: Duration = Duration::from_secs(10);

/// Until it is killed. Says on its standard output that it is ready, or why it never will be.
pub fn run(directory: &Path) -> Result<()> {
    enter_namespaces()?;
    let own = NetNamespace::current()?;
    own.configure(async |links| links.up("lo").await).map_err(std::io::Error::other)?;
    let listener = message::listen(directory)?;
    println!("ready");
    let mut fabric = Server { own, places: Places::default(), guests: Guests::default() };
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        if let Err(error) = fabric.serve(&stream) {
            eprintln!("a request could not be served: {error}");
        }
    }
    Ok(())
}

/// A user namespace in which this process is root, and a network of its own.
pub(crate) fn enter_namespaces() -> Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

struct Server {
    own: NetNamespace,
    places: Places,
    guests: Guests,
}

impl Server {
    fn serve(&mut self, stream: &UnixStream) -> Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (request, _) = message::receive(stream)?;
        let (answer, file) = match self.answer(request) {
            Ok(answered) => answered,
            Err(error) => (Answer { error: Some(error), ..Answer::default() }, None),
        };
        message::send(stream, &answer, file.as_ref())
    }

    fn answer(&mut self, request: Request) -> std::result::Result<(Answer, Option<OwnedFd>), String> {
        let said = |error: std::io::Error| error.to_string();
        let mut answer = Answer::default();
        let mut file = None;
        match request {
            Request::Hello => answer.process = std::process::id(),
            Request::Place(place) => self.places.ensure(&self.own, &place).map_err(|error| crate::chain(&error))?,
            Request::Listen { place, at } => file = Some(self.places.socket(&place, Some(at)).map_err(said)?),
            Request::Socket { place } => file = Some(self.places.socket(&place, None).map_err(said)?),
            Request::Boot(spec) => {
                let (started, lifeline) = self.guests.boot(&self.own, *spec)?;
                (answer.started, file) = (started, Some(lifeline));
            }
            Request::PowerOff { guest } => self.guests.power_off(&guest),
            Request::Routes { guest, routes } => self.guests.route(&guest, &routes)?,
            Request::Filter { guest, filter } => self.guests.filter(&guest, &filter)?,
            Request::Guests => answer.guests = self.guests.running(),
        }
        Ok((answer, file))
    }
}
