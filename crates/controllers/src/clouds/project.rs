//! What we know of one project: our servers, ports and security groups, by owner.
//!
//! Flows: one list call for all owners -> index by owner's UID -> our own calls are added. Holds: a list counts from the moment in which it began; after a call
//! whose fate is unknown (an error, a lost answer, a pass that was cut off) every list is read anew before anything else is decided.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hangar_openstack::{
    Cloud, Error, Network, Port, PortQuery, SecurityGroup, SecurityGroupQuery, Server, ServerQuery, Subnet,
};
use hangar_planner::cloud::{Lookup, Owned, Resource, ResourceType, has_twins, server};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Shared by all credentials of the project.
pub struct Project {
    /// Which one it is, for people and for comparison.
    pub name: String,
    id: String,
    servers: Mutex<List<Server>>,
    ports: Mutex<List<Port>>,
    security_groups: Mutex<List<SecurityGroup>>,
    /// What clusters' networks were found to be, by the cluster's UID and what its spec asks for.
    cluster_networks: Mutex<BTreeMap<(String, String), (Instant, ClusterNetwork)>>,
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

/// What an OpenStackCluster's network, subnets and zones are in the cloud.
#[derive(Debug, Clone, Default)]
pub struct ClusterNetwork {
    pub lookup: Lookup,
    pub network: Option<Network>,
    pub subnets: Vec<Subnet>,
    pub zones: Vec<String>,
}

/// Resources that carry a key of ours.
struct List<T> {
    /// The epoch and the moment in which it began.
    read: Option<(u64, Instant)>,
    by_owner: BTreeMap<String, BTreeMap<String, Arc<T>>>,
    owners: BTreeMap<String, String>,
    /// What we made or saw gone a short while ago, by id: a list may show how it was before.
    own: BTreeMap<String, Own<T>>,
    /// Of those that we made: what the last list does not have.
    unlisted: BTreeSet<String>,
}

/// The outcome of a call of ours.
struct Own<T> {
    at: Instant,
    /// In which it was called.
    epoch: u64,
    /// Nothing if it is gone.
    resource: Option<Arc<T>>,
}

/// A cluster's network that nobody asked about for so long is forgotten.
const KEPT: Duration = Duration::from_secs(3600);
/// How old a list may be.
#[derive(Debug, Clone, Copy)]
pub enum Age {
    /// Older if the project is large: else lists would be read as often as before and be ever longer, for thousands of clusters at once.
    Paced(Duration),
    /// Not older, whatever it costs.
    Strict(Duration),
}

/// A list of a thousand resources is read every two seconds at most.
const PACE: Duration = Duration::from_millis(2);
const LONGEST_PACE: Duration = Duration::from_secs(30);

/// How long a list may lag behind our own calls.
const LAG: Duration = Duration::from_secs(60);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            read: None,
            by_owner: BTreeMap::new(),
            owners: BTreeMap::new(),
            own: BTreeMap::new(),
            unlisted: BTreeSet::new(),
        }
    }
}

impl<T: Owned> List<T> {
    fn is_fresh(&self, epoch: u64, age: Age) -> bool {
        let age = match age {
            Age::Strict(age) => age,
            Age::Paced(age) => {
                let count = u32::try_from(self.owners.len()).unwrap_or(u32::MAX);
                age.max(PACE.saturating_mul(count).min(LONGEST_PACE))
            }
        };
        self.read.is_some_and(|(of, at)| of == epoch && at.elapsed() < age)
    }

    fn fill(&mut self, epoch: u64, began: Instant, listed: Vec<T>) {
        let mut own = std::mem::take(&mut self.own);
        own.retain(|_, own| own.at.elapsed() < LAG);
        *self = Self { read: Some((epoch, began)), ..Self::default() };
        for resource in listed {
            match own.get(resource.id()) {
                // Deleted since.
                Some(Own { resource: None, .. }) => {}
                _ => self.put(Arc::new(resource)),
            }
        }
        for (id, own) in &own {
            match &own.resource {
                Some(made) if !self.owners.contains_key(id) => {
                    self.put(made.clone());
                    self.unlisted.insert(id.clone());
                }
                _ => {}
            }
        }
        self.own = own;
    }

