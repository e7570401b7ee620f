//! Whether a load balancer can have the address that it asks for.
//!
//! Flows: the address, who has it here, and what was seen of it on the machine -> a verdict with the words for the user. Holds: pure. Nobody
//! gets what another one has; nothing is put on this machine that is somebody else's in its network.

use std::net::Ipv4Addr;

/// Who has an address among the load balancers of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    Nobody,
    /// Whoever asks.
    Own,
    Another,
}

/// What was seen of an address on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// The machine has it.
    Here(Whose),
    /// The machine has it not, and we cannot change that.
    Barred(Lack),
    /// The machine has it not; it could be put there, unless the network has another use for it.
    Absent(Surroundings),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    /// It was there before us.
    Machine,
    /// This home put it there, with this label.
    Ours(String),
    /// Another home did; its label.
    AnotherHome(String),
}

/// What is missing to put an address on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lack {
    Capability,
    Program,
    /// The system said no, in these words.
    Refused(String),
}

/// What the kernel knows about an address and the network around it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Surroundings {
    pub is_gateway: bool,
    pub is_broadcast: bool,
    /// The interface behind which somebody has the address.
    pub neighbour_on: Option<String>,
}

impl Surroundings {
    /// Whether the network has another use for it.
    pub fn is_somebodys(&self) -> bool {
        *self != Self::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is given as asked.
    Take,
    /// It is put on the machine, then given.
    Add,
    /// It is another one's here: nothing is given in its place.
    InUse(String),
    /// Another one is given.
    Other(String),
}

/// What needs no look at the machine.
pub(super) fn without_lookup(wish: Ipv4Addr, holder: Holder) -> Option<Verdict> {
    let kind = if wish.is_unspecified() {
        "the unspecified address"
    } else if wish.is_multicast() {
        "a multicast address"
    } else if wish.is_broadcast() {
        "the broadcast address"
    } else if wish.is_link_local() {
        "a link-local address"
    } else {
        return match holder {
            Holder::Another => Some(Verdict::InUse(format!(
                "{wish} is in use by another load balancer: request another address, or none"
            ))),
            _ => wish.is_loopback().then_some(Verdict::Take),
        };
    };
    Some(Verdict::Other(format!("{wish} is {kind}, using another address: request a unicast address, or none")))
}

const FREE: &str = "request a free address, or none";

fn by_hand(wish: Ipv4Addr) -> String {
    format!("run `ip address add {wish}/32 dev lo` as root (picked up with the next change of a Service or pod)")
}

/// What is said when the system would not have it.
pub(super) fn refused(wish: Ipv4Addr, words: &str) -> String {
    format!("could not add {wish} to lo ({words}), using another address: {}, or {FREE}", by_hand(wish))
}

pub(super) fn after_lookup(wish: Ipv4Addr, seen: &Seen) -> Verdict {
    let other = |why: String| Verdict::Other(format!("{wish} {why}"));
    let (by_hand, free) = (by_hand(wish), FREE);
    match seen {
        Seen::Here(Whose::AnotherHome(label)) => other(format!(
            "was added to lo by another Hangar (label {label}), using another address: {free}, or stop the other one"
        )),
        Seen::Here(_) => Verdict::Take,
        Seen::Barred(Lack::Capability) => other(format!(
            "is not an address of this machine and only root can add it, using another address: {by_hand}, or run Hangar as root"
        )),
        Seen::Barred(Lack::Program) => other(
            "is not an address of this machine and the program ip is missing, using another address: install iproute2, then `hangar down` and `hangar up`".to_owned(),
        ),
        Seen::Barred(Lack::Refused(words)) => Verdict::Other(refused(wish, words)),
        Seen::Absent(around) if around.is_gateway => {
            other(format!("is the gateway of a route of this machine, using another address: {free}"))
        }
        Seen::Absent(around) if around.is_broadcast => {
            other(format!("is the broadcast address of a network of this machine, using another address: {free}"))
        }
        Seen::Absent(Surroundings { neighbour_on: Some(interface), .. }) => other(format!(
            "is in use by another machine on {interface}, using another address: {free}; to use it anyway, {by_hand}"
        )),
        Seen::Absent(_) => Verdict::Add,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict in short, and its words.
    fn short(verdict: &Verdict) -> (&'static str, &str) {
        match verdict {
            Verdict::Take => ("take", ""),
            Verdict::Add => ("add", ""),
            Verdict::InUse(words) => ("in use", words),
            Verdict::Other(words) => ("other", words),
        }
    }

    #[test]
    fn some_things_are_clear_without_a_look() {
        let rows = [
            ("127.8.0.9", Holder::Nobody, Some(("take", ""))),
            ("127.8.0.9", Holder::Own, Some(("take", ""))),
            ("127.8.0.9", Holder::Another, Some(("in use", "another load balancer"))),
            ("172.18.255.200", Holder::Another, Some(("in use", "another load balancer"))),
            ("172.18.255.200", Holder::Nobody, None),
            ("172.18.255.200", Holder::Own, None),
            ("0.0.0.0", Holder::Nobody, Some(("other", "unspecified"))),
            ("224.0.0.9", Holder::Nobody, Some(("other", "multicast"))),
            ("255.255.255.255", Holder::Nobody, Some(("other", "broadcast"))),
            ("169.254.169.254", Holder::Nobody, Some(("other", "link-local"))),
        ];
        for (wish, holder, expected) in rows {
            let verdict = without_lookup(wish.parse().unwrap(), holder);
            let found = verdict.as_ref().map(short);
            assert_eq!(found.map(|(kind, _)| kind), expected.map(|(kind, _)| kind), "{wish} {holder:?}");
            let (words, wanted) = (found.unwrap_or_default().1, expected.unwrap_or_default().1);
            assert!(words.contains(wanted), "{wish}: {words}");
        }
    }

    #[test]
    fn a_look_at_the_machine_decides_the_rest() {
        let around = Surroundings::default();
        let fix = "ip address add 172.18.255.200/32 dev lo";
        let rows = [
            (Seen::Here(Whose::Machine), "take", ""),
            (Seen::Here(Whose::Ours("lo:hangar654321".into())), "take", ""),
            (Seen::Here(Whose::AnotherHome("lo:hangar123456".into())), "other", "lo:hangar123456"),
            (Seen::Barred(Lack::Capability), "other", fix),
            (Seen::Barred(Lack::Program), "other", "iproute2"),
            (Seen::Barred(Lack::Refused("not permitted".into())), "other", "not permitted"),
            (Seen::Absent(around.clone()), "add", ""),
            (Seen::Absent(Surroundings { is_gateway: true, ..around.clone() }), "other", "gateway"),
            (Seen::Absent(Surroundings { is_broadcast: true, ..around.clone() }), "other", "broadcast"),
            (Seen::Absent(Surroundings { neighbour_on: Some("eth0".into()), ..around }), "other", "eth0"),
        ];
        for (seen, kind, words) in rows {
            let verdict = after_lookup(Ipv4Addr::new(172, 18, 255, 200), &seen);
            let found = short(&verdict);
            assert!(found.0 == kind && found.1.contains(words), "{seen:?}: {found:?}");
        }
    }
}
