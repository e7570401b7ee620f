//! One pod from its binding to its end: address, volumes, init containers, containers, and the status that tells of them.
//!
//! Holds: a pod that goes is first stopped, then deleted from the API (with its uid, never another pod of the same name), then its
//! directory and its address are given back. When the node shuts down the pod stays in the API and starts again with the node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodStatus};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::Node;
use super::container::Job;
use super::status::{ContainerRecord, Stand, pod_status};
use super::volumes::{Prepared, prepare};

const TRY_AGAIN: Duration = Duration::from_secs(2);
const VOLUMES_AGAIN: Duration = Duration::from_secs(30);
/// When the node shuts down, nobody waits for minutes.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// The containers' states, and a bell for when they change.
pub(super) struct Board {
    records: Mutex<Vec<ContainerRecord>>,
    changed: Notify,
}

impl Board {
    pub fn note(&self, index: usize, change: impl FnOnce(&mut ContainerRecord)) {
        if let Ok(mut records) = self.records.lock()
            && let Some(record) = records.get_mut(index)
        {
            change(record);
        }
        self.changed.notify_one();
    }

    pub fn snapshot(&self) -> Vec<ContainerRecord> {
        self.records.lock().map(|records| records.clone()).unwrap_or_default()
    }
}

/// What the worker is told: the pod as it is now, or that it is gone from the API.
pub(super) type Updates = watch::Receiver<Option<Arc<Pod>>>;

#[derive(PartialEq)]
enum Reason {
    Deleted(Duration),
    Gone,
    Shutdown,
}

struct Life {
    node: Arc<Node>,
    pod: Arc<Pod>,
    uid: String,
    directory: PathBuf,
    board: Arc<Board>,
    stop: watch::Receiver<Option<Duration>>,
}

