//! An address for every pod, kept in its directory so that it survives a restart.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// The first addresses belong to the plane and the node.
const RESERVED: u32 = 16;

#[derive(Serialize, Deserialize)]
struct Kept {
    address: Ipv4Addr,
}

pub(super) struct Addresses {
    directory: PathBuf,
    pool: Mutex<Pool>,
}

impl Addresses {
    /// Takes up what earlier runs gave out.
    pub fn open(network: Ipv4Net, directory: &Path) -> Self {
        let mut pool = Pool::new(network);
        for entry in directory.read_dir().into_iter().flatten().flatten() {
            let uid = entry.file_name().to_string_lossy().into_owned();
            if let Some(kept) = read(&entry.path()) {
                pool.reserve(&uid, kept);
            }
        }
        Self { directory: directory.to_owned(), pool: Mutex::new(pool) }
    }

    pub fn acquire(&self, uid: &str) -> std::io::Result<Ipv4Addr> {
        let full = || std::io::Error::other("all addresses of the pod network are in use");
        let address = self.pool.lock().map_err(|_| full())?.acquire(uid).ok_or_else(full)?;
        let directory = self.directory.join(uid);
        super::files::private_directory(&directory)?;
        crate::small_file::keep(&directory.join("pod.json"), &serde_json::to_vec(&Kept { address })?)?;
        Ok(address)
    }

    pub fn release(&self, uid: &str) {
        if let Ok(mut pool) = self.pool.lock() {
            pool.used.retain(|_, holder| holder != uid);
        }
    }
}

fn read(directory: &Path) -> Option<Ipv4Addr> {
    let kept: Kept = serde_json::from_slice(&std::fs::read(directory.join("pod.json")).ok()?).ok()?;
    Some(kept.address)
}

struct Pool {
    network: Ipv4Net,
    used: HashMap<Ipv4Addr, String>,
    /// Goes round, so that a freed address rests for a while: clients of the last holder may still knock there.
    next: u32,
}

impl Pool {
    fn new(network: Ipv4Net) -> Self {
        Self { network, used: HashMap::new(), next: RESERVED }
    }

    fn reserve(&mut self, uid: &str, address: Ipv4Addr) {
        if self.network.contains(&address) {
            self.used.entry(address).or_insert_with(|| uid.to_owned());
            let offset = u32::from(address) - u32::from(self.network.network());
            self.next = self.next.max(offset + 1);
        }
    }

    fn acquire(&mut self, uid: &str) -> Option<Ipv4Addr> {
        if let Some((address, _)) = self.used.iter().find(|(_, holder)| *holder == uid) {
            return Some(*address);
        }
        let first = u32::from(self.network.network());
        let size = u32::from(self.network.broadcast()) - first;
        let offsets = (self.next..size).chain(RESERVED..self.next.min(size));
        let (offset, address) = offsets
            .map(|offset| (offset, Ipv4Addr::from(first + offset)))
            .find(|(_, address)| !self.used.contains_key(address))?;
        self.next = offset + 1;
        self.used.insert(address, uid.to_owned());
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_kept_across_a_restart_and_freed_ones_rest() {
        let directory = tempfile::tempdir().unwrap();
        let network: Ipv4Net = "127.9.0.0/24".parse().unwrap();
        let first = Addresses::open(network, directory.path());
        let (a, b) = (first.acquire("a").unwrap(), first.acquire("b").unwrap());
        assert_eq!((a.to_string(), b.to_string()), ("127.9.0.16".into(), "127.9.0.17".into()));
        let again = Addresses::open(network, directory.path());
        assert_eq!(again.acquire("b").unwrap(), b);
        again.release("a");
        assert_eq!(again.acquire("c").unwrap().to_string(), "127.9.0.18");
    }

    #[test]
    fn a_full_network_goes_round_and_then_says_so() {
        let mut pool = Pool::new("127.9.0.0/27".parse().unwrap());
        let all: Vec<_> = (0..15).map(|n| pool.acquire(&n.to_string()).unwrap()).collect();
        assert_eq!(pool.acquire("more"), None);
        pool.used.remove(&all[3]);
        assert_eq!(pool.acquire("more"), Some(all[3]));
    }
}
