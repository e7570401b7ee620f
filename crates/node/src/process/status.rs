//! A pod's status from the states of its containers, as a kubelet writes it. Pure: the same states give the same status.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, HostIP,
    Pod, PodCondition, PodIP, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::container_states::PodProgress;
use super::restart::restarts;

/// Where a container stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RunState {
    Waiting { reason: String, message: Option<String> },
    Running { since: Timestamp },
    Ended(ContainerStateTerminated),
}

/// All that is known about one container.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ContainerRecord {
    pub name: String,
    pub image: String,
    pub image_id: String,
    /// Another one for each run.
    pub container_id: Option<String>,
    pub resources: Option<ResourceRequirements>,
    pub init: bool,
    /// An init container that goes on running beside the others.
    pub sidecar: bool,
    pub state: RunState,
    pub last: Option<ContainerStateTerminated>,
    pub restarts: i32,
    pub started: bool,
    pub ready: bool,
}

impl ContainerRecord {
    fn done(&self) -> bool {
        matches!(&self.state, RunState::Ended(end) if end.exit_code == 0) || (self.sidecar && self.started)
    }

    /// It does not run.
    pub fn set_not_running(&mut self, state: RunState) {
        self.state = state;
        (self.started, self.ready) = (false, false);
    }

    /// What was to take its place did not start: it has ended, and is no longer taken for running.
    pub fn was_not_replaced(&mut self) {
        if let (RunState::Running { .. }, Some(end)) = (&self.state, self.last.clone()) {
            self.set_not_running(RunState::Ended(end));
        }
    }

    fn to_status(&self) -> ContainerStatus {
        let mut state = ContainerState::default();
        match &self.state {
            RunState::Waiting { reason, message } => {
                state.waiting = Some(ContainerStateWaiting { reason: Some(reason.clone()), message: message.clone() });
            }
            RunState::Running { since } => {
                state.running = Some(ContainerStateRunning { started_at: Some(Time(*since)) })
            }
            RunState::Ended(end) => state.terminated = Some(end.clone()),
        }
        let last = self.last.clone().map(|end| ContainerState { terminated: Some(end), ..Default::default() });
        let ready = self.ready || (self.init && !self.sidecar && self.done());
        ContainerStatus {
            name: self.name.clone(),
            image: self.image.clone(),
            image_id: self.image_id.clone(),
            container_id: self.container_id.clone(),
            allocated_resources: self.resources.as_ref().and_then(|resources| resources.requests.clone()),
            resources: self.resources.clone(),
            state: Some(state),
            last_state: last,
            ready,
            restart_count: self.restarts,
            started: Some(self.started),
            ..ContainerStatus::default()
        }
    }
}

