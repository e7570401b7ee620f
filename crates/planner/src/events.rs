//! What people want to see in `kubectl describe`: what was made or deleted, what was refused, and what began or ended.
//!
//! Flows: a step that was carried out, a refusal, or a status that was written -> news about one object. Holds: only changes are news; what is the same in every
//! pass is none. A kind has no events of its own: they follow from steps and conditions that all kinds have.

use hangar_api::conditions::{Condition, find};
use hangar_api::{Kind as _, Object, ObjectKey, kinds};
use serde_json::Value;

use crate::plan::Reason;
use crate::report::{DELETING, present};
use crate::step::{Step, TenantCall};

/// Waits that end only when somebody does something, or that pods decide about.
const TOLD_WHILE_DELETING: [&str; 4] =
    ["DrainingNode", "WaitingForVolumeDetach", "WaitingForPreDrainHook", "WaitingForPreTerminateHook"];

/// One line of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    pub about: ObjectKey,
    pub uid: String,
    pub api_version: String,
    pub is_warning: bool,
    /// One word.
    pub reason: String,
    pub note: String,
}

fn news(about: &Object, is_warning: bool, reason: &str, note: impl Into<String>) -> News {
    News {
        about: about.key(),
        uid: about.uid().to_owned(),
        api_version: about.api_version().to_owned(),
        is_warning,
        reason: reason.to_owned(),
        note: note.into(),
    }
}

/// Of a step that was carried out for an object.
pub fn of_step(own: &Object, step: &Step) -> Option<News> {
    match step {
        Step::Create(made) | Step::CreateOnce(made) if made.is::<kinds::Machine>() => {
            Some(news(own, false, "SuccessfulCreate", format!("created Machine {}", made.name())))
        }
        Step::Delete { key, .. } if (key.group.as_str(), key.kind.as_str()) == (kinds::Machine::GROUP, "Machine") => {
            Some(news(own, false, "SuccessfulDelete", format!("deleted Machine {}", key.name)))
        }
        Step::Mark(machine) => {
            let said = present(machine);
            let ill = find(&said, "HealthCheckSucceeded").filter(|condition| !condition.is_true())?;
            Some(news(machine, true, "MachineUnhealthy", ill.message.clone()))
        }
        Step::Tenant { call: TenantCall::CordonNode { name }, .. } => {
            Some(news(own, false, "NodeCordoned", format!("no new pods come to Node {name}")))
        }
        _ => None,
    }
}

/// Of a step that was refused.
pub fn of_refusal(own: &Object, reason: &Reason) -> News {
    news(own, true, reason.code, reason.message.clone())
}

/// Of a status that is written in place of the one that stands.
pub fn of_status(own: &Object, planned: &Value) -> Vec<News> {
    let before = present(own);
    let after: Vec<Condition> =
        planned["conditions"].as_array().into_iter().flatten().filter_map(Condition::read).collect();
    let mut all = vec![];
    for condition in &after {
        let Some(stood) = find(&before, &condition.kind) else { continue };
        let turned = stood.is_true() != condition.is_true();
        match (condition.kind.as_str(), condition.is_true()) {
            ("RollingOut", true) if turned => all.push(news(own, false, "RollingOut", "a rollout has begun")),
            ("RollingOut", false) if turned => all.push(news(own, false, "RolledOut", "the rollout is complete")),
            ("Remediating", true) if turned => {
                all.push(news(own, false, "Remediating", "unhealthy Machines are being replaced"));
            }
            ("RemoteConnectionProbe", good) if turned => {
                all.push(news(own, !good, &condition.reason, told(condition, "the control plane answers")));
            }
            (DELETING, true)
                if stood.reason != condition.reason && TOLD_WHILE_DELETING.contains(&condition.reason.as_str()) =>
            {
                all.push(news(own, false, &condition.reason, condition.message.clone()));
            }
            _ => {}
        }
    }
    all
}

