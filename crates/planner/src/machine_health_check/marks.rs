//! H4: what a health check says of a Machine: whether it is healthy, and whether its owner is to replace it.
//! Holds: these conditions are written here alone; what is said already is not said again; of what nobody can tell, nothing new is said.

use hangar_api::Object;
use hangar_api::conditions::{Condition, Status, settle};
use hangar_api::kinds::MachineSet;
use jiff::Timestamp;
use serde_json::json;

use super::health::{Health, health};
use super::{EXTERNALLY_REMEDIATED, MARKS, OWNER_REMEDIATED, SUCCEEDED, World, external, limits, targets, unhealthy};
use crate::report::present;
use crate::{Phase, Step};

pub(super) fn written(world: &World, now: Timestamp) -> Phase {
    let targets = targets(world);
    let allowed = limits::refusal(world, unhealthy(world, &targets, now), targets.len()).is_none();
    Phase::steps(targets.into_iter().filter_map(|machine| mark(world, machine, allowed, now)))
}

/// The step that says something new of a Machine.
fn mark(world: &World, machine: &Object, allowed: bool, now: Timestamp) -> Option<Step> {
    let mut said = present(machine);
    said.retain(|condition| MARKS.contains(&condition.kind.as_str()));
    let waits = waits(world, machine);
    // H3: who was asked for help already may go on.
    let allowed = allowed || said.iter().any(|one| one.kind == EXTERNALLY_REMEDIATED && one.kind == waits.kind);
    let wanted = wanted(machine, &health(world, machine, now), allowed.then_some(waits), &said)?;
    let words = |all: &[Condition]| -> Vec<[String; 4]> {
        let of = |one: &Condition| [&one.kind, &one.status, &one.reason, &one.message].map(Clone::clone);
        let mut words: Vec<_> = all.iter().map(of).collect();
        words.sort_unstable();
        words
    };
    if words(&wanted) == words(&said) {
        return None;
    }
    let mut marked = Object::named(machine.api_version(), machine.kind(), machine.namespace(), machine.name());
    marked.0["metadata"]["uid"] = machine.uid().into();
    marked.0["status"] = json!({ "conditions": settle(wanted, &said, now) });
    Some(Step::Mark(marked))
}

fn wanted(machine: &Object, health: &Health, waits: Option<Condition>, said: &[Condition]) -> Option<Vec<Condition>> {
    match health {
        Health::Good => Some(vec![Condition::new(SUCCEEDED, Status::True, SUCCEEDED, "")]),
        Health::Bad(illness) => {
            let found = Condition::new(SUCCEEDED, Status::False, illness.code, illness.text.clone());
            Some([found].into_iter().chain(waits).collect())
        }
        // H3: whoever was told to replace it is told no more.
        Health::Unclear | Health::Suspect(_) if waits.is_none() && !machine.is_deleting() => {
            let rest: Vec<Condition> = said.iter().filter(|one| one.kind != OWNER_REMEDIATED).cloned().collect();
            (rest.len() < said.len()).then_some(rest)
        }
        Health::Unclear | Health::Suspect(_) | Health::Going => None,
    }
}

/// MS5: it is for the owner to do so, if there is one that makes Machines.
fn waits(world: &World, machine: &Object) -> Condition {
    if let Some(text) = external::words(world, machine) {
        return Condition::new(EXTERNALLY_REMEDIATED, Status::False, "WaitingForRemediation", text);
    }
    let text = match machine.controller() {
        Some(owner) if owner.is::<MachineSet>() => format!("waiting for MachineSet {} to replace it", owner.name),
        Some(owner) => format!("waiting for {} {} to replace it, which is not Hangar's to do", owner.kind, owner.name),
        None => "nothing owns it that would make another one: delete it, or mend its Node".to_owned(),
    };
    Condition::new(OWNER_REMEDIATED, Status::False, "WaitingForRemediation", text)
}

/// As an API server has the object when it was marked.
#[cfg(test)]
pub(crate) fn merged(current: &Object, marked: &Object) -> Object {
    let mut all = present(current);
    all.retain(|condition| !MARKS.contains(&condition.kind.as_str()));
    all.extend(present(marked));
    let mut merged = current.clone();
    merged.0["status"]["conditions"] = json!(all);
    merged
}
