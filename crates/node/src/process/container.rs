//! One container: image to program, variables and paths to a command, then run, watched by probes, and started again.
//!
//! Holds: a container is stopped only through `stop`, which carries the grace period, or by a liveness or startup probe; whatever
//! keeps it from starting is said in its waiting state and tried again.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use tokio::sync::watch;

use super::child::{Child, exit_code};
use super::container_states::ContainerStates;
use super::identity::Identity;
use super::launch::Launch;
use super::pull::PullError;
use super::restart::{Backoff, restarts};
use super::status::{ContainerRecord, RunState};
use super::{Node, Program};

/// Everything one container is made of.
pub(super) struct ContainerRunner {
    pub node: Arc<Node>,
    pub pod: Arc<Pod>,
    pub container: Container,
    /// Its index among the states.
    pub index: usize,
    pub states: Arc<ContainerStates>,
    pub ip: Ipv4Addr,
    /// The pod's directory.
    pub directory: PathBuf,
    pub volumes: Arc<BTreeMap<String, PathBuf>>,
    pub stop: watch::Receiver<Option<Duration>>,
}

enum End {
    Stopped,
    /// Its image was changed: it starts again at once.
    Changed,
    Ended(i32),
    NotStarted {
        reason: &'static str,
        message: String,
    },
}

/// The longest message that a container may leave, as the API has it.
const LONGEST_TERMINATION_MESSAGE: usize = 4096;

