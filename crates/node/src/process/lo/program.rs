//! The program `ip`: what the kernel has on `lo` and knows around it, and changes of that.
//!
//! Holds: no shell; what the program says of a refusal is passed on. It runs for some milliseconds and only when an address comes or goes, so
//! its caller waits: a change that could be abandoned half way would not be in the record.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::super::address_verdict::{Lack, Surroundings};

/// Users often have no `sbin` on their PATH.
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// Its bit in a set of capabilities.
const CAP_NET_ADMIN: u32 = 12;
/// States in which the kernel has an answer of the neighbour.
const ANSWERED: [&str; 5] = ["REACHABLE", "STALE", "DELAY", "PROBE", "PERMANENT"];

pub(in super::super) struct Ip {
    program: Option<PathBuf>,
    may_change: bool,
}

impl Ip {
    pub fn find() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories = std::env::split_paths(&path).chain(PLACES.map(PathBuf::from));
        let program = directories.map(|directory| directory.join("ip")).find(|path| path.is_file());
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self { program, may_change: has_capability(&status, CAP_NET_ADMIN) }
    }

    /// Of a machine where nothing can be seen or changed.
    #[cfg(test)]
    pub fn none() -> Self {
        Self { program: None, may_change: false }
    }

    /// What is missing to change something.
    pub fn lack(&self) -> Option<Lack> {
        match (self.may_change, &self.program) {
            (false, _) => Some(Lack::Capability),
            (true, None) => Some(Lack::Program),
            (true, Some(_)) => None,
        }
    }

    /// The labels of the addresses on `lo`.
    pub fn labels(&self) -> Result<BTreeMap<Ipv4Addr, String>, String> {
        Ok(labels(&self.run(&["-4", "-oneline", "address", "show", "dev", "lo"])?))
    }

    /// Visible to this machine alone: it is never taken as the source of what leaves the machine.
    pub fn add(&self, address: Ipv4Addr, label: &str) -> Result<(), String> {
        let address = format!("{address}/32");
        self.run(&["address", "add", &address, "dev", "lo", "scope", "host", "label", label]).map(drop)
    }

    pub fn remove(&self, address: Ipv4Addr) -> Result<(), String> {
        self.run(&["address", "del", &format!("{address}/32"), "dev", "lo"]).map(drop)
    }

    pub fn surroundings(&self, address: Ipv4Addr) -> Result<Surroundings, String> {
        let routes = self.run(&["-4", "route", "show", "table", "all"])?;
        let neighbours = self.run(&["-4", "neighbour", "show", "to", &address.to_string()])?;
        Ok(Surroundings {
            is_gateway: follows(&routes, "via", address),
            is_broadcast: follows(&routes, "broadcast", address),
            neighbour_on: neighbour(&neighbours, address),
        })
    }

    fn run(&self, words: &[&str]) -> Result<String, String> {
        let Some(program) = &self.program else { return Err("the program ip is missing: install iproute2".to_owned()) };
        let output = Command::new(program).args(words).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
                Err(format!("`ip {}` said: {said}", words.join(" ")))
            }
        }
    }
}

fn has_capability(status: &str, bit: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set & (1 << bit) != 0)
}

/// `1: lo    inet 10.0.0.1/32 scope host lo:label\       valid_lft ...`: the label is the last word before the backslash.
fn labels(text: &str) -> BTreeMap<Ipv4Addr, String> {
    let one = |line: &str| {
        let first = line.split('\\').next()?;
        let mut words = first.split_whitespace().skip_while(|word| *word != "inet").skip(1);
        let address = words.next()?.split('/').next()?.parse().ok()?;
        Some((address, words.last()?.to_owned()))
    };
    text.lines().filter_map(one).collect()
}

/// Whether an address stands behind a word.
fn follows(text: &str, word: &str, address: Ipv4Addr) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).any(|pair| pair[0] == word && pair[1].parse() == Ok(address))
}

/// `10.0.0.1 dev eth0 lladdr 02:00:00:00:00:01 REACHABLE`: the interface, if it answered.
fn neighbour(text: &str, address: Ipv4Addr) -> Option<String> {
    text.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = words.first()?.parse() == Ok(address) && words.iter().any(|word| ANSWERED.contains(word));
        let interface = words.iter().skip_while(|word| **word != "dev").nth(1)?;
        is_it.then(|| (*interface).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn capabilities_are_read_from_the_process_itself() {
        let rows = [
            ("CapPrm:\t000001ffffffffff\nCapEff:\t0000000000001000\n", true),
            ("CapEff:\t000001ffffffefff\n", false),
            ("CapPrm:\t000001ffffffffff\n", false),
            ("", false),
        ];
        for (status, expected) in rows {
            assert_eq!(has_capability(status, CAP_NET_ADMIN), expected, "{status}");
        }
    }

    #[test]
    fn labels_are_told_by_address() {
        let text = "\
            1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever\n\
            1: lo    inet 172.18.255.200/32 scope host lo:hangar0a1b2c\\       valid_lft forever preferred_lft forever\n";
        let found = labels(text);
        assert_eq!(found[&ip("127.0.0.1")], "lo");
        assert_eq!(found[&ip("172.18.255.200")], "lo:hangar0a1b2c");
    }

    #[test]
    fn gateways_broadcasts_and_neighbours_are_found() {
        let routes = "\
            default via 192.0.2.1 dev eth0 \n\
            10.9.0.0/16 \n\tnexthop via 192.0.2.7 dev eth0 weight 1 \n\
            192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.2 \n\
            broadcast 192.0.2.255 dev eth0 table local proto kernel scope link src 192.0.2.2 \n";
        let rows = [
            ("192.0.2.1", true, false),
            ("192.0.2.7", true, false),
            ("192.0.2.2", false, false),
            ("192.0.2.255", false, true),
        ];
        for (address, gateway, broadcast) in rows {
            let address = ip(address);
            assert_eq!((follows(routes, "via", address), follows(routes, "broadcast", address)), (gateway, broadcast));
        }
        let rows = [
            ("192.0.2.1 dev eth0 lladdr 02:fc:00:00:00:05 REACHABLE\n", Some("eth0")),
            ("192.0.2.1 dev br0 lladdr 02:fc:00:00:00:05 router STALE\n", Some("br0")),
            ("192.0.2.1 dev eth0  FAILED\n", None),
            ("192.0.2.1 dev eth0  INCOMPLETE\n", None),
            ("192.0.2.9 dev eth0 lladdr 02:fc:00:00:00:05 REACHABLE\n", None),
            ("", None),
        ];
        for (text, interface) in rows {
            assert_eq!(neighbour(text, ip("192.0.2.1")).as_deref(), interface, "{text}");
        }
    }
}
