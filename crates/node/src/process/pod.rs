//! One pod from its binding to its end: address, volumes, init containers, containers, and the status that tells of them.
//!
//! Holds: a pod that goes is first stopped, then deleted from the API (with its uid, never another pod of the same name), then its
//! directory and its address are given back. When the node shuts down the pod stays in the API and starts again with the node.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Node;
use super::container_states::ContainerStates;
use super::status::{NO_EPHEMERAL, hold_back, pod_status};
use super::tokens::Tokens;
use super::volumes::{Prepared, prepare};

const TRY_AGAIN: Duration = Duration::from_secs(2);
const VOLUMES_AGAIN: Duration = Duration::from_secs(30);
/// What a pod refers to can be news that is still on its way: each kind is watched by itself.
const WATCH_LAG: Duration = Duration::from_secs(1);
/// When the node shuts down, nobody waits for minutes.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// What the worker is told: the pod as it is now, or that it is gone from the API.
pub(super) type Updates = watch::Receiver<Option<Arc<Pod>>>;

#[derive(PartialEq)]
enum Reason {
    Deleted(Duration),
    Gone,
    Shutdown,
}

/// One pod and everything that its parts share.
pub(super) struct PodRunner {
    pub node: Arc<Node>,
    /// As it was when it came here; [`PodRunner::current`] is as it is now.
    pub pod: Arc<Pod>,
    uid: String,
    pub directory: PathBuf,
    pub states: Arc<ContainerStates>,
    pub stop: watch::Receiver<Option<Duration>>,
    tokens: Tokens,
}

/// Runs one pod until it is gone or the node shuts down.
pub(super) async fn run(node: Arc<Node>, pod: Arc<Pod>, mut updates: Updates, shutdown: CancellationToken) {
    let uid = pod.uid().unwrap_or_default();
    let directory = node.options.pods_dir.join(&uid);
    let states = Arc::new(ContainerStates::new(&pod));
    let (stopper, stop) = watch::channel(None);
    let (tokens, own) = (Tokens::default(), directory.clone());
    let runner =
        Arc::new(PodRunner { node: node.clone(), pod, uid: uid.clone(), directory: own, states, stop, tokens });
    let over = matches!(phase(&runner.pod), Some("Succeeded" | "Failed"));
    let living = tokio::spawn({
        let runner = runner.clone();
        async move {
            if !over {
                runner.run_to_end().await;
            }
        }
    });
    let reason = until_end(&mut updates, &shutdown).await;
    stopper.send_replace(Some(match reason {
        Reason::Deleted(grace) => grace,
        Reason::Gone => Duration::ZERO,
        Reason::Shutdown => SHUTDOWN_GRACE,
    }));
    let _ = living.await;
    if reason == Reason::Shutdown {
        return;
    }
    if reason != Reason::Gone {
        runner.delete().await;
    }
    if let Err(error) = super::cleanup::remove_pod(&directory) {
        tracing::debug!(path = %directory.display(), %error, "could not remove a pod's directory");
    }
    node.addresses.release(&uid);
}

async fn until_end(updates: &mut Updates, shutdown: &CancellationToken) -> Reason {
    loop {
        let reason = match updates.borrow_and_update().as_deref() {
            None => Some(Reason::Gone),
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => {
                let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
                Some(Reason::Deleted(Duration::from_secs(u64::try_from(grace).unwrap_or(0))))
            }
            Some(_) => None,
        };
        if let Some(reason) = reason {
            return reason;
        }
        tokio::select! {
            changed = updates.changed() => if changed.is_err() { return Reason::Shutdown },
            () = shutdown.cancelled() => return Reason::Shutdown,
        }
    }
}

impl PodRunner {
    /// Ends when the pod is stopped or has run to its end.
    async fn run_to_end(self: Arc<Self>) {
        if let Some((reason, message)) = super::admission::refused(&self.pod, &self.node.watched.pods.all()) {
            self.node.events.warning(&*self.pod, reason, &message).await;
            self.states.set_progress(|progress| progress.failed = Some((reason, message)));
            while !self.write(&mut None, None).await {
                tokio::time::sleep(TRY_AGAIN).await;
            }
            return;
        }
        let ip = match self.node.addresses.acquire(&self.uid) {
            Ok(ip) => ip,
            Err(error) => {
                self.node.events.warning(&*self.pod, "FailedCreatePodSandBox", &error.to_string()).await;
                return;
            }
        };
        let reporter = tokio::spawn(self.clone().report(ip));
        if let Some(volumes) = self.mount(ip).await {
            let refresher = tokio::spawn(self.clone().refresh(ip, volumes.again_in));
            self.containers(ip, volumes.directories).await;
            refresher.abort();
        }
        reporter.abort();
        let _ = reporter.await;
        self.write(&mut None, Some(ip)).await;
    }

