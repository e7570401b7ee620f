//! What we know of the cluster: every watched object, by kind and by a few indexes.
//!
//! Holds: an object never goes back to an older version, whether news comes from a watch or from our own write; what was deleted does not
//! come back because an old event arrives late.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hangar_api::{Object, ObjectKey, references};

use crate::reads::{GroupKind, Link};

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

#[derive(Default)]
struct Inner {
    /// How objects of each kind name others.
    links: BTreeMap<GroupKind, Vec<Link>>,
    /// Kinds that have been listed once.
    listed: BTreeSet<(String, String)>,
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    /// By the UID of each owner.
    by_owner: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// By namespace and cluster name.
    by_cluster: BTreeMap<(String, String), BTreeSet<ObjectKey>>,
    /// By what each object names.
    by_link: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// UID and version of objects that were seen to be deleted.
    tombstones: BTreeMap<ObjectKey, (String, u64)>,
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
        self.inner().objects.get(key).cloned()
    }

    pub fn owned_by(&self, uid: &str, group: &str, kind: &str) -> Vec<Arc<Object>> {
        let inner = self.inner();
        inner.of_kind(inner.by_owner.get(uid), group, kind)
    }

    pub fn of_cluster(&self, namespace: &str, cluster: &str, group: &str, kind: &str) -> Vec<Arc<Object>> {
        let inner = self.inner();
        inner.of_kind(inner.by_cluster.get(&(namespace.to_owned(), cluster.to_owned())), group, kind)
    }

    /// Those that name an object, which need not be there.
    pub fn linking_to(&self, key: &ObjectKey) -> Vec<ObjectKey> {
        self.inner().by_link.get(key).into_iter().flatten().cloned().collect()
    }

    /// What an object names.
    pub fn links_of(&self, object: &Object) -> Vec<ObjectKey> {
        self.inner().links_of(object)
    }

    /// Every object of the kind that was there before the first list ended is in the cache.
    pub fn is_listed(&self, group: &str, kind: &str) -> bool {
        self.inner().listed.contains(&(group.to_owned(), kind.to_owned()))
    }

    pub fn set_listed(&self, group: &str, kind: &str) {
        self.inner().listed.insert((group.to_owned(), kind.to_owned()));
    }

    pub fn all_of(&self, group: &str, kind: &str) -> Vec<Arc<Object>> {
        let first = ObjectKey::new(group, kind, "", "");
        let inner = self.inner();
        let range = inner.objects.range(first..).take_while(|(key, _)| key.group == group && key.kind == kind);
        range.map(|(_, object)| object.clone()).collect()
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
        let old = inner.objects.get(&key).cloned();
        if old.as_ref().is_some_and(|old| self::version(old) >= version) {
            return None;
        }
        if let Some(old) = &old {
            inner.unindex(&key, old);
        }
        inner.index(&key, &object);
        inner.objects.insert(key.clone(), object.clone());
        Some(Change { key, old, new: Some(object) })
    }

    /// The API server says that it is gone.
    pub fn remove(&self, gone: &Object) -> Option<Change> {
        let key = gone.key();
        let mut inner = self.inner();
        let there = inner.objects.get(&key).is_some_and(|there| there.uid() == gone.uid());
        if !there {
            return None;
        }
        let old = inner.objects.remove(&key)?;
        inner.unindex(&key, &old);
        inner.keep_tombstone(&key, gone);
        Some(Change { key, old: Some(old), new: None })
    }

    /// After a full list: what was there `before` it began, is not in it and did not change since, is gone.
    pub fn retain(&self, before: &[Arc<Object>], listed: &BTreeSet<ObjectKey>) -> Vec<Change> {
        let missing = before.iter().filter(|object| !listed.contains(&object.key()));
        let untouched = missing.filter(|object| {
            self.get(&object.key()).is_some_and(|now| now.resource_version() == object.resource_version())
        });
        untouched.filter_map(|object| self.remove(object)).collect()
    }
}

impl Inner {
    fn of_kind(&self, keys: Option<&BTreeSet<ObjectKey>>, group: &str, kind: &str) -> Vec<Arc<Object>> {
        let Some(keys) = keys else { return vec![] };
        let range = keys.range(ObjectKey::new(group, kind, "", "")..);
        let of_kind = range.take_while(|key| key.group == group && key.kind == kind);
        of_kind.filter_map(|key| self.objects.get(key).cloned()).collect()
    }

    fn links_of(&self, object: &Object) -> Vec<ObjectKey> {
        let links = self.links.get(&(object.group(), object.kind())).into_iter().flatten();
        links.filter_map(|link| link.target(object)).collect()
    }

    fn index(&mut self, key: &ObjectKey, object: &Object) {
        for owner in object.owners() {
            add(&mut self.by_owner, owner.uid, key);
        }
        for target in self.links_of(object) {
            add(&mut self.by_link, target, key);
        }
        if let Some(cluster) = references::cluster(object) {
            add(&mut self.by_cluster, (cluster.namespace, cluster.name), key);
        }
    }

