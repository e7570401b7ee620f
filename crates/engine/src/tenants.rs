//! Connections to the clusters that we made: one client and one Node watch each, for the whole program, and one watch of requests for certificates while nodes join.
//!
//! Holds: a new kubeconfig means a new connection; a Node's change wakes whoever asked to be woken; nothing is polled. Whoever may write Secrets
//! writes kubeconfigs, so a client is only ever made from what [`InlineKubeconfig`] accepted.

mod nodes;
mod requests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use hangar_api::kinds::{Cluster, ClusterResourceSetBinding, Machine, MachineHealthCheck, MachinePool};
use hangar_api::kubeconfig::InlineKubeconfig;
use hangar_api::{Kind as _, Object, ObjectKey, references};
use hangar_planner::cluster::Connection;
use hangar_planner::hosted;
use hangar_planner::step::ClusterName;
use kube::Client;
use kube::api::{Api, ApiResource};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use requests::Requests;

use crate::cache::Cache;
use crate::received::Received;
use nodes::{News, Nodes, WatchState};

/// Makes clients from kubeconfigs; a simulation has its own.
#[async_trait]
pub trait Connector: Send + Sync {
    async fn connect(&self, kubeconfig: &str) -> Result<Client, String>;
}

#[derive(Clone)]
pub struct Tenants(Arc<Inner>);

struct Inner {
    connector: Arc<dyn Connector>,
    cache: Cache,
    wakes: mpsc::UnboundedSender<ObjectKey>,
    entries: Mutex<BTreeMap<ClusterName, Entry>>,
}

