//! What we know of the cluster: every watched object, by kind and by a few indexes.
//!
//! Holds: an object never goes back to an older version, whether news comes from a watch or from our own write; what was deleted does not
//! come back because an old event arrives late. What nobody reads for a while is packed, so that clusters at rest cost little memory.

mod entry;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hangar_api::{Object, ObjectKey, references};
use tokio::sync::Notify;

use crate::providers::Providers;
use crate::queue::Group;
use crate::reads::{GroupKind, Link};
use entry::{Entry, Packer, version};

/// What nobody used for so long is packed; longer than a cluster takes to come up.
const PACK_EVERY: Duration = Duration::from_secs(20);
/// Stale events arrive within seconds; 10,000 tombstones outlast them.
const TOMBSTONES: usize = 10_000;

/// A change of the cache.
#[derive(Debug, Clone)]
pub struct Change {
    pub key: ObjectKey,
    pub old: Option<Arc<Object>>,
    pub new: Option<Arc<Object>>,
}

/// Shared by all controllers; cheap to clone.
#[derive(Clone, Default)]
pub struct Cache(Arc<Mutex<Inner>>);

/// A key is there once, however many indexes have it.
type Keys = BTreeSet<Arc<ObjectKey>>;

#[derive(Default)]
struct Inner {
    /// How objects of each kind name others.
    links: BTreeMap<GroupKind, Vec<Link>>,
    /// Kinds that have been listed once.
    listed: BTreeSet<(String, String)>,
    /// Found by hash, as everything below that has an entry for each object: comparing keys on the way through a tree of 50,000 takes longer than
    /// what is done with them. Nothing depends on the order of a hash map.
    objects: HashMap<Arc<ObjectKey>, Entry>,
    /// Those that are not packed.
    open: Keys,
    /// The first one is open.
    opened: Arc<Notify>,
    packer: Packer,
    providers: Providers,
    /// By the UID of each owner.
    by_owner: HashMap<String, Keys>,
    /// By namespace and cluster name.
    by_cluster: HashMap<Group, Keys>,
    /// By what each object names.
    by_link: HashMap<ObjectKey, Keys>,
    /// UID and version of objects that were seen to be deleted.
    tombstones: HashMap<ObjectKey, (String, u64)>,
    /// The same, the oldest first; a name that was used again may be here twice.
    oldest_tombstones: VecDeque<(ObjectKey, u64)>,
}

impl Cache {
    /// A cache that knows how objects name each other.
    pub fn new(links: impl IntoIterator<Item = (GroupKind, Link)>) -> Self {
        let cache = Self::default();
        for (kind, link) in links {
            cache.inner().links.entry(kind).or_default().push(link);
        }
        cache
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere cannot leave a half-made entry: every change below is complete before it is visible.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.inner().open(key)
    }

    pub fn owned_by(&self, uid: &str, group: &str, kind: &str) -> Vec<Arc<Object>> {
        let mut inner = self.inner();
        let keys = of_kind(inner.by_owner.get(uid), group, kind);
        inner.open_all(&keys)
    }

    pub fn of_cluster(&self, namespace: &str, cluster: &str, group: &str, kind: &str) -> Vec<Arc<Object>> {
        let mut inner = self.inner();
        let keys = of_kind(inner.by_cluster.get(&(namespace.to_owned(), cluster.to_owned())), group, kind);
        inner.open_all(&keys)
    }

    /// With whom an object takes turns; it need not be there.
    pub fn group(&self, key: &ObjectKey) -> Group {
        let cluster = self.inner().objects.get(key).and_then(|entry| entry.group.clone());
        cluster.unwrap_or_else(|| Arc::new((key.namespace.clone(), String::new())))
    }

    /// Those that name an object, which need not be there.
    pub fn linking_to(&self, key: &ObjectKey) -> Vec<ObjectKey> {
        self.inner().by_link.get(key).into_iter().flatten().map(|key| ObjectKey::clone(key)).collect()
    }

    /// What an object names.
    pub fn links_of(&self, object: &Object) -> Vec<ObjectKey> {
        self.inner().links_of(object)
    }

    /// Every object of the kind that was there before the first list ended is in the cache.
    pub fn is_listed(&self, group: &str, kind: &str) -> bool {
        self.inner().listed.contains(&(group.to_owned(), kind.to_owned()))
    }

    /// What is known of kinds that are not ours.
    pub fn providers(&self) -> Providers {
        self.inner().providers.clone()
    }

    pub fn set_listed(&self, group: &str, kind: &str) {
        self.inner().listed.insert((group.to_owned(), kind.to_owned()));
    }

    /// Every object of a kind, with its version.
    pub fn versions_of(&self, group: &str, kind: &str) -> BTreeMap<ObjectKey, u64> {
        let inner = self.inner();
        let of_kind = inner.objects.iter().filter(|(key, _)| key.group == group && key.kind == kind);
        of_kind.map(|(key, entry)| (ObjectKey::clone(key), entry.version)).collect()
    }

    /// Packs what nobody has used since the last time; whether everything is packed now.
    pub fn pack_unused(&self) -> bool {
        let mut inner = self.inner();
        let Inner { objects, open, packer, .. } = &mut *inner;
        open.retain(|key| objects.get_mut(key).is_some_and(|entry| !entry.rest(packer)));
        open.is_empty()
    }

    /// Packs what nobody has used for a while, for ever; at rest there is nothing to do, and no clock ticks.
    pub async fn keep_packed(self) {
        let opened = self.inner().opened.clone();
        loop {
            opened.notified().await;
            loop {
                tokio::time::sleep(PACK_EVERY).await;
                if self.pack_unused() {
                    break;
                }
            }
        }
    }

