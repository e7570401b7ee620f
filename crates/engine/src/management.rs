//! Writing to the management cluster. Every answer goes into the cache, so that the next pass has seen our own write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hangar_api::{Object, ObjectKey, registry};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::{GroupVersionKind, Request};
use prometheus_client::collector::Collector;
use serde_json::{Value, json};

use crate::cache::{Cache, Change};
use crate::metrics::Counters;
use crate::received::Received;

const MANAGER: &str = "hangar";
const STATUS_MANAGER: &str = "hangar-status";
/// Whose conditions stay when the object's own controller writes its status.
const HEALTH_MANAGER: &str = "hangar-health";

/// Why the API server did not do what we asked for.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("{key} changed in between")]
    Conflict { key: String },
    #[error("{key} is not there")]
    NotFound { key: String },
    #[error("{key} exists and was not made by Hangar: rename or delete it")]
    NotOurs { key: ObjectKey },
    #[error("the API server refused {key}: {message}")]
    Refused { key: String, message: String },
    #[error("the API server could not be reached for {key}")]
    Unreachable {
        key: String,
        #[source]
        source: Box<kube::Error>,
    },
}

/// The one way to write; cheap to clone.
#[derive(Clone)]
pub struct Management {
    client: Client,
    cache: Cache,
    changes: tokio::sync::mpsc::UnboundedSender<Change>,
    counts: Arc<Counts>,
    /// Objects whose status was written without an answer: what the cache says of it may be what was there before.
    unconfirmed: Arc<Mutex<BTreeSet<ObjectKey>>>,
    /// Objects that were created without an answer, by the UID of their controller: they may be there, and the watch has not shown them yet.
    unanswered: Arc<Mutex<BTreeMap<String, BTreeSet<ObjectKey>>>>,
}

/// How many requests of each kind were made, for benchmarks and metrics.
#[derive(Default)]
pub struct Counts {
    by_verb: Mutex<BTreeMap<String, u64>>,
    /// By method and status; `<error>` where there was no answer, as client-go has it.
    answers: Mutex<BTreeMap<(&'static str, String), u64>>,
    conflicts: AtomicU64,
}

impl Counts {
    pub fn snapshot(&self) -> (BTreeMap<String, u64>, u64) {
        let by_verb = self.by_verb.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (by_verb, self.conflicts.load(Ordering::Relaxed))
    }

    fn answer<T>(&self, method: &'static str, answer: &Result<T, kube::Error>) {
        let code = match answer {
            Ok(_) => "200".to_owned(),
            Err(kube::Error::Api(status)) => status.code.to_string(),
            Err(_) => "<error>".to_owned(),
        };
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner).entry((method, code)).or_default() += 1;
    }

    /// For Prometheus.
    pub fn collectors(&self) -> Vec<Box<dyn Collector>> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let labels = |method: &str, code| [("code", code), ("method", method.to_owned())];
        let answers = answers.into_iter().map(|((method, code), count)| (labels(method, code), count)).collect();
        let by_verb = self.snapshot().0.into_iter();
        let requests = by_verb.map(|(verb, count)| {
            let (verb, kind) = verb.split_once(' ').unwrap_or((&verb, ""));
            ([("verb", verb.to_owned()), ("kind", kind.to_owned())], count)
        });
        let help = "Requests of controllers to the API server of the management cluster";
        vec![
            Box::new(Counters { name: "rest_client_requests", help, values: answers }),
            Box::new(Counters { name: "hangar_management_requests", help, values: requests.collect() }),
        ]
    }

    fn add(&self, verb: &str, kind: &str) {
        let mut by_verb = self.by_verb.lock().unwrap_or_else(PoisonError::into_inner);
        *by_verb.entry(format!("{verb} {kind}")).or_default() += 1;
    }
}

