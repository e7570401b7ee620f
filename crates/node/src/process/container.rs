//! One container: image to program, variables and paths to a command, then run, watched by probes, and started again.
//!
//! Holds: a container is stopped only through `stop`, which carries the grace period, or by a liveness or startup probe; whatever
//! keeps it from starting is said in its waiting state and tried again.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, Pod, Probe};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use tokio::sync::watch;

use super::child::{Child, Run, exit_code};
use super::environment::environment;
use super::expand::expand;
use super::log::Kept;
use super::mounts::Mounts;
use super::places::Place;
use super::pod::Board;
use super::probe::{Tally, Target, initial_delay, period};
use super::program::{Chosen, choose};
use super::pull::NoProgram;
use super::restart::{Backoff, restarts};
use super::status::Stand;
use super::{Node, Program, files, hooks};

/// Everything one container is made of.
pub(super) struct Job {
    pub node: Arc<Node>,
    pub pod: Arc<Pod>,
    pub container: Container,
    /// Its place on the board.
    pub index: usize,
    pub board: Arc<Board>,
    pub ip: Ipv4Addr,
    /// The pod's directory.
    pub directory: PathBuf,
    pub volumes: Arc<BTreeMap<String, PathBuf>>,
    pub stop: watch::Receiver<Option<Duration>>,
}

enum End {
    Stopped,
    Ended(i32),
    NotStarted { reason: &'static str, message: String },
}

struct Command {
    run: Run,
    place: Place,
    program: Option<Program>,
}

impl Job {
    /// Runs until stopped (None) or until the policy says that it is over (the exit code).
    pub async fn run(mut self, policy: &str) -> Option<i32> {
        let (mut backoff, mut said) = (Backoff::default(), String::new());
        loop {
            let started = Instant::now();
            let waiting = match self.once().await {
                End::Stopped => return None,
                End::Ended(code) if !restarts(policy, code) => return Some(code),
                End::Ended(_) => ("CrashLoopBackOff", "back-off restarting failed container".to_owned()),
                End::NotStarted { reason, message } => {
                    if said != message {
                        self.node.events.warning(&*self.pod, "Failed", &message).await;
                        said.clone_from(&message);
                    }
                    (reason, message)
                }
            };
            let pause = backoff.after(started.elapsed());
            let waiting_for_source = waiting.0 == "CreateContainerConfigError";
            if pause >= Duration::from_secs(1) {
                if waiting.0 == "CrashLoopBackOff" {
                    let note = format!("restarting container {} in {} s", self.container.name, pause.as_secs());
                    self.node.events.warning(&*self.pod, "BackOff", &note).await;
                }
                let reason = if waiting.0 == "ErrImagePull" { "ImagePullBackOff" } else { waiting.0 };
                self.note(|record| record.stand = Stand::Waiting { reason: reason.into(), message: Some(waiting.1) });
            }
            let (mut secrets, mut maps) = (self.node.watched.secrets.bell(), self.node.watched.config_maps.bell());
            let mut stop = self.stop.clone();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = secrets.changed(), if waiting_for_source => {}
                _ = maps.changed(), if waiting_for_source => {}
                _ = stop.wait_for(Option::is_some) => return None,
            }
        }
    }

    async fn once(&mut self) -> End {
        match self.pull().await {
            Ok(()) => {}
            Err(NoProgram::Stopped) => return End::Stopped,
            Err(NoProgram::Failed(message)) => return End::NotStarted { reason: "ErrImagePull", message },
        }
        let command = match self.command().await {
            Ok(command) => command,
            Err((reason, message)) => return End::NotStarted { reason, message },
        };
        self.tell_program(command.program.as_ref()).await;
        let mut child = match Child::start(&command.run).await {
            Ok(child) => child,
            Err(error) => {
                let message = format!("{}: {error}", command.run.program.display());
                return End::NotStarted { reason: "RunContainerError", message };
            }
        };
        let (uid, name) = (self.pod.uid().unwrap_or_default(), self.container.name.clone());
        self.node.places.enter(&uid, &name, command.place.clone());
        let since = Timestamp::now();
        let has_startup = self.container.startup_probe.is_some();
        self.note(|record| {
            if !matches!(record.stand, Stand::Waiting { .. }) || record.last.is_some() {
                record.restarts += 1;
            }
            record.stand = Stand::Running { since };
            record.started = !has_startup;
        });
        let note = format!("Started container {} as process {}", self.container.name, child.pid());
        self.node.events.normal(&*self.pod, "Started", &note).await;
        let mut stop = self.stop.clone();
        let (status, stopped) = tokio::select! {
            status = child.wait() => (status.ok(), false),
            grace = wait_for_stop(&mut stop) => {
                let grace = self.before_end(&command, grace).await;
                (child.end(grace).await, true)
            }
            () = self.probe(&command) => {
                let grace = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
                let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
                let grace = self.before_end(&command, grace).await;
                (child.end(grace).await, false)
            }
        };
        self.node.places.leave(&uid, &name);
        let code = status.map_or(137, exit_code);
        self.ended(code, since, &command.run.log);
        if stopped { End::Stopped } else { End::Ended(code) }
    }

