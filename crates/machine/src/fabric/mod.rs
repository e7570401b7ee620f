//! The fabric: a small process of its own that holds the namespaces in which guests and their networks live.
//!
//! Flows: [`Fabric`] (any process) -> a request over a Unix socket -> [`server`] (the fabric's process) -> bridges, places, guests; a socket that
//! was made in a network comes back with the answer. Holds: whoever has the socket of a network reaches into it, without being in it; when the
//! fabric ends, all of its guests end, and the kernel takes their networks away.

mod client;
mod guests;
mod message;
mod places;
mod server;

use std::net::{Ipv4Addr, SocketAddrV4};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

pub use client::{Booted, Fabric, FabricError, FabricOptions};
pub(crate) use places::{accept_loopback, sysctl};
pub(crate) use server::{enter_namespaces, run};

use crate::guest::GuestSpec;
use crate::network::nft::PortFilter;

/// Where a network is configured from outside: the addresses of its gateway, and everything behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// One per network, or per router.
    pub name: String,
    pub legs: Vec<Leg>,
    /// Ranges beyond that answer here: whoever listens here speaks for them.
    pub answers_for: Vec<Ipv4Net>,
}

/// One address in one network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leg {
    pub network: String,
    pub address: Ipv4Net,
    pub mtu: u32,
}

/// A node's range of pods, and where the node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRoute {
    pub range: Ipv4Net,
    pub node: Ipv4Addr,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Whether it is there, and of which build.
    Hello,
    Place(Place),
    /// A listening socket.
    Listen {
        place: String,
        at: SocketAddrV4,
    },
    /// A socket that is not connected yet.
    Socket {
        place: String,
    },
    /// Nothing happens if it runs.
    Boot(Box<GuestSpec>),
    /// Its processes end at once.
    PowerOff {
        guest: String,
    },
    /// Where pods of other nodes are.
    Routes {
        guest: String,
        routes: Vec<PodRoute>,
    },
    /// What may come and go by a guest's links.
    Filter {
        guest: String,
        filter: PortFilter,
    },
    /// What still runs.
    Guests,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub error: Option<String>,
    pub guests: Vec<String>,
    /// Whether a guest was started by this very request.
    pub started: bool,
    /// Who answers.
    pub process: u32,
}

/// The variable by which the processes of machines are known to belong to a home. They are no children of the plane: they outlive a restart of it.
pub const MARK: &str = "HANGAR_MACHINES_OF";

/// Where nobody has said where to look for a network's way out.
pub(crate) const METADATA: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 169, 254), 32);

/// Where guests come from when they ask for an address of loopback that is somebody else's.
pub(crate) const LOOPBACK_GUESTS: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 255, 0, 0), 16);

/// The one of a guest; no two of one network have the same, unless it is larger than a /16.
pub(crate) fn loopback_of(address: Ipv4Addr) -> Ipv4Addr {
    let [.., high, low] = address.octets();
    Ipv4Addr::new(127, 255, high, low)
}

/// A name of at most 15 characters, as links need it, that follows from a longer one.
pub(crate) fn link_name(kind: char, text: &str) -> String {
    // FNV-1a: short, and the same in every build.
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{kind}{hash:016x}").chars().take(13).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_links_are_short_and_follow_from_what_they_stand_for() {
        let (one, other) = (link_name('b', "d3c7a2b4-8e5f-4a0c-9b92-3f4e5d6c7a83"), link_name('b', "another"));
        assert!(one.len() <= 15 && one != other && one.starts_with('b'));
        assert_eq!(one, link_name('b', "d3c7a2b4-8e5f-4a0c-9b92-3f4e5d6c7a83"));
    }
}
