//! One worker per pod of this node.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Node;

struct Worker {
    updates: watch::Sender<Option<Arc<Pod>>>,
    task: JoinHandle<()>,
}

/// Runs until `shutdown`, then waits for the workers to end their processes.
pub(super) async fn run(node: Arc<Node>, shutdown: CancellationToken) {
    remove_orphans(&node);
    let mut changes = node.watched.pods.changes();
    let mut workers = HashMap::new();
    loop {
        follow(&node, &mut workers, &shutdown);
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { break },
            () = shutdown.cancelled() => break,
        }
    }
    for worker in workers.into_values() {
        let _ = worker.task.await;
    }
}

fn follow(node: &Arc<Node>, workers: &mut HashMap<String, Worker>, shutdown: &CancellationToken) {
    let pods = node.watched.pods.all();
    let present: HashSet<String> = pods.iter().filter_map(|pod| pod.uid()).collect();
    for (uid, worker) in workers.iter() {
        if !present.contains(uid) {
            worker.updates.send_if_modified(|pod| pod.take().is_some());
        }
    }
    // An ended worker is remembered until the pod is gone from the watch, or it would be started again.
    workers.retain(|uid, worker| present.contains(uid) || !worker.task.is_finished());
    for pod in pods {
        let Some(uid) = pod.uid() else { continue };
        if let Some(worker) = workers.get(&uid) {
            worker.updates.send_replace(Some(pod));
            continue;
        }
        let (updates, receiver) = watch::channel(Some(pod.clone()));
        let task = tokio::spawn(super::pod::run(node.clone(), pod, receiver, shutdown.clone()));
        workers.insert(uid, Worker { updates, task });
    }
}

/// Directories of pods that went while the node was away.
fn remove_orphans(node: &Node) {
    let present: HashSet<String> = node.watched.pods.all().iter().filter_map(|pod| pod.uid()).collect();
    for entry in node.options.pods_dir.read_dir().into_iter().flatten().flatten() {
        let uid = entry.file_name().to_string_lossy().into_owned();
        if !present.contains(&uid) {
            node.addresses.release(&uid);
            let _ = super::cleanup::remove_pod(&entry.path());
        }
    }
}
