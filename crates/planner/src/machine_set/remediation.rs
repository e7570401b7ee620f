//! MS5: Machines that a health check has marked are deleted, so that others are made.
//! Holds: only the current revision replaces Machines; what is still available is not deleted, so nothing is lost by it; no more at once than the
//! deployment allows; nothing goes that could not come back.

use hangar_api::Object;
use hangar_api::conditions::{Condition, find};
use hangar_api::kinds::MachineDeployment;
use hangar_api::names::OUTDATED_ANNOTATION;
use serde_json::Value;

use super::{World, desired, living, machines, preflight};
use crate::machine_health_check::{is_being_remediated, is_left_alone};
use crate::report::present;
use crate::{Phase, intent};

pub(super) fn unhealthy(world: &World) -> Phase {
    if world.object().annotation(OUTDATED_ANNOTATION).is_some() {
        return Phase::Done;
    }
    let available = |machine: &Object| find(&present(machine), "Available").is_some_and(Condition::is_true);
    let ill = living(world).filter(|machine| is_being_remediated(machine) && !is_left_alone(machine));
    let mut ill: Vec<&Object> = ill.filter(|machine| !available(machine)).collect();
    // New ones could not be made now; when they can, this is looked at again.
    if ill.is_empty() || !preflight::fits(world).is_done() {
        return Phase::Done;
    }
    let created = |machine: &Object| machine.text("/metadata/creationTimestamp").to_owned();
    ill.sort_by(|one, other| created(other).cmp(&created(one)).then(one.name().cmp(other.name())));
    let going = machines(world).filter(|machine| machine.is_deleting() && is_being_remediated(machine)).count();
    let room = most(world).saturating_sub(going);
    Phase::steps(ill.into_iter().take(room).filter_map(intent::delete_as_seen))
}

/// How many may go at the same time; a share of the deployment's size is rounded up.
fn most(world: &World) -> usize {
    let deployment = world.owner::<MachineDeployment>();
    match deployment.map(|deployment| deployment.get("/spec/remediation/maxInFlight")) {
        None | Some(Value::Null) => usize::MAX,
        Some(Value::Number(number)) => number.as_u64().and_then(|most| usize::try_from(most).ok()).unwrap_or(0),
        Some(value) => {
            let replicas = deployment.and_then(|deployment| deployment.get("/spec/replicas").as_u64());
            let replicas = replicas.and_then(|count| usize::try_from(count).ok()).unwrap_or_else(|| desired(world));
            let text = value.as_str().unwrap_or_default();
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<usize>().ok()).unwrap_or(0);
            replicas.saturating_mul(percent).div_ceil(100)
        }
    }
}