/// Runs one pod until it is gone or the node shuts down.
pub(super) async fn run(node: Arc<Node>, pod: Arc<Pod>, mut updates: Updates, shutdown: CancellationToken) {
    let uid = pod.uid().unwrap_or_default();
    let directory = node.options.pods_dir.join(&uid);
    let board = Arc::new(Board { records: Mutex::new(records(&pod)), changed: Notify::new() });
    let (stopper, stop) = watch::channel(None);
    let life = Arc::new(Life { node: node.clone(), pod, uid: uid.clone(), directory: directory.clone(), board, stop });
    let over = matches!(phase(&life.pod), Some("Succeeded" | "Failed"));
    let living = tokio::spawn({
        let life = life.clone();
        async move {
            if !over {
                life.live().await;
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
        life.delete().await;
    }
    super::empty_dir::give_back(&directory);
    let _ = std::fs::remove_dir_all(&directory);
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

impl Life {
    /// Ends when the pod is stopped or has run to its end.
    async fn live(self: Arc<Self>) {
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
        self.write(&mut None, ip).await;
    }

    /// Tries until all volumes are there; None if the pod is stopped before.
    async fn mount(&self, ip: std::net::Ipv4Addr) -> Option<Prepared> {
        let mut said = String::new();
        let watched = &self.node.watched;
        let (mut secrets, mut maps) = (watched.secrets.bell(), watched.config_maps.bell());
        let (mut claims, mut volumes) = (watched.claims.bell(), watched.volumes.bell());
        let mut stop = self.stop.clone();
        loop {
            match prepare(&self.node, &self.pod, &self.directory, ip).await {
                Ok(prepared) => return Some(prepared),
                Err(error) => {
                    let message = error.to_string();
                    if message != said {
                        self.node.events.warning(&*self.pod, "FailedMount", &message).await;
                        said = message;
                    }
                }
            }
            tokio::select! {
                _ = secrets.changed() => {}
                _ = maps.changed() => {}
                _ = claims.changed() => {}
                _ = volumes.changed() => {}
                () = tokio::time::sleep(VOLUMES_AGAIN) => {}
                _ = stop.wait_for(Option::is_some) => return None,
            }
        }
    }

    /// Brings changes of Secrets and ConfigMaps into the files, and fresh tokens.
    async fn refresh(self: Arc<Self>, ip: std::net::Ipv4Addr, mut again_in: Option<Duration>) {
        let (mut secrets, mut maps) = (self.node.watched.secrets.bell(), self.node.watched.config_maps.bell());
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
                () = timer => {}
            }
            match prepare(&self.node, &self.pod, &self.directory, ip).await {
                Ok(prepared) => again_in = prepared.again_in,
                Err(error) => {
                    tracing::warn!(pod = %self.pod.name_any(), %error, "volumes could not be brought up to date")
                }
            }
        }
    }

    async fn containers(&self, ip: std::net::Ipv4Addr, volumes: BTreeMap<String, PathBuf>) {
        let Some(spec) = self.pod.spec.as_ref() else { return };
        let policy = spec.restart_policy.clone().unwrap_or_else(|| "Always".into());
        let volumes = Arc::new(volumes);
        let job = |(index, container): (usize, &Container)| Job {
            node: self.node.clone(),
            pod: self.pod.clone(),
            container: container.clone(),
            index,
            board: self.board.clone(),
            ip,
            directory: self.directory.clone(),
            volumes: volumes.clone(),
            stop: self.stop.clone(),
        };
        let init: Vec<&Container> = spec.init_containers.iter().flatten().collect();
        let mut running = tokio::task::JoinSet::new();
        for (index, container) in init.iter().enumerate() {
            let job = job((index, container));
            if is_sidecar(container) {
                running.spawn(async move { job.run("Always").await });
                self.until_started(index).await;
                continue;
            }
            // Init containers of a pod that is always restarted are tried again until they succeed.
            let policy = if policy == "Never" { "Never" } else { "OnFailure" };
            if job.run(policy).await != Some(0) {
                running.shutdown().await;
                return;
            }
        }
        let mains: Vec<_> = spec.containers.iter().enumerate().map(|(at, c)| job((init.len() + at, c))).collect();
        let mains = mains.into_iter().map(|job| job.run(&policy));
        futures::future::join_all(mains).await;
        if self.stop.borrow().is_none() {
            // Sidecars do not outlive what they served.
            running.shutdown().await;
        }
        while running.join_next().await.is_some() {}
    }

    async fn until_started(&self, index: usize) {
        let mut stop = self.stop.clone();
        while self.board.snapshot().get(index).is_some_and(|record| !record.started) {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
                _ = stop.wait_for(Option::is_some) => return,
            }
        }
    }

    async fn report(self: Arc<Self>, ip: std::net::Ipv4Addr) {
        let mut written = None;
        loop {
            while !self.write(&mut written, ip).await {
                tokio::time::sleep(TRY_AGAIN).await;
            }
            self.board.changed.notified().await;
        }
    }

    /// Writes the status if it is another than the one last written. False: it has to be tried again.
    async fn write(&self, written: &mut Option<PodStatus>, ip: std::net::Ipv4Addr) -> bool {
        let mut pod = (*self.pod).clone();
        if let Some(written) = written.as_ref() {
            pod.status = Some(written.clone());
        }
        let status = pod_status(&pod, &self.board.snapshot(), Some(ip), self.node.options.address, Timestamp::now());
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
                tracing::warn!(pod = %self.pod.name_any(), %error, "status could not be written");
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

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Containers as they stand before their first start in this run; what the API still knows of earlier runs is taken up.
fn records(pod: &Pod) -> Vec<ContainerRecord> {
    let Some(spec) = &pod.spec else { return vec![] };
    let status = pod.status.as_ref();
    let known = |name: &str| -> Option<&ContainerStatus> {
        let main = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        let init = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
        main.iter().chain(init).find(|status| status.name == name)
    };
    let record = |container: &Container, init: bool| {
        let before = known(&container.name);
        let state = before.and_then(|before| before.state.as_ref());
        let last = state.and_then(|state| state.terminated.clone());
        let last = last.or_else(|| before?.last_state.as_ref()?.terminated.clone());
        let ran = state.is_some_and(|state| state.running.is_some() && last.is_none());
        let reason = if init { "PodInitializing" } else { "ContainerCreating" };
        ContainerRecord {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            image_id: before.map(|before| before.image_id.clone()).unwrap_or_default(),
            container_id: before.and_then(|before| before.container_id.clone()),
            init,
            sidecar: init && is_sidecar(container),
            stand: Stand::Waiting { reason: reason.into(), message: None },
            last,
            // A first start after a run that ended with the node is a restart too, but leaves no end behind.
            restarts: before.map_or(0, |before| before.restart_count) + i32::from(ran),
            started: false,
            ready: false,
        }
    };
    let init = spec.init_containers.iter().flatten().map(|container| record(container, true));
    init.chain(spec.containers.iter().map(|container| record(container, false))).collect()
}