impl Management {
    pub fn new(client: Client, cache: Cache, changes: tokio::sync::mpsc::UnboundedSender<Change>) -> Self {
        Self { client, cache, changes, counts: Arc::default(), unconfirmed: Arc::default(), unanswered: Arc::default() }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Reads an object that is not watched.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, ApiError> {
        self.counts.add("get", &key.kind);
        let answer = self.cache.providers().api(&self.client, key).get_opt(&key.name).await;
        self.counts.answer("GET", &answer);
        match answer {
            Ok(found) => Ok(found.map(Received::into_object)),
            Err(error) => Err(self.error(key, error)),
        }
    }

    /// Server-side apply to an object of ours: what others wrote into our fields is put right.
    pub async fn apply(&self, object: &Object) -> Result<Arc<Object>, ApiError> {
        self.send(object, PatchParams::apply(MANAGER).force()).await
    }

    /// Makes an object. Server-side apply without force is refused where somebody else has written the same fields; then it is ours only if it
    /// has our owner.
    pub async fn create(&self, object: &Object) -> Result<Arc<Object>, ApiError> {
        let (owner, key) = (object.controller().map(|owner| owner.uid).unwrap_or_default(), object.key());
        // Before the call: a pass may be cut off in the middle of it.
        self.open_creates().entry(owner.clone()).or_default().insert(key.clone());
        let answer = self.try_create(object).await;
        if !matches!(answer, Err(ApiError::Unreachable { .. })) {
            self.answered(&owner, &key);
        }
        answer
    }

    /// The same; one of the same owner that is there already is what comes back.
    pub async fn create_once(&self, object: &Object) -> Result<Arc<Object>, ApiError> {
        let (owner, key) = (object.controller().map(|owner| owner.uid).unwrap_or_default(), object.key());
        self.open_creates().entry(owner.clone()).or_default().insert(key.clone());
        let answer = self.post(object, &owner).await;
        if !matches!(answer, Err(ApiError::Unreachable { .. })) {
            self.answered(&owner, &key);
        }
        answer
    }

    async fn post(&self, object: &Object, owner: &str) -> Result<Arc<Object>, ApiError> {
        let key = object.key();
        self.counts.add("create", &key.kind);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let path = api_of(&self.client, object).resource_url().to_owned();
        let request = Request::new(path).create(&params, object.0.to_string().into_bytes());
        let request =
            request.map_err(|error| ApiError::Refused { key: key.to_string(), message: error.to_string() })?;
        match self.absorb(&key, self.client.request(request).await) {
            Err(ApiError::Conflict { .. }) => {}
            other => return other,
        }
        match self.get(&key).await? {
            Some(there) if there.is_owned_by(owner) => {
                let there = Arc::new(there);
                self.take(there.clone());
                Ok(there)
            }
            Some(_) => Err(ApiError::NotOurs { key }),
            None => Err(ApiError::Conflict { key: key.to_string() }),
        }
    }

    /// Names of an owner's objects that may or may not have been created.
    pub fn unanswered(&self, owner: &str) -> Vec<String> {
        let open: Vec<ObjectKey> = self.open_creates().get(owner).into_iter().flatten().cloned().collect();
        let (known, unknown): (Vec<_>, Vec<_>) = open.into_iter().partition(|key| self.cache.get(key).is_some());
        known.iter().for_each(|key| self.answered(owner, key));
        unknown.into_iter().map(|key| key.name).collect()
    }

    fn open_creates(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<ObjectKey>>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self, owner: &str, key: &ObjectKey) {
        let mut open = self.open_creates();
        if let Some(keys) = open.get_mut(owner) {
            keys.remove(key);
            if keys.is_empty() {
                open.remove(owner);
            }
        }
    }

    async fn try_create(&self, object: &Object) -> Result<Arc<Object>, ApiError> {
        match self.send(object, PatchParams::apply(MANAGER)).await {
            Err(ApiError::Conflict { .. }) => {}
            other => return other,
        }
        let key = object.key();
        let there = self.get(&key).await?;
        let owner = object.controller().map(|owner| owner.uid);
        if there.is_some_and(|there| owner.is_none_or(|uid| !there.is_owned_by(&uid))) {
            return Err(ApiError::NotOurs { key });
        }
        self.apply(object).await
    }

    async fn send(&self, object: &Object, params: PatchParams) -> Result<Arc<Object>, ApiError> {
        let key = object.key();
        self.counts.add("apply", &key.kind);
        let answer = api_of(&self.client, object).patch(object.name(), &params, &Patch::Apply(&object.0)).await;
        self.absorb(&key, answer)
    }

    pub async fn patch(
        &self,
        key: &ObjectKey,
        uid: &str,
        version: Option<&str>,
        fields: &Value,
    ) -> Result<Arc<Object>, ApiError> {
        self.counts.add("patch", &key.kind);
        let mut body = fields.clone();
        body["metadata"]["uid"] = uid.into();
        if let Some(version) = version {
            body["metadata"]["resourceVersion"] = version.into();
        }
        let answer = self
            .cache
            .providers()
            .api(&self.client, key)
            .patch(&key.name, &PatchParams::default(), &Patch::Merge(&body))
            .await;
        self.absorb(key, answer)
    }

    /// The whole status, if it differs from what is there or if nobody knows what is there.
    pub async fn report(&self, object: &Object, status: &Value) -> Result<Option<Arc<Object>>, ApiError> {
        let key = object.key();
        if crate::report::is_same(object.get("/status"), status) && !self.unconfirmed().contains(&key) {
            return Ok(None);
        }
        self.counts.add("status", &key.kind);
        let mut body = Object::named(object.api_version(), object.kind(), object.namespace(), object.name());
        body.0["metadata"]["uid"] = object.uid().into();
        body.0["status"] = status.clone();
        let params = PatchParams::apply(STATUS_MANAGER).force();
        // Until there is an answer, even if nobody waits for it any more: nothing but the next report of this object would find out.
        self.unconfirmed().insert(key.clone());
        let answer = api_of(&self.client, object).patch_status(object.name(), &params, &Patch::Apply(&body.0)).await;
        let answer = self.absorb(&key, answer);
        if !matches!(answer, Err(ApiError::Unreachable { .. })) {
            self.unconfirmed().remove(&key);
        }
        answer.map(Some)
    }

    /// Conditions in a status that another controller writes: those that this object has, instead of those of the last time.
    pub async fn mark(&self, object: &Object) -> Result<Arc<Object>, ApiError> {
        let key = object.key();
        self.counts.add("mark", &key.kind);
        let params = PatchParams::apply(HEALTH_MANAGER).force();
        let answer = api_of(&self.client, object).patch_status(object.name(), &params, &Patch::Apply(&object.0)).await;
        self.absorb(&key, answer)
    }

    fn unconfirmed(&self) -> MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes an object; what is left of it waits for its finalizers.
    pub async fn delete(
        &self,
        key: &ObjectKey,
        uid: &str,
        resource_version: Option<String>,
    ) -> Result<Option<Arc<Object>>, ApiError> {
        self.counts.add("delete", &key.kind);
        // Pods hold things open: whoever waits for a workload to go waits for its pods.
        let workload = ["Deployment", "StatefulSet"].contains(&key.kind.as_str());
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version }),
            propagation_policy: Some(if workload {
                PropagationPolicy::Foreground
            } else {
                PropagationPolicy::Background
            }),
            ..DeleteParams::default()
        };
        let answer = self.cache.providers().api(&self.client, key).delete(&key.name, &params).await;
        self.counts.answer("DELETE", &answer);
        match answer {
            Ok(answer) => match answer.left().map(|object| Arc::new(object.into_object())) {
                Some(object) if !is_last_moment(&object) => {
                    self.take(object.clone());
                    Ok(Some(object))
                }
                // Gone at once: the watch will say so later, the next pass must know it now.
                _ => {
                    self.forget(key, uid);
                    Ok(None)
                }
            },
            Err(error) => match self.error(key, error) {
                ApiError::NotFound { .. } => {
                    self.forget(key, uid);
                    Ok(None)
                }
                other => Err(other),
            },
        }
    }

    fn forget(&self, key: &ObjectKey, uid: &str) {
        let known = self.cache.get(key).filter(|object| object.uid() == uid);
        if let Some(gone) = known.and_then(|object| self.cache.remove(&object)) {
            drop(self.changes.send(gone));
        }
    }

    /// Every write but a delete is a patch.
    fn absorb(&self, key: &ObjectKey, answer: Result<Received, kube::Error>) -> Result<Arc<Object>, ApiError> {
        self.counts.answer("PATCH", &answer);
        match answer {
            Ok(object) => {
                let object = Arc::new(object.into_object());
                self.take(object.clone());
                Ok(object)
            }
            Err(error) => Err(self.error(key, error)),
        }
    }

    fn take(&self, object: Arc<Object>) {
        let gone = is_last_moment(&object);
        let change = if gone { self.cache.remove(&object) } else { self.cache.put(object) };
        if let Some(change) = change {
            drop(self.changes.send(change));
        }
    }

    fn error(&self, key: &ObjectKey, error: kube::Error) -> ApiError {
        let key = key.to_string();
        match &error {
            kube::Error::Api(status) => match status.code {
                404 => ApiError::NotFound { key },
                409 => {
                    self.counts.conflicts.fetch_add(1, Ordering::Relaxed);
                    ApiError::Conflict { key }
                }
                // Too many requests: nothing is wrong with this one.
                429 => ApiError::Unreachable { key, source: Box::new(error) },
                400..=499 => ApiError::Refused { key, message: status.message.clone() },
                _ => ApiError::Unreachable { key, source: Box::new(error) },
            },
            _ => ApiError::Unreachable { key, source: Box::new(error) },
        }
    }
}

/// Deleting, and no finalizer left: it is on its way out.
fn is_last_moment(object: &Object) -> bool {
    object.is_deleting()
        && object.finalizers().is_empty()
        && object.get("/metadata/deletionGracePeriodSeconds") == &json!(0)
}

/// The API of an object, by its own words.
pub fn api_of(client: &Client, object: &Object) -> Api<Received> {
    let version = object.api_version().rsplit('/').next().unwrap_or_default();
    api(client, object.group(), version, object.kind(), object.namespace())
}

/// The API of a key: the hub of our kinds, v1 of everything else.
pub fn api_for(client: &Client, key: &ObjectKey) -> Api<Received> {
    let version = registry::kind(&key.group, &key.kind).map_or("v1", |facts| facts.hub().name);
    api(client, &key.group, version, &key.kind, &key.namespace)
}

fn api(client: &Client, group: &str, version: &str, kind: &str, namespace: &str) -> Api<Received> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}
