//! Addresses of load balancers: for Services, Gateways and all Ingresses together.
//!
//! Holds: two owners never share an address, and an owner keeps the one it has, also while a status that was just written has not come back
//! from the API. Services take from the beginning of the network and Gateways from its end, so that neither has to wait until the other's
//! addresses are known.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use ipnet::Ipv4Net;

/// Where in the network free addresses are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Owners {
    Services,
    Gateways,
}

pub(super) struct BalancerAddresses {
    network: Ipv4Net,
    given: Mutex<HashMap<Ipv4Addr, (Owners, String)>>,
}

impl BalancerAddresses {
    pub fn new(network: Ipv4Net) -> Self {
        Self { network, given: Mutex::default() }
    }

    /// All Ingresses have one address, and it is always the same.
    pub fn of_ingresses(&self) -> Ipv4Addr {
        self.network.hosts().next_back().unwrap_or(self.network.addr())
    }

    /// Notes what stands in a status.
    pub fn keep(&self, owners: Owners, uid: &str, address: Ipv4Addr) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.entry(address).or_insert_with(|| (owners, uid.to_owned()));
    }

    /// Takes back what belongs to others than these.
    pub fn retain(&self, owners: Owners, is_there: impl Fn(&str) -> bool) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.retain(|_, (kind, uid)| *kind != owners || is_there(uid));
    }

    /// The owner's address, else the one asked for if it is local and free, else the next free one; and what is to be said about it.
    pub fn choose(&self, owners: Owners, uid: &str, asked: &str) -> (Option<Ipv4Addr>, Option<String>) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let own = given.iter().find(|(_, (kind, owner))| *kind == owners && owner == uid).map(|(address, _)| *address);
        let is_free = |address: &Ipv4Addr| !given.contains_key(address) && *address != self.of_ingresses();
        let free = || match owners {
            Owners::Services => self.network.hosts().find(is_free),
            Owners::Gateways => self.network.hosts().rfind(is_free),
        };
        let full = || format!("all addresses of {} are in use: delete what is no longer needed", self.network);
        let (address, complaint) = match (asked, asked.parse::<Ipv4Addr>()) {
            ("", _) => {
                let address = own.or_else(free);
                (address, address.is_none().then(full))
            }
            (_, Ok(address)) if own == Some(address) => (own, None),
            (_, Ok(address)) if address.is_loopback() && is_free(&address) => (Some(address), None),
            (_, Ok(address)) if address.is_loopback() => {
                (None, Some(format!("{address} is in use by another load balancer: ask for another one, or for none")))
            }
            _ => {
                let note = format!("{asked} is not an address of this machine (127.0.0.0/8), another one is taken");
                (own.or_else(free), Some(note))
            }
        };
        if let Some(address) = address {
            given.retain(|_, (kind, owner)| *kind != owners || owner != uid);
            given.insert(address, (owners, uid.to_owned()));
        }
        (address, complaint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> BalancerAddresses {
        BalancerAddresses::new("127.1.64.0/18".parse().unwrap())
    }

    #[test]
    fn a_load_balancer_gets_what_it_asks_for_if_that_is_local_and_free() {
        let rows = [
            ("", Some("127.1.64.2"), false),
            ("127.8.0.9", Some("127.8.0.9"), false),
            ("127.1.64.1", None, true),
            ("172.18.255.200", Some("127.1.64.2"), true),
        ];
        for (asked, address, complains) in rows {
            let addresses = addresses();
            addresses.keep(Owners::Services, "other", Ipv4Addr::new(127, 1, 64, 1));
            let (found, complaint) = addresses.choose(Owners::Services, "own", asked);
            let found = found.map(|ip| ip.to_string());
            assert_eq!((found.as_deref(), complaint.is_some()), (address, complains), "{asked}");
        }
    }

    #[test]
    fn an_owner_keeps_its_address_and_what_is_gone_is_free_again() {
        let addresses = addresses();
        let of = |owners, uid| addresses.choose(owners, uid, "").0.unwrap().to_string();
        assert_eq!(of(Owners::Services, "a"), "127.1.64.1");
        assert_eq!(of(Owners::Services, "b"), "127.1.64.2");
        assert_eq!(of(Owners::Services, "a"), "127.1.64.1");
        assert_eq!(of(Owners::Gateways, "g"), "127.1.127.253");
        assert_eq!(addresses.of_ingresses().to_string(), "127.1.127.254");
        addresses.retain(Owners::Services, |uid| uid == "b");
        assert_eq!(of(Owners::Gateways, "g"), "127.1.127.253");
        assert_eq!(of(Owners::Services, "c"), "127.1.64.1");
    }
}
