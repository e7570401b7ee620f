//! A Kubernetes API in memory, behind a `kube::Client` without sockets: for the simulation of controllers.
//!
//! Flows: request -> [`answer`] (fault hook, journal) -> [`verbs`] -> [`rules`] -> [`store`] -> answer; changes -> [`watch`]. Holds: one lock
//! around all state, never held across an await; time comes from the options and from tokio, ids from the seed, so that the same
//! requests make the same cluster; every version of our kinds is served, the hub is kept.

mod answer;
mod discovery;
mod eviction;
mod fields;
mod merge;
mod observers;
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
use http::{Request, Response};
use jiff::Timestamp;
use kube::client::Body;
use serde_json::Value;
use tower::util::BoxCloneSyncService;

pub use answer::AnswerBody;
pub use observers::{Observer, Write};
use resource::Resource;
use store::Store;

/// Requests in, answers out: what a `kube::Client` is made of.
pub type ApiService = BoxCloneSyncService<Request<Body>, Response<AnswerBody>, std::convert::Infallible>;

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
    /// Whether every request is kept for [`KubeApi::requests`]; they are counted in any case.
    pub keep_requests: bool,
}

impl Default for KubeApiOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(Timestamp::now),
            seed: 0,
            latency: Duration::ZERO,
            watch_delay: Duration::ZERO,
            version: "v1.34.4".to_owned(),
            keep_requests: true,
        }
    }
}

/// One request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiCall {
    /// Whose client it came through.
    pub user: Arc<str>,
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
    /// It is carried out this much later.
    Delay(Duration),
}

type Hook = Arc<dyn Fn(&ApiCall) -> Fault + Send + Sync>;

/// A cluster's API; clones are the same one.
#[derive(Clone)]
pub struct KubeApi(Arc<Inner>);

struct Inner {
    options: KubeApiOptions,
    store: Mutex<Store>,
    journal: Mutex<Journal>,
    observers: Mutex<Vec<Observer>>,
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
        let inner = Inner {
            options,
            store,
            journal: Mutex::default(),
            observers: Mutex::default(),
            changes,
            news: tokio::sync::Notify::new(),
        };
        Self(Arc::new(inner))
    }

    /// A client of nobody in particular. Must be called within a runtime: the client's queue is a task.
    pub fn client(&self) -> kube::Client {
        self.client_as("")
    }

    /// A client whose requests are known by this user to hooks and observers.
    pub fn client_as(&self, user: &str) -> kube::Client {
        kube::Client::new(self.service(user), "default")
    }

    /// What such a client is made of, for whoever wants to stand in between.
    pub fn service(&self, user: &str) -> ApiService {
        let (api, user): (_, Arc<str>) = (self.clone(), user.into());
        BoxCloneSyncService::new(tower::service_fn(move |request| {
            let (api, user) = (api.clone(), user.clone());
            async move { Ok(api.answer(user, request).await) }
        }))
    }

    pub fn set_fault_hook(&self, hook: Arc<dyn Fn(&ApiCall) -> Fault + Send + Sync>) {
        self.journal().hook = Some(hook);
    }

    pub fn clear_fault_hook(&self) {
        self.journal().hook = None;
    }

    /// How many requests there were, whether they are kept or not.
    pub fn request_count(&self) -> u64 {
        self.journal().count
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
        self.get(group, kind, namespace, name).map(|object| Value::clone(&object))
    }

    /// The same without a copy.
    pub fn get(&self, group: &str, kind: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = ObjectKey::new(group, kind, namespace, name);
        self.store().get(&key).map(|stored| stored.object.clone())
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
        self.tell("", "create", "");
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
        self.tell("", "update", "");
        true
    }

    /// A deletion by somebody else; `false` if there is no such object.
    pub fn delete(&self, group: &str, kind: &str, namespace: &str, name: &str) -> bool {
        let (key, now) = (ObjectKey::new(group, kind, namespace, name), self.now());
        let found = self.store().delete(&key, &now).is_some();
        self.tell("", "delete", "");
        found
    }

    /// Every watch ends in the middle.
    pub fn drop_watches(&self) {
        self.journal().cuts += 1;
        self.wake();
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

    fn wake(&self) {
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
