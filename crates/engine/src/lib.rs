//! The loop: one watch per kind, a shared cache, an ordered queue, and the pass that every controller makes.
//!
//! Flows: API server -> watch -> [`cache`] -> who reads it ([`reads`]) -> [`queue`] -> [`pass`]: observe, plan, act, report. Holds: a controller reads from the
//! cache, which has seen our own writes; a key is worked on by one worker at a time; nothing is written when nothing changed.

pub mod cache;
mod changes;
pub mod events;
pub mod leader;
pub mod management;
pub mod metrics;
pub mod monitoring;
pub mod notices;
pub mod pass;
pub mod providers;
pub mod queue;
pub mod reads;
pub mod received;
pub mod report;
pub mod runtime;
pub mod tenants;
pub mod webhook;

use std::sync::Arc;

use jiff::Timestamp;

/// The time of day, from outside, so that a simulation can have its own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The machine's own clock.
pub fn system_clock() -> Clock {
    Arc::new(Timestamp::now)
}
