//! The fabric from outside.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::net::{TcpSocket, TcpStream};

use super::{Answer, MARK, Place, PodRoute, Request, message};
use crate::WORD;
use crate::guest::GuestSpec;
use crate::network::nft::PortFilter;
use crate::probe::{self, Refusal};

/// What a fabric is made of.
#[derive(Debug, Clone)]
pub struct FabricOptions {
    /// Where its socket and its log are; private to its user.
    pub directory: PathBuf,
    /// The home that its processes belong to.
    pub home: PathBuf,
    /// What is run for it: a program whose `main` calls [`crate::run_if_asked`].
    pub program: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the process for machines could not be started")]
    Start(#[source] std::io::Error),
    #[error("the process for machines does not answer")]
    Gone(#[source] std::io::Error),
    #[error("{0}")]
    Said(String),
}

/// A guest that runs.
#[derive(Debug)]
pub struct Booted {
    /// By the request that asked for it.
    pub now: bool,
    lifeline: OwnedFd,
}

impl Booted {
    /// Returns when the guest has ended.
    pub async fn ended(self) -> std::io::Result<()> {
        let mut lifeline = tokio::net::unix::pipe::Receiver::from_owned_fd(self.lifeline)?;
        tokio::io::copy(&mut lifeline, &mut tokio::io::sink()).await.map(drop)
    }
}

/// A running fabric. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Fabric {
    directory: PathBuf,
}

impl Fabric {
    /// The one that runs in this directory, or a new one.
    pub fn open(options: &FabricOptions) -> Result<Self, FabricError> {
        let fabric = Self { directory: options.directory.clone() };
        if fabric.ask(&Request::Hello).is_ok() {
            return Ok(fabric);
        }
        probe::check(&options.program)?;
        std::fs::create_dir_all(&options.directory).map_err(FabricError::Start)?;
        let log = std::fs::OpenOptions::new().create(true).append(true).open(options.directory.join("fabric.log"));
        let mut command = Command::new(&options.program);
        command.args([WORD, "fabric"]).arg(&options.directory).env(MARK, &options.home).env_remove("HANGAR_HOME");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.map_err(FabricError::Start)?).process_group(0);
        let mut child = command.spawn().map_err(FabricError::Start)?;
        let mut said = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut said).map_err(FabricError::Start)?;
        }
        if said.trim() == "ready" {
            // Nobody else waits for it.
            std::thread::spawn(move || child.wait());
            return Ok(fabric);
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(FabricError::Said(said.trim().to_owned()))
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn ensure_place(&self, place: Place) -> Result<(), FabricError> {
        self.ask(&Request::Place(place)).map(drop)
    }

    /// Starts a guest, unless it runs.
    pub fn boot(&self, spec: GuestSpec) -> Result<Booted, FabricError> {
        match self.ask(&Request::Boot(Box::new(spec)))? {
            (answer, Some(lifeline)) => Ok(Booted { now: answer.started, lifeline }),
            _ => Err(FabricError::Said("no pipe came with the answer".to_owned())),
        }
    }

    /// The fabric's process: another one has other networks.
    pub fn process(&self) -> Result<u32, FabricError> {
        Ok(self.ask(&Request::Hello)?.0.process)
    }

    pub fn power_off(&self, guest: &str) -> Result<(), FabricError> {
        self.ask(&Request::PowerOff { guest: guest.to_owned() }).map(drop)
    }

    /// Tells a guest where pods of other nodes are; what it was told before stays.
    pub fn route(&self, guest: &str, routes: Vec<PodRoute>) -> Result<(), FabricError> {
        self.ask(&Request::Routes { guest: guest.to_owned(), routes }).map(drop)
    }

    /// Says what may come and go by a guest's links, in the place of what was said before.
    pub fn filter(&self, guest: &str, filter: PortFilter) -> Result<(), FabricError> {
        self.ask(&Request::Filter { guest: guest.to_owned(), filter }).map(drop)
    }

    /// Guests that run.
    pub fn guests(&self) -> Result<Vec<String>, FabricError> {
        Ok(self.ask(&Request::Guests)?.0.guests)
    }

    /// A listener in a place.
    pub fn listen(&self, place: &str, at: SocketAddrV4) -> Result<tokio::net::TcpListener, FabricError> {
        let socket = self.socket(&Request::Listen { place: place.to_owned(), at })?;
        tokio::net::TcpListener::from_std(TcpListener::from(socket)).map_err(FabricError::Gone)
    }

    /// A connection from a place to an address of its networks.
    pub async fn connect(&self, place: &str, to: SocketAddrV4) -> Result<TcpStream, FabricError> {
        let (fabric, place) = (self.clone(), place.to_owned());
        let socket = tokio::task::spawn_blocking(move || fabric.socket(&Request::Socket { place }));
        let socket = socket.await.map_err(|error| FabricError::Gone(std::io::Error::other(error)))??;
        let socket = TcpSocket::from_std_stream(std::net::TcpStream::from(socket));
        socket.connect(to.into()).await.map_err(FabricError::Gone)
    }

    fn socket(&self, request: &Request) -> Result<OwnedFd, FabricError> {
        let nothing = || FabricError::Said("no socket came with the answer".to_owned());
        self.ask(request)?.1.ok_or_else(nothing)
    }

    fn ask(&self, request: &Request) -> Result<(Answer, Option<OwnedFd>), FabricError> {
        let stream = message::connect(&self.directory).map_err(FabricError::Gone)?;
        message::send(&stream, request, None).map_err(FabricError::Gone)?;
        let (answer, file): (Answer, _) = message::receive(&stream).map_err(FabricError::Gone)?;
        match answer.error {
            Some(error) => Err(FabricError::Said(error)),
            None => Ok((answer, file)),
        }
    }
}
