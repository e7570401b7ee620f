//! The life of a joined node: registered once, then lease, rare status, and pods as they come.
//!
//! Holds: an API server that is away is waited for; at rest there is one request for each lease, and leases of many nodes are spread over time;
//! who is switched off says so ([`leave`]), who merely stops is quiet: the cluster sees the lease run out, or the Node is deleted by whoever
//! deletes the server.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::api_client::{Credential, client};
use super::{HollowNode, pods, registration};

/// Clusters call a node Unknown after 40 s (50 s since Kubernetes 1.32) without a renewal: one may be lost. The kubelet's 10 s would let two
/// be lost, for twice the requests.
const LEASE_EVERY: Duration = Duration::from_secs(20);
const STATUS_EVERY: Duration = Duration::from_secs(300);
const STATUS_AGAIN: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Registrations at the same time: each is a TLS handshake and four requests, and a server that has thousands of them before it answers none.
const REGISTRATIONS: usize = 64;

/// What the hollow nodes of one process share.
#[derive(Debug, Clone)]
pub struct Fleet {
    registrations: Arc<Semaphore>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self { registrations: Arc::new(Semaphore::new(REGISTRATIONS)) }
    }
}

fn lease_time() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("invalid client certificate of node {node}")]
    Identity { node: String, source: Box<kube::Error> },
    #[error("could not report that node {node} is shutting down")]
    NotHeard { node: String, source: Box<kube::Error> },
    #[error("could not render the objects of node {node}: {source}")]
    Facts { node: String, source: serde_json::Error },
}

struct Agent {
    node: HollowNode,
    nodes: Api<Node>,
    leases: Api<Lease>,
    client: kube::Client,
    uid: String,
}

/// Until `shutdown`.
pub async fn run(node: HollowNode, fleet: &Fleet, shutdown: CancellationToken) -> Result<(), RunError> {
    let client = own_client(&node).await?;
    let mut agent = Agent {
        nodes: Api::all(client.clone()),
        leases: Api::namespaced(client.clone(), "kube-node-lease"),
        client,
        uid: String::new(),
        node,
    };
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        ended = agent.live(fleet) => ended,
    }
}

/// Says that the node is switched off, as a kubelet does that is told so.
pub async fn leave(node: &HollowNode) -> Result<(), RunError> {
    let nodes: Api<Node> = Api::all(own_client(node).await?);
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let patch = Patch::Strategic(registration::leaving(&now));
    let name = &node.facts.node_name;
    let said = nodes.patch_status(name, &PatchParams::default(), &patch).await;
    said.map(drop).map_err(|source| RunError::NotHeard { node: name.clone(), source: Box::new(source) })
}

async fn own_client(node: &HollowNode) -> Result<kube::Client, RunError> {
    let credential = Credential::Certificate(&node.identity);
    let client = client(&node.identity.server, Some(&node.identity.ca_pem), credential).await;
    client.map_err(|source| RunError::Identity { node: node.facts.node_name.clone(), source: Box::new(source) })
}

/// Where in the interval the leases of a node are renewed: as many at one moment as at any other, whenever the nodes were started.
fn phase(name: &str) -> Duration {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    LEASE_EVERY.mul_f64((hasher.finish() % 1000) as f64 / 1000.0)
}

impl Agent {
    async fn live(&mut self, fleet: &Fleet) -> Result<(), RunError> {
        let turn = fleet.registrations.acquire().await;
        let is_new = self.register().await?;
        let heard = self.create_lease().await?;
        drop(turn);
        let mut leases = interval_at(Instant::now() + phase(&self.node.facts.node_name), LEASE_EVERY);
        let mut statuses = interval_at(Instant::now() + STATUS_EVERY, STATUS_EVERY);
        if !is_new {
            statuses.reset_immediately();
        }
        leases.set_missed_tick_behavior(MissedTickBehavior::Delay);
        statuses.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mine =
            watcher::Config::default().any_semantic().fields(&format!("spec.nodeName={}", self.node.facts.node_name));
        let pods = Api::<Pod>::all(self.client.clone());
        let mut pods = watcher(pods, mine).default_backoff().applied_objects().boxed();
        let mut away = !heard;
        loop {
            tokio::select! {
                _ = leases.tick() => {
                    let renewed = self.renew_lease().await?;
                    if renewed && away {
                        // Meanwhile the cluster may have called the node Unknown.
                        statuses.reset_immediately();
                    }
                    away = !renewed;
                }
                _ = statuses.tick() => if !self.report_status().await {
                    // A node that is not Ready because of one lost call would be idle for minutes.
                    statuses.reset_after(STATUS_AGAIN);
                },
                pod = pods.try_next() => match pod {
                    Ok(Some(pod)) => self.attend(&pod).await,
                    // The watcher never ends and backs off by itself.
                    Ok(None) => {}
                    Err(error) => self.note("the watch of its pods failed", &error),
                },
            }
        }
    }