    /// Made or changed by us. Only what is new may be missing in the next list: what was there before and is missing then is gone.
    fn made(&mut self, epoch: u64, resource: Arc<T>) {
        let id = resource.id();
        match self.own.get_mut(id) {
            Some(own) => own.resource = Some(resource.clone()),
            None if self.owners.contains_key(id) => {}
            None => {
                let own = Own { at: Instant::now(), epoch, resource: Some(resource.clone()) };
                self.own.insert(id.to_owned(), own);
            }
        }
        self.put(resource);
    }

    /// Everything of this owner was made by us not longer ago than `age`, and the fate of no call since is unknown: a list has no news.
    fn is_all_new(&self, owner: &str, epoch: u64, age: Age) -> bool {
        let (Age::Paced(age) | Age::Strict(age)) = age;
        let is_new = |id: &String| self.own.get(id).is_some_and(|own| own.epoch == epoch && own.at.elapsed() < age);
        self.by_owner.get(owner).is_some_and(|resources| resources.keys().all(is_new))
    }

    /// Deleted by us, or found to be gone.
    fn gone(&mut self, epoch: u64, id: &str) {
        self.own.insert(id.to_owned(), Own { at: Instant::now(), epoch, resource: None });
        self.remove(id);
    }

    fn put(&mut self, resource: Arc<T>) {
        let Some(key) = resource.owner_key() else { return };
        self.owners.insert(resource.id().to_owned(), key.object_uid.clone());
        self.by_owner.entry(key.object_uid).or_default().insert(resource.id().to_owned(), resource);
    }

    fn get(&self, id: &str) -> Option<&Arc<T>> {
        self.by_owner.get(self.owners.get(id)?)?.get(id)
    }

