//! A plan is data: the steps to take now, or why there are none, and the status that follows.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::step::Step;

/// What a phase of a planner answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Phase {
    /// Nothing left to do here.
    Done,
    /// These steps, in this order, then ask again.
    Steps(Vec<Step>),
    /// Something else has to happen first; it is on its way.
    Wait(Reason),
    /// Something is wrong that a person, or the cloud, has to mend.
    Blocked(Reason),
}

impl Phase {
    pub fn wait(code: &'static str, message: impl Into<String>) -> Self {
        Self::Wait(Reason { code, message: message.into(), wake: Wake::Event })
    }

    pub fn wait_for(code: &'static str, message: impl Into<String>, time: Duration) -> Self {
        Self::Wait(Reason { code, message: message.into(), wake: Wake::After(time) })
    }

    pub fn blocked(code: &'static str, message: impl Into<String>) -> Self {
        Self::Blocked(Reason { code, message: message.into(), wake: Wake::Retry })
    }

    /// Done if there is nothing to do, else the steps.
    pub fn steps(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps: Vec<Step> = steps.into_iter().collect();
        if steps.is_empty() { Self::Done } else { Self::Steps(steps) }
    }
}

/// Why there is no step to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// A word for conditions, in CamelCase.
    pub code: &'static str,
    /// What a person reads; the cloud's own words where it spoke.
    pub message: String,
    pub wake: Wake,
}

/// What makes the planner look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// A watched object changes.
    Event,
    /// Time passes; the cloud does not call back.
    After(Duration),
    /// The queue tries again, ever less often.
    Retry,
}

/// Where the phases stopped.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    Done,
    Acting,
    Waiting(Reason),
    Blocked(Reason),
}

impl Progress {
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Waiting(reason) | Self::Blocked(reason) => Some(reason),
            Self::Done | Self::Acting => None,
        }
    }
}

/// What to do now, and what to report.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub progress: Progress,
    /// The whole status as it should stand; nothing if the object has none to report (it is about to vanish).
    pub status: Option<Value>,
}

/// Runs phases over one World until one of them is not done.
pub struct Phases<'a, World> {
    world: &'a World,
    now: Timestamp,
    stopped: Option<Phase>,
}

impl<'a, World> Phases<'a, World> {
    pub fn of(world: &'a World, now: Timestamp) -> Self {
        Self { world, now, stopped: None }
    }

    /// What an earlier step was refused for comes first: nothing else is tried in this pass.
    pub fn unless_refused(mut self, refusal: Option<&Reason>) -> Self {
        if self.stopped.is_none()
            && let Some(reason) = refusal
        {
            self.stopped = Some(Phase::Blocked(reason.clone()));
        }
        self
    }

    #[must_use]
    pub fn then(mut self, phase: fn(&World, Timestamp) -> Phase) -> Self {
        if self.stopped.is_none() {
            match phase(self.world, self.now) {
                Phase::Done => {}
                other => self.stopped = Some(other),
            }
        }
        self
    }

    pub fn report(self, status: fn(&World, &Progress, Timestamp) -> Option<Value>) -> Plan {
        let (steps, progress) = match self.stopped {
            None => (vec![], Progress::Done),
            Some(Phase::Done) => (vec![], Progress::Done),
            Some(Phase::Steps(steps)) => (steps, Progress::Acting),
            Some(Phase::Wait(reason)) => (vec![], Progress::Waiting(reason)),
            Some(Phase::Blocked(reason)) => (vec![], Progress::Blocked(reason)),
        };
        let status = status(self.world, &progress, self.now);
        Plan { steps, progress, status }
    }
}
