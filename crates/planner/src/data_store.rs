//! DataStore: where control planes keep their data, shared by many.
//! Flows: who uses it -> status. Holds: a store in use is not let go.

use hangar_api::Object;
use hangar_api::conditions::{Condition, Status, settle};
use hangar_api::kinds::DataStore;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::intent;
use crate::{Phase, Phases, Plan, Progress, Reason};

pub const FINALIZER: &str = "finalizer.kamaji.clastix.io/datastore";

#[derive(Debug, Clone)]
pub struct World {
    pub object: Object,
    pub store: DataStore,
    /// `namespace/name` of the control planes that use it, sorted.
    pub used_by: Vec<String>,
    /// Whether the Secrets that it names are all there.
    pub missing_secret: Option<String>,
    pub refusal: Option<Reason>,
}

pub fn plan(world: &World, now: Timestamp) -> Plan {
    Phases::of(world, now).unless_refused(world.refusal.as_ref()).then(finalizer).then(secrets).report(status)
}

fn finalizer(world: &World, _now: Timestamp) -> Phase {
    if !world.object.is_deleting() {
        return Phase::steps(intent::adopt(&world.object, Some(FINALIZER), None, &[]));
    }
    if world.used_by.is_empty() {
        return Phase::steps(intent::release(&world.object, FINALIZER));
    }
    Phase::wait("InUse", format!("still used by {}", world.used_by.join(", ")))
}

fn secrets(world: &World, _now: Timestamp) -> Phase {
    match &world.missing_secret {
        Some(name) => Phase::wait("WaitingForSecret", format!("there is no Secret {name} yet")),
        None => Phase::Done,
    }
}

fn status(world: &World, progress: &Progress, now: Timestamp) -> Option<Value> {
    if world.object.is_deleting() && world.used_by.is_empty() {
        return None;
    }
    let ready = world.missing_secret.is_none() && !matches!(progress, Progress::Blocked(_));
    let message = progress.reason().map_or(String::new(), |reason| reason.message.clone());
    let wanted = vec![Condition {
        observed_generation: Some(world.object.generation()),
        ..Condition::new("DataStoreValidation", Status::from(ready), if ready { "Valid" } else { "NotValid" }, message)
    }];
    let present: Vec<Condition> =
        serde_json::from_value(world.object.get("/status/conditions").clone()).unwrap_or_default();
    Some(json!({
        "observedGeneration": world.object.generation(),
        "ready": ready,
        "usedBy": world.used_by,
        "conditions": settle(wanted, &present, now),
    }))
}
