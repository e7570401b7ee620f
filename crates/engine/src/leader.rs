//! Which of several processes acts: the one that holds a Lease, as Kubernetes' own controllers do it.
//!
//! Flows: the Lease as it is now -> [`next_move`] -> take it, renew it or wait; [`lead`] runs the work only while the Lease is held. Holds: times that others wrote
//! are never compared with our clock: a Lease has expired if we have not seen it change for as long as it lasts. Whoever cannot renew stops before anybody
//! else may begin, because `renew_within` is shorter than `duration`; whoever is told to stop ends its work first and gives the Lease back afterwards.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Clock;
use crate::metrics::Metrics;
use crate::runtime::Ended;

/// How long a Lease lasts and how it is kept; the defaults are those of Kubernetes' controllers.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Nobody else takes a Lease that was renewed within this time.
    pub duration: Duration,
    /// Whoever could not renew for this long stops.
    pub renew_within: Duration,
    /// Between two attempts to take or to renew it.
    pub retry: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { duration: seconds(15), renew_within: seconds(10), retry: seconds(2) }
    }
}

impl Terms {
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), String> {
        if self.renew_within >= self.duration {
            return Err("the renew deadline must be shorter than the lease duration: two would act at once".to_owned());
        }
        if self.retry >= self.renew_within || self.retry.is_zero() {
            return Err("the retry period must be shorter than the renew deadline, and not 0".to_owned());
        }
        if self.duration.as_secs() > 3600 || self.duration.subsec_nanos() != 0 {
            return Err("the lease duration must be whole seconds, an hour at most".to_owned());
        }
        Ok(())
    }
}

/// Somebody who would lead.
#[derive(Clone)]
pub struct Candidate {
    pub client: Client,
    pub namespace: String,
    pub name: String,
    /// Never the same for two processes.
    pub identity: String,
    pub terms: Terms,
    pub clock: Clock,
    pub metrics: Option<Metrics>,
}

/// Somebody else may lead by now; whatever this process has in memory is of no use any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lost the Lease {lease}: {why}; stopped acting")]
pub struct Lost {
    pub lease: String,
    pub why: String,
}

/// Waits until it leads, runs the work, and gives the Lease back when the work has ended. Returns early only if the Lease is lost.
pub async fn lead<W: Future<Output = Ended>>(
    candidate: Candidate,
    shutdown: &CancellationToken,
    work: impl FnOnce(CancellationToken) -> W,
) -> Result<Ended, Lost> {
    let taken = tokio::select! {
        () = shutdown.cancelled() => return Ok(Ended::Stopped),
        taken = candidate.take() => taken,
    };
    let mut held = taken;
    tracing::info!(lease = %candidate.path(), identity = %candidate.identity, "this process leads");
    candidate.show(true);
    let term = CancellationToken::new();
    let ended = {
        let work = work(term.clone());
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                ended = &mut work => break Ok(ended),
                lost = candidate.keep(&mut held) => break Err(lost),
                () = shutdown.cancelled(), if !term.is_cancelled() => term.cancel(),
            }
        }
        // Here the work is dropped: what was under way is cut off before anybody else may begin.
    };
    candidate.show(false);
    if let Err(lost) = &ended {
        tracing::error!("{lost}");
    }
    if ended == Ok(Ended::Stopped) {
        candidate.give_back(&held).await;
    }
    ended
}

/// A Lease of ours.
#[derive(Debug, Clone)]
struct Held {
    version: String,
    /// When the request was sent that renewed it last.
    renewed: Instant,
    /// A request of ours was not answered: the version that we know may be old.
    uncertain: bool,
}

/// A Lease of somebody else's, and since when it has not changed.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    holder: Option<String>,
    renewed: Option<MicroTime>,
    since: Instant,
}

#[derive(Debug, Clone, PartialEq)]
enum Move {
    Create,
    /// It is free: nobody holds it, or its holder was silent for too long.
    Take,
    Wait(Duration),
}

/// What to do about a Lease that we do not hold.
fn next_move(lease: Option<&LeaseSpec>, seen: &Seen, now: Instant, terms: &Terms) -> Move {
    let Some(lease) = lease else { return Move::Create };
    if lease.holder_identity.as_deref().is_none_or(str::is_empty) {
        return Move::Take;
    }
    // As long as its holder said; a nonsense number must not give it away at once.
    let lasts = match lease.lease_duration_seconds {
        Some(seconds @ 1..) => Duration::from_secs(seconds.unsigned_abs().into()),
        _ => terms.duration,
    };
    let left = (seen.since + lasts).saturating_duration_since(now);
    if left.is_zero() { Move::Take } else { Move::Wait(left.min(terms.retry)) }
}

impl Candidate {
    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn show(&self, leads: bool) {
        if let Some(metrics) = &self.metrics {
            metrics.leads(&self.name, leads);
        }
    }

