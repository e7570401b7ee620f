//! What tests of planners share: worlds from JSON, and a tiny API server that carries out steps on them.

use std::sync::Arc;

use hangar_api::Object;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{Plan, Planner, World, plan};

pub fn shared(value: Value) -> Arc<Object> {
    Arc::new(Object(value))
}

pub fn world<P: Planner>(object: Value, others: Vec<Value>) -> World<P> {
    World::new(shared(object), others.into_iter().map(shared).collect()).unwrap()
}

/// The same World with its object on the way out.
pub fn deleting<P: Planner>(world: World<P>, finalizer: Option<&str>) -> World<P> {
    let mut object = world.object().clone();
    object.0["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    object.0["metadata"]["finalizers"] = json!(finalizer.into_iter().collect::<Vec<_>>());
    let mut changed: World<P> = World::new(Arc::new(object), world.objects).unwrap();
    (changed.facts, changed.facts_error) = (world.facts, world.facts_error);
    changed
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub fn planned<P: Planner>(world: &World<P>) -> Plan {
    plan(world, at(0))
}

#[allow(dead_code, reason = "tables of phases use it")]
/// A condition of a planned status: status, reason and message.
pub fn condition(plan: &Plan, kind: &str) -> Option<(String, String, String)> {
    let status = plan.status.as_ref()?;
    let found = status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}
