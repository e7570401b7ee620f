//! Watching over a container that runs: its hooks and its probes.
//!
//! Holds: the first failure of each kind is told once, not once per question; a readiness probe never ends a container, the others do.

use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;

use super::container::ContainerRunner;
use super::exec_context::ExecContext;
use super::hooks;
use super::probe::{ProbeTimer, Target, ThresholdCounter};

impl ContainerRunner {
    fn target<'a>(&'a self, context: &'a ExecContext) -> Target<'a> {
        Target { container: &self.container, ip: self.ip, context, isolation: &self.node.isolation }
    }

    /// The hook before the end; returns what is left of the grace period.
    pub(super) async fn pre_stop(&self, context: &ExecContext, grace: Duration) -> Duration {
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
        let (left, trouble) = hooks::pre_stop(&self.target(context), hook, grace).await;
        if let Some(message) = trouble {
            self.warn("FailedPreStopHook", &format!("PreStopHook failed: {message}")).await;
        }
        left
    }

    /// Ends when the container has to be killed; says with which grace period.
    pub(super) async fn run_probes(&self, context: &ExecContext) -> Duration {
        let target = self.target(context);
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref());
        if let Some(hook) = hook
            && let Err(message) = hooks::carry_out(&target, hook).await
        {
            self.warn("FailedPostStartHook", &format!("PostStartHook failed: {message}")).await;
            return self.grace(None);
        }
        if let Some(probe) = &self.container.startup_probe {
            if !self.first_verdict(&target, probe, "Startup").await {
                self.killing("startup").await;
                return self.grace(Some(probe));
            }
            self.note(|record| record.started = true);
        }
        let readiness = async {
            match &self.container.readiness_probe {
                None => self.note(|record| record.ready = true),
                Some(probe) => {
                    self.probe_until(&target, probe, "Readiness", |passed| {
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
                Some(probe) => self.probe_until(&target, probe, "Liveness", |passed| passed).await,
            }
        };
        tokio::select! {
            () = readiness => {}
            () = liveness => {}
        }
        self.killing("liveness").await;
        self.grace(self.container.liveness_probe.as_ref())
    }

    async fn killing(&self, kind: &str) {
        let note = format!("Container {} failed {kind} probe, will be restarted", self.container.name);
        self.say("Killing", &note).await;
    }

    /// A probe may have a grace period of its own.
    pub(super) fn grace(&self, probe: Option<&Probe>) -> Duration {
        let of_pod = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let seconds = probe.and_then(|probe| probe.termination_grace_period_seconds).or(of_pod).unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    async fn first_verdict(&self, target: &Target<'_>, probe: &Probe, kind: &str) -> bool {
        let mut verdict = false;
        self.probe_until(target, probe, kind, |passed| {
            verdict = passed;
            false
        })
        .await;
        verdict
    }

    /// Asks until `go_on` says that it is enough.
    async fn probe_until(&self, target: &Target<'_>, probe: &Probe, kind: &str, mut go_on: impl FnMut(bool) -> bool) {
        let (mut counter, mut reported) = (ThresholdCounter::new(probe), String::new());
        let mut timer = ProbeTimer::new(probe, kind == "Startup");
        loop {
            let counts = timer.next().await;
            let answer = target.ask(probe).await;
            if answer.is_err() && !counts {
                continue;
            }
            let verdict = counter.record(answer.is_ok());
            match answer {
                Ok(()) => reported.clear(),
                // Once per kind of failure: a probe that fails for an hour is one event, not hundreds.
                Err(message) if message != reported => {
                    self.warn("Unhealthy", &format!("{kind} probe failed: {message}")).await;
                    reported = message;
                }
                Err(_) => {}
            }
            if verdict.is_some_and(|passed| !go_on(passed)) {
                return;
            }
        }
    }
}