struct Entry {
    kubeconfig: String,
    client: Client,
    nodes: Arc<Mutex<Nodes>>,
    /// The version that the API reported, by what it was asked for.
    version: Option<(String, String)>,
    watch: AbortHandle,
    requests: Option<Requests>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// What is known about a Node.
#[derive(Debug, Clone)]
pub enum NodeView {
    /// Nothing was heard of the cluster yet, as after a start of this program: whoever asked is woken by the first answer or failure.
    Connecting,
    Unreachable,
    /// The kubeconfig is not acceptable: why, with the Secret's name.
    Refused(String),
    None,
    Node(Arc<Object>),
}

impl Tenants {
    pub fn new(connector: Arc<dyn Connector>, cache: Cache, wakes: mpsc::UnboundedSender<ObjectKey>) -> Self {
        Self(Arc::new(Inner { connector, cache, wakes, entries: Mutex::default() }))
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ClusterName, Entry>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client of a cluster; its kubeconfig is the one that the management cluster keeps.
    pub async fn client(&self, cluster: &ClusterName) -> Result<Client, String> {
        let Some(kubeconfig) = self.kubeconfig(cluster) else {
            self.entries().remove(cluster);
            return Err(format!("there is no Secret {}-kubeconfig yet", cluster.name));
        };
        if let Some(entry) = self.entries().get(cluster).filter(|entry| entry.kubeconfig == kubeconfig) {
            return Ok(entry.client.clone());
        }
        let accepted = match InlineKubeconfig::parse(&kubeconfig) {
            Ok(accepted) => accepted,
            Err(error) => {
                // The connection of the kubeconfig before this one is not what its owner wants any more.
                self.entries().remove(cluster);
                return Err(refusal(cluster, &error));
            }
        };
        let client = self.0.connector.connect(&accepted.to_json()).await?;
        let nodes: Arc<Mutex<Nodes>> = Arc::default();
        let watch = tokio::spawn(observe(
            client.clone(),
            cluster.clone(),
            nodes.clone(),
            self.0.cache.clone(),
            self.0.wakes.clone(),
        ));
        let entry = Entry {
            kubeconfig,
            client: client.clone(),
            nodes,
            version: None,
            watch: watch.abort_handle(),
            requests: None,
        };
        self.entries().insert(cluster.clone(), entry);
        Ok(client)
    }

    /// The Node with this provider id.
    pub async fn node(&self, cluster: &ClusterName, provider_id: &str) -> NodeView {
        if self.client(cluster).await.is_err() {
            let refused = self.kubeconfig(cluster).and_then(|text| InlineKubeconfig::parse(&text).err());
            return refused.map_or(NodeView::Unreachable, |error| NodeView::Refused(refusal(cluster, &error)));
        }
        let entries = self.entries();
        let Some(entry) = entries.get(cluster) else { return NodeView::Unreachable };
        let nodes = entry.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        match nodes.state {
            WatchState::Connecting => NodeView::Connecting,
            WatchState::Failing => NodeView::Unreachable,
            WatchState::Listed => {
                nodes.with_provider_id(provider_id).map_or(NodeView::None, |node| NodeView::Node(node.clone()))
            }
        }
    }

    /// C8: whether a cluster answers; its Nodes' watch is what asks it.
    pub async fn connection(&self, cluster: &ClusterName) -> Connection {
        if let NodeView::Refused(why) = self.node(cluster, "").await {
            return Connection::Refused(why);
        }
        let entries = self.entries();
        let Some(entry) = entries.get(cluster) else { return Connection::Unknown };
        entry.nodes.lock().unwrap_or_else(PoisonError::into_inner).connection()
    }

    /// For how long a cluster has not answered, if it does not.
    pub fn silent_for(&self, cluster: &ClusterName) -> Option<Duration> {
        let entries = self.entries();
        let nodes = entries.get(cluster)?.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.silent_for()
    }

    /// All Nodes of a cluster, once they were listed.
    pub async fn nodes(&self, cluster: &ClusterName) -> Option<Vec<Arc<Object>>> {
        self.client(cluster).await.ok()?;
        let entries = self.entries();
        let nodes = entries.get(cluster)?.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        (nodes.state == WatchState::Listed).then(|| nodes.by_name.values().cloned().collect())
    }

    /// A node as we have just written it.
    pub fn absorb(&self, cluster: &ClusterName, node: Arc<Object>) {
        if let Some(entry) = self.entries().get(cluster) {
            let mut nodes = entry.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.put(node);
        }
    }

    /// Certificates that a user has asked for and nobody has decided on; they are watched until all who asked here leave.
    pub async fn requests(&self, cluster: &ClusterName, who: ObjectKey, user: &str) -> Vec<Arc<Object>> {
        let Ok(client) = self.client(cluster).await else { return vec![] };
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(cluster) else { return vec![] };
        entry.requests.get_or_insert_with(|| Requests::watch(client, self.0.wakes.clone())).of(who, user)
    }

    /// Whoever asked needs to know no more.
    pub fn leave_requests(&self, cluster: &ClusterName, who: &ObjectKey) {
        if let Some(entry) = self.entries().get_mut(cluster) {
            entry.requests = entry.requests.take().filter(|requests| requests.leave(who));
        }
    }

    /// It was decided just now.
    pub fn decided(&self, cluster: &ClusterName, request: &str) {
        if let Some(requests) = self.entries().get(cluster).and_then(|entry| entry.requests.as_ref()) {
            requests.decided(request);
        }
    }

    /// The version that a tenant's API reports; asked once for each `rollout` of it.
    pub async fn version(&self, cluster: &ClusterName, rollout: &str, is_complete: bool) -> Option<String> {
        let client = self.client(cluster).await.ok()?;
        let known = self.entries().get(cluster).and_then(|entry| entry.version.clone());
        if let Some((_, version)) = known.filter(|(of, _)| of == rollout) {
            return Some(version);
        }
        let version = client.apiserver_version().await.ok()?.git_version;
        // While old and new pods answer side by side, the next answer may be another one.
        if is_complete && let Some(entry) = self.entries().get_mut(cluster) {
            entry.version = Some((rollout.to_owned(), version.clone()));
        }
        Some(version)
    }

    pub fn forget(&self, cluster: &ClusterName) {
        self.entries().remove(cluster);
    }

    /// Hangar's own, if the control plane is hosted, else the one that is there for everybody.
    fn kubeconfig(&self, cluster: &ClusterName) -> Option<String> {
        if let Some(own) = self.own_kubeconfig(cluster) {
            return Some(own);
        }
        let key = ObjectKey::new("", "Secret", &cluster.namespace, &format!("{}-kubeconfig", cluster.name));
        self.0.cache.get(&key)?.secret_text("value")
    }
}

impl Tenants {
    fn own_kubeconfig(&self, cluster: &ClusterName) -> Option<String> {
        let cache = &self.0.cache;
        let cluster = cache.get(&ObjectKey::of::<Cluster>(&cluster.namespace, &cluster.name))?;
        let plane = references::target(&cluster, "/spec/controlPlaneRef")?;
        if !hosted::KINDS.contains(&(plane.group.as_str(), plane.kind.as_str())) {
            return None;
        }
        let name = format!("{}-admin-kubeconfig", plane.name);
        let secret = cache.get(&ObjectKey::new("", "Secret", &plane.namespace, &name))?;
        secret.secret_text(hosted::certificates::SUPER_ADMIN_FILE)
    }
}

fn refusal(cluster: &ClusterName, error: &hangar_api::kubeconfig::KubeconfigError) -> String {
    format!("the kubeconfig in Secret {}/{}-kubeconfig is refused: {error}", cluster.namespace, cluster.name)
}

/// Of a Node's status only what Machines are told by: lists of images and amounts make up most of it, for each node of each cluster.
fn slim(node: Received) -> Object {
    let mut node = node.into_object();
    if let Some(status) = node.0.get_mut("status").and_then(serde_json::Value::as_object_mut) {
        status.retain(|field, _| ["addresses", "conditions", "nodeInfo", "volumesAttached"].contains(&field.as_str()));
    }
    node
}

/// One watch after the other: whether a cluster answers again is only known from its next list.
async fn observe(
    client: Client,
    cluster: ClusterName,
    nodes: Arc<Mutex<Nodes>>,
    cache: Cache,
    wakes: mpsc::UnboundedSender<ObjectKey>,
) {
    loop {
        watch(&client, &cluster, &nodes, &cache, &wakes).await;
        let (news, retry) = {
            let mut nodes = nodes.lock().unwrap_or_else(PoisonError::into_inner);
            (nodes.failed(), nodes.retry_after())
        };
        match news {
            News::None => {}
            News::OfCluster => wake_cluster(&cache, &cluster, &wakes),
            News::OfAll => wake(&cache, &cluster, None, &wakes),
        }
        tokio::time::sleep(retry).await;
    }
}

/// Until it fails.
async fn watch(
    client: &Client,
    cluster: &ClusterName,
    nodes: &Mutex<Nodes>,
    cache: &Cache,
    wakes: &mpsc::UnboundedSender<ObjectKey>,
) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
    let api: Api<Received> = Api::all_with(client.clone(), &resource);
    let mut stream = Box::pin(watcher(api, watcher::Config::default()));
    let mut listed = BTreeMap::new();
    while let Some(Ok(event)) = stream.next().await {
        let touched = match event {
            watcher::Event::Init => {
                listed.clear();
                continue;
            }
            watcher::Event::InitApply(object) => {
                let node = slim(object);
                listed.insert(node.name().to_owned(), Arc::new(node));
                continue;
            }
            watcher::Event::InitDone => {
                let mut nodes = nodes.lock().unwrap_or_else(PoisonError::into_inner);
                nodes.list(std::mem::take(&mut listed).into_values());
                None
            }
            watcher::Event::Apply(object) => {
                let node = Arc::new(slim(object));
                let mut nodes = nodes.lock().unwrap_or_else(PoisonError::into_inner);
                let old = nodes.put(node.clone());
                if old.is_some_and(|old| !matters(&old, &node)) {
                    continue;
                }
                Some(node)
            }
            watcher::Event::Delete(object) => {
                let node = Arc::new(slim(object));
                nodes.lock().unwrap_or_else(PoisonError::into_inner).remove(node.name());
                Some(node)
            }
        };
        wake(cache, cluster, touched.as_deref(), wakes);
    }
}

fn wake_cluster(cache: &Cache, cluster: &ClusterName, wakes: &mpsc::UnboundedSender<ObjectKey>) {
    let key = ObjectKey::of::<Cluster>(&cluster.namespace, &cluster.name);
    if cache.get(&key).is_some() {
        drop(wakes.send(key));
    }
}

/// The Machine of a Node, or all of the cluster; and whoever checks the health of Nodes or counts them.
fn wake(cache: &Cache, cluster: &ClusterName, node: Option<&Object>, wakes: &mpsc::UnboundedSender<ObjectKey>) {
    for machine in cache.of_cluster(&cluster.namespace, &cluster.name, Machine::GROUP, Machine::KIND) {
        if concerns(&machine, node) {
            drop(wakes.send(ObjectKey::of::<Machine>(machine.namespace(), machine.name())));
        }
    }
    if node.is_none() {
        wake_cluster(cache, cluster, wakes);
    }
    let checks = (MachineHealthCheck::GROUP, MachineHealthCheck::KIND);
    // What a cluster is to have is applied as soon as it answers.
    let binding = (ClusterResourceSetBinding::GROUP, ClusterResourceSetBinding::KIND);
    let pools = (MachinePool::GROUP, MachinePool::KIND);
    for (group, kind) in [Some(checks), Some(pools), Some(binding).filter(|_| node.is_none())].into_iter().flatten() {
        for concerned in cache.of_cluster(&cluster.namespace, &cluster.name, group, kind) {
            drop(wakes.send(concerned.key()));
        }
    }
}

/// Heartbeats are no news.
fn matters(old: &Object, new: &Object) -> bool {
    let health = |node: &Object| -> Vec<(String, String)> {
        let conditions = node.get("/status/conditions").as_array().into_iter().flatten();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        conditions.map(|condition| (text(&condition["type"]), text(&condition["status"]))).collect()
    };
    [
        "/spec",
        "/metadata/annotations",
        "/metadata/labels",
        "/status/nodeInfo",
        "/status/addresses",
        "/metadata/deletionTimestamp",
    ]
    .iter()
    .any(|pointer| old.get(pointer) != new.get(pointer))
        || health(old) != health(new)
}

fn concerns(machine: &Object, node: Option<&Object>) -> bool {
    match node {
        None => true,
        Some(node) => {
            let id = machine.text("/spec/providerID");
            machine.text("/status/nodeRef/name") == node.name()
                || (!id.is_empty() && id == node.text("/spec/providerID"))
        }
    }
}

#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod tests;