impl ContainerRunner {
    /// Runs until stopped (None) or until the policy says that it is over (the exit code).
    pub async fn run(mut self, policy: &str) -> Option<i32> {
        let (mut backoff, mut reported, mut tried) = (Backoff::default(), String::new(), false);
        if let Some(message) = Identity::of(&self.pod, &self.container).ok().and_then(|who| who.unsupported()) {
            self.warn("SecurityContextNotHonoured", &message).await;
        }
        loop {
            let started = Instant::now();
            let waiting = match self.once().await {
                End::Stopped => return None,
                End::Changed => {
                    backoff = Backoff::default();
                    continue;
                }
                End::Ended(code) if !restarts(policy, code) => return Some(code),
                End::Ended(_) => ("CrashLoopBackOff", "back-off restarting failed container".to_owned()),
                End::NotStarted { reason, message } => {
                    self.note(ContainerRecord::was_not_replaced);
                    // What is missing at the first try may be news that is still on its way.
                    let early = !std::mem::replace(&mut tried, true) && reason == "CreateContainerConfigError";
                    if reported != message && !early {
                        self.warn("Failed", &message).await;
                        reported.clone_from(&message);
                    }
                    (reason, message)
                }
            };
            let pause = backoff.after(started.elapsed());
            let waiting_for_source = waiting.0 == "CreateContainerConfigError";
            if pause >= Duration::from_secs(1) {
                if waiting.0 == "CrashLoopBackOff" {
                    let note = format!("restarting container {} in {} s", self.container.name, pause.as_secs());
                    self.warn("BackOff", &note).await;
                }
                let reason = if waiting.0 == "ErrImagePull" { "ImagePullBackOff" } else { waiting.0 };
                self.note(|record| {
                    record.set_not_running(RunState::Waiting { reason: reason.into(), message: Some(waiting.1) })
                });
            }
            let (mut secrets, mut maps) =
                (self.node.watched.secrets.changes(), self.node.watched.config_maps.changes());
            let mut stop = self.stop.clone();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = secrets.changed(), if waiting_for_source => {}
                _ = maps.changed(), if waiting_for_source => {}
                () = self.until_described_otherwise(), if waiting_for_source => {}
                () = self.until_changed() => backoff = Backoff::default(),
                _ = stop.wait_for(Option::is_some) => return None,
            }
        }
    }

    async fn once(&mut self) -> End {
        self.take_up_changes();
        match self.pull().await {
            Ok(()) => {}
            Err(PullError::Stopped) => return End::Stopped,
            Err(PullError::Failed(message)) => return End::NotStarted { reason: "ErrImagePull", message },
        }
        let mut launch = match self.launch().await {
            Ok(launch) => launch,
            Err((reason, message)) => return End::NotStarted { reason, message },
        };
        self.tell_program(launch.program.as_ref()).await;
        self.say("Created", &format!("Created container: {}", self.container.name)).await;
        let mut child = match start(&launch).await {
            Ok(child) => child,
            Err(error) => {
                let message = format!("{}: {error}", self.container.name);
                return End::NotStarted { reason: "RunContainerError", message };
            }
        };
        let (uid, name) = (self.pod.uid().unwrap_or_default(), self.container.name.clone());
        launch.context.pid = launch.rootfs.as_ref().map(|_| child.pid());
        self.node.exec_contexts.insert(&uid, &name, launch.context.clone());
        let since = Timestamp::now();
        let has_startup = self.container.startup_probe.is_some();
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref());
        let asked_first = has_startup || hook.is_some() || self.container.readiness_probe.is_some();
        let id = format!("hangar://{}/{name}/{}", uid, child.pid());
        self.note(|record| {
            if !matches!(record.state, RunState::Waiting { .. }) || record.last.is_some() {
                record.restarts += 1;
            }
            record.container_id = Some(id);
            record.state = RunState::Running { since };
            (record.started, record.ready) = (!has_startup, !asked_first);
        });
        self.say("Started", &format!("Started container {name} as process {}", child.pid())).await;
        let mut changed = false;
        let (mut stop, mut over_memory, pid) = (self.stop.clone(), false, child.pid());
        let (status, stopped) = tokio::select! {
            status = child.wait() => (status.ok(), false),
            grace = wait_for_stop(&mut stop) => {
                self.say("Killing", &format!("Stopping container {name}")).await;
                let grace = self.pre_stop(&launch.context, grace).await;
                (child.end(grace).await, true)
            }
            () = self.until_changed() => {
                changed = true;
                self.say("Killing", &format!("Container {name} definition changed, will be restarted")).await;
                let grace = self.pre_stop(&launch.context, self.grace(None)).await;
                (child.end(grace).await, false)
            }
            () = exceeded(&launch, pid) => {
                let _ = child.end(Duration::ZERO).await;
                over_memory = true;
                (None, false)
            }
            grace = self.run_probes(&launch.context) => {
                let grace = self.pre_stop(&launch.context, grace).await;
                (child.end(grace).await, false)
            }
        };
        self.node.exec_contexts.remove(&uid, &name);
        let code = status.map_or(137, exit_code);
        over_memory |=
            code == 137 && launch.memory_group.as_ref().is_some_and(|memory_group| memory_group.was_oom_killed());
        let reason = if over_memory { "OOMKilled" } else { "Error" };
        self.ended(code, if code == 0 { "Completed" } else { reason }, since, &launch, changed);
        if let Some(rootfs) = launch.rootfs {
            tokio::task::spawn_blocking(move || rootfs.remove());
        }
        match (stopped, changed) {
            (true, _) => End::Stopped,
            (false, true) => End::Changed,
            (false, false) => End::Ended(code),
        }
    }

    /// The pod and the container as they are now.
    fn now(&self) -> Option<(Arc<Pod>, Container)> {
        let namespace = self.pod.namespace().unwrap_or_default();
        let now = self.node.watched.pods.get(&namespace, &self.pod.name_any());
        let now = now.filter(|now| now.uid() == self.pod.uid())?;
        let spec = now.spec.iter();
        let mut all = spec.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
        let container = all.find(|container| container.name == self.container.name)?.clone();
        Some((now, container))
    }

    /// Returns when the image is another one: nothing else of a container can be changed that matters to a process.
    async fn until_changed(&self) {
        self.until(|_, container| container.image != self.container.image).await;
    }

    /// Returns when the labels or annotations are others, of which variables and paths can be made.
    async fn until_described_otherwise(&self) {
        let described = |pod: &Pod| (pod.metadata.labels.clone(), pod.metadata.annotations.clone());
        let before = described(&self.pod);
        self.until(|pod, _| described(pod) != before).await;
    }

    /// Returns when the pod is as wanted, which it may be already.
    async fn until(&self, wanted: impl Fn(&Pod, &Container) -> bool) {
        let mut pods = self.node.watched.pods.changes();
        while !self.now().is_some_and(|(pod, container)| wanted(&pod, &container)) {
            if pods.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Images, labels and annotations may have been changed since.
    fn take_up_changes(&mut self) {
        let Some((now, container)) = self.now() else { return };
        self.container = container;
        let image = self.container.image.clone().unwrap_or_default();
        self.note(|record| record.image = image);
        self.pod = now;
    }

    /// One that is replaced at once counts as running meanwhile, as it does where a kubelet looks once a second.
    fn ended(&self, code: i32, reason: &str, since: Timestamp, launch: &Launch, replaced: bool) {
        let left = std::fs::read(&launch.termination_log).unwrap_or_default();
        let mut message = String::from_utf8_lossy(&left[..left.len().min(LONGEST_TERMINATION_MESSAGE)]).into_owned();
        let from_log = self.container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if message.is_empty() && code != 0 && from_log {
            message = super::container_logs::last_lines(&launch.run.log, 80);
        }
        self.note(|record| {
            let end = ContainerStateTerminated {
                exit_code: code,
                reason: Some(reason.to_owned()),
                message: Some(message).filter(|message| !message.is_empty()),
                started_at: Some(Time(since)),
                finished_at: Some(Time(Timestamp::now())),
                container_id: record.container_id.clone(),
                ..Default::default()
            };
            record.last = Some(end.clone());
            if !replaced {
                record.set_not_running(RunState::Ended(end));
            }
        });
    }

    async fn tell_program(&self, program: Option<&Program>) {
        let image = self.container.image.clone().unwrap_or_default();
        let own = program.filter(|program| !program.is_host_shell);
        let image_id = own.map_or_else(
            || "hangar://machine".into(),
            |p| format!("hangar://{}@{}", p.path.file_name().unwrap_or_default().to_string_lossy(), p.version),
        );
        let first = self.states.snapshot().get(self.index).is_some_and(|record| record.image_id != image_id);
        self.note(|record| record.image_id = image_id);
        let Some(program) = program.filter(|_| first) else { return };
        let note = format!("Image {image} is {} at {}", program.version, program.path.display());
        self.say("Pulled", &note).await;
        if let Some(wanted) = &program.substituted_for {
            let mut note = format!(
                "{image}: requested {wanted}, running {}: the requested version is not installed",
                program.version
            );
            if !program.dropped_flags.is_empty() {
                note.push_str(&format!("; unsupported flags were dropped: {}", program.dropped_flags.join(" ")));
            }
            self.warn("VersionSubstituted", &note).await;
        }
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut super::status::ContainerRecord)) {
        self.states.note(self.index, change);
    }

    pub(super) async fn say(&self, reason: &str, note: &str) {
        self.node.events.normal(&*self.pod, reason, note).await;
    }

    pub(super) async fn warn(&self, reason: &str, note: &str) {
        self.node.events.warning(&*self.pod, reason, note).await;
    }
}

/// Returns when the container holds more memory than it may, where the node itself has to look.
async fn exceeded(launch: &Launch, group: u32) {
    match &launch.memory_group {
        Some(memory_group) => memory_group.exceeded(group).await,
        None => std::future::pending().await,
    }
}

async fn start(launch: &Launch) -> std::io::Result<Child> {
    match launch.rootfs {
        Some(_) => Child::start_confirmed(&launch.run).await,
        None => Child::start(&launch.run).await,
    }
}

pub(super) async fn wait_for_stop(stop: &mut watch::Receiver<Option<Duration>>) -> Duration {
    match stop.wait_for(Option::is_some).await {
        Ok(grace) => grace.unwrap_or_default(),
        // Nobody is left who could say how long.
        Err(_) => Duration::ZERO,
    }
}
