//! A guest: a machine with a root, a network and processes of its own.
//!
//! Flows: [`GuestSpec`] -> [`enter`] (namespaces, addresses, mounts) -> [`init`] (its first process) -> [`crate::agent`] (set-up, services, runtime).
//! Holds: what lies on its disk stays until the disk is removed; everything else ends with its first process.

mod disk;
pub(crate) mod enter;
pub(crate) mod init;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::cloud_init::Instance;

/// Everything a guest is made of.
#[derive(Clone, Serialize, Deserialize)]
pub struct GuestSpec {
    pub id: String,
    /// Its disk: a directory of its own.
    pub disk: PathBuf,
    /// What it writes on its console.
    pub console: PathBuf,
    pub interfaces: Vec<Interface>,
    /// Ranges of loopback that belong to somebody outside.
    pub outside: Vec<Ipv4Net>,
    pub instance: Instance,
    /// Programs that its image has, by the paths where they are seen.
    pub programs: BTreeMap<PathBuf, PathBuf>,
    /// Where images are looked up; seen at the same path.
    pub components: PathBuf,
    /// What its own processes are run from: see [`crate::run_if_asked`].
    pub program: PathBuf,
}

/// It holds a bootstrap token.
impl std::fmt::Debug for GuestSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestSpec").field("id", &self.id).field("interfaces", &self.interfaces).finish_non_exhaustive()
    }
}

/// A port of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    pub network: String,
    pub mac: Option<[u8; 6]>,
    pub address: Ipv4Net,
    pub gateway: Option<Ipv4Addr>,
    pub mtu: u32,
}

/// Where a guest finds the program that its own processes are run from.
pub(crate) const PROGRAM: &str = "/usr/lib/hangar/hangar";
/// What a guest knows of itself.
pub(crate) const SPEC: &str = "/run/hangar/guest.json";

/// Removes a disk with everything on it.
pub fn remove_disk(disk: &Path) -> std::io::Result<()> {
    hangar_node::process::remove_tree(disk)
}
