//! The containers of a pod in their order: those that prepare, those beside, those that matter; and the way back.
//!
//! Flows: init containers one after the other (a sidecar only has to have started) -> all others together -> the end: by themselves, by order, or
//! because their time is over -> sidecars, the last one first. Holds: sidecars end after what they served, within the same grace period.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::container::{ContainerRunner, wait_for_stop};
use super::container_states::is_sidecar;
use super::pod::PodRunner;

/// Tells a container to go, and how long it may take.
type Stop = watch::Receiver<Option<Duration>>;

struct Sidecar {
    stop: watch::Sender<Option<Duration>>,
    task: JoinHandle<Option<i32>>,
}

impl PodRunner {
    /// Ends when all containers have.
    pub(super) async fn containers(&self, ip: Ipv4Addr, volumes: BTreeMap<String, PathBuf>) {
        let (stopper, stop) = watch::channel(None);
        let volumes = Arc::new(volumes);
        let mut work = std::pin::pin!(self.in_order(ip, volumes, stop));
        let mut ordered = self.stop.clone();
        let (grace, began, sidecars) = tokio::select! {
            sidecars = &mut work => (self.grace(), Instant::now(), sidecars),
            grace = wait_for_stop(&mut ordered) => {
                // A node that goes down takes its processes along, and the pods are there again when it comes back.
                let deleted = self.current().metadata.deletion_timestamp.is_some();
                self.states.set_progress(|progress| progress.stopping = deleted);
                let began = Instant::now();
                stopper.send_replace(Some(grace));
                (grace, began, work.await)
            }
            () = self.until_deadline() => {
                let message = "Pod was active on the node longer than the specified deadline".to_owned();
                self.node.events.normal(&*self.pod, "DeadlineExceeded", &message).await;
                self.states.set_progress(|progress| progress.failed = Some(("DeadlineExceeded", message)));
                let began = Instant::now();
                stopper.send_replace(Some(self.grace()));
                (self.grace(), began, work.await)
            }
        };
        for Sidecar { stop, task } in sidecars.into_iter().rev() {
            stop.send_replace(Some(grace.saturating_sub(began.elapsed())));
            let _ = task.await;
        }
    }

    /// Starts everything in its order; returns the sidecars when all others have ended.
    async fn in_order(&self, ip: Ipv4Addr, volumes: Arc<BTreeMap<String, PathBuf>>, stop: Stop) -> Vec<Sidecar> {
        let mut sidecars = vec![];
        let Some(spec) = self.pod.spec.as_ref() else { return sidecars };
        let policy = spec.restart_policy.clone().unwrap_or_else(|| "Always".into());
        let job = |index: usize, container: &Container, stop: &Stop| ContainerRunner {
            node: self.node.clone(),
            pod: self.pod.clone(),
            container: container.clone(),
            index,
            states: self.states.clone(),
            ip,
            directory: self.directory.clone(),
            volumes: volumes.clone(),
            stop: stop.clone(),
        };
        let init: Vec<&Container> = spec.init_containers.iter().flatten().collect();
        for (index, container) in init.iter().enumerate() {
            if is_sidecar(container) {
                let (own, own_stop) = watch::channel(None);
                let job = job(index, container, &own_stop);
                sidecars.push(Sidecar { stop: own, task: tokio::spawn(async move { job.run("Always").await }) });
                self.until_started(index, &stop).await;
            } else {
                // Init containers of a pod that is always restarted are tried again until they succeed.
                let policy = if policy == "Never" { "Never" } else { "OnFailure" };
                if job(index, container, &stop).run(policy).await != Some(0) {
                    return sidecars;
                }
            }
            if stop.borrow().is_some() {
                return sidecars;
            }
        }
        let mains: Vec<_> = spec.containers.iter().enumerate().map(|(at, c)| job(init.len() + at, c, &stop)).collect();
        futures::future::join_all(mains.into_iter().map(|job| job.run(&policy))).await;
        sidecars
    }

    async fn until_started(&self, index: usize, stop: &Stop) {
        let mut stop = stop.clone();
        while self.states.snapshot().get(index).is_some_and(|record| !record.started) {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
                _ = stop.wait_for(Option::is_some) => return,
            }
        }
    }

    /// The deadline may be set or brought forward while the pod runs.
    async fn until_deadline(&self) {
        let mut pods = self.node.watched.pods.changes();
        loop {
            let pod = self.current();
            let seconds = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
            let since = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
            let over = async {
                let (Some(seconds), Some(since)) = (seconds, since) else { return std::future::pending().await };
                let ran = Timestamp::now().duration_since(since).as_secs();
                tokio::time::sleep(Duration::from_secs(u64::try_from(seconds - ran).unwrap_or(0))).await;
            };
            tokio::select! {
                () = over => return,
                changed = pods.changed() => if changed.is_err() { return std::future::pending().await },
            }
        }
    }

    fn grace(&self) -> Duration {
        let seconds = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }
}
