//! Kinds of providers that Hangar does not bring: found by their definitions as Cluster API finds them, and watched like all others.
//!
//! Flows: an object names a kind that nobody here knows -> a watch of definitions (metadata alone) begins -> the definition's contract label says which version to use ->
//! a watch of the kind. Holds: before the definitions were listed nobody says that such an object is not there; a kind without a definition or a contract is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use hangar_api::contract::Contract;
use hangar_api::{ObjectKey, registry};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PartialObjectMeta};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::management;
use crate::received::Received;

/// More kinds than all providers have: whoever names others all the time must not fill the memory.
const MOST_WANTED: usize = 1_000;

/// What is known of definitions; clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Providers(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    state: State,
    /// The version that fulfils the newest contract, by the name of the definition.
    versions: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Nobody looks at definitions.
    #[default]
    Off,
    /// They are still to be listed.
    Awaited,
    Listed,
}

impl Providers {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on somebody looks.
    pub fn await_definitions(&self) {
        self.inner().state = State::Awaited;
    }

    /// How a kind is asked for, if there is a provider for it.
    pub fn resource(&self, group: &str, kind: &str) -> Option<ApiResource> {
        let resource = |version: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let name = format!("{}.{group}", resource("v1").plural);
        self.inner().versions.get(&name).map(|version| resource(version))
    }

    /// Whether objects of the kind will be in the cache, or nobody can tell yet.
    pub fn may_be_listed(&self, group: &str, kind: &str) -> bool {
        let state = self.inner().state;
        match state {
            State::Off => false,
            State::Awaited => is_of_provider(group),
            State::Listed => self.resource(group, kind).is_some(),
        }
    }

    /// The API of any key.
    pub(crate) fn api(&self, client: &Client, key: &ObjectKey) -> Api<Received> {
        let known = registry::kind(&key.group, &key.kind).is_some() || !is_of_provider(&key.group);
        match self.resource(&key.group, &key.kind).filter(|_| !known) {
            Some(resource) if key.namespace.is_empty() => Api::all_with(client.clone(), &resource),
            Some(resource) => Api::namespaced_with(client.clone(), &key.namespace, &resource),
            None => management::api_for(client, key),
        }
    }

    async fn watch(self, client: Client, news: mpsc::UnboundedSender<()>) {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &ApiResource::from_gvk(&kind));
        let mut stream = Box::pin(watcher(api, watcher::Config::default()));
        let mut listed = BTreeMap::new();
        let version = |definition: PartialObjectMeta<DynamicObject>| {
            let labels = definition.metadata.labels.unwrap_or_default();
            let version = Contract::of_definition(&labels).map(|(_, version)| version.to_owned());
            (definition.metadata.name.unwrap_or_default(), version)
        };
        while let Some(event) = stream.next().await {
            match event {
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(definition)) => {
                    let (name, version) = version(definition);
                    listed.extend(version.map(|version| (name, version)));
                    continue;
                }
                Ok(watcher::Event::InitDone) => {
                    *self.inner() = Inner { state: State::Listed, versions: std::mem::take(&mut listed) };
                }
                Ok(watcher::Event::Apply(definition)) => match version(definition) {
                    (name, Some(version)) => drop(self.inner().versions.insert(name, version)),
                    (name, None) => drop(self.inner().versions.remove(&name)),
                },
                Ok(watcher::Event::Delete(definition)) => drop(self.inner().versions.remove(&version(definition).0)),
                Err(error) => {
                    tracing::debug!(%error, "the watch of definitions failed, it starts again");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
            // Nobody listens any more: the engine ends.
            if news.send(()).is_err() {
                return;
            }
        }
    }
}

