//! The objects, the one counter of versions, and the log of what happened.
//!
//! Holds: every change has its own version and one event; a write that changes nothing is no change; an object without finalizers that is
//! being deleted is gone, and what belonged to it alone goes with it at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hangar_api::ObjectKey;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::ownership::Owners;
use super::resource::Resource;
use super::schema::Patterns;

/// How many events are kept for watches that come back.
const LOG_LENGTH: usize = 20_000;

#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub object: Arc<Value>,
    pub owners: Owners,
}

/// One change.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub version: u64,
    pub key: ObjectKey,
    pub old: Option<Arc<Value>>,
    /// The object after it, or its last form.
    pub object: Arc<Value>,
    pub gone: bool,
    /// The garbage collector's doing.
    pub collected: bool,
    pub at: Instant,
}

#[derive(Default)]
pub(super) struct Store {
    objects: BTreeMap<ObjectKey, Stored>,
    by_uid: BTreeMap<String, ObjectKey>,
    /// Who names an owner, by the owner's uid: the garbage collector must not go through everything.
    dependants: BTreeMap<String, BTreeSet<ObjectKey>>,
    collecting: bool,
    pub log: VecDeque<Event>,
    /// What observers have not been told yet.
    pub fresh: Vec<Event>,
    pub version: u64,
    /// Versions before this one have been forgotten.
    pub forgotten: u64,
    learnt: BTreeMap<(String, String), Resource>,
    pub patterns: Patterns,
    seed: u64,
    ids: u64,
    addresses: u32,
    node_ports: u32,
}

impl Store {
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    pub fn resource(&self, group: &str, plural: &str) -> Option<Resource> {
        Resource::known(group, plural)
            .or_else(|| self.learnt.get(&(group.to_owned(), plural.to_owned())).cloned())
            .or_else(|| self.defined(group, plural))
    }

    /// A kind with a definition is served before there is one of it.
    fn defined(&self, group: &str, plural: &str) -> Option<Resource> {
        let name = format!("{plural}.{group}");
        let definition = self.get(&ObjectKey::new("apiextensions.k8s.io", "CustomResourceDefinition", "", &name))?;
        let kind = definition.object["spec"]["names"]["kind"].as_str()?;
        Some(Resource::learnt(group, plural, kind))
    }

    pub fn learn(&mut self, resource: Resource) {
        self.learnt.insert((resource.group.clone(), resource.plural.clone()), resource);
    }

    pub fn get(&self, key: &ObjectKey) -> Option<&Stored> {
        self.objects.get(key)
    }

    /// All objects of a kind, by namespace and name.
    pub fn all(&self, group: &str, kind: &str) -> impl Iterator<Item = &Arc<Value>> {
        let range = self.objects.range(ObjectKey::new(group, kind, "", "")..);
        let (group, kind) = (group.to_owned(), kind.to_owned());
        range.take_while(move |(key, _)| key.group == group && key.kind == kind).map(|(_, stored)| &stored.object)
    }

