//! Watches in, passes out.
//!
//! Holds: one watch for each kind; no pass before every kind has been listed once; a failed watch starts again by itself, with a pause.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use hangar_api::ObjectKey;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, TypeMeta};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cache::{Cache, Change};
use crate::management::stripped;
use crate::pass::PassError;
use crate::queue::{Outcome, Queue};

/// A kind to be watched.
#[derive(Debug, Clone)]
pub struct Watched {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    /// Only objects with these labels.
    pub labels: Option<String>,
}

/// What the engine calls.
#[async_trait]
pub trait Dispatch: Send + Sync + 'static {
    /// One pass over one object.
    async fn pass(&self, key: &ObjectKey) -> Result<Outcome, PassError>;
    /// Whom a change concerns.
    fn wakes(&self, change: &Change) -> Vec<ObjectKey>;
}

/// The running engine's inputs.
pub struct Engine {
    pub client: Client,
    pub cache: Cache,
    pub changes: mpsc::UnboundedReceiver<Change>,
    pub changed: mpsc::UnboundedSender<Change>,
    /// Keys to look at for reasons that no watch here sees.
    pub wakes: mpsc::UnboundedReceiver<ObjectKey>,
    pub watched: Vec<Watched>,
    pub workers: usize,
}

impl Engine {
    /// Runs until told to stop, or until a simulation kills it.
    pub async fn run(self, dispatch: Arc<dyn Dispatch>, shutdown: CancellationToken) {
        let queue = Arc::new(Queue::default());
        let mut tasks = JoinSet::new();
        let (synced, mut all_synced) = watch::channel(0_usize);
        let kinds = self.watched.len();
        for watched in self.watched {
            tasks.spawn(observe(
                self.client.clone(),
                watched,
                self.cache.clone(),
                self.changed.clone(),
                synced.clone(),
            ));
        }
        tasks.spawn(route(self.changes, self.wakes, dispatch.clone(), queue.clone()));
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = all_synced.wait_for(|count| *count >= kinds) => {}
        }
        for _ in 0..self.workers {
            tasks.spawn(work(queue.clone(), dispatch.clone(), shutdown.clone()));
        }
        shutdown.cancelled().await;
        tasks.shutdown().await;
    }
}

async fn observe(
    client: Client,
    watched: Watched,
    cache: Cache,
    changed: mpsc::UnboundedSender<Change>,
    synced: watch::Sender<usize>,
) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(watched.group, watched.version, watched.kind));
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let config = watcher::Config { label_selector: watched.labels.clone(), ..watcher::Config::default() };
    let mut stream = Box::pin(watcher(api, config));
    let (mut before, mut listed, mut first) = (vec![], BTreeSet::new(), true);
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::Init) => {
                before = cache.all_of(watched.group, watched.kind);
                listed.clear();
            }
            Ok(watcher::Event::InitApply(object)) => {
                let object = stripped(named(object, &resource));
                listed.insert(object.key());
                cache.put(object).into_iter().for_each(|change| drop(changed.send(change)));
            }
            Ok(watcher::Event::InitDone) => {
                cache.retain(&before, &listed).into_iter().for_each(|change| drop(changed.send(change)));
                if std::mem::take(&mut first) {
                    synced.send_modify(|count| *count += 1);
                }
            }
            Ok(watcher::Event::Apply(object)) => {
                cache.put(stripped(object)).into_iter().for_each(|change| drop(changed.send(change)));
            }
            Ok(watcher::Event::Delete(object)) => {
                cache.remove(&stripped(object)).into_iter().for_each(|change| drop(changed.send(change)));
            }
            Err(error) => {
                tracing::debug!(kind = watched.kind, %error, "watch failed, it starts again");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

/// Items of a list of built-in kinds do not say what they are; without it they would not be found in the cache.
fn named(mut object: DynamicObject, resource: &ApiResource) -> DynamicObject {
    let types = || TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() };
    object.types.get_or_insert_with(types);
    object
}

async fn route(
    mut changes: mpsc::UnboundedReceiver<Change>,
    mut wakes: mpsc::UnboundedReceiver<ObjectKey>,
    dispatch: Arc<dyn Dispatch>,
    queue: Arc<Queue>,
) {
    loop {
        // In this order, so that two runs with the same events do the same.
        tokio::select! {
            biased;
            Some(change) = changes.recv() => dispatch.wakes(&change).into_iter().for_each(|key| queue.add(key)),
            Some(key) = wakes.recv() => queue.add(key),
            else => return,
        }
    }
}

async fn work(queue: Arc<Queue>, dispatch: Arc<dyn Dispatch>, shutdown: CancellationToken) {
    loop {
        let key = queue.next().await;
        let outcome = match dispatch.pass(&key).await {
            Ok(outcome) => outcome,
            Err(PassError::Killed) => return shutdown.cancel(),
            Err(PassError::LookAgain(why)) => {
                tracing::debug!(object = %key, %why, "another look");
                Outcome::Failed
            }
            Err(error) => {
                tracing::warn!(object = %key, error = %chain(&error), "pass failed");
                Outcome::Failed
            }
        };
        queue.done(&key, outcome);
    }
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