    fn ended(&self, code: i32, since: Timestamp, log: &Path) {
        let from_log = self.container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        let message = (code != 0 && from_log).then(|| super::container_logs::last_words(log, 10));
        let end = ContainerStateTerminated {
            exit_code: code,
            reason: Some(if code == 0 { "Completed" } else { "Error" }.to_owned()),
            message,
            started_at: Some(Time(since)),
            finished_at: Some(Time(Timestamp::now())),
            ..Default::default()
        };
        self.note(|record| {
            record.stand = Stand::Ended(end.clone());
            record.last = Some(end);
            (record.started, record.ready) = (false, false);
        });
    }

    async fn command(&self) -> Result<Command, (&'static str, String)> {
        let config = |message: String| ("CreateContainerConfigError", message);
        let env = environment(&self.node, &self.pod, &self.container, self.ip).map_err(|e| config(e.to_string()))?;
        let mounts = self.mounts();
        let word = |word: &String| mounts.rewrite(&expand(word, &env));
        let command: Vec<String> = self.container.command.iter().flatten().map(word).collect();
        let args: Vec<String> = self.container.args.iter().flatten().map(word).collect();
        let (path, args, program) = self.program(command, args).await.map_err(|message| ("ErrImagePull", message))?;
        let own = self.directory.join(&self.container.name);
        files::private_directory(&own).map_err(|error| config(error.to_string()))?;
        let restarts = self.board.snapshot().get(self.index).map_or(0, |record| record.restarts);
        let working = self.container.working_dir.as_deref().map(|path| mounts.real(path)).filter(|path| path.is_dir());
        let env = env.into_iter().map(|(name, value)| (name, mounts.rewrite(&value))).collect();
        let log = own.join(next_log(&own, restarts));
        let directory = working.unwrap_or(own);
        let hosts = self.node.names.of(&self.node, &self.pod).map_err(|error| config(error.to_string()))?;
        let (path, args) = self.node.sight.through(&hosts, path, args);
        let home = self.node.options.home.clone();
        let place = Place { env, mounts, directory, hosts, home: home.clone() };
        let run = Run {
            program: path,
            args,
            env: place.env.clone(),
            directory: place.directory.clone(),
            log,
            kept: Kept::Stamped,
            home,
        };
        Ok(Command { run, place, program })
    }

    /// The image's program, unless the command names one of the machine's.
    async fn program(&self, command: Vec<String>, args: Vec<String>) -> Result<Chosen, String> {
        let image = self.container.image.clone().unwrap_or_default();
        let images = self.node.images.clone();
        // Asks programs for their version and their flags, which takes a moment.
        let work = tokio::task::spawn_blocking(move || choose(&*images, &image, command, args));
        work.await.map_err(|error| error.to_string())?
    }

    async fn tell_program(&self, program: Option<&Program>) {
        let image = self.container.image.clone().unwrap_or_default();
        let image_id = program.map_or_else(
            || "hangar://machine".into(),
            |p| format!("hangar://{}@{}", p.path.file_name().unwrap_or_default().to_string_lossy(), p.version),
        );
        let first = self.board.snapshot().get(self.index).is_some_and(|record| record.image_id != image_id);
        self.note(|record| record.image_id = image_id);
        let Some(program) = program.filter(|_| first) else { return };
        let note = format!("Image {image} is {} at {}", program.version, program.path.display());
        self.node.events.normal(&*self.pod, "Pulled", &note).await;
        if let Some(wanted) = &program.substituted_for {
            let mut note = format!("{image}: {} runs instead of {wanted}, which is not at hand", program.version);
            if !program.dropped_flags.is_empty() {
                note.push_str(&format!("; flags it does not know were dropped: {}", program.dropped_flags.join(" ")));
            }
            self.node.events.warning(&*self.pod, "VersionSubstituted", &note).await;
        }
    }