/// Kubernetes' own kinds have no providers.
fn is_of_provider(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

/// Kinds that objects name and nobody here knows.
pub(crate) struct Wanted {
    providers: Providers,
    news: mpsc::UnboundedSender<()>,
    kinds: BTreeSet<(String, String)>,
    watched: BTreeSet<(String, String)>,
}

impl Wanted {
    /// With what says that there may be new definitions.
    pub fn new(providers: Providers) -> (Self, mpsc::UnboundedReceiver<()>) {
        let (news, receiver) = mpsc::unbounded_channel();
        (Self { providers, news, kinds: BTreeSet::new(), watched: BTreeSet::new() }, receiver)
    }

    /// The first one begins the watch of definitions.
    pub fn want(&mut self, tasks: &mut JoinSet<()>, client: &Client, key: ObjectKey) {
        if !is_of_provider(&key.group) || self.kinds.len() >= MOST_WANTED {
            return;
        }
        if self.kinds.is_empty() {
            tasks.spawn(self.providers.clone().watch(client.clone(), self.news.clone()));
        }
        self.kinds.insert((key.group, key.kind));
    }

    /// Those that have a definition by now, each once.
    pub fn found(&mut self) -> Vec<ApiResource> {
        let open: Vec<_> = self.kinds.difference(&self.watched).cloned().collect();
        let mut found = vec![];
        for (group, kind) in open {
            if let Some(resource) = self.providers.resource(&group, &kind) {
                self.watched.insert((group, kind));
                found.push(resource);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use hangar_kubesim::{KubeApi, KubeApiOptions};
    use serde_json::{Value, json};

    use super::*;

    fn definition(plural: &str, labels: Value) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.infrastructure.example.com"), "labels": labels },
        })
    }

    fn key(kind: &str) -> ObjectKey {
        ObjectKey::new("infrastructure.example.com", kind, "n", "x")
    }

    #[tokio::test(start_paused = true)]
    async fn kinds_are_found_by_their_definitions_contract() {
        let api = KubeApi::new(KubeApiOptions::default());
        api.put(definition("otherclusters", json!({})));
        api.put(definition("mycloudclusters", json!({ "cluster.x-k8s.io/v1beta1": "v1alpha1_v1beta1" })));
        let providers = Providers::default();
        assert!(!providers.may_be_listed("infrastructure.example.com", "MyCloudCluster"), "nobody looks");
        providers.await_definitions();
        assert!(providers.may_be_listed("infrastructure.example.com", "MyCloudCluster"), "nobody can tell yet");
        assert!(!providers.may_be_listed("rbac.authorization.k8s.io", "Role"));
        let (mut wanted, mut news) = Wanted::new(providers.clone());
        let mut tasks = JoinSet::new();
        for kind in ["MyCloudCluster", "OtherCluster", "NoCluster", "MyCloudCluster"] {
            wanted.want(&mut tasks, &api.client(), key(kind));
        }
        let settle = || tokio::time::sleep(Duration::from_secs(5));
        settle().await;
        assert_eq!(providers.inner().state, State::Listed);
        let found = wanted.found();
        assert_eq!(
            found.iter().map(|it| it.api_version.as_str()).collect::<Vec<_>>(),
            ["infrastructure.example.com/v1beta1"]
        );
        assert!(wanted.found().is_empty(), "once");
        assert!(!providers.may_be_listed("infrastructure.example.com", "OtherCluster"), "it has no contract");
        assert_eq!(
            providers.api(&api.client(), &key("MyCloudCluster")).resource_url(),
            "/apis/infrastructure.example.com/v1beta1/namespaces/n/mycloudclusters"
        );
        // A definition comes later, and one goes.
        let other = "otherclusters.infrastructure.example.com";
        api.edit("apiextensions.k8s.io", "CustomResourceDefinition", "", other, |definition| {
            definition["metadata"]["labels"] = json!({ "cluster.x-k8s.io/v1beta2": "v1beta2" });
        });
        settle().await;
        assert!(news.try_recv().is_ok());
        assert_eq!(wanted.found().len(), 1);
        let gone = "mycloudclusters.infrastructure.example.com";
        assert!(api.delete("apiextensions.k8s.io", "CustomResourceDefinition", "", gone));
        settle().await;
        assert!(providers.resource("infrastructure.example.com", "MyCloudCluster").is_none());
        assert_eq!(api.requests().iter().filter(|call| call.verb == "watch").count(), 1);
    }

    #[tokio::test]
    async fn whoever_names_kinds_all_the_time_fills_no_memory() {
        let (mut wanted, _news) = Wanted::new(Providers::default());
        let (mut tasks, api) = (JoinSet::new(), KubeApi::new(KubeApiOptions::default()));
        for number in 0..2 * MOST_WANTED {
            wanted.want(&mut tasks, &api.client(), key(&format!("Kind{number}")));
        }
        assert_eq!((wanted.kinds.len(), tasks.len()), (MOST_WANTED, 1));
    }
}
