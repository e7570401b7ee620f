//! Machines without root: process trees in namespaces, on networks of the kernel, in which the real kubelet and the real kubeadm run.
//!
//! Flows: [`Fabric`] starts one small process that holds all namespaces; [`GuestSpec`] describes a machine, and [`Fabric::boot`] starts it; inside, the
//! agent does what the user-data says, runs services, and is the container runtime of the kubelet. Sockets in and out come from the fabric.
//! Holds: everything ends with the fabric's process, except what lies on the disks of guests; nothing needs root.

mod agent;
pub mod cloud_init;
mod cri;
mod fabric;
mod guest;
mod network;
mod probe;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use hangar_node::process::Images;

pub use fabric::{Booted, Fabric, FabricError, FabricOptions, Leg, MARK, Place, PodRoute};
pub use guest::{GuestSpec, Interface, remove_disk};
pub use network::nft::{PortFilter, PortRule};
pub use network::{NetNamespace, NetworkError};
pub use probe::{Refusal, check};

/// The first word of the command line of our own processes.
pub const WORD: &str = "machine-process";

/// Makes what finds programs for images, from the directory that a guest's components lie in.
pub type ImagesIn = fn(&Path) -> Arc<dyn Images>;

/// To be called first in `main`, before there is a second thread: whether this process is one of ours, and how it ended.
pub fn run_if_asked(images: ImagesIn) -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != WORD {
        return None;
    }
    let (what, rest) = (words.next().unwrap_or_default(), words.collect::<Vec<_>>());
    let path = rest.first().map(Path::new).unwrap_or(Path::new("."));
    Some(match what.as_str() {
        "probe" => outcome(probe::attempt()),
        "fabric" => outcome(fabric::run(path)),
        "guest" => guest::enter::run(),
        "init" => guest::init::run(path),
        "agent" => agent::run(images),
        "systemctl" => agent::systemctl::run(&rest),
        _ => ExitCode::FAILURE,
    })
}

fn outcome(done: std::io::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