    /// An id that follows from the seed.
    pub fn new_uid(&mut self) -> String {
        self.ids += 1;
        let name = format!("{}-{}", self.seed, self.ids);
        uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes()).to_string()
    }

    pub fn new_address(&mut self) -> String {
        self.addresses += 1;
        format!("10.96.{}.{}", self.addresses / 250, self.addresses % 250 + 2)
    }

    pub fn new_node_port(&mut self) -> u32 {
        self.node_ports += 1;
        30_000 + self.node_ports
    }

    /// Writes an object whose rules have been seen to; what stands there afterwards, or stood there last.
    pub fn commit(
        &mut self,
        key: &ObjectKey,
        resource: &Resource,
        mut new: Value,
        owners: Owners,
        now: &str,
    ) -> Arc<Value> {
        let old = self.objects.get(key).cloned();
        if let Some(old) = &old {
            new["metadata"]["resourceVersion"] = old.object["metadata"]["resourceVersion"].clone();
            if *old.object == new && old.owners == owners {
                return old.object.clone();
            }
        }
        count_generation(resource, old.as_ref().map(|old| &*old.object), &mut new);
        if is_deleting(&new) && finalizers(&new).next().is_none() {
            return self.remove(key, new, now);
        }
        self.version += 1;
        new["metadata"]["resourceVersion"] = self.version.to_string().into();
        let object = Arc::new(new);
        self.by_uid.insert(text(&object, "uid").to_owned(), key.clone());
        self.objects.insert(key.clone(), Stored { object: object.clone(), owners });
        self.record(key, old.map(|old| old.object), object.clone(), false);
        if self.is_orphan(&object) {
            return self.delete(key, now).unwrap_or(object);
        }
        object
    }

    /// Deletes, or begins to; the object as it stands or stood last. `None` if there is none.
    pub fn delete(&mut self, key: &ObjectKey, now: &str) -> Option<Arc<Value>> {
        let stored = self.objects.get(key)?;
        if is_deleting(&stored.object) {
            return Some(stored.object.clone());
        }
        let (mut dying, owners) = (Value::clone(&stored.object), stored.owners.clone());
        if finalizers(&dying).next().is_none() {
            return Some(self.remove(key, dying, now));
        }
        let metadata = &mut dying["metadata"];
        metadata["deletionTimestamp"] = now.into();
        metadata["deletionGracePeriodSeconds"] = 0.into();
        if let Some(generation) = metadata["generation"].as_u64() {
            metadata["generation"] = (generation + 1).into();
        }
        self.version += 1;
        metadata["resourceVersion"] = self.version.to_string().into();
        let object = Arc::new(dying);
        let stored = Stored { object: object.clone(), owners };
        let old = self.objects.insert(key.clone(), stored).map(|old| old.object);
        self.record(key, old, object.clone(), false);
        Some(object)
    }

    fn remove(&mut self, key: &ObjectKey, mut last: Value, now: &str) -> Arc<Value> {
        self.version += 1;
        last["metadata"]["resourceVersion"] = self.version.to_string().into();
        let last = Arc::new(last);
        let old = self.objects.remove(key).map(|old| old.object);
        let uid = text(&last, "uid").to_owned();
        self.by_uid.remove(&uid);
        self.record(key, old, last.clone(), true);
        self.collect(&uid, now);
        last
    }

    /// The garbage collector: dependants of an owner that is gone go too, or at least stop naming it.
    fn collect(&mut self, uid: &str, now: &str) {
        let outermost = !std::mem::replace(&mut self.collecting, true);
        for key in self.dependants.get(uid).cloned().unwrap_or_default() {
            let Some(stored) = self.objects.get(&key).cloned() else { continue };
            if self.is_orphan(&stored.object) {
                self.delete(&key, now);
                continue;
            }
            let mut freed = Value::clone(&stored.object);
            if let Some(references) = freed["metadata"]["ownerReferences"].as_array_mut() {
                references.retain(|reference| reference["uid"] != uid);
            }
            self.version += 1;
            freed["metadata"]["resourceVersion"] = self.version.to_string().into();
            let object = Arc::new(freed);
            self.objects.insert(key.clone(), Stored { object: object.clone(), owners: stored.owners });
            self.record(&key, Some(stored.object), object, false);
        }
        self.collecting = !outermost;
    }

    fn is_orphan(&self, object: &Value) -> bool {
        let mut owners = owner_uids(object).peekable();
        owners.peek().is_some() && owners.all(|uid| !self.by_uid.contains_key(uid))
    }

    fn record(&mut self, key: &ObjectKey, old: Option<Arc<Value>>, object: Arc<Value>, gone: bool) {
        for uid in old.as_deref().into_iter().flat_map(owner_uids) {
            if let Some(keys) = self.dependants.get_mut(uid) {
                keys.remove(key);
                if keys.is_empty() {
                    self.dependants.remove(uid);
                }
            }
        }
        if !gone {
            for uid in owner_uids(&object) {
                self.dependants.entry(uid.to_owned()).or_default().insert(key.clone());
            }
        }
        let (version, collected) = (self.version, self.collecting);
        let event = Event { version, key: key.clone(), old, object, gone, collected, at: Instant::now() };
        self.fresh.push(event.clone());
        self.log.push_back(event);
        while self.log.len() > LOG_LENGTH {
            self.forgotten = self.log.pop_front().map_or(self.forgotten, |event| event.version);
        }
    }

    /// Forgets how everything came about, as etcd does after a while.
    pub fn forget(&mut self) {
        self.log.clear();
        self.forgotten = self.version;
    }
}

fn count_generation(resource: &Resource, old: Option<&Value>, new: &mut Value) {
    if !resource.generation {
        return;
    }
    let wanted = |object: &Value| -> Map<String, Value> {
        let fields = object.as_object().into_iter().flatten();
        let counts = |name: &str| name != "metadata" && (name != "status" || !resource.status);
        fields.filter(|(name, _)| counts(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let before = old.and_then(|old| old["metadata"]["generation"].as_u64()).unwrap_or(0);
    let changed = old.is_none_or(|old| wanted(old) != wanted(new));
    new["metadata"]["generation"] = json!(before + u64::from(changed));
}

pub(super) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(super) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    let references = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    references.filter_map(|reference| reference["uid"].as_str())
}

/// A text of the metadata.
pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}
