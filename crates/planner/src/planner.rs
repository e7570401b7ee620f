//! The shape of every planner: a list of phases over one World.
//!
//! Flows: [`Planner::build`] or [`Planner::delete`] -> the first phase that is not done decides -> steps or a reason -> [`Planner::status`].
//! Holds: what all kinds share is here and in [`crate::report`]: our finalizer goes on with the first step and no earlier, so that what never did
//! anything can go without our help; it is taken off when the delete phases are done.

use std::time::Duration;

use hangar_api::{Kind, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::intent;
use crate::plan::{Phase, Plan, Progress, Reason};
use crate::report::{self, Report, Shared};
use crate::step::Step;
use crate::world::{Absorb, World};

/// What is decided for one kind.
pub trait Planner: Sized + Send + Sync + 'static {
    type Kind: Kind;
    /// What is not a Kubernetes object of the management cluster: cloud, tenant, data store, or `()`.
    type Facts: Absorb + Default + Send + Sync;

    const FINALIZER: Option<&'static str> = None;
    /// How the conditions that all kinds share are shown.
    const SHARED: Shared = Shared::Always;
    /// Types of the conditions that the planner writes, if others write conditions of their own into the same status; nothing: all are its own.
    const CONDITIONS: &'static [&'static str] = &[];
    /// Whether progress is reported as the condition Ready, unless the planner writes its own.
    const READY: bool = true;
    /// Whether the kind has a status at all.
    const REPORTS: bool = true;

    /// Whether it is for us to reconcile: an object of the kind that is another controller's is neither held nor spoken of.
    fn is_ours(_object: &Object) -> bool {
        true
    }

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self>;

    /// Everything that must be gone before the finalizer is.
    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases
    }

    /// Its own words only; what all kinds share is not written here.
    fn status(world: &World<Self>, progress: &Progress, report: &mut Report<Self::Kind>);

    /// What operators want to see of the object as numbers.
    fn gauges(_world: &World<Self>, _now: Timestamp) -> Vec<Gauge> {
        vec![]
    }

    /// Look again after this time although everything is done.
    fn recheck(_world: &World<Self>, _now: Timestamp) -> Option<Duration> {
        None
    }
}

/// A number about one object, for monitoring.
#[derive(Debug, Clone, PartialEq)]
pub struct Gauge {
    /// As Prometheus names metrics, with the unit at its end.
    pub name: &'static str,
    pub help: &'static str,
    pub value: f64,
}

/// A resource that several kinds have in the same way: made and taken away by phases of its own.
pub trait Part {
    fn build(&self, now: Timestamp) -> Phase;
    fn delete(&self, now: Timestamp) -> Phase;
}

/// Runs phases over one World until one of them is not done.
pub struct Phases<'a, P: Planner> {
    world: &'a World<P>,
    now: Timestamp,
    stopped: Option<Phase>,
}

impl<'a, P: Planner> Phases<'a, P> {
    pub fn of(world: &'a World<P>, now: Timestamp) -> Self {
        Self { world, now, stopped: None }
    }

    fn next(mut self, phase: impl FnOnce(&'a World<P>, Timestamp) -> Phase) -> Self {
        if self.stopped.is_none() {
            self.stopped = Some(phase(self.world, self.now)).filter(|phase| !phase.is_done());
        }
        self
    }

    #[must_use]
    pub fn then(self, phase: fn(&World<P>) -> Phase) -> Self {
        self.next(|world, _| phase(world))
    }

    /// A phase that depends on the time.
    #[must_use]
    pub fn then_at(self, phase: fn(&World<P>, Timestamp) -> Phase) -> Self {
        self.next(phase)
    }

    /// From here on the facts are needed.
    #[must_use]
    pub fn facts(self) -> Self {
        self.next(|world, _| match &world.facts_error {
            Some(reason) => Phase::Blocked(reason.clone()),
            None => Phase::Done,
        })
    }

    #[must_use]
    pub fn part<T: Part>(self, part: impl FnOnce(&'a World<P>) -> T) -> Self {
        self.next(|world, now| part(world).build(now))
    }

    #[must_use]
    pub fn part_gone<T: Part>(self, part: impl FnOnce(&'a World<P>) -> T) -> Self {
        self.next(|world, now| part(world).delete(now))
    }

    /// Where the phases stopped.
    pub fn finish(self) -> Phase {
        self.stopped.unwrap_or(Phase::Done)
    }
}

/// What to do for one object.
pub fn plan<P: Planner>(world: &World<P>, now: Timestamp) -> Plan {
    if world.object().is_deleting() {
        return match P::FINALIZER.filter(|finalizer| world.object().finalizers().contains(finalizer)) {
            Some(finalizer) => going(world, finalizer, now),
            // Nothing of ours holds it.
            None => Plan { steps: vec![], progress: Progress::Done, status: None, recheck: None, conditions: &[] },
        };
    }
    let phase = held(world, P::build(Phases::of(world, now)).finish());
    let recheck = P::recheck(world, now).filter(|_| phase.is_done());
    with_status(world, phase, recheck, now)
}

/// The plan after a step was refused: no further step, and the status says why.
pub fn refused<P: Planner>(world: &World<P>, reason: Reason, now: Timestamp) -> Plan {
    with_status(world, Phase::Blocked(reason), None, now)
}

fn going<P: Planner>(world: &World<P>, finalizer: &str, now: Timestamp) -> Plan {
    let release = || Phase::steps(intent::release(world.object(), finalizer));
    with_status(world, P::delete(Phases::of(world, now)).finish().then(release), None, now)
}

/// The finalizer comes before the first step; if that one writes to the own object, in the same request.
fn held<P: Planner>(world: &World<P>, phase: Phase) -> Phase {
    let object = world.object();
    let missing = P::FINALIZER.filter(|finalizer| !object.finalizers().contains(finalizer));
    let Some(finalizer) = missing else { return phase };
    let Phase::Steps(mut steps) = phase else { return phase };
    let all: Vec<&str> = object.finalizers().into_iter().chain([finalizer]).collect();
    if let Some(Step::Patch { uid, resource_version, fields, .. }) = steps.first_mut()
        && uid == object.uid()
    {
        fields["metadata"]["finalizers"] = json!(all);
        // Lists are whole: the version that was read guards those of others.
        *resource_version = Some(object.resource_version().to_owned());
        return Phase::Steps(steps);
    }
    Phase::steps(intent::adopt(object, Some(finalizer), None, &[]))
}

fn with_status<P: Planner>(world: &World<P>, phase: Phase, recheck: Option<Duration>, now: Timestamp) -> Plan {
    let (steps, progress) = match phase {
        Phase::Done => (vec![], Progress::Done),
        Phase::Steps(steps) => (steps, Progress::Acting),
        Phase::Wait(reason) => (vec![], Progress::Waiting(reason)),
        Phase::Blocked(reason) => (vec![], Progress::Blocked(reason)),
    };
    // Between steps nobody reports.
    let status = (steps.is_empty() && P::REPORTS).then(|| report::status::<P>(world, &progress, now));
    // Of a kind without conditions there may be nothing to say.
    let is_silent =
        |status: &Value| P::SHARED == Shared::Never && *status == json!({}) && world.object().get("/status").is_null();
    let status = status.filter(|status| !is_silent(status));
    Plan { steps, progress, status, recheck, conditions: P::CONDITIONS }
}

#[cfg(test)]
mod tests;
