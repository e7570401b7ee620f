//! Whether the quota of a project leaves room for what is about to be made.
//!
//! Flows: what is missing ([`Needs`]) and what the project has left ([`Quota`]) -> go on, wait for others that were let in before, or say all that is missing at once.
//! Holds: nothing is made of which the cloud would refuse the second half; what has no known limit is never in the way.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::plan::Phase;

/// Others that were let in are being made.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

macro_rules! counted {
    ($($variant:ident, $words:literal, $option:literal;)*) => {
        /// What clouds count.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Counted { $($variant),* }

        impl Counted {
            fn words(self) -> &'static str {
                match self { $(Self::$variant => $words),* }
            }

            /// Of `openstack quota set`, or for load balancers of `openstack loadbalancer quota set`.
            fn option(self) -> &'static str {
                match self { $(Self::$variant => $option),* }
            }
        }
    };
}

counted! {
    Servers, "servers", "--instances";
    Cores, "cores", "--cores";
    Memory, "MiB of memory", "--ram";
    Networks, "networks", "--networks";
    Subnets, "subnets", "--subnets";
    Routers, "routers", "--routers";
    Ports, "ports", "--ports";
    FloatingIps, "floating IPs", "--floating-ips";
    SecurityGroups, "security groups", "--secgroups";
    SecurityGroupRules, "security group rules", "--secgroup-rules";
    Volumes, "volumes", "--volumes";
    Gigabytes, "GiB of volumes", "--gigabytes";
    LoadBalancers, "load balancers", "--loadbalancer";
}

/// How much of each is still to be made; what is not needed is not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs(BTreeMap<Counted, u64>);

impl Needs {
    pub fn add(&mut self, what: Counted, count: u64) {
        if count > 0 {
            let sum = self.0.entry(what).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    pub fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|(what, count)| self.add(what, count));
    }

    /// What is in this one and not in the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let left = self.iter().map(|(what, count)| (what, count.saturating_sub(other.of(what))));
        Self(left.filter(|(_, count)| *count > 0).collect())
    }

    pub fn of(&self, what: Counted) -> u64 {
        self.0.get(&what).copied().unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Counted, u64)> {
        self.0.iter().map(|(what, count)| (*what, *count))
    }
}

impl<const N: usize> From<[(Counted, u64); N]> for Needs {
    fn from(counts: [(Counted, u64); N]) -> Self {
        let mut needs = Self::default();
        counts.into_iter().for_each(|(what, count)| needs.add(what, count));
        needs
    }
}

/// What a project may have of one thing, and has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub limit: u64,
    pub used: u64,
}

/// What one project has left, as far as it concerns one object. The default knows of no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quota {
    /// The project's id.
    pub project: String,
    /// What has no limit is not in it.
    pub limits: BTreeMap<Counted, Limit>,
    /// For others that were let in and are not made yet.
    pub promised: Needs,
    /// Others that found no room, and what they need.
    pub waiting: (usize, Needs),
}

impl Quota {
    /// What does not fit, although nobody else is promised anything.
    pub fn is_exceeded_by(&self, needs: &Needs) -> bool {
        needs
            .iter()
            .any(|(what, count)| self.limits.get(&what).is_some_and(|it| it.used.saturating_add(count) > it.limit))
    }

    pub fn has_room_for(&self, needs: &Needs) -> bool {
        let mut all = needs.clone();
        all.add_all(&self.promised);
        let fits = |what| self.limits.get(&what).is_none_or(|it| it.used.saturating_add(all.of(what)) <= it.limit);
        needs.iter().all(|(what, _)| fits(what))
    }

    /// Whether these may be made now.
    pub fn room(&self, needs: &Needs) -> Phase {
        if self.has_room_for(needs) {
            return Phase::Done;
        }
        if !self.is_exceeded_by(needs) {
            let text = format!("waiting for others in project {}, which take the rest of its quota", self.project);
            return Phase::wait_for("WaitingForQuota", text, LOOK_AGAIN);
        }
        Phase::blocked("QuotaExceeded", self.missing(needs))
    }

