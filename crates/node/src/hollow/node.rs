//! The life of a joined node: registered once, then lease, rare status, and pods as they come.
//!
//! Holds: an API server that is away is waited for; leaving is quiet (the cluster sees the lease run out, or the Node is
//! deleted by whoever deletes the server).

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::api_client::{Credential, client};
use super::{HollowNode, pods, registration};

const LEASE_EVERY: Duration = Duration::from_secs(10);
const STATUS_EVERY: Duration = Duration::from_secs(300);
const STATUS_AGAIN: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("the identity of node {node} is not usable")]
    Identity { node: String, source: Box<kube::Error> },
    #[error("node {node} cannot be described: {source}")]
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
pub async fn run(node: HollowNode, shutdown: CancellationToken) -> Result<(), RunError> {
    let name = node.facts.node_name.clone();
    let identity = |source| RunError::Identity { node: name.clone(), source: Box::new(source) };
    let credential = Credential::Certificate(&node.identity);
    let client = client(&node.identity.server, Some(&node.identity.ca_pem), credential).await.map_err(identity)?;
    let mut agent = Agent {
        nodes: Api::all(client.clone()),
        leases: Api::namespaced(client.clone(), "kube-node-lease"),
        client,
        uid: String::new(),
        node,
    };
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        ended = agent.live() => ended,
    }
}

impl Agent {
    async fn live(&mut self) -> Result<(), RunError> {
        self.register().await?;
        let mut leases = interval(LEASE_EVERY);
        let mut statuses = interval(STATUS_EVERY);
        leases.set_missed_tick_behavior(MissedTickBehavior::Delay);
        statuses.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node.facts.node_name));
        let pods = Api::<Pod>::all(self.client.clone());
        let mut pods = watcher(pods, mine).default_backoff().applied_objects().boxed();
        let mut away = false;
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
                    Err(error) => self.note("the watch of its pods broke", &error),
                },
            }
        }
    }

    /// Until it is registered; a Node of that name that is already there is taken over, as after a restart.
    async fn register(&mut self) -> Result<(), RunError> {
        let wanted = registration::node(&self.node.facts).map_err(|source| self.facts_error(source))?;
        let mut wait = Duration::from_millis(200);
        loop {
            let made = match self.nodes.create(&PostParams::default(), &wanted).await {
                Err(kube::Error::Api(refused)) if refused.code == 409 => self.nodes.get(&wanted.name_any()).await,
                other => other,
            };
            match made {
                Ok(node) => {
                    self.uid = node.uid().unwrap_or_default();
                    return Ok(());
                }
                Err(error) => self.note("it could not be registered", &error),
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
                let patch = Patch::Strategic(registration::status(&self.node.facts, &current, &now));
                self.nodes.patch_status(name, &PatchParams::default(), &patch).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &reported {
            self.note("its status could not be reported", error);
        }
        reported.is_ok()
    }

    /// Whether it was heard.
    async fn renew_lease(&self) -> Result<bool, RunError> {
        let name = &self.node.facts.node_name;
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let renewal = Patch::Merge(json!({"spec": {"renewTime": now, "holderIdentity": name}}));
        let renewed = match self.leases.patch(name, &PatchParams::default(), &renewal).await {
            Err(kube::Error::Api(refused)) if refused.code == 404 => {
                let lease =
                    registration::lease(&self.node.facts, &self.uid, &now).map_err(|error| self.facts_error(error))?;
                self.leases.create(&PostParams::default(), &lease).await
            }
            other => other,
        };
        if let Err(error) = &renewed {
            self.note("its lease could not be renewed", error);
        }
        Ok(renewed.is_ok())
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
            Err(error) => self.note("the status of a pod could not be reported", &error),
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