    /// Tries until all volumes are there; None if the pod is stopped before.
    async fn mount(&self, ip: std::net::Ipv4Addr) -> Option<Prepared> {
        let (began, mut reported) = (Instant::now(), String::new());
        let watched = &self.node.watched;
        let (mut secrets, mut maps) = (watched.secrets.changes(), watched.config_maps.changes());
        let (mut claims, mut volumes) = (watched.claims.changes(), watched.volumes.changes());
        let mut stop = self.stop.clone();
        loop {
            let error = match prepare(&self.node, &self.current(), &self.directory, ip, &self.tokens).await {
                Ok(prepared) => return Some(prepared),
                Err(error) => error,
            };
            let early = WATCH_LAG.saturating_sub(began.elapsed());
            let again_in = if error.may_be_stale() && !early.is_zero() {
                early
            } else {
                let message = error.to_string();
                if message != reported {
                    self.node.events.warning(&*self.pod, "FailedMount", &message).await;
                    reported = message;
                }
                VOLUMES_AGAIN
            };
            tokio::select! {
                _ = secrets.changed() => {}
                _ = maps.changed() => {}
                _ = claims.changed() => {}
                _ = volumes.changed() => {}
                () = tokio::time::sleep(again_in) => {}
                _ = stop.wait_for(Option::is_some) => return None,
            }
        }
    }

    /// Brings changes of Secrets, ConfigMaps and the pod's own labels into the files, and fresh tokens.
    async fn refresh(self: Arc<Self>, ip: std::net::Ipv4Addr, mut again_in: Option<Duration>) {
        let (mut secrets, mut maps) = (self.node.watched.secrets.changes(), self.node.watched.config_maps.changes());
        let mut pods = self.node.watched.pods.changes();
        let mut seen = self.current();
        loop {
            let timer = async {
                match again_in {
                    Some(again_in) => tokio::time::sleep(again_in).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = secrets.changed() => {}
                _ = maps.changed() => {}
                changed = pods.changed() => {
                    let now = self.current();
                    let same = (now.labels(), now.annotations()) == (seen.labels(), seen.annotations());
                    if same && changed.is_ok() {
                        continue;
                    }
                    seen = now;
                }
                () = timer => {}
            }
            match prepare(&self.node, &self.current(), &self.directory, ip, &self.tokens).await {
                Ok(prepared) => again_in = prepared.again_in,
                Err(error) => {
                    tracing::warn!(pod = %self.pod.name_any(), %error, "could not update volumes")
                }
            }
        }
    }

    async fn report(self: Arc<Self>, ip: std::net::Ipv4Addr) {
        let (mut written, mut seen, mut refused) = (None, self.current(), 0);
        let mut pods = self.node.watched.pods.changes();
        loop {
            while !self.write(&mut written, Some(ip)).await {
                tokio::time::sleep(TRY_AGAIN).await;
            }
            let added = seen.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_ref()).map_or(0, Vec::len);
            if added > refused {
                self.node.events.warning(&*self.pod, "Failed", NO_EPHEMERAL).await;
                refused = added;
            }
            loop {
                tokio::select! {
                    () = self.states.changed.notified() => break,
                    // Others write conditions that count, and may add containers.
                    _ = pods.changed() => {
                        let now = self.current();
                        let moved = (now.metadata.generation, others(&now)) != (seen.metadata.generation, others(&seen));
                        seen = now;
                        if moved {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// The pod as the API knows it now.
    pub fn current(&self) -> Arc<Pod> {
        let namespace = self.pod.namespace().unwrap_or_default();
        let now = self.node.watched.pods.get(&namespace, &self.pod.name_any());
        now.filter(|pod| pod.uid().as_ref() == Some(&self.uid)).unwrap_or_else(|| self.pod.clone())
    }

    /// Writes the status if it is another than the one last written. False: it has to be tried again.
    async fn write(&self, written: &mut Option<PodStatus>, ip: Option<std::net::Ipv4Addr>) -> bool {
        let current = self.current();
        let mut pod = (*self.pod).clone();
        if let Some(written) = written.as_ref() {
            pod.status = Some(written.clone());
        }
        let (records, progress) = (self.states.snapshot(), self.states.progress());
        let mut status = pod_status(&pod, &records, &progress, ip, self.node.options.address, Timestamp::now());
        hold_back(&current, &mut status);
        if written.as_ref() == Some(&status) {
            return true;
        }
        let body = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": self.pod.name_any(), "uid": self.uid},
            "status": &status,
        });
        let params = PatchParams::apply("hangar-node").force();
        match self.api().patch_status(&self.pod.name_any(), &params, &Patch::Apply(body)).await {
            Ok(_) => *written = Some(status),
            // Gone, or another pod of the same name: nothing more to say about this one.
            Err(kube::Error::Api(error)) if error.code == 404 || error.code == 409 => {}
            Err(error) => {
                tracing::warn!(pod = %self.pod.name_any(), %error, "could not write the pod status");
                return false;
            }
        }
        true
    }

    /// The processes are gone, so the object may go.
    async fn delete(&self) {
        let preconditions = Preconditions { uid: Some(self.uid.clone()), resource_version: None };
        let params = DeleteParams::default().grace_period(0).preconditions(preconditions);
        loop {
            match self.api().delete(&self.pod.name_any(), &params).await {
                Ok(_) => return,
                Err(kube::Error::Api(error)) if error.code == 404 || error.code == 409 => return,
                Err(error) => tracing::warn!(pod = %self.pod.name_any(), %error, "could not be deleted"),
            }
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.node.client.clone(), &self.pod.namespace().unwrap_or_default())
    }
}

/// What others say about the pod.
fn others(pod: &Pod) -> Vec<(&str, &str)> {
    let gates: Vec<&str> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.readiness_gates.iter().flatten())
        .map(|gate| gate.condition_type.as_str())
        .collect();
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let conditions = conditions.filter(|condition| gates.contains(&condition.type_.as_str()));
    conditions.map(|condition| (condition.type_.as_str(), condition.status.as_str())).collect()
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}