    /// Everything that is missing for this object and for the others that wait, and the command that gives it.
    fn missing(&self, needs: &Needs) -> String {
        let mut wanted = needs.clone();
        wanted.add_all(&self.waiting.1);
        let (mut words, mut compute, mut balancers) = (vec![], String::new(), String::new());
        for (what, limit) in &self.limits {
            let (count, taken) = (wanted.of(*what), limit.used.saturating_add(self.promised.of(*what)));
            let total = taken.saturating_add(count);
            if count == 0 || total <= limit.limit {
                continue;
            }
            words.push(format!("{}: {count} needed, {taken} of {} used", what.words(), limit.limit));
            let options = if *what == Counted::LoadBalancers { &mut balancers } else { &mut compute };
            let _ = write!(options, " {} {total}", what.option());
        }
        let of = |program: &str, options: &str| {
            (!options.is_empty()).then(|| format!("openstack {program} set{options} {}", self.project))
        };
        let commands: Vec<String> =
            [of("quota", &compute), of("loadbalancer quota", &balancers)].into_iter().flatten().collect();
        let others = match self.waiting.0 {
            0 => String::new(),
            others => format!(" (together with {others} other objects that wait)"),
        };
        format!(
            "the quota of project {} leaves no room: {}{others}; have it raised ({}), or ask for less",
            self.project,
            words.join("; "),
            commands.join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::tests::described;

    fn quota(servers: (u64, u64), ports: (u64, u64)) -> Quota {
        let limit = |(used, limit)| Limit { limit, used };
        Quota {
            project: "p".into(),
            limits: [(Counted::Servers, limit(servers)), (Counted::Ports, limit(ports))].into(),
            ..Quota::default()
        }
    }

    #[test]
    fn oc19_what_is_missing_is_said_at_once_with_numbers_and_the_way_out() {
        let needs = Needs::from([(Counted::Servers, 1), (Counted::Ports, 2), (Counted::Cores, 4)]);
        let others = |quota: Quota| Quota { waiting: (3, Needs::from([(Counted::Servers, 3)])), ..quota };
        let promised = |quota: Quota| Quota { promised: Needs::from([(Counted::Servers, 1)]), ..quota };
        let balancer = Needs::from([(Counted::LoadBalancers, 1)]);
        let no_balancers =
            Quota { limits: [(Counted::LoadBalancers, Limit { limit: 0, used: 0 })].into(), ..quota((0, 9), (0, 9)) };
        for (what, quota, needs, expected) in [
            ("no limit is known", Quota::default(), &needs, "done"),
            ("it fits", quota((1, 2), (3, 5)), &needs, "done"),
            (
                "one of two does not",
                quota((2, 2), (3, 5)),
                &needs,
                "blocked QuotaExceeded: the quota of project p leaves no room: servers: 1 needed, 2 of 2 used; have it raised (openstack quota set --instances 3 p), or ask for less",
            ),
            (
                "neither does",
                quota((2, 2), (4, 5)),
                &needs,
                "blocked QuotaExceeded: the quota of project p leaves no room: servers: 1 needed, 2 of 2 used; ports: 2 needed, 4 of 5 used; \
                 have it raised (openstack quota set --instances 3 --ports 6 p), or ask for less",
            ),
            (
                "others wait too",
                others(quota((2, 2), (0, 9))),
                &needs,
                "blocked QuotaExceeded: the quota of project p leaves no room: servers: 4 needed, 2 of 2 used (together with 3 other objects that wait); \
                 have it raised (openstack quota set --instances 6 p), or ask for less",
            ),
            (
                "the last place is promised",
                promised(quota((1, 2), (0, 9))),
                &needs,
                "wait WaitingForQuota: waiting for others in project p, which take the rest of its quota",
            ),
            (
                "load balancers have a command of their own",
                no_balancers,
                &balancer,
                "blocked QuotaExceeded: the quota of project p leaves no room: load balancers: 1 needed, 0 of 0 used; \
                 have it raised (openstack loadbalancer quota set --loadbalancer 1 p), or ask for less",
            ),
        ] {
            assert_eq!(described(quota.room(needs)), expected, "{what}");
        }
    }

    #[test]
    fn needs_add_up_and_what_was_made_is_the_difference() {
        let mut sum = Needs::from([(Counted::Servers, 1), (Counted::Ports, 0)]);
        assert_eq!(sum, Needs::from([(Counted::Servers, 1)]), "nothing is not needed");
        sum.add_all(&Needs::from([(Counted::Servers, 2), (Counted::Ports, 1)]));
        assert_eq!(sum, Needs::from([(Counted::Servers, 3), (Counted::Ports, 1)]));
        let later = Needs::from([(Counted::Servers, 3)]);
        assert_eq!(sum.without(&later), Needs::from([(Counted::Ports, 1)]));
        assert!(later.without(&sum).is_empty());
    }
}
