//! What runs on a server: the cloud boots guests and shuts them down, a driver decides what that means.

mod hollow;
mod join_config;
mod machine;
mod outside;
mod security;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use hangar_machine::cloud_init::{self, Instance};
use hangar_machine::{PodRoute, PortFilter};
use tokio::net::TcpStream;

pub use hollow::HollowGuests;
pub use machine::{MachineGuests, MachineOptions};

/// Called when a server turns ACTIVE and when it is gone; neither may block.
pub trait GuestDriver: Send + Sync {
    fn boot(&self, guest: Guest);
    /// The server is gone, and its disk with it.
    fn shut_down(&self, server_id: &str);
    /// The server is switched off; its disk stays.
    fn stop(&self, _server_id: &str) {}
    /// These are all servers that there are: what is left of others goes.
    fn retain(&self, _server_ids: &BTreeSet<String>) {}
    /// Where the pods of a cluster's nodes are, for those of its servers.
    fn routes(&self, _server_ids: &[String], _routes: &[PodRoute]) {}
    /// What security groups allow a server; None: everything.
    fn filter(&self, _server_id: &str, _filter: Option<PortFilter>) {}
    /// A connection to an address of a guest, if it can be had.
    fn connect(&self, _to: SocketAddrV4) -> Option<BoxFuture<'static, std::io::Result<TcpStream>>> {
        None
    }
}

/// A server as its guest sees it.
#[derive(Clone, Default)]
pub struct Guest {
    pub server_id: String,
    pub name: String,
    pub project_id: String,
    pub image_properties: BTreeMap<String, String>,
    pub metadata: BTreeMap<String, String>,
    pub availability_zone: String,
    pub addresses: Vec<String>,
    pub ports: Vec<GuestPort>,
    /// As given at creation, no longer base64.
    pub user_data: Vec<u8>,
    pub console: Console,
}

/// Where a guest is plugged in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestPort {
    pub network_id: String,
    pub mac_address: String,
    pub address: String,
    pub cidr: String,
    /// The subnet's, if it has one.
    pub gateway: Option<String>,
    pub mtu: u32,
}

impl Guest {
    /// What it is told about itself.
    pub fn instance(&self) -> Instance {
        Instance {
            id: self.server_id.clone(),
            name: self.name.clone(),
            project_id: self.project_id.clone(),
            metadata: self.metadata.clone(),
            availability_zone: self.availability_zone.clone(),
            user_data: self.user_data.clone(),
        }
    }
}

/// User-data holds a bootstrap token.
impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("server_id", &self.server_id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a machine would have done to itself with its user-data: files by path, and the lines it would have run.
pub fn dry_run(guest: &Guest) -> Result<(BTreeMap<String, String>, Vec<String>), String> {
    let prepared = cloud_init::prepare(&guest.instance()).map_err(|error| error.to_string())?;
    Ok((prepared.files, prepared.commands.into_iter().chain(prepared.scripts).collect()))
}

/// Any bytes at all are files and commands, or an error in words: the target of `fuzz/`.
#[doc(hidden)]
pub fn fuzz_user_data(bytes: &[u8]) {
    let guest =
        Guest { server_id: "1f".to_owned(), name: "w".to_owned(), user_data: bytes.to_vec(), ..Guest::default() };
    match cloud_init::prepare(&guest.instance()) {
        Ok(prepared) => drop(join_config::read(&guest, &prepared)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The serial console: lines in, text out.
#[derive(Clone, Debug, Default)]
pub struct Console(Arc<Mutex<ConsoleLog>>);

#[derive(Debug, Default)]
struct ConsoleLog {
    text: String,
    /// Where a guest writes by itself.
    file: Option<PathBuf>,
}

impl Console {
    /// A guest that retries for days must not fill the memory.
    const LONGEST: usize = 64 << 10;

    pub fn line(&self, text: impl AsRef<str>) {
        let log = &mut self.0.lock().unwrap_or_else(PoisonError::into_inner).text;
        log.push_str(text.as_ref());
        log.push('\n');
        if log.len() > Self::LONGEST {
            let cut = log.ceil_char_boundary(log.len() - Self::LONGEST / 2);
            let start = log[cut..].find('\n').map_or(log.len(), |at| cut + at + 1);
            log.drain(..start);
        }
    }

    /// What is in a file counts as written here.
    pub(crate) fn follow(&self, file: PathBuf) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).file = Some(file);
    }

    pub fn text(&self) -> String {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = log.file.as_ref().and_then(|file| std::fs::read(file).ok()).unwrap_or_default();
        let end = &written[written.len().saturating_sub(Self::LONGEST)..];
        log.text.clone() + &String::from_utf8_lossy(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_data_makes_it_panic() {
        let example = b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: text/jinja2\n\n## template: jinja\n#cloud-config\nwrite_files: [{path: /j, encoding: b64, content: aGVsbG8=}]\nruncmd: ['kubeadm join --config /j {{ ds.meta_data.uuid }}']\n--x--\n";
        let mut state = 1u64;
        let mut roll = || usize::try_from(crate::state::splitmix(&mut state) >> 33).unwrap_or(0);
        for _ in 0..5000 {
            let mut bytes = example.to_vec();
            for _ in 0..=roll() % 5 {
                let at = roll() % bytes.len();
                match roll() % 3 {
                    0 => bytes.truncate(at.max(1)),
                    1 => bytes[at] = u8::try_from(roll() % 256).unwrap_or(0),
                    _ => bytes.extend_from_within(..at),
                }
            }
            fuzz_user_data(&bytes);
        }
    }
}