    /// Until it is registered; a Node of that name that is already there is taken over, as after a restart (false).
    async fn register(&mut self) -> Result<bool, RunError> {
        let mut wait = Duration::from_millis(200);
        loop {
            let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let wanted = registration::node(&self.node.facts, &now).map_err(|source| self.facts_error(source))?;
            let made = match self.nodes.create(&PostParams::default(), &wanted).await {
                Err(kube::Error::Api(refused)) if refused.code == 409 => {
                    self.nodes.get(&wanted.name_any()).await.map(|node| (node, false))
                }
                other => other.map(|node| (node, true)),
            };
            match made {
                Ok((node, is_new)) => {
                    self.uid = node.uid().unwrap_or_default();
                    return Ok(is_new);
                }
                Err(error) => self.note("could not register the node", &error),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Whether it was heard.
    async fn report_status(&self) -> bool {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let name = &self.node.facts.node_name;
        let reported = match self.nodes.get(name).await {
            Ok(current) => {
                let patch = Patch::Strategic(registration::status(&self.node.facts, Some(&current), &now));
                self.nodes.patch_status(name, &PatchParams::default(), &patch).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &reported {
            self.note("could not report the node status", error);
        }
        reported.is_ok()
    }

    /// The first lease; one that is there from an earlier run is renewed. Whether it was heard.
    async fn create_lease(&self) -> Result<bool, RunError> {
        let lease = registration::lease(&self.node.facts, &self.uid, &lease_time());
        let lease = lease.map_err(|error| self.facts_error(error))?;
        match self.leases.create(&PostParams::default(), &lease).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(refused)) if refused.code == 409 => Ok(self.patch_lease().await.is_ok()),
            Err(error) => {
                self.note("could not create the lease", &error);
                Ok(false)
            }
        }
    }

    /// Whether it was heard.
    async fn renew_lease(&self) -> Result<bool, RunError> {
        match self.patch_lease().await {
            Ok(()) => Ok(true),
            Err(kube::Error::Api(refused)) if refused.code == 404 => self.create_lease().await,
            Err(error) => {
                self.note("could not renew the lease", &error);
                Ok(false)
            }
        }
    }

    async fn patch_lease(&self) -> Result<(), kube::Error> {
        let name = &self.node.facts.node_name;
        let renewal = Patch::Merge(json!({"spec": {"renewTime": lease_time(), "holderIdentity": name}}));
        self.leases.patch_metadata(name, &PatchParams::default(), &renewal).await.map(drop)
    }

    async fn attend(&self, pod: &Pod) {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let host_ip = self.node.facts.addresses.iter().find(|(kind, _)| kind == "InternalIP");
        let host_ip = host_ip.map_or("", |(_, address)| address.as_str());
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let name = pod.name_any();
        let done = match pods::step(pod, host_ip, &now) {
            pods::Step::Nothing => Ok(()),
            pods::Step::Finish => {
                let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                pods.delete(&name, &params).await.map(drop)
            }
            pods::Step::Report(patch) => {
                pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
            }
        };
        match done {
            Err(kube::Error::Api(refused)) if refused.code == 404 => {}
            Err(error) => self.note("could not report the status of a pod", &error),
            Ok(()) => {}
        }
    }

    fn facts_error(&self, source: serde_json::Error) -> RunError {
        RunError::Facts { node: self.node.facts.node_name.clone(), source }
    }

    fn note(&self, what: &str, error: &dyn std::error::Error) {
        tracing::debug!(node = self.node.facts.node_name, %error, "hollow node: {what}");
    }
}
