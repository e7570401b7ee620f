//! One 127.N.0.0/16 per home: every address of it is local without configuration, so pods, Services and load balancers have their own.
//!
//! Holds: two homes of one user never share a network (a registry in the user's cache directory, under flock); homes of other users
//! are avoided by trying the plane's address.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::ports;

#[derive(Debug, thiserror::Error)]
pub enum NetError {
    #[error("the registry of loopback networks {path} is not writable: check its permissions or set XDG_CACHE_HOME")]
    Registry { path: PathBuf, source: std::io::Error },
    #[error("all loopback networks are in use by other homes: remove unused homes, they are listed in {path}")]
    Full { path: PathBuf },
}

/// The network of one home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopbackNet(u8);

impl LoopbackNet {
    pub fn new(number: u8) -> Self {
        Self(number)
    }

    pub fn number(self) -> u8 {
        self.0
    }

    /// Where the plane itself listens, and the address of its node.
    pub fn plane(self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.0, 0, 1)
    }

    pub fn pods(self) -> Ipv4Net {
        Ipv4Net::new_assert(Ipv4Addr::new(127, self.0, 0, 0), 18)
    }

    pub fn load_balancers(self) -> Ipv4Net {
        Ipv4Net::new_assert(Ipv4Addr::new(127, self.0, 64, 0), 18)
    }

    pub fn services(self) -> Ipv4Net {
        Ipv4Net::new_assert(Ipv4Addr::new(127, self.0, 128, 0), 17)
    }

    /// The address of the Service `kubernetes`: the API server takes the first of the range.
    pub fn kubernetes_service(self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.0, 128, 1)
    }

    /// Finds a network for a home that has none, and writes down that it is taken.
    pub(crate) fn choose(home: &Path) -> Result<Self, NetError> {
        let directory = crate::cache_directory();
        let path = directory.join("networks.json");
        let broken = |source| NetError::Registry { path: path.clone(), source };
        std::fs::create_dir_all(&directory).map_err(broken)?;
        let mut file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path).map_err(broken)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| broken(error.into()))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(broken)?;
        let mut taken: BTreeMap<u8, PathBuf> = serde_json::from_str(&text).unwrap_or_default();
        // Not by its state file: a home that has just chosen is about to write that.
        taken.retain(|_, other| other != home && other.is_dir());
        let number = pick(home, &taken, |net| net.is_quiet()).ok_or_else(|| NetError::Full { path: path.clone() })?;
        taken.insert(number, home.to_owned());
        let text = serde_json::to_string_pretty(&taken).map_err(|error| broken(error.into()))?;
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text.as_bytes())).map_err(broken)?;
        Ok(Self(number))
    }

    fn is_quiet(self) -> bool {
        let is_free = |port| TcpListener::bind((self.plane(), port)).is_ok();
        is_free(ports::API_SERVER) && is_free(ports::FORMER_API_SERVER)
    }
}

/// Starts at a number that follows from the path, so that a home that is made again mostly gets the same one. A port that is taken on
/// all addresses makes no network quiet: then any that is not registered will do.
fn pick(home: &Path, taken: &BTreeMap<u8, PathBuf>, quiet: impl Fn(LoopbackNet) -> bool) -> Option<u8> {
    let seed = home
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    // 127.0 is everybody's; 127.255 holds the broadcast address.
    let numbers = (0..254_u64).filter_map(|step| u8::try_from(seed.wrapping_add(step) % 254 + 1).ok());
    let free: Vec<u8> = numbers.filter(|number| !taken.contains_key(number)).collect();
    free.iter().take(16).find(|&&number| quiet(LoopbackNet(number))).or(free.first()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_gets_a_stable_network_that_nobody_else_has() {
        let (home, other) = (Path::new("/home/a"), Path::new("/home/b"));
        let first = pick(home, &BTreeMap::new(), |_| true).unwrap();
        assert_eq!(pick(home, &BTreeMap::new(), |_| true), Some(first));
        let taken = BTreeMap::from([(first, other.to_owned())]);
        assert_ne!(pick(home, &taken, |_| true), Some(first));
        assert_ne!(pick(home, &BTreeMap::new(), |net| net.number() != first), Some(first));
        assert_eq!(pick(home, &BTreeMap::new(), |_| false), Some(first));
        let all = (1..=254).map(|number| (number, other.to_owned())).collect();
        assert_eq!(pick(home, &all, |_| true), None);
    }

    #[test]
    fn the_parts_of_a_network_do_not_overlap() {
        let net = LoopbackNet::new(10);
        assert_eq!(net.pods().to_string(), "127.10.0.0/18");
        assert_eq!(net.load_balancers().to_string(), "127.10.64.0/18");
        assert_eq!(net.services().to_string(), "127.10.128.0/17");
        assert!(net.pods().contains(&net.plane()) && net.services().contains(&net.kubernetes_service()));
    }
}
