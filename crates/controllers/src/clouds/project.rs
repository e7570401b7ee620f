//! What we know of one project: our resources of each sort, by owner.
//!
//! Flows: one list call for all owners -> index by owner's UID -> our own calls are added. Holds: a list counts from the moment in which it began; after a call
//! whose fate is unknown (an error, a lost answer, a pass that was cut off) every list is read anew before anything else is decided.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hangar_openstack::{
    Allowance, Cloud, Error, FloatingIp, FloatingIpQuery, Image, ImageQuery, Member, Network, Port, Router,
    SecurityGroup, Server, Subnet, Trunk, Volume,
};
use hangar_planner::OwnerKey;
use hangar_planner::cloud::{LoadBalancerTree, Owned as _, Resource, ResourceType};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::everything::Everything;
pub use super::list::Age;
use super::list::List;
use super::quota::QuotaBook;
use super::sorts::{OfOwner, Sort};

/// Shared by all credentials of the project.
pub struct Project {
    /// Which one it is, for people and for comparison.
    pub name: String,
    id: String,
    /// Calls of all credentials together.
    pub(super) allowance: Allowance,
    pub(super) servers: Mutex<List<Server>>,
    pub(super) ports: Mutex<List<Port>>,
    pub(super) security_groups: Mutex<List<SecurityGroup>>,
    pub(super) networks: Mutex<List<Network>>,
    pub(super) subnets: Mutex<List<Subnet>>,
    pub(super) routers: Mutex<List<Router>>,
    pub(super) floating_ips: Mutex<List<FloatingIp>>,
    pub(super) load_balancers: Mutex<List<LoadBalancerTree>>,
    /// Of load balancers, by pool.
    pub(super) members: Mutex<BTreeMap<String, Vec<Member>>>,
    /// Load balancers whose providers have no health monitors.
    pub(super) no_monitors: Mutex<BTreeSet<String>>,
    pub(super) volumes: Mutex<List<Volume>>,
    pub(super) trunks: Mutex<List<Trunk>>,
    pub(super) quota: QuotaBook,
    all_floating_ips: Everything<FloatingIp>,
    all_images: Everything<Image>,
    /// What names were found to mean, by their owner's UID and what they are for, with the question.
    remembered: Mutex<BTreeMap<(String, &'static str), Remembered>>,
    /// Lists that began in an earlier epoch count for nothing.
    epoch: AtomicU64,
    /// Since when owners are known to be deleted, by UID.
    deleting: std::sync::Mutex<Deleting>,
}

#[derive(Default)]
struct Deleting {
    since: HashMap<String, Instant>,
    /// The oldest first.
    order: VecDeque<(Instant, String)>,
}

/// An answer, its question, and when it was asked.
type Remembered = (Instant, String, Arc<dyn Any + Send + Sync>);

/// What nobody asked about for so long is forgotten.
const KEPT: Duration = Duration::from_secs(3600);
impl Project {
    pub fn new(name: String, id: String, allowance: Allowance) -> Self {
        Self {
            name,
            id,
            allowance,
            servers: Mutex::default(),
            ports: Mutex::default(),
            security_groups: Mutex::default(),
            networks: Mutex::default(),
            subnets: Mutex::default(),
            routers: Mutex::default(),
            floating_ips: Mutex::default(),
            load_balancers: Mutex::default(),
            members: Mutex::default(),
            no_monitors: Mutex::default(),
            volumes: Mutex::default(),
            trunks: Mutex::default(),
            quota: QuotaBook::default(),
            all_floating_ips: Everything::default(),
            all_images: Everything::default(),
            remembered: Mutex::default(),
            epoch: AtomicU64::new(0),
            deleting: std::sync::Mutex::default(),
        }
    }

