//! What was there at every moment between two: nodes and pods as the tenant sees them, machines as the management cluster does.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::plane::Plane;

/// The extremes.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Ready, and pods may be put there.
    pub fewest_nodes: usize,
    /// Ready, of the Deployment `web`.
    pub fewest_pods: usize,
    pub most_machines: usize,
    pub changes: usize,
}

pub struct Watched {
    runtime: tokio::runtime::Runtime,
    seen: Arc<Mutex<Seen>>,
}

impl Watched {
    /// From now on.
    pub fn start(plane: &Plane, cluster: &str) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let seen = Seen { fewest_nodes: usize::MAX, fewest_pods: usize::MAX, most_machines: 0, changes: 0 };
        let seen = Arc::new(Mutex::new(seen));
        let management = std::fs::read_to_string(plane.home().join("kubeconfig")).unwrap();
        let tenant = plane.ok(&["get", "kubeconfig", cluster]);
        runtime.block_on(async {
            let (management, tenant) = (client(&management).await, client(&tenant).await);
            let machines = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
            let machines = Api::<DynamicObject>::default_namespaced_with(management, &machines);
            let pods = watcher::Config::default().labels("app=web");
            let all = watcher::Config::default;
            let (nodes, web) = (Api::<Node>::all(tenant.clone()), Api::<Pod>::default_namespaced(tenant));
            let started = tokio::sync::Semaphore::new(0);
            let started = Arc::new(started);
            follow(nodes, all(), is_usable, &seen, &started, |seen, count| {
                seen.fewest_nodes = seen.fewest_nodes.min(count)
            });
            follow(web, pods, is_ready, &seen, &started, |seen, count| seen.fewest_pods = seen.fewest_pods.min(count));
            follow(
                machines,
                all(),
                |_| true,
                &seen,
                &started,
                |seen, count| seen.most_machines = seen.most_machines.max(count),
            );
            drop(started.acquire_many(3).await.unwrap());
        });
        Self { runtime, seen }
    }

    pub fn stop(self) -> Seen {
        self.runtime.shutdown_background();
        self.seen.lock().unwrap().clone()
    }
}

fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    counts: fn(&Value) -> bool,
    seen: &Arc<Mutex<Seen>>,
    started: &Arc<tokio::sync::Semaphore>,
    note: fn(&mut Seen, usize),
) where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned + Send + 'static,
{
    let (seen, started) = (seen.clone(), started.clone());
    tokio::spawn(async move {
        let (mut all, mut changes) = (BTreeMap::new(), Box::pin(watcher(api, config)));
        let mut listed = false;
        while let Some(change) = changes.next().await {
            let name = |object: &K| object.meta().name.clone().unwrap_or_default();
            match change.expect("the watch failed") {
                Event::Init => all.clear(),
                Event::InitApply(object) | Event::Apply(object) => {
                    let _ = all.insert(name(&object), counts(&serde_json::to_value(&object).unwrap()));
                }
                Event::Delete(object) => {
                    let _ = all.remove(&name(&object));
                }
                Event::InitDone => {
                    listed = true;
                    started.add_permits(1);
                }
            }
            if listed {
                let mut seen = seen.lock().unwrap();
                seen.changes += 1;
                note(&mut seen, all.values().filter(|counts| **counts).count());
            }
        }
    });
}

fn is_usable(node: &Value) -> bool {
    is_ready(node) && node["spec"]["unschedulable"] != true
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// As a power cut would: the servers are stopped by somebody else, through the cloud's own API.
pub fn stop_servers(plane: &Plane, names: &[&str]) {
    let clouds = std::fs::read(plane.home().join("clouds.yaml")).unwrap();
    let config = hangar_openstack::CloudConfig::parse(&clouds, "openstack", None, None).unwrap();
    let cloud = hangar_openstack::Cloud::new(config, hangar_openstack::http_transport(None).unwrap());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let servers = cloud.servers(&hangar_openstack::ServerQuery::default()).await.unwrap();
        for server in servers.iter().filter(|server| names.contains(&server.name.as_str())) {
            cloud.stop_server(&server.id).await.unwrap();
        }
    });
}
