//! Writing to the management cluster. Every answer goes into the cache, so that the next pass has seen our own write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hangar_api::{Object, ObjectKey, registry};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::cache::{Cache, Change};

const MANAGER: &str = "hangar";
const STATUS_MANAGER: &str = "hangar-status";

/// Why the API server did not do what we asked for.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("{key} changed in between")]
    Conflict { key: String },
    #[error("{key} is not there")]
    NotFound { key: String },
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
    /// Objects whose status was written without an answer: what the cache says of it may be what stood there before.
    doubtful: Arc<Mutex<BTreeSet<ObjectKey>>>,
}

/// How many requests of each kind were made, for benchmarks and metrics.
#[derive(Default)]
pub struct Counts {
    by_verb: Mutex<BTreeMap<String, u64>>,
    conflicts: AtomicU64,
}

impl Counts {
    pub fn snapshot(&self) -> (BTreeMap<String, u64>, u64) {
        let by_verb = self.by_verb.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (by_verb, self.conflicts.load(Ordering::Relaxed))
    }

    fn add(&self, verb: &str, kind: &str) {
        let mut by_verb = self.by_verb.lock().unwrap_or_else(PoisonError::into_inner);
        *by_verb.entry(format!("{verb} {kind}")).or_default() += 1;
    }
}

impl Management {
    pub fn new(client: Client, cache: Cache, changes: tokio::sync::mpsc::UnboundedSender<Change>) -> Self {
        Self { client, cache, changes, counts: Arc::default(), doubtful: Arc::default() }
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
        match api_for(&self.client, key).get_opt(&key.name).await {
            Ok(found) => Ok(found.map(stripped)),
            Err(error) => Err(self.error(key, error)),
        }
    }

    pub async fn apply(&self, object: &Object) -> Result<Object, ApiError> {
        let key = object.key();
        self.counts.add("apply", &key.kind);
        let params = PatchParams::apply(MANAGER).force();
        let answer = api_of(&self.client, object).patch(object.name(), &params, &Patch::Apply(&object.0)).await;
        self.absorb(&key, answer)
    }

    pub async fn patch(
        &self,
        key: &ObjectKey,
        uid: &str,
        version: Option<&str>,
        fields: &Value,
    ) -> Result<Object, ApiError> {
        self.counts.add("patch", &key.kind);
        let mut body = fields.clone();
        body["metadata"]["uid"] = uid.into();
        if let Some(version) = version {
            body["metadata"]["resourceVersion"] = version.into();
        }
        let answer = api_for(&self.client, key).patch(&key.name, &PatchParams::default(), &Patch::Merge(&body)).await;
        self.absorb(key, answer)
    }

    /// The whole status, if it differs from what stands there or if nobody knows what stands there.
    pub async fn report(&self, object: &Object, status: &Value) -> Result<Option<Object>, ApiError> {
        let key = object.key();
        if object.get("/status") == status && !self.doubtful().contains(&key) {
            return Ok(None);
        }
        self.counts.add("status", &key.kind);
        let mut body = Object::named(object.api_version(), object.kind(), object.namespace(), object.name());
        body.0["metadata"]["uid"] = object.uid().into();
        body.0["status"] = status.clone();
        let params = PatchParams::apply(STATUS_MANAGER).force();
        // Until there is an answer, even if nobody waits for it any more: nothing but the next report of this object would find out.
        self.doubtful().insert(key.clone());
        let answer = api_of(&self.client, object).patch_status(object.name(), &params, &Patch::Apply(&body.0)).await;
        let answer = self.absorb(&key, answer);
        if !matches!(answer, Err(ApiError::Unreachable { .. })) {
            self.doubtful().remove(&key);
        }
        answer.map(Some)
    }

    fn doubtful(&self) -> MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.doubtful.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn delete(&self, key: &ObjectKey, uid: &str) -> Result<(), ApiError> {
        self.counts.add("delete", &key.kind);
        // Pods hold things open: whoever waits for a workload to go waits for its pods.
        let workload = ["Deployment", "StatefulSet"].contains(&key.kind.as_str());
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            propagation_policy: Some(if workload {
                PropagationPolicy::Foreground
            } else {
                PropagationPolicy::Background
            }),
            ..DeleteParams::default()
        };
        match api_for(&self.client, key).delete(&key.name, &params).await {
            Ok(answer) => match answer.left() {
                Some(object) => self.take(stripped(object)),
                // Gone at once: the watch will say so later, the next pass must know it now.
                None => self.forget(key, uid),
            },
            Err(error) => match self.error(key, error) {
                ApiError::NotFound { .. } => self.forget(key, uid),
                other => return Err(other),
            },
        }
        Ok(())
    }

    fn forget(&self, key: &ObjectKey, uid: &str) {
        let known = self.cache.get(key).filter(|object| object.uid() == uid);
        if let Some(gone) = known.and_then(|object| self.cache.remove(&object)) {
            drop(self.changes.send(gone));
        }
    }

    fn absorb(&self, key: &ObjectKey, answer: Result<DynamicObject, kube::Error>) -> Result<Object, ApiError> {
        match answer {
            Ok(object) => {
                let object = stripped(object);
                self.take(object.clone());
                Ok(object)
            }
            Err(error) => Err(self.error(key, error)),
        }
    }

    /// An object in its last moment (deleting, no finalizer left) is on its way out of the cache as well.
    fn take(&self, object: Object) {
        let gone = object.is_deleting()
            && object.finalizers().is_empty()
            && object.get("/metadata/deletionGracePeriodSeconds") == &json!(0);
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

/// The API of an object, by its own words.
pub fn api_of(client: &Client, object: &Object) -> Api<DynamicObject> {
    let version = object.api_version().rsplit('/').next().unwrap_or_default();
    api(client, object.group(), version, object.kind(), object.namespace())
}

/// The API of a key: the hub of our kinds, v1 of everything else.
pub fn api_for(client: &Client, key: &ObjectKey) -> Api<DynamicObject> {
    let version = registry::kind(&key.group, &key.kind).map_or("v1", |facts| facts.hub().name);
    api(client, &key.group, version, &key.kind, &key.namespace)
}

fn api(client: &Client, group: &str, version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

/// Without `managedFields`: a fifth of the memory, and nobody here reads them.
pub fn stripped(mut object: DynamicObject) -> Object {
    object.metadata.managed_fields = None;
    Object(serde_json::to_value(object).unwrap_or_default())
}