    async fn take(&self) -> Held {
        let mut seen: Option<Seen> = None;
        loop {
            let pause = match self.try_to_take(&mut seen).await {
                Ok(Ok(held)) => return held,
                Ok(Err(pause)) => pause,
                Err(error) => {
                    tracing::warn!(lease = %self.path(), error = %crate::runtime::chain(&error), "the Lease could not be read or written");
                    self.terms.retry
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// The Lease, or how long to wait before the next look.
    async fn try_to_take(&self, seen: &mut Option<Seen>) -> Result<Result<Held, Duration>, kube::Error> {
        let there = self.in_time(self.terms.renew_within, self.api().get_opt(&self.name)).await?;
        let spec = there.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
        let now = Instant::now();
        let (holder, renewed) = spec.clone().map_or((None, None), |spec| (spec.holder_identity, spec.renew_time));
        if seen.as_ref().is_none_or(|seen| (&seen.holder, &seen.renewed) != (&holder, &renewed)) {
            *seen = Some(Seen { holder: holder.clone(), renewed: renewed.clone(), since: now });
        }
        let version = there.and_then(|lease| lease.metadata.resource_version).unwrap_or_default();
        // If an answer of ours was lost on its way, others count from what they saw then: it is renewed before it counts for us.
        let is_ours = holder.as_deref() == Some(&self.identity);
        let seen = seen.clone().unwrap_or(Seen { holder, renewed, since: now });
        let transitions = spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
        let claim = match next_move(spec.as_ref(), &seen, now, &self.terms) {
            Move::Wait(_) if is_ours => Some(self.claim(transitions)),
            Move::Wait(pause) => return Ok(Err(pause)),
            Move::Take => Some(self.claim(transitions.saturating_add(1))),
            Move::Create => None,
        };
        let answer = match claim {
            Some(claim) => self.in_time(self.terms.renew_within, self.write(&version, json!(claim))).await,
            None => self.in_time(self.terms.renew_within, self.create()).await,
        };
        match answer {
            Ok(lease) => Ok(Ok(Held {
                version: lease.metadata.resource_version.unwrap_or_default(),
                renewed: now,
                uncertain: false,
            })),
            // Somebody was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Err(self.terms.retry)),
            Err(error) => Err(error),
        }
    }

    /// Renews it again and again; returns when it is lost.
    async fn keep(&self, held: &mut Held) -> Lost {
        let lost = |why: String| Lost { lease: self.path(), why };
        loop {
            let next = held.renewed + self.terms.retry;
            let end = held.renewed + self.terms.renew_within;
            // After a failure the time for the next renewal is over already.
            let soon = Instant::now() + if held.uncertain { self.terms.retry } else { Duration::ZERO };
            tokio::time::sleep_until(next.max(soon).min(end)).await;
            let began = Instant::now();
            if began >= end {
                return lost(format!("it could not be renewed within {} s", self.terms.renew_within.as_secs()));
            }
            match self.renew(held, end - began).await {
                Ok(Some(version)) => *held = Held { version, renewed: began, uncertain: false },
                Ok(None) => return lost("it was taken or deleted".to_owned()),
                Err(error) => {
                    tracing::warn!(lease = %self.path(), error = %crate::runtime::chain(&error), "the Lease could not be renewed");
                    held.uncertain = true;
                }
            }
        }
    }

    /// The new version, or nothing if it is ours no more.
    async fn renew(&self, held: &mut Held, time: Duration) -> Result<Option<String>, kube::Error> {
        let fields = json!({ "renewTime": MicroTime((self.clock)()) });
        if !held.uncertain {
            match self.in_time(time, self.write(&held.version, fields.clone())).await {
                // Taken, deleted, or somebody put a label on it: a look says which.
                Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
                written => return written.map(|lease| Some(lease.metadata.resource_version.unwrap_or_default())),
            }
        }
        let there = self.in_time(time, self.api().get_opt(&self.name)).await?;
        let ours = there.filter(|lease| {
            lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(&self.identity)
        });
        let Some(ours) = ours else { return Ok(None) };
        let version = ours.metadata.resource_version.unwrap_or_default();
        let lease = self.in_time(time, self.write(&version, fields)).await?;
        Ok(Some(lease.metadata.resource_version.unwrap_or_default()))
    }

    async fn give_back(&self, held: &Held) {
        let fields = json!({ "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": MicroTime((self.clock)()) });
        let answer = self.in_time(self.terms.retry, self.write(&held.version, fields)).await;
        match answer {
            Ok(_) => tracing::info!(lease = %self.path(), "gave the Lease back"),
            Err(error) => tracing::info!(
                lease = %self.path(), error = %crate::runtime::chain(&error),
                "could not give the Lease back: the next leader waits until it ends"
            ),
        }
    }

    async fn create(&self) -> Result<Lease, kube::Error> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": self.name, "namespace": self.namespace }, "spec": self.claim(0),
        });
        let lease: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
        self.api().create(&PostParams::default(), &lease).await
    }

    fn claim(&self, transitions: i32) -> LeaseSpec {
        let now = MicroTime((self.clock)());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.terms.duration.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    /// Only if it is still as it was read.
    async fn write(&self, version: &str, spec: serde_json::Value) -> Result<Lease, kube::Error> {
        let body = json!({ "metadata": { "resourceVersion": version }, "spec": spec });
        self.api().patch(&self.name, &PatchParams::default(), &Patch::Merge(&body)).await
    }

    async fn in_time<T>(
        &self,
        time: Duration,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, kube::Error> {
        let late = |_| kube::Error::Service(format!("no answer within {} ms", time.as_millis()).into());
        tokio::time::timeout(time, call).await.map_err(late)?
    }
}

#[cfg(test)]
mod tests;
