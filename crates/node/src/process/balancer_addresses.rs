//! Addresses of load balancers: for Services, Gateways and all Ingresses together.
//!
//! Flows: an owner and its wish -> what is given and what is seen of the machine -> the verdict ([`super::address_verdict`]) -> the address, put on `lo`
//! if it must be ([`super::lo`]). Holds: two owners never share an address, and an owner keeps the one it has, also while a status that was
//! just written has not come back from the API. Services take from the beginning of the network and Gateways from its end, so that neither
//! has to wait until the other's addresses are known. What nobody has any more is not left on `lo`.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::address_verdict::{Holder, Seen, Verdict, Whose, after_lookup, refused, without_lookup};
use super::lo::{Lo, is_here};

/// Where in the network free addresses are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Owners {
    Services,
    Gateways,
}

/// An address, and what is to be said about it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub address: Option<Ipv4Addr>,
    /// Why it is not the one asked for.
    pub complaint: Option<String>,
    /// What was changed on the machine for it.
    pub added: Option<String>,
}

pub(super) struct BalancerAddresses {
    network: Ipv4Net,
    state: Mutex<State>,
}

type Owner = (Owners, String);

struct State {
    given: HashMap<Ipv4Addr, Given>,
    /// Wishes that were refused after a look at the machine, with what is said about it. They are looked at again when the address comes or goes.
    refused: HashMap<Owner, Refusal>,
    lo: Lo,
}

struct Given {
    owner: Owner,
    /// Whether this run has seen whose it is on the machine.
    looked_at: bool,
}

struct Refusal {
    wish: Ipv4Addr,
    was_here: bool,
    complaint: String,
}

