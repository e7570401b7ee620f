//! What projects have left of their quotas.
//!
//! Flows: an owner's needs -> one call for each service that they concern, unless it was read a while ago -> what is left, less what others were promised. Holds: what this
//! process makes is counted without reading it again; nobody is refused because of what was read long ago; a service that does not tell its limits has none.

use std::collections::BTreeMap;
use std::time::Duration;

use hangar_openstack::{Error, ErrorKind, Service};
use hangar_planner::cloud::quota::{Counted, Limit, Needs, Quota};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Session;

/// Limits seldom change. Whoever is let in because of an old reading is refused by the cloud itself, and then they are read again.
const KEPT: Duration = Duration::from_secs(600);
/// Before anybody is refused, limits are read again, at most this often.
const PACE: Duration = Duration::from_secs(20);
/// The same for a while after something was deleted.
const PACE_AFTER_DELETION: Duration = Duration::from_secs(2);
const AFTER_DELETION: Duration = Duration::from_secs(60);
/// What was promised and not begun for so long is free for others.
const PROMISED: Duration = Duration::from_secs(30);
/// Who waits asks again before this time has passed.
const WAITS: Duration = Duration::from_secs(150);

/// Of one project.
#[derive(Default)]
pub struct QuotaBook(Mutex<Book>);

#[derive(Default)]
struct Book {
    services: BTreeMap<Service, Reading>,
    owners: BTreeMap<String, Entry>,
    deleted: Option<Instant>,
}

struct Reading {
    at: Instant,
    limits: BTreeMap<Counted, Limit>,
}

/// What one owner still needs.
struct Entry {
    at: Instant,
    /// Since when it has needed exactly this.
    since: Instant,
    needs: Needs,
    has_room: bool,
}

fn service_of(what: Counted) -> Service {
    match what {
        Counted::Servers | Counted::Cores | Counted::Memory => Service::Nova,
        Counted::Volumes | Counted::Gigabytes => Service::Cinder,
        Counted::LoadBalancers => Service::Octavia,
        Counted::Networks
        | Counted::Subnets
        | Counted::Routers
        | Counted::Ports
        | Counted::FloatingIps
        | Counted::SecurityGroups
        | Counted::SecurityGroupRules => Service::Neutron,
    }
}

impl QuotaBook {
    /// What is left for this owner. It counts as told: if there is room, what it needs is promised to it for a while.
    pub async fn left(&self, session: &Session, project: &str, owner: &str, needs: &Needs) -> Result<Quota, Error> {
        let mut book = self.0.lock().await;
        book.made_since(owner, needs);
        if needs.is_empty() {
            book.owners.remove(owner);
            return Ok(Quota::default());
        }
        let services: Vec<Service> = needs.iter().map(|(what, _)| service_of(what)).collect();
        for service in &services {
            book.read(session, project, *service, KEPT).await?;
        }
        let mut quota = book.view(project, owner);
        if !quota.has_room_for(needs) {
            let pace = book.pace();
            for service in &services {
                book.read(session, project, *service, pace).await?;
            }
            quota = book.view(project, owner);
        }
        book.enter(owner, needs, quota.has_room_for(needs));
        Ok(quota)
    }

    /// The cloud has refused what there should have been room for.
    pub async fn is_wrong(&self) {
        self.0.lock().await.services.clear();
    }

    /// There may be more room soon.
    pub async fn deleted(&self) {
        self.0.lock().await.deleted = Some(Instant::now());
    }
}

impl Book {
    /// What was promised to an owner and is needed no longer has been made.
    fn made_since(&mut self, owner: &str, needs: &Needs) {
        self.owners.retain(|_, entry| entry.at.elapsed() < WAITS);
        let Some(entry) = self.owners.get(owner).filter(|entry| entry.has_room) else { return };
        for (what, count) in entry.needs.without(needs).iter() {
            let reading = self.services.get_mut(&service_of(what)).filter(|reading| reading.at <= entry.since);
            if let Some(limit) = reading.and_then(|reading| reading.limits.get_mut(&what)) {
                limit.used = limit.used.saturating_add(count);
            }
        }
    }

    fn enter(&mut self, owner: &str, needs: &Needs, has_room: bool) {
        let now = Instant::now();
        let before = self.owners.get(owner).filter(|before| before.needs == *needs && before.has_room == has_room);
        let since = before.map_or(now, |before| before.since);
        self.owners.insert(owner.to_owned(), Entry { at: now, since, needs: needs.clone(), has_room });
    }

    fn pace(&self) -> Duration {
        match self.deleted {
            Some(at) if at.elapsed() < AFTER_DELETION => PACE_AFTER_DELETION,
            _ => PACE,
        }
    }

    fn view(&self, project: &str, owner: &str) -> Quota {
        let mut quota = Quota { project: project.to_owned(), ..Quota::default() };
        for reading in self.services.values() {
            quota.limits.extend(&reading.limits);
        }
        for (_, entry) in self.owners.iter().filter(|(uid, _)| *uid != owner) {
            if !entry.has_room {
                quota.waiting.0 += 1;
                quota.waiting.1.add_all(&entry.needs);
            } else if entry.since.elapsed() < PROMISED {
                quota.promised.add_all(&entry.needs);
            }
        }
        quota
    }