pub(super) fn pod_status(
    pod: &Pod,
    records: &[ContainerRecord],
    progress: &PodProgress,
    ip: Option<Ipv4Addr>,
    host: Ipv4Addr,
    now: Timestamp,
) -> PodStatus {
    let (init, main): (Vec<&ContainerRecord>, Vec<&ContainerRecord>) = records.iter().partition(|record| record.init);
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
    let policy = if progress.stopping { "Never" } else { policy };
    let phase = if progress.failed.is_some() { "Failed" } else { phase(&init, &main, policy) };
    let over = phase == "Succeeded" || phase == "Failed";
    let unready: Vec<&str> =
        main.iter().chain(init.iter().filter(|r| r.sidecar)).filter(|r| !r.ready).map(|r| r.name.as_str()).collect();
    let unfinished: Vec<&str> = init.iter().filter(|r| !r.done()).map(|r| r.name.as_str()).collect();
    let old = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = if over {
        Err((if phase == "Succeeded" { "PodCompleted" } else { "PodFailed" }, None))
    } else if unready.is_empty() {
        Ok(())
    } else {
        Err(("ContainersNotReady", Some(format!("containers with unready status: [{}]", unready.join(" ")))))
    };
    let initialized = if unfinished.is_empty() {
        Ok(())
    } else {
        Err((
            "ContainersNotInitialized",
            Some(format!("containers with incomplete status: [{}]", unfinished.join(" "))),
        ))
    };
    let initialized = if phase == "Succeeded" { Ok(()) } else { initialized };
    let conditions = vec![
        condition("PodReadyToStartContainers", if over { Err(("", None)) } else { Ok(()) }, old, now),
        condition("Initialized", initialized, old, now),
        condition("ContainersReady", ready.clone(), old, now),
        condition("Ready", ready, old, now),
    ];
    let start = pod.status.as_ref().and_then(|status| status.start_time.clone());
    let statuses = |records: Vec<&ContainerRecord>| -> Option<Vec<ContainerStatus>> {
        (!records.is_empty()).then(|| records.into_iter().map(ContainerRecord::to_status).collect())
    };
    PodStatus {
        phase: Some(phase.to_owned()),
        reason: progress.failed.as_ref().map(|(reason, _)| (*reason).to_owned()),
        message: progress.failed.as_ref().map(|(_, message)| message.clone()),
        conditions: Some(conditions),
        host_ip: Some(host.to_string()),
        host_ips: Some(vec![HostIP { ip: host.to_string() }]),
        pod_ip: ip.map(|ip| ip.to_string()),
        pod_ips: ip.map(|ip| vec![PodIP { ip: ip.to_string() }]),
        start_time: Some(start.unwrap_or(Time(now))),
        container_statuses: statuses(main),
        init_container_statuses: statuses(init),
        ..PodStatus::default()
    }
}

pub(super) const NO_EPHEMERAL: &str = "ephemeral containers are not supported on the local plane: `kubectl exec` can run any program of the machine in a container";

/// Containers that were added later and are not run.
fn not_added(pod: &Pod) -> Option<Vec<ContainerStatus>> {
    let added = pod.spec.as_ref()?.ephemeral_containers.as_ref().filter(|added| !added.is_empty())?;
    let reason = ContainerStateWaiting { reason: Some("NotSupported".into()), message: Some(NO_EPHEMERAL.into()) };
    let status = |name: &String, image: &Option<String>| ContainerStatus {
        name: name.clone(),
        image: image.clone().unwrap_or_default(),
        state: Some(ContainerState { waiting: Some(reason.clone()), ..ContainerState::default() }),
        ..ContainerStatus::default()
    };
    Some(added.iter().map(|one| status(&one.name, &one.image)).collect())
}

/// What others have to say about the pod counts too: a pod with readiness gates is ready when all of them are open.
pub(super) fn hold_back(pod: &Pod, status: &mut PodStatus) {
    status.observed_generation = pod.metadata.generation;
    status.ephemeral_container_statuses = not_added(pod);
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let said = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let open = |gate: &str| said.iter().any(|condition| condition.type_ == gate && condition.status == "True");
    let closed: Vec<&str> = gates.map(|gate| gate.condition_type.as_str()).filter(|gate| !open(gate)).collect();
    let ready = status.conditions.iter_mut().flatten().find(|condition| condition.type_ == "Ready");
    let Some(ready) = ready.filter(|ready| !closed.is_empty() && ready.status == "True") else { return };
    let now_closed = said.iter().find(|condition| condition.type_ == "Ready" && condition.status == "False");
    if let Some(before) = now_closed {
        ready.last_transition_time = before.last_transition_time.clone();
    }
    ready.status = "False".to_owned();
    ready.reason = Some("ReadinessGatesNotReady".to_owned());
    let names: Vec<String> =
        closed.iter().map(|gate| format!("\"{gate}\" does not exist or is not \"True\"")).collect();
    ready.message = Some(format!("corresponding condition of pod readiness gate {}", names.join(", ")));
}