    fn unindex(&mut self, key: &ObjectKey, object: &Object) {
        for owner in object.owners() {
            take(&mut self.by_owner, &owner.uid, key);
        }
        for target in self.links_of(object) {
            take(&mut self.by_link, &target, key);
        }
        if let Some(cluster) = references::cluster(object) {
            take(&mut self.by_cluster, &(cluster.namespace, cluster.name), key);
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

fn add<At: Ord>(index: &mut BTreeMap<At, BTreeSet<ObjectKey>>, at: At, key: &ObjectKey) {
    index.entry(at).or_default().insert(key.clone());
}

/// Nothing stays of a place where nothing is left.
fn take<At: Ord>(index: &mut BTreeMap<At, BTreeSet<ObjectKey>>, at: &At, key: &ObjectKey) {
    let Some(keys) = index.get_mut(at) else { return };
    keys.remove(key);
    if keys.is_empty() {
        index.remove(at);
    }
}

/// Resource versions are numbers since Kubernetes promises it (KEP 5504), and always were with etcd.
fn version(object: &Object) -> u64 {
    object.resource_version().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use hangar_api::kinds;
    use hangar_api::names::CLUSTER_NAME_LABEL;

    use super::*;

    fn secret(uid: &str, version: u64) -> Object {
        let mut object = Object::named("v1", "Secret", "default", "s");
        object.0["metadata"]["uid"] = uid.into();
        object.0["metadata"]["resourceVersion"] = version.to_string().into();
        object.0["metadata"]["labels"] = serde_json::json!({ CLUSTER_NAME_LABEL: "c" });
        object
    }

    #[test]
    fn old_news_is_no_news() {
        let cache = Cache::default();
        assert!(cache.put(secret("a", 5)).is_some());
        assert!(cache.put(secret("a", 5)).is_none());
        assert!(cache.put(secret("a", 4)).is_none());
        assert!(cache.put(secret("a", 6)).is_some());
    }

    #[test]
    fn what_is_deleted_does_not_come_back_but_its_successor_does() {
        let cache = Cache::default();
        cache.put(secret("a", 5));
        cache.remove(&secret("a", 7));
        assert!(cache.put(secret("a", 6)).is_none());
        assert!(cache.put(secret("b", 8)).is_some());
        // A late deletion event of the first one does not touch the second.
        assert!(cache.remove(&secret("a", 9)).is_none());
    }

    #[test]
    fn indexes_follow_the_objects() {
        let cache = Cache::default();
        cache.put(secret("a", 1));
        assert_eq!(cache.of_cluster("default", "c", "", "Secret").len(), 1);
        cache.remove(&secret("a", 2));
        assert!(cache.of_cluster("default", "c", "", "Secret").is_empty());
    }

    #[test]
    fn kinds_of_the_same_name_are_told_apart_by_their_group() {
        let cache = Cache::default();
        for group in ["cluster.x-k8s.io", "k0smotron.io"] {
            let mut object = Object::named(&format!("{group}/v1beta1"), "Cluster", "default", "c");
            object.0["metadata"]["resourceVersion"] = "1".into();
            object.0["metadata"]["labels"] = serde_json::json!({ CLUSTER_NAME_LABEL: "c" });
            object.0["metadata"]["ownerReferences"] =
                serde_json::json!([{ "apiVersion": "x/v1", "kind": "X", "name": "x", "uid": "x" }]);
            cache.put(object);
        }
        assert_eq!(cache.of_cluster("default", "c", "k0smotron.io", "Cluster").len(), 1);
        assert_eq!(cache.owned_by("x", "cluster.x-k8s.io", "Cluster").len(), 1);
        assert_eq!(cache.owned_by("x", "other.io", "Cluster").len(), 0);
    }

    #[test]
    fn whoever_refers_is_found_under_what_it_refers_to_now() {
        let store: fn(&Object) -> Option<ObjectKey> = |plane| Some(references::data_store(plane));
        let kind = ("controlplane.cluster.x-k8s.io", "KamajiControlPlane");
        let cache = Cache::new([(kind, Link::Named(store))]);
        let plane = |version: u64, store: &str| {
            let mut plane = Object::named("controlplane.cluster.x-k8s.io/v1alpha2", "KamajiControlPlane", "n", "p");
            plane.0["metadata"]["resourceVersion"] = version.to_string().into();
            plane.0["spec"] = serde_json::json!({ "dataStoreName": store });
            plane
        };
        let users = |store: &str| cache.linking_to(&ObjectKey::of::<kinds::DataStore>("", store)).len();
        cache.put(plane(1, "a"));
        assert_eq!((users("a"), users("b")), (1, 0));
        cache.put(plane(2, "b"));
        assert_eq!((users("a"), users("b")), (0, 1));
        cache.remove(&plane(3, "b"));
        assert!(cache.inner().by_link.is_empty());
    }

    #[test]
    fn tombstones_are_not_kept_for_ever() {
        let cache = Cache::default();
        for number in 0..TOMBSTONES + 10 {
            let mut gone = secret("a", 1);
            gone.0["metadata"]["name"] = number.to_string().into();
            cache.put(gone.clone());
            cache.remove(&gone);
        }
        let inner = cache.inner();
        assert_eq!((inner.tombstones.len(), inner.oldest_tombstones.len()), (TOMBSTONES, TOMBSTONES));
    }

    #[test]
    fn an_old_tombstone_does_not_take_a_newer_one_of_the_same_name_with_it() {
        let cache = Cache::default();
        let bury = |name: &str, uid: &str, version: u64| {
            let mut gone = secret(uid, version);
            gone.0["metadata"]["name"] = name.into();
            cache.put(gone.clone());
            cache.remove(&gone);
        };
        bury("s", "a", 1);
        (1..TOMBSTONES as u64).for_each(|number| bury("t", &number.to_string(), 10 + number));
        bury("s", "c", 90_000);
        assert!(cache.put(secret("c", 89_999)).is_none(), "it was deleted a short while ago");
    }

    #[test]
    fn a_full_list_drops_what_it_does_not_have_unless_it_is_newer() {
        let cache = Cache::default();
        cache.put(secret("a", 5));
        let before = cache.all_of("", "Secret");
        cache.put(secret("a", 6));
        assert!(cache.retain(&before, &BTreeSet::new()).is_empty());
        let before = cache.all_of("", "Secret");
        assert_eq!(cache.retain(&before, &BTreeSet::new()).len(), 1);
    }
}
