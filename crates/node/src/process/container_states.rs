//! Where the containers of a pod stand, and a bell for when that changes.

use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use tokio::sync::Notify;

use super::status::{ContainerRecord, RunState};

/// What is known of a pod beyond its containers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PodProgress {
    /// Why the whole pod has failed: reason and message.
    pub failed: Option<(&'static str, String)>,
    /// Nothing is started again.
    pub stopping: bool,
}

pub(super) struct ContainerStates {
    state: Mutex<(Vec<ContainerRecord>, PodProgress)>,
    pub changed: Notify,
}

impl ContainerStates {
    pub fn new(pod: &Pod) -> Self {
        Self { state: Mutex::new((records(pod), PodProgress::default())), changed: Notify::new() }
    }

    pub fn note(&self, index: usize, change: impl FnOnce(&mut ContainerRecord)) {
        if let Some(record) = self.state.lock().unwrap_or_else(PoisonError::into_inner).0.get_mut(index) {
            change(record);
        }
        self.changed.notify_one();
    }

    pub fn set_progress(&self, change: impl FnOnce(&mut PodProgress)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).1);
        self.changed.notify_one();
    }

    pub fn snapshot(&self) -> Vec<ContainerRecord> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    pub fn progress(&self) -> PodProgress {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}

pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Containers as they stand before their first start in this run; what the API still knows of earlier runs is taken up.
fn records(pod: &Pod) -> Vec<ContainerRecord> {
    let Some(spec) = &pod.spec else { return vec![] };
    let status = pod.status.as_ref();
    let has_init = spec.init_containers.as_ref().is_some_and(|init| !init.is_empty());
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
        let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
        ContainerRecord {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            image_id: before.map(|before| before.image_id.clone()).unwrap_or_default(),
            container_id: before.and_then(|before| before.container_id.clone()),
            resources: container.resources.clone(),
            init,
            sidecar: init && is_sidecar(container),
            state: RunState::Waiting { reason: reason.into(), message: None },
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