fn phase(init: &[&ContainerRecord], main: &[&ContainerRecord], policy: &str) -> &'static str {
    let failed_for_good = |record: &&ContainerRecord| matches!(&record.state, RunState::Ended(end) if end.exit_code != 0 && policy == "Never");
    if init.iter().any(failed_for_good) {
        return "Failed";
    }
    let ends: Vec<i32> = main
        .iter()
        .filter_map(|record| match &record.state {
            RunState::Ended(end) if !restarts(policy, end.exit_code) => Some(end.exit_code),
            _ => None,
        })
        .collect();
    if !main.is_empty() && ends.len() == main.len() {
        return if ends.iter().all(|&code| code == 0) { "Succeeded" } else { "Failed" };
    }
    let begun = |record: &&ContainerRecord| !matches!(record.state, RunState::Waiting { .. }) || record.last.is_some();
    if init.iter().all(|record| record.done()) && main.iter().all(begun) { "Running" } else { "Pending" }
}

/// The time of the last change stays as long as the answer stays.
fn condition(
    type_: &str,
    holds: Result<(), (&str, Option<String>)>,
    old: &[PodCondition],
    now: Timestamp,
) -> PodCondition {
    let status = if holds.is_ok() { "True" } else { "False" };
    let before = old.iter().find(|condition| condition.type_ == type_ && condition.status == status);
    let since = before.and_then(|condition| condition.last_transition_time.clone()).unwrap_or(Time(now));
    let (reason, message) = holds.err().map_or((None, None), |(reason, message)| {
        (Some(reason.to_owned()).filter(|reason| !reason.is_empty()), message)
    });
    PodCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        last_transition_time: Some(since),
        reason,
        message,
        ..PodCondition::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(state: RunState) -> ContainerRecord {
        ContainerRecord {
            name: "c".into(),
            image: "i".into(),
            image_id: "i@v1".into(),
            container_id: None,
            resources: None,
            init: false,
            sidecar: false,
            ready: matches!(state, RunState::Running { .. }),
            started: matches!(state, RunState::Running { .. }),
            state,
            last: None,
            restarts: 0,
        }
    }

    fn running() -> RunState {
        RunState::Running { since: Timestamp::UNIX_EPOCH }
    }

    fn ended(exit_code: i32) -> RunState {
        RunState::Ended(ContainerStateTerminated { exit_code, ..Default::default() })
    }

    fn waiting() -> RunState {
        RunState::Waiting { reason: "ContainerCreating".into(), message: None }
    }

    #[test]
    fn the_phase_follows_from_the_containers() {
        let init = |state| ContainerRecord { init: true, ..record(state) };
        let crashed = ContainerRecord { last: Some(Default::default()), ..record(waiting()) };
        let rows = [
            ("Always", vec![record(waiting())], "Pending"),
            ("Always", vec![record(running()), record(waiting())], "Pending"),
            ("Always", vec![record(running()), crashed], "Running"),
            ("Always", vec![init(running()), record(waiting())], "Pending"),
            ("Always", vec![init(ended(0)), record(running())], "Running"),
            ("Never", vec![init(ended(1)), record(waiting())], "Failed"),
            ("Never", vec![record(ended(0))], "Succeeded"),
            ("Never", vec![record(ended(0)), record(ended(2))], "Failed"),
            ("OnFailure", vec![record(ended(2))], "Running"),
            ("Always", vec![record(ended(0))], "Running"),
        ];
        for (policy, records, expected) in rows {
            let (init, main): (Vec<_>, Vec<_>) = records.iter().partition(|record| record.init);
            assert_eq!(phase(&init, &main, policy), expected, "{policy} {records:?}");
        }
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = condition("Ready", Ok(()), &[], at(1));
        let same = condition("Ready", Ok(()), std::slice::from_ref(&first), at(2));
        assert_eq!(same, first);
        let other = condition("Ready", Err(("ContainersNotReady", None)), &[first], at(3));
        assert_eq!((other.status.as_str(), other.last_transition_time), ("False", Some(Time(at(3)))));
    }
}