    fn mounts(&self) -> Mounts {
        Mounts::new(self.container.volume_mounts.iter().flatten().filter_map(|mount| {
            let mut real = self.volumes.get(&mount.name)?.clone();
            if let Some(sub_path) = mount.sub_path.as_deref().filter(|path| !path.is_empty()) {
                real.push(sub_path);
            }
            Some((mount.mount_path.clone(), real))
        }))
    }

    fn target<'a>(&'a self, command: &'a Command) -> Target<'a> {
        Target { container: &self.container, ip: self.ip, place: &command.place, sight: &self.node.sight }
    }

    /// The hook before the end; returns what is left of the grace period.
    async fn before_end(&self, command: &Command, grace: Duration) -> Duration {
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
        let (left, trouble) = hooks::before_end(&self.target(command), hook, grace).await;
        if let Some(message) = trouble {
            self.node.events.warning(&*self.pod, "FailedPreStopHook", &format!("PreStopHook failed: {message}")).await;
        }
        left
    }

    /// Ends when the container has to be killed.
    async fn probe(&self, command: &Command) {
        let target = self.target(command);
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref());
        if let Some(hook) = hook
            && let Err(message) = hooks::carry_out(&target, hook).await
        {
            let note = format!("PostStartHook failed: {message}");
            return self.node.events.warning(&*self.pod, "FailedPostStartHook", &note).await;
        }
        if let Some(probe) = &self.container.startup_probe {
            if !self.until_verdict(&target, probe, "Startup").await {
                return;
            }
            self.note(|record| record.started = true);
        }
        let readiness = async {
            match &self.container.readiness_probe {
                None => self.note(|record| record.ready = true),
                Some(probe) => {
                    self.keep_asking(&target, probe, "Readiness", |passed| {
                        self.note(|record| record.ready = passed);
                        true
                    })
                    .await
                }
            }
            std::future::pending::<()>().await;
        };
        let liveness = async {
            match &self.container.liveness_probe {
                None => std::future::pending().await,
                Some(probe) => self.keep_asking(&target, probe, "Liveness", |passed| passed).await,
            }
        };
        tokio::select! {
            () = readiness => {}
            () = liveness => {}
        }
        let note = format!("Container {} failed liveness probe, will be restarted", self.container.name);
        self.node.events.normal(&*self.pod, "Killing", &note).await;
    }

    async fn until_verdict(&self, target: &Target<'_>, probe: &Probe, kind: &str) -> bool {
        let mut verdict = false;
        self.keep_asking(target, probe, kind, |passed| {
            verdict = passed;
            false
        })
        .await;
        verdict
    }

    /// Asks until `heard` says that it is enough.
    async fn keep_asking(&self, target: &Target<'_>, probe: &Probe, kind: &str, mut heard: impl FnMut(bool) -> bool) {
        let (mut tally, mut said) = (Tally::new(probe), String::new());
        tokio::time::sleep(initial_delay(probe)).await;
        loop {
            let answer = target.ask(probe).await;
            if let Some(passed) = tally.record(answer.is_ok())
                && !heard(passed)
            {
                return;
            }
            match answer {
                Ok(()) => said.clear(),
                // Once per kind of failure: a probe that fails for an hour is one event, not hundreds.
                Err(message) if message != said => {
                    self.node.events.warning(&*self.pod, "Unhealthy", &format!("{kind} probe failed: {message}")).await;
                    said = message;
                }
                Err(_) => {}
            }
            tokio::time::sleep(period(probe)).await;
        }
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut super::status::ContainerRecord)) {
        self.board.note(self.index, change);
    }
}

async fn wait_for_stop(stop: &mut watch::Receiver<Option<Duration>>) -> Duration {
    match stop.wait_for(Option::is_some).await {
        Ok(grace) => grace.unwrap_or_default(),
        // Nobody is left who could say how long.
        Err(_) => Duration::ZERO,
    }
}

/// Each run has a log of its own; the one before is kept for `logs --previous`, older ones go.
fn next_log(directory: &Path, restarts: i32) -> String {
    let numbers = directory.read_dir().into_iter().flatten().flatten();
    let mut numbers: Vec<i32> =
        numbers.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok()).collect();
    numbers.sort_unstable();
    let next = numbers.last().map_or(restarts, |last| (last + 1).max(restarts));
    for old in numbers.iter().rev().skip(1) {
        let path = directory.join(format!("{old}.log"));
        let _ = std::fs::remove_file(super::log::older(&path));
        let _ = std::fs::remove_file(path);
    }
    format!("{next}.log")
}
