//! A watch of a kind that may not be there, in whichever version the API server has it.
//!
//! Holds: definitions may come, change and go at any time. While there are none nothing is seen, and nothing is asked: the definition itself
//! is watched by its name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;

use super::objects::GROUP;

/// Between a definition and its kind in discovery.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 30;

type Key = (String, String);

#[derive(Default)]
struct Known {
    /// Whether it is known what there is, be it nothing.
    listed: bool,
    resource: Option<ApiResource>,
    objects: HashMap<Key, Arc<DynamicObject>>,
}

/// Everything of one kind.
pub(super) struct OptionalWatch {
    known: Arc<Mutex<Known>>,
    changed: watch::Receiver<u64>,
    task: tokio::task::JoinHandle<()>,
}

impl OptionalWatch {
    /// `versions`: those that can be read, the best first.
    pub fn start(client: Client, kind: &'static str, plural: &'static str, versions: &'static [&'static str]) -> Self {
        let (notify, changed) = watch::channel(0);
        let known = Arc::new(Mutex::new(Known::default()));
        let task = tokio::spawn(serve(client, kind, plural, versions, known.clone(), notify));
        Self { known, changed, task }
    }

    pub fn all(&self) -> Vec<Arc<DynamicObject>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).objects.values().cloned().collect()
    }

    /// How the objects are addressed; None while there is no definition.
    pub fn resource(&self) -> Option<ApiResource> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).resource.clone()
    }

    pub fn is_listed(&self) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).listed
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.clone()
    }
}

impl Drop for OptionalWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    client: Client,
    kind: &'static str,
    plural: &'static str,
    versions: &'static [&'static str],
    known: Arc<Mutex<Known>>,
    notify: watch::Sender<u64>,
) {
    let definitions: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client.clone());
    let own = watcher::Config::default().fields(&format!("metadata.name={plural}.{GROUP}"));
    let mut definition = std::pin::pin!(watcher(definitions, own).default_backoff());
    let mut is_defined = false;
    while let Some(event) = definition.next().await {
        match event {
            Ok(watcher::Event::InitApply(_) | watcher::Event::Apply(_)) => is_defined = true,
            Ok(watcher::Event::InitDone) if !is_defined => {
                nothing_there(&known, &notify);
                continue;
            }
            _ => continue,
        }
        for _ in 0..ATTEMPTS {
            if let Some(version) = version(&client, plural, versions).await {
                let kind = GroupVersionKind::gvk(GROUP, version, kind);
                let resource = ApiResource::from_gvk_with_plural(&kind, plural);
                if follow(&client, resource, &known, &notify).await {
                    break;
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        // Gone, or in no version that can be read; nobody is to wait for it.
        nothing_there(&known, &notify);
    }
}

fn nothing_there(known: &Mutex<Known>, notify: &watch::Sender<u64>) {
    *known.lock().unwrap_or_else(PoisonError::into_inner) = Known { listed: true, ..Known::default() };
    notify.send_modify(|count| *count += 1);
}

async fn version(client: &Client, plural: &str, versions: &[&'static str]) -> Option<&'static str> {
    for version in versions {
        let listed = client.list_api_group_resources(&format!("{GROUP}/{version}")).await;
        if listed.is_ok_and(|listed| listed.resources.iter().any(|resource| resource.name == plural)) {
            return Some(version);
        }
    }
    None
}

/// Until the version is no longer served. False: it never was, and what is known stays as it is.
async fn follow(client: &Client, resource: ApiResource, known: &Mutex<Known>, notify: &watch::Sender<u64>) -> bool {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
    let key = |object: &DynamicObject| (object.namespace().unwrap_or_default(), object.name_any());
    let mut stream = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut listed = HashMap::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                listed.insert(key(&object), Arc::new(object));
            }
            Ok(watcher::Event::InitDone) => {
                let (resource, objects) = (Some(resource.clone()), std::mem::take(&mut listed));
                *lock() = Known { listed: true, resource, objects };
                notify.send_modify(|count| *count += 1);
            }
            Ok(watcher::Event::Apply(object)) => {
                lock().objects.insert(key(&object), Arc::new(object));
                notify.send_modify(|count| *count += 1);
            }
            Ok(watcher::Event::Delete(object)) => {
                lock().objects.remove(&key(&object));
                notify.send_modify(|count| *count += 1);
            }
            Err(error) if is_gone(&error) => break,
            Err(error) => tracing::debug!(%error, "a watch failed and is restarted"),
        }
    }
    lock().resource.is_some()
}

fn is_gone(error: &watcher::Error) -> bool {
    let cause = match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => cause,
        _ => return false,
    };
    matches!(cause, kube::Error::Api(status) if status.code == 404)
}