    async fn read(&mut self, session: &Session, project: &str, service: Service, age: Duration) -> Result<(), Error> {
        if self.services.get(&service).is_some_and(|reading| reading.at.elapsed() < age) {
            return Ok(());
        }
        let at = Instant::now();
        let limits = match limits(session, project, service).await {
            Ok(limits) => limits,
            Err(error) => match error.kind {
                ErrorKind::Unauthorized | ErrorKind::Unreachable | ErrorKind::TooManyRequests { .. } => {
                    return Err(error);
                }
                // Whatever is wrong, the calls that matter will say; this one is asked again next time.
                ErrorKind::Server => {
                    self.services.remove(&service);
                    return Ok(());
                }
                // It does not tell us: then it has none, as far as we are concerned.
                _ => BTreeMap::new(),
            },
        };
        self.services.insert(service, Reading { at, limits });
        Ok(())
    }
}

async fn limits(session: &Session, project: &str, service: Service) -> Result<BTreeMap<Counted, Limit>, Error> {
    let cloud = &session.cloud;
    Ok(match service {
        Service::Nova => {
            let told = cloud.compute_limits().await?;
            absolute(
                &told,
                &[
                    (Counted::Servers, "maxTotalInstances", "totalInstancesUsed"),
                    (Counted::Cores, "maxTotalCores", "totalCoresUsed"),
                    (Counted::Memory, "maxTotalRAMSize", "totalRAMUsed"),
                ],
            )
        }
        Service::Cinder => {
            let told = cloud.volume_limits().await?;
            absolute(
                &told,
                &[
                    (Counted::Volumes, "maxTotalVolumes", "totalVolumesUsed"),
                    (Counted::Gigabytes, "maxTotalVolumeGigabytes", "totalGigabytesUsed"),
                ],
            )
        }
        Service::Octavia => match cloud.load_balancer_limit(project).await? {
            Some(limit) => {
                let all = cloud.load_balancers(None).await?;
                let used = all.iter().filter(|balancer| balancer.project_id == project).count();
                let used = u64::try_from(used).unwrap_or(u64::MAX);
                BTreeMap::from([(Counted::LoadBalancers, Limit { limit, used })])
            }
            None => BTreeMap::new(),
        },
        Service::Neutron => {
            let told = cloud.network_usage(project).await?;
            let names = [
                (Counted::Networks, "network"),
                (Counted::Subnets, "subnet"),
                (Counted::Routers, "router"),
                (Counted::Ports, "port"),
                (Counted::FloatingIps, "floatingip"),
                (Counted::SecurityGroups, "security_group"),
                (Counted::SecurityGroupRules, "security_group_rule"),
            ];
            let limit = |name: &str| {
                let usage = told.get(name)?;
                let used = u64::try_from(usage.used.saturating_add(usage.reserved)).unwrap_or_default();
                Some(Limit { limit: u64::try_from(usage.limit).ok()?, used })
            };
            names.into_iter().filter_map(|(what, name)| Some((what, limit(name)?))).collect()
        }
        Service::Keystone | Service::Glance => BTreeMap::new(),
    })
}

/// A limit below zero is none.
fn absolute(told: &Value, names: &[(Counted, &str, &str)]) -> BTreeMap<Counted, Limit> {
    let number = |name: &str| told[name].as_i64().and_then(|number| u64::try_from(number).ok());
    let limit = |limit: &str, used: &str| Some(Limit { limit: number(limit)?, used: number(used).unwrap_or_default() });
    names.iter().filter_map(|(what, name, used)| Some((*what, limit(name, used)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(count: u64) -> Needs {
        Needs::from([(Counted::Servers, count)])
    }

    fn book(limit: u64, used: u64) -> Book {
        let limits = BTreeMap::from([(Counted::Servers, Limit { limit, used })]);
        let services = BTreeMap::from([(Service::Nova, Reading { at: Instant::now(), limits })]);
        Book { services, ..Book::default() }
    }

    fn used(book: &Book) -> u64 {
        book.view("p", "").limits[&Counted::Servers].used
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_promised_counts_until_it_is_made_and_then_as_used() {
        let mut book = book(3, 1);
        book.enter("a", &servers(1), true);
        book.enter("b", &servers(5), false);
        let seen = book.view("p", "c");
        assert_eq!((seen.promised.of(Counted::Servers), seen.waiting.0), (1, 1));
        assert_eq!(book.view("p", "a").promised, Needs::default(), "nobody is in the way of itself");
        book.made_since("a", &Needs::default());
        assert_eq!(used(&book), 2);
        book.made_since("b", &Needs::default());
        assert_eq!(used(&book), 2, "what found no room was not made");
    }

    #[tokio::test(start_paused = true)]
    async fn a_promise_that_is_not_used_lapses_and_who_waits_no_longer_is_forgotten() {
        let mut book = book(3, 1);
        book.enter("a", &servers(1), true);
        book.enter("b", &servers(1), false);
        tokio::time::advance(PROMISED).await;
        assert_eq!(book.view("p", "c").promised, Needs::default());
        tokio::time::advance(WAITS).await;
        book.made_since("c", &Needs::default());
        assert!(book.owners.is_empty());
    }

    #[test]
    fn a_limit_below_zero_is_none() {
        let told = serde_json::json!({ "maxTotalInstances": -1, "totalInstancesUsed": 3, "maxTotalCores": 8, "totalCoresUsed": 2 });
        let names = [
            (Counted::Servers, "maxTotalInstances", "totalInstancesUsed"),
            (Counted::Cores, "maxTotalCores", "totalCoresUsed"),
            (Counted::Memory, "maxTotalRAMSize", "totalRAMUsed"),
        ];
        assert_eq!(absolute(&told, &names), BTreeMap::from([(Counted::Cores, Limit { limit: 8, used: 2 })]));
    }
}