    /// Takes in an object as the API server has it; `None` if it is no news.
    pub fn put(&self, object: impl Into<Arc<Object>>) -> Option<Change> {
        let object = object.into();
        let key = object.key();
        let version = version(&object);
        let mut inner = self.inner();
        if inner.tombstones.get(&key).is_some_and(|(uid, at)| *uid == object.uid() || version <= *at) {
            return None;
        }
        if inner.objects.get(&key).is_some_and(|old| old.version >= version) {
            return None;
        }
        let old = inner.open(&key);
        let shared = inner.objects.get_key_value(&key).map_or_else(|| Arc::new(key.clone()), |(key, _)| key.clone());
        if let Some(old) = &old {
            inner.unindex(&key, old);
        }
        inner.index(&shared, &object);
        inner.note_open(shared.clone());
        let group = inner.group_of(&object);
        inner.objects.insert(shared, Entry::new(object.clone(), group));
        Some(Change { key, old, new: Some(object) })
    }

    /// The API server says that it is gone.
    pub fn remove(&self, gone: &Object) -> Option<Change> {
        let key = gone.key();
        let mut inner = self.inner();
        inner.objects.get(&key).filter(|there| there.uid == gone.uid())?;
        let old = inner.open(&key)?;
        inner.unindex(&key, &old);
        inner.objects.remove(&key);
        inner.open.remove(&key);
        inner.keep_tombstone(&key, gone);
        Some(Change { key, old: Some(old), new: None })
    }

    /// After a full list: what was there `before` it began, is not in it and did not change since, is gone.
    pub fn retain(&self, before: &BTreeMap<ObjectKey, u64>, listed: &BTreeSet<ObjectKey>) -> Vec<Change> {
        let missing = before.iter().filter(|(key, _)| !listed.contains(*key));
        let untouched = missing.filter_map(|(key, version)| self.get(key).filter(|now| self::version(now) == *version));
        untouched.filter_map(|object| self.remove(&object)).collect()
    }
}

impl Inner {
    fn open(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        let entry = self.objects.get_mut(key)?;
        let was_packed = entry.is_packed();
        let object = entry.open(&mut self.packer)?;
        if was_packed {
            let shared = self.objects.get_key_value(key)?.0.clone();
            self.note_open(shared);
        }
        Some(object)
    }

    fn note_open(&mut self, key: Arc<ObjectKey>) {
        if self.open.is_empty() {
            self.opened.notify_one();
        }
        self.open.insert(key);
    }

    fn open_all(&mut self, keys: &[Arc<ObjectKey>]) -> Vec<Arc<Object>> {
        keys.iter().filter_map(|key| self.open(key)).collect()
    }

    fn links_of(&self, object: &Object) -> Vec<ObjectKey> {
        let links = self.links.get(&(object.group(), object.kind())).into_iter().flatten();
        links.flat_map(|link| link.targets(object)).collect()
    }

    fn index(&mut self, key: &Arc<ObjectKey>, object: &Object) {
        for owner in object.owners() {
            add(&mut self.by_owner, owner.uid, key);
        }
        for target in self.links_of(object) {
            add(&mut self.by_link, target, key);
        }
        if let Some(cluster) = self.group_of(object) {
            add(&mut self.by_cluster, cluster, key);
        }
    }

    /// The cluster that an object belongs to, shared by all of its objects.
    fn group_of(&self, object: &Object) -> Option<Group> {
        let cluster = references::cluster(object)?;
        let cluster = (cluster.namespace, cluster.name);
        Some(
            self.by_cluster
                .get_key_value(&cluster)
                .map_or_else(|| Arc::new(cluster.clone()), |(shared, _)| shared.clone()),
        )
    }

    fn unindex(&mut self, key: &ObjectKey, object: &Object) {
        for owner in object.owners() {
            take(&mut self.by_owner, &owner.uid, key);
        }
        for target in self.links_of(object) {
            take(&mut self.by_link, &target, key);
        }
        if let Some(cluster) = references::cluster(object) {
            take(&mut self.by_cluster, &Arc::new((cluster.namespace, cluster.name)), key);
        }
    }

    fn keep_tombstone(&mut self, key: &ObjectKey, gone: &Object) {
        self.tombstones.insert(key.clone(), (gone.uid().to_owned(), version(gone)));
        self.oldest_tombstones.push_back((key.clone(), version(gone)));
        if self.oldest_tombstones.len() > TOMBSTONES
            && let Some((oldest, at)) = self.oldest_tombstones.pop_front()
            && self.tombstones.get(&oldest).is_some_and(|(_, last)| *last == at)
        {
            self.tombstones.remove(&oldest);
        }
    }
}

fn of_kind(keys: Option<&Keys>, group: &str, kind: &str) -> Vec<Arc<ObjectKey>> {
    let range = keys.into_iter().flat_map(|keys| keys.range::<ObjectKey, _>(ObjectKey::new(group, kind, "", "")..));
    range.take_while(|key| key.group == group && key.kind == kind).cloned().collect()
}

fn add<At: Eq + Hash>(index: &mut HashMap<At, Keys>, at: At, key: &Arc<ObjectKey>) {
    index.entry(at).or_default().insert(key.clone());
}

/// Nothing stays of a place where nothing is left.
fn take<At: Eq + Hash>(index: &mut HashMap<At, Keys>, at: &At, key: &ObjectKey) {
    let Some(keys) = index.get_mut(at) else { return };
    keys.remove(key);
    if keys.is_empty() {
        index.remove(at);
    }
}

#[cfg(test)]
mod tests;