fn told(condition: &Condition, otherwise: &str) -> String {
    if condition.message.is_empty() { otherwise.to_owned() } else { condition.message.clone() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::step::ClusterName;
    use crate::testing::{CORE, object};

    fn owner() -> Object {
        Object(object(CORE, "MachineSet", "ms", json!({})))
    }

    fn machine(fields: Value) -> Object {
        Object(object(CORE, "Machine", "m", fields))
    }

    fn words(news: &News) -> String {
        let kind = if news.is_warning { "Warning" } else { "Normal" };
        format!("{} {kind} {}: {}", news.about, news.reason, news.note)
    }

    #[test]
    fn steps_that_people_want_to_see_are_news() {
        let cordon = TenantCall::CordonNode { name: "n-1".into() };
        let marked = |status: &str| {
            machine(
                json!({ "status": { "conditions": [{ "type": "HealthCheckSucceeded", "status": status, "reason": "X", "message": "its Node is gone" }] } }),
            )
        };
        let rows = [
            (Step::Create(machine(json!({}))), Some("MachineSet n/ms Normal SuccessfulCreate: created Machine m")),
            (Step::Create(owner()), None),
            (
                Step::Delete { key: machine(json!({})).key(), uid: "u".into(), resource_version: None },
                Some("MachineSet n/ms Normal SuccessfulDelete: deleted Machine m"),
            ),
            (Step::Delete { key: owner().key(), uid: "u".into(), resource_version: None }, None),
            (Step::Mark(marked("False")), Some("Machine n/m Warning MachineUnhealthy: its Node is gone")),
            (Step::Mark(marked("True")), None),
            (
                Step::Tenant { cluster: ClusterName::default(), call: cordon },
                Some("MachineSet n/ms Normal NodeCordoned: no new pods come to Node n-1"),
            ),
            (Step::Apply(machine(json!({}))), None),
        ];
        for (step, expected) in rows {
            assert_eq!(of_step(&owner(), &step).as_ref().map(words).as_deref(), expected, "{step:?}");
        }
        let refused = of_refusal(&owner(), &Reason::retry("QuotaExceeded", "Quota exceeded for cores"));
        assert_eq!(words(&refused), "MachineSet n/ms Warning QuotaExceeded: Quota exceeded for cores");
    }

    #[test]
    fn conditions_that_turn_are_news_and_those_that_are_new_are_not() {
        let one = |kind: &str, status: &str, reason: &str| json!({ "type": kind, "status": status, "reason": reason, "message": "why" });
        let rows = [
            (one("RollingOut", "False", "x"), one("RollingOut", "True", "x"), vec!["RollingOut: a rollout has begun"]),
            (
                one("RollingOut", "True", "x"),
                one("RollingOut", "False", "x"),
                vec!["RolledOut: the rollout is complete"],
            ),
            (one("RollingOut", "True", "x"), one("RollingOut", "True", "y"), vec![]),
            (one("Other", "True", "x"), one("RollingOut", "True", "x"), vec![]),
            (
                one("Remediating", "False", "x"),
                one("Remediating", "True", "x"),
                vec!["Remediating: unhealthy Machines are being replaced"],
            ),
            (one("Remediating", "True", "x"), one("Remediating", "False", "x"), vec![]),
            (
                one("RemoteConnectionProbe", "True", "x"),
                one("RemoteConnectionProbe", "False", "ProbeFailed"),
                vec!["ProbeFailed: why"],
            ),
            (one("Deleting", "False", "x"), one("Deleting", "True", "DrainingNode"), vec!["DrainingNode: why"]),
            (one("Deleting", "True", "DrainingNode"), one("Deleting", "True", "DrainingNode"), vec![]),
            (one("Deleting", "False", "x"), one("Deleting", "True", "DeletingNode"), vec![]),
            (one("Available", "True", "x"), one("Available", "False", "x"), vec![]),
        ];
        for (before, after, expected) in rows {
            let own = machine(json!({ "status": { "conditions": [before] } }));
            let found = of_status(&own, &json!({ "conditions": [after] }));
            let said: Vec<String> = found.iter().map(|news| format!("{}: {}", news.reason, news.note)).collect();
            assert_eq!(said, expected, "{before} {after}");
        }
    }
}
