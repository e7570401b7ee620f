//! Addresses on the interface `lo`, for load balancers that ask for one that the machine has not.
//!
//! Flows: a wish -> what is seen of it -> the verdict's order -> the record -> the program `ip`; an owner that went -> `ip` -> the record. Holds: an
//! address is in the record before it is on `lo`, and carries the home's label there. Only what has both is ever removed: neither an
//! address that was there before, nor one of another home.

mod program;
mod record;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;

use aws_lc_rs::digest;

use super::address_verdict::{Lack, Seen, Whose};
use super::balancer_addresses::Owners;
pub(super) use program::Ip;
pub(super) use record::Entry;
use record::Record;

/// With six digits of the home it is as long as a label can be.
const LABEL: &str = "lo:hangar";

pub(super) struct Lo {
    ip: Ip,
    label: String,
    record: Record,
}

impl Lo {
    pub fn open(home: &Path, ip: Ip) -> Self {
        let record = Record::read(home).unwrap_or_else(|error| {
            tracing::warn!(%error, "could not read which addresses an earlier run added to lo");
            Record::empty(home)
        });
        Self { ip, label: label(home), record }
    }

    /// What is in the record, put there by this run or an earlier one.
    pub fn recorded(&self) -> Vec<(Ipv4Addr, Entry)> {
        self.record.entries().iter().map(|(address, entry)| (*address, entry.clone())).collect()
    }

    pub fn look(&self, address: Ipv4Addr) -> Seen {
        let surroundings = self.ip.surroundings(address);
        // A broadcast address can be bound as if the machine had it.
        if is_here(address) && !surroundings.as_ref().is_ok_and(|around| around.is_broadcast) {
            return Seen::Here(self.whose(address));
        }
        match (self.ip.lack(), surroundings) {
            (_, Ok(around)) if around.is_somebodys() => Seen::Absent(around),
            (Some(lack), _) => Seen::Barred(lack),
            (None, Ok(around)) => Seen::Absent(around),
            (None, Err(words)) => Seen::Barred(Lack::Refused(words)),
        }
    }

    /// Without the program nobody here has put anything on `lo`.
    fn whose(&self, address: Ipv4Addr) -> Whose {
        let recorded = self.record.entries().get(&address).map(|entry| &entry.label);
        match self.ip.labels().unwrap_or_default().remove(&address) {
            Some(label) if label == self.label || Some(&label) == recorded => Whose::Ours(label),
            Some(label) if label.starts_with(LABEL) => Whose::AnotherHome(label),
            _ => Whose::Machine,
        }
    }

    /// Notes that an address of ours is somebody's: he may be a new one, or the record was lost.
    pub fn adopt(&mut self, address: Ipv4Addr, owners: Owners, uid: &str, label: &str) -> Result<(), String> {
        self.record.insert(address, Entry { owners, uid: uid.to_owned(), label: label.to_owned() })
    }

    pub fn put(&mut self, address: Ipv4Addr, owners: Owners, uid: &str) -> Result<(), String> {
        self.record.insert(address, Entry { owners, uid: uid.to_owned(), label: self.label.clone() })?;
        let outcome = match self.ip.add(address, &self.label) {
            Ok(()) if is_here(address) => Ok(()),
            Ok(()) => {
                self.clear(address).and(Err("the address is configured, but cannot be bound: is lo up?".to_owned()))
            }
            Err(words) => Err(words),
        };
        if outcome.is_err() {
            self.record.remove(address)?;
        }
        outcome
    }

    /// Removes an address, and forgets it.
    pub fn take_off(&mut self, address: Ipv4Addr) -> Result<(), String> {
        self.clear(address)?;
        self.record.remove(address)
    }

    /// Removes everything that was put there; the record stays for the next start. What could not be removed is said.
    pub fn leave(&self) -> Result<(), String> {
        let left: Vec<String> = self.record.entries().keys().filter_map(|address| self.clear(*address).err()).collect();
        if left.is_empty() { Ok(()) } else { Err(left.join("; ")) }
    }

    fn clear(&self, address: Ipv4Addr) -> Result<(), String> {
        let Some(entry) = self.record.entries().get(&address).filter(|_| is_here(address)) else { return Ok(()) };
        let ours = self.ip.labels().map(|labels| labels.get(&address) == Some(&entry.label));
        let removed = match ours {
            Ok(true) => self.ip.remove(address),
            Ok(false) => Ok(()),
            Err(words) => Err(words),
        };
        removed.map_err(|words| {
            format!("could not remove {address} from lo ({words}): remove it with `ip address del {address}/32 dev lo` as root")
        })
    }
}

/// Removes what a home put on `lo` when its process was killed.
pub(super) fn clear(home: &Path) -> Result<(), String> {
    Lo { ip: Ip::find(), label: label(home), record: Record::read(home)? }.leave()
}

fn label(home: &Path) -> String {
    let digest = digest::digest(&digest::SHA256, home.as_os_str().as_encoded_bytes());
    let digits: String = digest.as_ref().iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    format!("{LABEL}{digits}")
}

/// Whether the machine has an address: it can be bound then, and nothing else can, unless the system was told to allow all of them; there, the way
/// to it starts at the address itself. Nothing is sent.
pub(super) fn is_here(address: Ipv4Addr) -> bool {
    let all = std::fs::read_to_string("/proc/sys/net/ipv4/ip_nonlocal_bind").is_ok_and(|text| text.trim() == "1");
    match all {
        false => UdpSocket::bind((address, 0)).is_ok(),
        true => source_towards(address).is_ok_and(|source| source == address),
    }
}

fn source_towards(address: Ipv4Addr) -> std::io::Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((address, 9))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_the_homes_own_and_fits() {
        let (one, two) = (label(Path::new("/a")), label(Path::new("/b")));
        assert!(one != two && one.len() == 15 && one.starts_with(LABEL), "{one} {two}");
    }

    #[test]
    fn only_what_the_machine_has_is_here() {
        assert!(is_here(Ipv4Addr::new(127, 8, 0, 9)));
        // Of a network for documentation.
        assert!(!is_here(Ipv4Addr::new(203, 0, 113, 77)));
    }
}
