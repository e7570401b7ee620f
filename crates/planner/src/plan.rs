//! A plan is data: the steps to take now, or why there are none, and the status that follows.

use std::time::Duration;

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
        Self::Blocked(Reason::retry(code, message))
    }

    /// Done if there is nothing to do, else the steps.
    pub fn steps(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps: Vec<Step> = steps.into_iter().collect();
        if steps.is_empty() { Self::Done } else { Self::Steps(steps) }
    }

    /// The same for a step that may not be possible.
    pub fn attempt(steps: Result<Vec<Step>, Reason>) -> Self {
        steps.map_or_else(Self::Blocked, Self::steps)
    }

    pub fn is_done(&self) -> bool {
        *self == Self::Done
    }

    /// The next phase counts only if this one is done.
    #[must_use]
    pub fn then(self, next: impl FnOnce() -> Self) -> Self {
        if self.is_done() { next() } else { self }
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

impl Reason {
    /// Tried again, ever less often.
    pub fn retry(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), wake: Wake::Retry }
    }
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

    pub fn message(&self) -> &str {
        self.reason().map_or("", |reason| &reason.message)
    }

    pub fn is_done(&self) -> bool {
        *self == Self::Done
    }
}

/// What to do now, and what to report.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub progress: Progress,
    /// The whole status as it should be; nothing if there is nobody left to report on.
    pub status: Option<Value>,
    /// Look again after this time although everything is done: clouds do not call back.
    pub recheck: Option<Duration>,
    /// Types of the conditions in it that may be compared with those that stand there; nothing: all of them.
    pub conditions: &'static [&'static str],
}

impl Plan {
    /// Whether conditions of others are in a status that stands: they are nobody's to write but theirs.
    pub fn is_shared(&self, stands: &Value) -> bool {
        let mut all = stands["conditions"].as_array().into_iter().flatten();
        !self.conditions.is_empty() && all.any(|condition| !self.is_own(condition))
    }

    /// A status that stands, without what others said in it.
    pub fn own_part(&self, mut stands: Value) -> Value {
        if let Some(conditions) = stands["conditions"].as_array_mut() {
            conditions.retain(|condition| self.is_own(condition));
        }
        stands
    }

    fn is_own(&self, condition: &Value) -> bool {
        condition["type"].as_str().is_some_and(|kind| self.conditions.contains(&kind))
    }
}