    fn remove(&mut self, id: &str) {
        let Some(owner) = self.owners.remove(id) else { return };
        if let Some(resources) = self.by_owner.get_mut(&owner) {
            resources.remove(id);
            if resources.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
    }

    fn of(&self, owner: &str) -> BTreeMap<String, Arc<T>> {
        self.by_owner.get(owner).cloned().unwrap_or_default()
    }
}

impl Project {
    pub fn new(name: String, id: String) -> Self {
        Self {
            name,
            id,
            servers: Mutex::default(),
            ports: Mutex::default(),
            security_groups: Mutex::default(),
            cluster_networks: Mutex::default(),
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

    /// One owner's servers, from a list that is not older than `age`.
    pub async fn servers(&self, cloud: &Cloud, owner: &str, age: Age) -> Result<BTreeMap<String, Arc<Server>>, Error> {
        let mut list = self.servers.lock().await;
        if !list.is_fresh(self.epoch(), age) && !list.is_all_new(owner, self.epoch(), age) {
            let (epoch, began) = (self.epoch(), Instant::now());
            list.fill(epoch, began, cloud.servers(&ServerQuery::default()).await?);
        }
        // Made a moment ago, told to go or one of two, and not in the list: that may be an old list, or it is gone. Nova knows, and of two
        // its clock says which one is older: by clocks of their own two processes would each delete what the other has made.
        let of_owner = list.of(owner);
        let is_unsure = |it: &Server| server::is_deleting(it) || has_twins(&of_owner);
        let unlisted = of_owner.values().filter(|it| list.unlisted.contains(&it.id));
        let unsure: Vec<_> = unlisted.filter(|it| is_unsure(it)).cloned().collect();
        for server in unsure {
            match cloud.server(&server.id).await {
                Ok(found) => list.put(Arc::new(found)),
                Err(error) if error.is_not_found() => list.gone(self.epoch(), &server.id),
                Err(error) => return Err(error),
            }
        }
        Ok(list.of(owner))
    }

    pub async fn ports(&self, cloud: &Cloud, owner: &str, age: Age) -> Result<BTreeMap<String, Arc<Port>>, Error> {
        let mut list = self.ports.lock().await;
        if !list.is_fresh(self.epoch(), age) {
            let (epoch, began) = (self.epoch(), Instant::now());
            let query = PortQuery { project_id: Some(self.id.clone()), ..PortQuery::default() };
            list.fill(epoch, began, cloud.ports(&query).await?);
        }
        Ok(list.of(owner))
    }

    /// The ports that this process made for an owner not longer ago than `age`; nothing if it does not know of any.
    pub async fn new_ports(&self, owner: &str, age: Duration) -> BTreeMap<String, Arc<Port>> {
        let list = self.ports.lock().await;
        let mut ports = list.of(owner);
        ports.retain(|id, _| list.own.get(id).is_some_and(|own| own.at.elapsed() < age));
        ports
    }

    pub async fn security_groups(
        &self,
        cloud: &Cloud,
        owner: &str,
        age: Age,
    ) -> Result<BTreeMap<String, Arc<SecurityGroup>>, Error> {
        let mut list = self.security_groups.lock().await;
        if !list.is_fresh(self.epoch(), age) {
            let (epoch, began) = (self.epoch(), Instant::now());
            let query = SecurityGroupQuery { project_id: Some(self.id.clone()), ..SecurityGroupQuery::default() };
            list.fill(epoch, began, cloud.security_groups(&query).await?);
        }
        Ok(list.of(owner))
    }

    /// What was found for this cluster not longer ago than `age`, or what `find` finds.
    pub async fn cluster_network(
        &self,
        (owner, wanted): (&str, &str),
        age: Duration,
        find: impl Future<Output = Result<ClusterNetwork, Error>>,
    ) -> Result<ClusterNetwork, Error> {
        let key = (owner.to_owned(), wanted.to_owned());
        let known = self.cluster_networks.lock().await.get(&key).cloned();
        if let Some((_, found)) = known.filter(|(at, _)| at.elapsed() < age) {
            return Ok(found);
        }
        let began = Instant::now();
        let found = find.await?;
        let mut all = self.cluster_networks.lock().await;
        all.retain(|_, (at, _)| at.elapsed() < KEPT);
        all.insert(key, (began, found.clone()));
        Ok(found)
    }

    pub async fn insert(&self, resource: &Resource) {
        match resource {
            Resource::Server(server) => self.servers.lock().await.made(self.epoch(), server.clone()),
            Resource::Port(port) => self.ports.lock().await.made(self.epoch(), port.clone()),
            Resource::SecurityGroup(group) => self.security_groups.lock().await.made(self.epoch(), group.clone()),
        }
    }

    pub async fn remove(&self, of: ResourceType, id: &str) {
        match of {
            ResourceType::Server => self.servers.lock().await.gone(self.epoch(), id),
            ResourceType::Port => self.ports.lock().await.gone(self.epoch(), id),
            ResourceType::SecurityGroup => self.security_groups.lock().await.gone(self.epoch(), id),
        }
    }

    pub async fn server(&self, id: &str) -> Option<Arc<Server>> {
        self.servers.lock().await.get(id).cloned()
    }

    pub async fn port(&self, id: &str) -> Option<Arc<Port>> {
        self.ports.lock().await.get(id).cloned()
    }

    pub async fn security_group(&self, id: &str) -> Option<Arc<SecurityGroup>> {
        self.security_groups.lock().await.get(id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn long_lists_are_read_less_often_unless_it_matters() {
        let ms = Duration::from_millis;
        for (count, age, passed, fresh) in [
            (0, Age::Paced(ms(700)), 699, true),
            (0, Age::Paced(ms(700)), 700, false),
            (1_000, Age::Paced(ms(700)), 1_999, true),
            (1_000, Age::Paced(ms(700)), 2_000, false),
            (1_000, Age::Strict(ms(700)), 700, false),
            (1_000_000, Age::Paced(ms(700)), 30_000, false),
            (10, Age::Paced(DAY), 30_000, true),
        ] {
            let owners = (0..count).map(|number| (number.to_string(), "owner".to_owned())).collect();
            let list: List<Port> = List { read: Some((0, Instant::now())), owners, ..List::default() };
            tokio::time::advance(ms(passed)).await;
            assert_eq!(list.is_fresh(0, age), fresh, "{count} {age:?} {passed}");
            assert!(!list.is_fresh(1, age), "nothing of an earlier epoch counts");
        }
    }

    const DAY: Duration = Duration::from_secs(86_400);

    #[tokio::test(start_paused = true)]
    async fn since_when_an_owner_is_deleted_is_known_for_an_hour() {
        let project = Project::new("p".into(), "id".into());
        for (owner, later, expected) in [("a", 5, 0), ("b", 5, 0), ("a", 3_595, 10), ("a", 0, 0), ("b", 0, 0)] {
            assert_eq!(project.deleting_for(owner), Duration::from_secs(expected), "{owner}");
            tokio::time::advance(Duration::from_secs(later)).await;
        }
        assert_eq!(project.deleting.lock().unwrap().since.len(), 2);
    }
}
