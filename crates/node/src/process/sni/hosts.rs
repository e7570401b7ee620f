//! Server names and what they lead to.
//!
//! Holds: the most specific pattern wins, an exact name before a wildcard, a longer wildcard before a shorter one; of two that are the same,
//! the first that was put in.

use super::super::proxy::Pool;

/// A pattern of server names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Host {
    Exact(String),
    /// `*.example.com`: the suffix begins with its dot. In an Ingress the star stands for one label, in a Gateway for one or more.
    Below {
        suffix: String,
        one_label: bool,
    },
    Any,
}

impl Host {
    /// As the Gateway API reads it; an empty text is no restriction.
    pub fn of_gateway(text: &str) -> Self {
        Self::parse(text, false)
    }

    pub fn of_ingress(text: &str) -> Self {
        Self::parse(text, true)
    }

    fn parse(text: &str, one_label: bool) -> Self {
        let text = text.trim_end_matches('.').to_ascii_lowercase();
        match text.strip_prefix('*') {
            _ if text.is_empty() => Self::Any,
            Some(suffix) if suffix.starts_with('.') => Self::Below { suffix: suffix.to_owned(), one_label },
            Some(_) => Self::Any,
            None => Self::Exact(text),
        }
    }

    fn matches(&self, name: Option<&str>) -> bool {
        match (self, name) {
            (Self::Any, _) => true,
            (_, None) => false,
            (Self::Exact(own), Some(name)) => own == name,
            (Self::Below { suffix, one_label }, Some(name)) => {
                let label = name.strip_suffix(suffix.as_str()).unwrap_or_default();
                !label.is_empty() && (!one_label || !label.contains('.'))
            }
        }
    }

    fn precision(&self) -> usize {
        match self {
            Self::Exact(_) => usize::MAX,
            Self::Below { suffix, .. } => suffix.len(),
            Self::Any => 0,
        }
    }

    /// What both allow, if there is such a name.
    pub fn and(&self, other: &Self) -> Option<Self> {
        let narrower = if self.precision() >= other.precision() { self } else { other };
        let wider = if std::ptr::eq(narrower, self) { other } else { self };
        let inside = match (narrower, wider) {
            (_, Self::Any) => true,
            (Self::Exact(name), wider) => wider.matches(Some(name)),
            (Self::Below { suffix, .. }, Self::Below { suffix: wide, .. }) => suffix.ends_with(wide.as_str()),
            _ => false,
        };
        inside.then(|| narrower.clone())
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below { suffix, .. } => write!(f, "*{suffix}"),
            Self::Any => f.write_str("*"),
        }
    }
}

/// Backends with their weights; a share whose backend cannot be had keeps its part of the connections and closes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Split(Vec<(u32, Pool)>);

impl Split {
    pub fn new(shares: Vec<(u32, Pool)>) -> Self {
        Self(shares)
    }

    /// Spreads evenly: after any number of turns each share had nearly its part.
    pub fn pick(&self, turn: usize) -> Option<&Pool> {
        let total: u64 = self.0.iter().map(|(weight, _)| u64::from(*weight)).sum();
        // Multiples of the golden ratio, modulo one, as a fraction of 2^32.
        let place = (turn as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let mut at = (place * total.min(u64::from(u32::MAX))) >> 32;
        for (weight, pool) in &self.0 {
            match at.checked_sub(u64::from(*weight)) {
                Some(rest) => at = rest,
                None => return Some(pool),
            }
        }
        None
    }
}

/// All names of one listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Table(Vec<(Host, Split)>);

impl Table {
    pub fn add(&mut self, host: Host, split: Split) {
        if !self.0.iter().any(|(known, _)| *known == host) {
            let at = self.0.partition_point(|(known, _)| known.precision() >= host.precision());
            self.0.insert(at, (host, split));
        }
    }

    pub fn find(&self, name: Option<&str>) -> Option<&Split> {
        self.0.iter().find(|(host, _)| host.matches(name)).map(|(_, split)| split)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(port: u16) -> Split {
        Split::new(vec![(1, Pool::new(vec![([127, 0, 0, 1], port).into()], false))])
    }

    #[test]
    fn the_most_specific_name_wins() {
        let mut table = Table::default();
        for (port, host) in [(1, "*.example.com"), (2, "a.example.com"), (3, "*.b.example.com"), (4, "a.example.com")] {
            table.add(Host::of_gateway(host), split(port));
        }
        let rows = [
            (Some("a.example.com"), Some(2)),
            (Some("x.example.com"), Some(1)),
            (Some("x.y.example.com"), Some(1)),
            (Some("x.b.example.com"), Some(3)),
            (Some("example.com"), None),
            (Some("other.org"), None),
            (None, None),
        ];
        for (name, port) in rows {
            assert_eq!(table.find(name), port.map(split).as_ref(), "{name:?}");
        }
        table.add(Host::Any, split(9));
        assert_eq!((table.find(None), table.find(Some("a.example.com"))), (Some(&split(9)), Some(&split(2))));
    }

    #[test]
    fn a_star_of_an_ingress_is_one_label() {
        let host = Host::of_ingress("*.example.com");
        assert!(host.matches(Some("a.example.com")) && !host.matches(Some("a.b.example.com")));
    }

    #[test]
    fn names_of_listener_and_route_meet() {
        let rows = [
            ("", "a.example.com", Some("a.example.com")),
            ("*.example.com", "", Some("*.example.com")),
            ("*.example.com", "a.b.example.com", Some("a.b.example.com")),
            ("*.example.com", "example.com", None),
            ("*.example.com", "*.b.example.com", Some("*.b.example.com")),
            ("a.example.com", "*.example.com", Some("a.example.com")),
            ("a.example.com", "b.example.com", None),
            ("*.a.com", "*.b.com", None),
        ];
        for (listener, route, both) in rows {
            let met = Host::of_gateway(listener).and(&Host::of_gateway(route));
            assert_eq!(met.map(|host| host.to_string()).as_deref(), both, "{listener} and {route}");
        }
    }

    #[test]
    fn weights_are_kept_and_zero_gets_nothing() {
        let pools: Vec<Pool> = (1..=3).map(|port| Pool::new(vec![([127, 0, 0, 1], port).into()], false)).collect();
        let split = Split::new(vec![(9, pools[0].clone()), (0, pools[1].clone()), (1, pools[2].clone())]);
        let count = |pool: &Pool| (0..100).filter(|turn| split.pick(*turn) == Some(pool)).count();
        assert_eq!(pools.iter().map(count).collect::<Vec<_>>(), [90, 0, 10]);
        assert_eq!(Split::new(vec![(0, pools[0].clone())]).pick(7), None);
    }
}