    /// For how long an owner is known to be deleted. That nothing of it is left is only said by a list that began since: another process may have
    /// made something until then.
    pub fn deleting_for(&self, owner: &str) -> Duration {
        let mut deleting = self.deleting.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, old)) = deleting.order.pop_front_if(|(since, _)| since.elapsed() >= KEPT) {
            deleting.since.remove(&old);
        }
        if let Some(since) = deleting.since.get(owner) {
            return since.elapsed();
        }
        let now = Instant::now();
        deleting.since.insert(owner.to_owned(), now);
        deleting.order.push_back((now, owner.to_owned()));
        Duration::ZERO
    }

    /// What we know is worth nothing until it is read again.
    pub fn invalidate(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// One owner's resources of one sort, from a list that is not older than `age`.
    pub async fn resources<T: Sort>(&self, cloud: &Cloud, owner: &str, age: Age) -> Result<OfOwner<T>, Error> {
        let asked = Instant::now();
        let mut list = T::list_of(self).lock().await;
        if let Some(failure) = list.failure_since(asked) {
            return Err(failure);
        }
        let is_new = T::NEW_NEEDS_NO_LIST && list.is_all_new(owner, self.epoch(), age);
        if !list.is_fresh(self.epoch(), age) && !is_new {
            let (epoch, began) = (self.epoch(), Instant::now());
            let listed = T::read(cloud, self).await.inspect_err(|error| list.failed(error))?;
            list.fill(epoch, began, listed);
        }
        // Made a moment ago and not in the list: that may be an old list, or it is gone.
        let of_owner = list.of(owner);
        let unlisted = of_owner.values().filter(|it| list.unlisted.contains(it.id()));
        let unsure: Vec<_> = unlisted.filter(|it| it.is_unsure(&of_owner)).cloned().collect();
        for it in unsure {
            match it.show(cloud).await? {
                Some(found) => list.put(Arc::new(found)),
                None => list.gone(self.epoch(), it.id()),
            }
        }
        Ok(list.of(owner))
    }

    pub async fn servers(&self, cloud: &Cloud, owner: &str, age: Age) -> Result<OfOwner<Server>, Error> {
        self.resources(cloud, owner, age).await
    }

    pub async fn ports(&self, cloud: &Cloud, owner: &str, age: Age) -> Result<OfOwner<Port>, Error> {
        self.resources(cloud, owner, age).await
    }

    /// What carries the key of a cluster and none of these owners, as the last lists say. Whatever was on its way when its owner went arrives later.
    pub async fn orphans(&self, cluster: &str, owners: &BTreeSet<String>) -> Vec<Resource> {
        let is_orphan = |key: Option<OwnerKey>| {
            key.is_some_and(|key| key.cluster_uid == cluster && !owners.contains(&key.object_uid))
        };
        let mut orphans = vec![];
        macro_rules! of {
            ($($list:ident, $variant:ident;)*) => {
                $(orphans.extend(
                    self.$list.lock().await.all().filter(|it| is_orphan(it.owner_key())).map(|it| Resource::$variant(it.clone())),
                );)*
            };
        }
        of! { servers, Server; ports, Port; trunks, Trunk; volumes, Volume; }
        orphans
    }

    /// Networks and security groups in which machines of a cluster have ports, as the last list says.
    pub async fn used_by_machines(&self, cluster: &str, apart_from: &str) -> BTreeSet<String> {
        let list = self.ports.lock().await;
        let of_machines = list.all().filter(|port| {
            port.owner_key().is_some_and(|key| key.cluster_uid == cluster && key.object_uid != apart_from)
        });
        of_machines.flat_map(|port| port.security_groups.iter().chain([&port.network_id]).cloned()).collect()
    }

    /// The ports that this process made for an owner not longer ago than `age`; nothing if it does not know of any.
    pub async fn new_ports(&self, owner: &str, age: Duration) -> BTreeMap<String, Arc<Port>> {
        let list = self.ports.lock().await;
        let mut ports = list.of(owner);
        ports.retain(|id, _| list.own.get(id).is_some_and(|own| own.at.elapsed() < age));
        ports
    }

    /// What was found for this question not longer ago than `age`, or what `find` finds.
    pub async fn remembered<T: Clone + Send + Sync + 'static>(
        &self,
        (owner, what): (&str, &'static str),
        question: &str,
        age: Duration,
        find: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let key = (owner.to_owned(), what);
        let known = self.remembered.lock().await.get(&key).cloned();
        if let Some((at, asked, answer)) = known
            && asked == question
            && at.elapsed() < age
            && let Some(answer) = answer.downcast_ref::<T>()
        {
            return Ok(answer.clone());
        }
        let began = Instant::now();
        let found = find.await?;
        let mut all = self.remembered.lock().await;
        all.retain(|_, (at, _, _)| at.elapsed() < KEPT);
        all.insert(key, (began, question.to_owned(), Arc::new(found.clone())));
        Ok(found)
    }

    /// What `look` sees in the floating IPs of the project, whoever made them.
    pub async fn floating_ips<R>(
        &self,
        cloud: &Cloud,
        age: Duration,
        look: impl FnOnce(&[FloatingIp]) -> R,
    ) -> Result<R, Error> {
        let query = FloatingIpQuery { project_id: Some(self.id.clone()), ..FloatingIpQuery::default() };
        self.all_floating_ips.see(self.epoch(), age, async { cloud.floating_ips(&query).await }, look).await
    }

    /// The same for its images: Glance keeps no key that lists could be filtered by in every release.
    pub async fn images<R>(&self, cloud: &Cloud, age: Duration, look: impl FnOnce(&[Image]) -> R) -> Result<R, Error> {
        let query = ImageQuery { owner: Some(self.id.clone()), ..ImageQuery::default() };
        self.all_images.see(self.epoch(), age, async { cloud.images(&query).await }, look).await
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub async fn insert(&self, resource: &Resource) {
        match resource {
            Resource::Server(it) => self.made(it).await,
            Resource::Port(it) => self.made(it).await,
            Resource::SecurityGroup(it) => self.made(it).await,
            Resource::Network(it) => self.made(it).await,
            Resource::Subnet(it) => self.made(it).await,
            Resource::Router(it) => self.made(it).await,
            Resource::FloatingIp(it) => {
                self.all_floating_ips.changed(|other| other.id == it.id, Some(FloatingIp::clone(it))).await;
                self.made(it).await;
            }
            Resource::LoadBalancer(it) => self.made(it).await,
            Resource::Volume(it) => self.made(it).await,
            Resource::Trunk(it) => self.made(it).await,
            Resource::Image(it) => self.all_images.changed(|other| other.id == it.id, Some(Image::clone(it))).await,
        }
    }

    async fn made<T: Sort>(&self, resource: &Arc<T>) {
        T::list_of(self).lock().await.made(self.epoch(), resource.clone());
    }

    pub async fn remove(&self, of: ResourceType, id: &str) {
        match of {
            ResourceType::Server => self.gone::<Server>(id).await,
            ResourceType::Port => self.gone::<Port>(id).await,
            ResourceType::SecurityGroup => self.gone::<SecurityGroup>(id).await,
            ResourceType::Network => self.gone::<Network>(id).await,
            ResourceType::Subnet => self.gone::<Subnet>(id).await,
            ResourceType::Router => self.gone::<Router>(id).await,
            ResourceType::FloatingIp => {
                self.all_floating_ips.changed(|it| it.id == id, None).await;
                self.gone::<FloatingIp>(id).await;
            }
            ResourceType::LoadBalancer => self.gone::<LoadBalancerTree>(id).await,
            ResourceType::Volume => self.gone::<Volume>(id).await,
            ResourceType::Trunk => self.gone::<Trunk>(id).await,
            ResourceType::Image => self.all_images.changed(|it| it.id == id, None).await,
        }
    }

    async fn gone<T: Sort>(&self, id: &str) {
        T::list_of(self).lock().await.gone(self.epoch(), id);
    }

    /// What is known of one resource.
    pub async fn known<T: Sort>(&self, id: &str) -> Option<Arc<T>> {
        T::list_of(self).lock().await.get(id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn since_when_an_owner_is_deleted_is_known_for_an_hour() {
        let project = Project::new("p".into(), "id".into(), Allowance::new(hangar_openstack::Limits::default()));
        for (owner, later, expected) in [("a", 5, 0), ("b", 5, 0), ("a", 3_595, 10), ("a", 0, 0), ("b", 0, 0)] {
            assert_eq!(project.deleting_for(owner), Duration::from_secs(expected), "{owner}");
            tokio::time::advance(Duration::from_secs(later)).await;
        }
        assert_eq!(project.deleting.lock().unwrap().since.len(), 2);
    }
}
