//! The status of an object: what its planner says, and what all kinds say alike.
//!
//! Flows: [`Planner::status`] -> typed status and conditions -> observedGeneration, Ready, Paused, Deleting -> one JSON value. Holds: a
//! transition time moves only with its status; what is reported apart from a plan (paused, unreadable, failed inside) changes one condition
//! and leaves the rest of the status as it is.

use hangar_api::conditions::{Condition, Status, settle};
use hangar_api::{Kind, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::plan::Progress;
use crate::planner::Planner;
use crate::world::World;

pub const READY: &str = "Ready";
pub const PAUSED: &str = "Paused";
pub const DELETING: &str = "Deleting";

/// How Paused and Deleting are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// True or false, as Cluster API's own kinds have them.
    Always,
    /// Only while they are true: readers of the older contract take a false condition for a fault.
    WhenTrue,
    /// Not at all: the kind has no conditions.
    Never,
}

/// What a planner says of its object.
pub struct Report<K: Kind> {
    pub status: K::Status,
    pub conditions: Vec<Condition>,
    /// When it says so.
    pub now: Timestamp,
}

impl<K: Kind> Report<K> {
    fn at(now: Timestamp) -> Self {
        Self { status: K::Status::default(), conditions: vec![], now }
    }

    pub fn condition(&mut self, condition: Condition) {
        self.conditions.push(condition);
    }

    /// A condition that is good when it is true, and has nothing to add.
    pub fn flag(&mut self, kind: &str, good: bool, otherwise: &str) {
        self.condition(Condition::new(kind, good.into(), if good { kind } else { otherwise }, ""));
    }
}

/// The whole status.
pub fn status<P: Planner>(world: &World<P>, progress: &Progress, now: Timestamp) -> Value {
    let object = world.object();
    let mut report = Report::<P::Kind>::at(now);
    P::status(world, progress, &mut report);
    let mut conditions = report.conditions;
    if P::READY && !conditions.iter().any(|condition| condition.kind == READY) {
        conditions.insert(0, ready(object, progress));
    }
    conditions.extend(shared(object, progress, P::SHARED));
    let mut status = serde_json::to_value(report.status).unwrap_or_default();
    if !status.is_object() {
        status = json!({});
    }
    if P::Kind::OBSERVES_GENERATION {
        status["observedGeneration"] = object.generation().into();
    }
    if P::SHARED != Shared::Never {
        status["conditions"] = listed::<P::Kind>(settle(conditions, &present(object), now));
    }
    status
}

/// Progress as a condition.
pub fn ready(object: &Object, progress: &Progress) -> Condition {
    match progress {
        _ if object.is_deleting() => {
            let message = if progress.message().is_empty() { "it is being deleted" } else { progress.message() };
            Condition::new(READY, Status::False, DELETING, message)
        }
        Progress::Done => Condition::new(READY, Status::True, READY, ""),
        Progress::Acting => Condition::new(READY, Status::False, "Reconciling", "changes are being made"),
        Progress::Waiting(reason) | Progress::Blocked(reason) => {
            Condition::new(READY, Status::False, reason.code, reason.message.clone())
        }
    }
}

fn shared(object: &Object, progress: &Progress, style: Shared) -> Vec<Condition> {
    let deleting = object.is_deleting();
    if style == Shared::Never || (style == Shared::WhenTrue && !deleting) {
        return vec![];
    }
    let reason = if deleting { progress.reason().map_or(DELETING, |reason| reason.code) } else { "NotDeleting" };
    let message = if deleting { progress.message() } else { "" };
    let mut conditions = vec![Condition::new(DELETING, deleting.into(), reason, message)];
    if style == Shared::Always {
        conditions.push(Condition::new(PAUSED, Status::False, "NotPaused", ""));
    }
    conditions
}

/// The status as it is, with one condition changed.
pub fn amended<K: Kind>(object: &Object, condition: Condition, now: Timestamp) -> Value {
    let mut status = object.get("/status").clone();
    if !status.is_object() {
        status = json!({});
    }
    let before = present(object);
    let mut wanted: Vec<Condition> = before.clone();
    match wanted.iter_mut().find(|other| other.kind == condition.kind) {
        Some(other) => *other = condition,
        None => wanted.push(condition),
    }
    status["conditions"] = listed::<K>(settle(wanted, &before, now));
    status
}

/// The conditions that an object has, in whichever form.
pub fn present(object: &Object) -> Vec<Condition> {
    let list = object.get("/status/conditions").as_array().into_iter().flatten();
    list.filter_map(Condition::read).collect()
}

fn listed<K: Kind>(conditions: Vec<Condition>) -> Value {
    let mut list = json!(conditions);
    if !K::EMPTY_MESSAGES {
        for condition in list.as_array_mut().into_iter().flatten() {
            if condition["message"] == ""
                && let Some(fields) = condition.as_object_mut()
            {
                fields.remove("message");
            }
        }
    }
    list
}

#[cfg(test)]
mod tests;