impl BalancerAddresses {
    /// Takes up what an earlier run put on `lo`.
    pub fn new(network: Ipv4Net, lo: Lo) -> Self {
        let given = lo.recorded().into_iter();
        let given =
            given.map(|(address, entry)| (address, Given { owner: (entry.owners, entry.uid), looked_at: false }));
        Self { network, state: Mutex::new(State { given: given.collect(), refused: HashMap::new(), lo }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All Ingresses have one address, and it is always the same.
    pub fn of_ingresses(&self) -> Ipv4Addr {
        self.network.hosts().next_back().unwrap_or(self.network.addr())
    }

    /// Notes what stands in a status.
    pub fn keep(&self, owners: Owners, uid: &str, address: Ipv4Addr) {
        let mut state = self.state();
        if state.own(owners, uid).is_none() {
            state.given.entry(address).or_insert_with(|| Given { owner: (owners, uid.to_owned()), looked_at: false });
        }
    }

    /// Takes back what belongs to others than these.
    pub fn retain(&self, owners: Owners, is_there: impl Fn(&str) -> bool) {
        let mut state = self.state();
        let stays = |(kind, uid): &Owner| *kind != owners || is_there(uid);
        state.given.retain(|_, given| stays(&given.owner));
        state.refused.retain(|owner, _| stays(owner));
        state.tidy();
    }

    /// Takes everything off the machine when the node ends; who had it gets it back at the next start.
    pub fn leave(&self) {
        if let Err(error) = self.state().lo.leave() {
            tracing::warn!(%error, "could not remove all addresses from lo");
        }
    }

    /// The address asked for if it can be had, else the owner's, else the next free one.
    pub fn choose(&self, owners: Owners, uid: &str, asked: &str) -> Choice {
        let mut state = self.state();
        let own = state.own(owners, uid);
        let wish = match (asked, asked.parse::<Ipv4Addr>()) {
            // What is not always there is looked after as if it were asked for.
            ("", _) => own.filter(|own| !own.is_loopback()),
            (_, Ok(wish)) => Some(wish),
            (_, Err(_)) => {
                let note =
                    format!("{asked} is not an IPv4 address, using another address: request an IPv4 address, or none");
                return self.another(&mut state, owners, uid, Some(note));
            }
        };
        let Some(wish) = wish else { return self.another(&mut state, owners, uid, None) };
        let holder = match state.given.contains_key(&wish) || wish == self.of_ingresses() {
            true if own == Some(wish) => Holder::Own,
            true => Holder::Another,
            false => Holder::Nobody,
        };
        match without_lookup(wish, holder).unwrap_or_else(|| state.look(owners, uid, wish)) {
            Verdict::Take => state.give(owners, uid, wish),
            Verdict::Add => match state.put(owners, uid, wish) {
                Ok(choice) => choice,
                Err(complaint) => self.another(&mut state, owners, uid, Some(complaint)),
            },
            Verdict::InUse(complaint) => Choice { address: own, complaint: Some(complaint), added: None },
            Verdict::Other(complaint) => self.another(&mut state, owners, uid, Some(complaint)),
        }
    }

    /// The owner's address of the network, else the next free one there.
    fn another(&self, state: &mut State, owners: Owners, uid: &str, complaint: Option<String>) -> Choice {
        let is_free = |address: &Ipv4Addr| !state.given.contains_key(address) && *address != self.of_ingresses();
        let free = || match owners {
            Owners::Services => self.network.hosts().find(is_free),
            Owners::Gateways => self.network.hosts().rfind(is_free),
        };
        let Some(address) = state.own(owners, uid).filter(Ipv4Addr::is_loopback).or_else(free) else {
            let full = format!("all addresses of {} are in use: delete unused Services or Gateways", self.network);
            return Choice { complaint: Some(full), ..Choice::default() };
        };
        Choice { complaint, ..state.give(owners, uid, address) }
    }
}

impl State {
    fn own(&self, owners: Owners, uid: &str) -> Option<Ipv4Addr> {
        let is_own = |given: &Given| given.owner.0 == owners && given.owner.1 == uid;
        self.given.iter().find(|(_, given)| is_own(given)).map(|(address, _)| *address)
    }

    /// A full look costs runs of a program: it is made once for each wish, and then whenever the address came or went.
    fn look(&mut self, owners: Owners, uid: &str, wish: Ipv4Addr) -> Verdict {
        let (owner, here) = ((owners, uid.to_owned()), is_here(wish));
        if here && self.given.get(&wish).is_some_and(|given| given.owner == owner && given.looked_at) {
            return Verdict::Take;
        }
        if let Some(refusal) = self.refused.get(&owner).filter(|known| known.wish == wish && known.was_here == here) {
            return Verdict::Other(refusal.complaint.clone());
        }
        let seen = self.lo.look(wish);
        let mut verdict = after_lookup(wish, &seen);
        if let Seen::Here(Whose::Ours(label)) = &seen
            && let Err(words) = self.lo.adopt(wish, owners, uid, label)
        {
            verdict = Verdict::Other(refused(wish, &words));
        }
        if let Verdict::Other(complaint) = &verdict {
            self.refused.insert(owner, Refusal { wish, was_here: here, complaint: complaint.clone() });
        }
        verdict
    }

    fn put(&mut self, owners: Owners, uid: &str, wish: Ipv4Addr) -> Result<Choice, String> {
        match self.lo.put(wish, owners, uid) {
            Ok(()) => {
                let added =
                    format!("{wish}/32 was added to the interface lo; it is removed when it is no longer needed");
                tracing::info!(address = %wish, "added to lo");
                Ok(Choice { added: Some(added), ..self.give(owners, uid, wish) })
            }
            Err(words) => {
                let complaint = refused(wish, &words);
                let refusal = Refusal { wish, was_here: is_here(wish), complaint: complaint.clone() };
                self.refused.insert((owners, uid.to_owned()), refusal);
                Err(complaint)
            }
        }
    }

    fn give(&mut self, owners: Owners, uid: &str, address: Ipv4Addr) -> Choice {
        let owner = (owners, uid.to_owned());
        self.given.retain(|_, given| given.owner != owner);
        self.given.insert(address, Given { owner, looked_at: true });
        self.tidy();
        Choice { address: Some(address), ..Choice::default() }
    }

    /// What was put on `lo` for somebody who has it no longer goes.
    fn tidy(&mut self) {
        for (address, entry) in self.lo.recorded() {
            if self.given.get(&address).is_some_and(|given| given.owner == (entry.owners, entry.uid)) {
                continue;
            }
            match self.lo.take_off(address) {
                Ok(()) => tracing::info!(%address, "removed from lo"),
                Err(error) => tracing::warn!(%error, "could not remove all addresses from lo"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lo::Ip;
    use super::*;

    fn addresses(home: &std::path::Path) -> BalancerAddresses {
        BalancerAddresses::new("127.1.64.0/18".parse().unwrap(), Lo::open(home, Ip::none()))
    }

    #[test]
    fn a_load_balancer_gets_what_it_asks_for_if_that_can_be_had() {
        let rows = [
            ("", Some("127.1.64.2"), ""),
            ("127.8.0.9", Some("127.8.0.9"), ""),
            ("127.1.64.1", None, "in use by another"),
            ("127.1.127.254", None, "in use by another"),
            ("203.0.113.77", Some("127.1.64.2"), "ip address add 203.0.113.77/32 dev lo"),
            ("224.0.0.9", Some("127.1.64.2"), "multicast"),
            ("::1", Some("127.1.64.2"), "not an IPv4 address"),
        ];
        for (asked, address, complaint) in rows {
            let home = tempfile::tempdir().unwrap();
            let addresses = addresses(home.path());
            addresses.keep(Owners::Services, "other", Ipv4Addr::new(127, 1, 64, 1));
            let choice = addresses.choose(Owners::Services, "own", asked);
            assert_eq!(choice.address.map(|ip| ip.to_string()).as_deref(), address, "{asked}");
            let said = choice.complaint.unwrap_or_default();
            assert!(said.contains(complaint) && said.is_empty() == complaint.is_empty(), "{asked}: {said}");
            assert_eq!(addresses.choose(Owners::Services, "own", asked).address, choice.address, "{asked} again");
        }
    }

    #[test]
    fn an_owner_keeps_its_address_and_what_is_gone_is_free_again() {
        let home = tempfile::tempdir().unwrap();
        let addresses = addresses(home.path());
        let of = |owners, uid| addresses.choose(owners, uid, "").address.unwrap().to_string();
        assert_eq!(of(Owners::Services, "a"), "127.1.64.1");
        assert_eq!(of(Owners::Services, "b"), "127.1.64.2");
        assert_eq!(of(Owners::Services, "a"), "127.1.64.1");
        assert_eq!(of(Owners::Gateways, "g"), "127.1.127.253");
        assert_eq!(addresses.of_ingresses().to_string(), "127.1.127.254");
        addresses.retain(Owners::Services, |uid| uid == "b");
        assert_eq!(of(Owners::Gateways, "g"), "127.1.127.253");
        assert_eq!(of(Owners::Services, "c"), "127.1.64.1");
    }

    #[test]
    fn an_owner_that_asks_for_another_address_gives_the_first_one_back() {
        let home = tempfile::tempdir().unwrap();
        let addresses = addresses(home.path());
        let of = |uid, asked| addresses.choose(Owners::Services, uid, asked).address.map(|ip| ip.to_string());
        assert_eq!(of("a", "127.8.0.1").as_deref(), Some("127.8.0.1"));
        assert_eq!(of("a", "127.8.0.2").as_deref(), Some("127.8.0.2"));
        assert_eq!(of("b", "127.8.0.1").as_deref(), Some("127.8.0.1"));
        assert_eq!(
            of("a", "127.8.0.1").as_deref(),
            Some("127.8.0.2"),
            "what another one has is no reason to lose one's own"
        );
    }

    /// As after a restart of the machine: in the record, but not on `lo`, and it cannot be put there.
    #[test]
    fn what_an_earlier_run_recorded_is_its_owners_or_forgotten() {
        let home = tempfile::tempdir().unwrap();
        let address = Ipv4Addr::new(203, 0, 113, 77);
        let mut lo = Lo::open(home.path(), Ip::none());
        lo.adopt(address, Owners::Services, "a", "lo:hangar123456").unwrap();
        let first = addresses(home.path());
        let other = first.choose(Owners::Services, "b", "203.0.113.77");
        assert!(other.address.is_none() && other.complaint.unwrap().contains("in use by another"));
        first.retain(Owners::Gateways, |_| false);
        assert_eq!(Lo::open(home.path(), Ip::none()).recorded().len(), 1, "of that the Services decide");
        first.retain(Owners::Services, |_| false);
        assert!(Lo::open(home.path(), Ip::none()).recorded().is_empty());
    }
}
