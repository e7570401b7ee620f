//! A Kubernetes API in memory, behind a `kube::Client` without sockets: for controllers under simulation.
//!
//! Flows: request -> [`answer`] (fault hook, journal) -> [`verbs`] -> [`rules`] -> [`store`] -> answer; changes -> [`watch`]. Holds: one lock
//! around all state, never held across an await; time comes from the options and from tokio, ids from the seed, so that the same
//! requests make the same cluster; every version of our kinds is served, the hub is kept.

mod answer;
mod fields;
mod merge;
mod ownership;
mod refusal;
mod resource;
mod rules;
mod schema;
mod selector;
mod store;
mod target;
mod verbs;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hangar_api::ObjectKey;
use jiff::Timestamp;
use serde_json::Value;
use tower::service_fn;

use resource::Resource;
use store::Store;

/// Time for `creationTimestamp` and the like.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

#[derive(Clone)]
pub struct KubeApiOptions {
    pub clock: Clock,
    /// Uids follow from it.
    pub seed: u64,
    /// How long an answer takes.
    pub latency: Duration,
    /// How long an event takes to reach its watches: caches are this much behind.
    pub watch_delay: Duration,
    /// What `/version` says.
    pub version: String,
}

impl Default for KubeApiOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(Timestamp::now),
            seed: 0,
            latency: Duration::ZERO,
            watch_delay: Duration::ZERO,
            version: "v1.34.4".to_owned(),
        }
    }
}

/// One request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiCall {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `apply`, `delete`, `deletecollection`.
    pub verb: &'static str,
    pub group: String,
    /// The plural; of a path that is no object's, such as `/version`, the path.
    pub resource: String,
    /// Empty for the object itself.
    pub subresource: String,
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// 0 before the answer is known.
    pub status: u16,
    /// Counts every request, from 0.
    pub number: u64,
}

impl ApiCall {
    pub fn is_write(&self) -> bool {
        !["get", "list", "watch"].contains(&self.verb)
    }
}

/// What the hook wants to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Nothing is done; this is answered.
    Before(u16),
    /// It is done, but the caller gets a 500.
    After,
    /// Every watch ends in the middle; the request itself is carried out.
    DropWatches,
    /// The same, and the history is forgotten: watches have to list again.
    Expire,
}

type Hook = Arc<dyn Fn(&ApiCall) -> Fault + Send + Sync>;

/// A cluster's API; clones are the same one.
#[derive(Clone)]
pub struct KubeApi(Arc<Inner>);

struct Inner {
    options: KubeApiOptions,
    store: Mutex<Store>,
    journal: Mutex<Journal>,
    changes: tokio::sync::watch::Sender<u64>,
    /// For watches: those who wait are told in the order in which they came, which a `watch` channel does not promise.
    news: tokio::sync::Notify,
}

#[derive(Default)]
struct Journal {
    calls: Vec<ApiCall>,
    count: u64,
    hook: Option<Hook>,
    cuts: u64,
}

impl std::fmt::Debug for KubeApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeApi").field("version", &self.store().version).finish_non_exhaustive()
    }
}

impl KubeApi {
    pub fn new(options: KubeApiOptions) -> Self {
        let store = Mutex::new(Store::new(options.seed));
        let changes = tokio::sync::watch::Sender::new(0);
        Self(Arc::new(Inner { options, store, journal: Mutex::default(), changes, news: tokio::sync::Notify::new() }))
    }

    /// Must be called within a runtime: the client's queue is a task.
    pub fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = service_fn(move |request| {
            let api = api.clone();
            async move { Ok::<_, std::convert::Infallible>(api.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    pub fn set_fault_hook(&self, hook: Arc<dyn Fn(&ApiCall) -> Fault + Send + Sync>) {
        self.journal().hook = Some(hook);
    }

    pub fn clear_fault_hook(&self) {
        self.journal().hook = None;
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<ApiCall> {
        self.journal().calls.clone()
    }

    pub fn clear_requests(&self) {
        self.journal().calls.clear();
    }

    /// An object as it is kept.
    pub fn object(&self, group: &str, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = ObjectKey::new(group, kind, namespace, name);
        self.store().get(&key).map(|stored| Value::clone(&stored.object))
    }

    pub fn list(&self, group: &str, kind: &str) -> Vec<Value> {
        self.store().all(group, kind).map(|object| Value::clone(object)).collect()
    }

    /// Creates an object as it stands, status included, unless there is one: for the tests' "other controllers".
    pub fn put(&self, object: Value) {
        let object = hangar_api::Object(object);
        let (key, now) = (object.key(), self.now());
        {
            let mut store = self.store();
            if store.get(&key).is_some() {
                return;
            }
            let resource = resource_of(&store, &key);
            let mut value = object.0;
            value["metadata"]["uid"] = store.new_uid().into();
            value["metadata"]["creationTimestamp"] = now.as_str().into();
            store.commit(&key, &resource, value, ownership::Owners::default(), &now);
        }
        self.tell();
    }

    /// A change by somebody else, status and all, without admission; `false` if there is no such object.
    pub fn edit(&self, group: &str, kind: &str, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) -> bool {
        let (key, now) = (ObjectKey::new(group, kind, namespace, name), self.now());
        {
            let mut store = self.store();
            let Some(stored) = store.get(&key).cloned() else { return false };
            let mut value = Value::clone(&stored.object);
            change(&mut value);
            let resource = resource_of(&store, &key);
            let mut owners = stored.owners;
            let shape = fields::Shape::Root(resource.facts.map(|facts| facts.hub().schema()));
            let manager = ownership::Manager { name: "editor".into(), applies: false, subresource: String::new() };
            owners.update(Some(&stored.object), &value, manager, shape);
            store.commit(&key, &resource, value, owners, &now);
        }
        self.tell();
        true
    }

    /// A deletion by somebody else; `false` if there is no such object.
    pub fn delete(&self, group: &str, kind: &str, namespace: &str, name: &str) -> bool {
        let (key, now) = (ObjectKey::new(group, kind, namespace, name), self.now());
        let found = self.store().delete(&key, &now).is_some();
        self.tell();
        found
    }

    /// Every watch ends in the middle.
    pub fn drop_watches(&self) {
        self.journal().cuts += 1;
        self.tell();
    }

    /// The history is forgotten: a watch that is behind has to list again.
    pub fn compact(&self) {
        self.store().forget();
    }

    /// Changes with every change of the cluster.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.0.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.0.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn news(&self) -> tokio::sync::futures::Notified<'_> {
        self.0.news.notified()
    }

    fn cuts(&self) -> u64 {
        self.journal().cuts
    }

    fn tell(&self) {
        self.0.changes.send_modify(|count| *count += 1);
        self.0.news.notify_waiters();
    }

    fn now(&self) -> String {
        (self.0.options.clock)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

fn resource_of(store: &Store, key: &ObjectKey) -> Resource {
    let plural = format!("{}s", key.kind.to_lowercase());
    store.resource(&key.group, &plural).unwrap_or_else(|| Resource::learnt(&key.group, &plural, &key.kind))
}
