//! Watching over a container that runs: its hooks and its probes.
//!
//! Holds: the first failure of each kind is told once, not once per question; a readiness probe never ends a container, the others do.

use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;

use super::container::Job;
use super::hooks;
use super::places::Place;
use super::probe::{Tally, Target, Turns};

impl Job {
    fn target<'a>(&'a self, place: &'a Place) -> Target<'a> {
        Target { container: &self.container, ip: self.ip, place, sight: &self.node.sight }
    }

    /// The hook before the end; returns what is left of the grace period.
    pub(super) async fn before_end(&self, place: &Place, grace: Duration) -> Duration {
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
        let (left, trouble) = hooks::before_end(&self.target(place), hook, grace).await;
        if let Some(message) = trouble {
            self.warn("FailedPreStopHook", &format!("PreStopHook failed: {message}")).await;
        }
        left
    }

    /// Ends when the container has to be killed; says with which grace period.
    pub(super) async fn watch_over(&self, place: &Place) -> Duration {
        let target = self.target(place);
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref());
        if let Some(hook) = hook
            && let Err(message) = hooks::carry_out(&target, hook).await
        {
            self.warn("FailedPostStartHook", &format!("PostStartHook failed: {message}")).await;
            return self.grace(None);
        }
        if let Some(probe) = &self.container.startup_probe {
            if !self.until_verdict(&target, probe, "Startup").await {
                self.killing("startup").await;
                return self.grace(Some(probe));
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
        let mut turns = Turns::new(probe, kind == "Startup");
        loop {
            let counts = turns.next().await;
            let answer = target.ask(probe).await;
            if answer.is_err() && !counts {
                continue;
            }
            let verdict = tally.record(answer.is_ok());
            match answer {
                Ok(()) => said.clear(),
                // Once per kind of failure: a probe that fails for an hour is one event, not hundreds.
                Err(message) if message != said => {
                    self.warn("Unhealthy", &format!("{kind} probe failed: {message}")).await;
                    said = message;
                }
                Err(_) => {}
            }
            if verdict.is_some_and(|passed| !heard(passed)) {
                return;
            }
        }
    }
}
