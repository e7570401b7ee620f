use hangar_api::kinds::{Cluster, DataStore, OpenStackMachine};
use serde_json::json;

use super::*;
use crate::plan::Reason;
use crate::testing::{at, object, shared};

fn own(fields: Value) -> Object {
    (*shared(object("x/v1", "X", "x", fields))).clone()
}

#[test]
fn progress_is_shown_as_ready() {
    let reason = || Reason::retry("Code", "words");
    let going = json!({ "metadata": { "deletionTimestamp": "x" } });
    for (what, fields, progress, expected) in [
        ("done", json!({}), Progress::Done, ("True", "Ready", "")),
        ("acting", json!({}), Progress::Acting, ("False", "Reconciling", "changes are being made")),
        ("waiting", json!({}), Progress::Waiting(reason()), ("False", "Code", "words")),
        ("blocked", json!({}), Progress::Blocked(reason()), ("False", "Code", "words")),
        ("going", going.clone(), Progress::Done, ("False", "Deleting", "it is being deleted")),
        ("going and waiting", going, Progress::Waiting(reason()), ("False", "Deleting", "words")),
    ] {
        let condition = ready(&own(fields), &progress);
        assert_eq!(
            (condition.status.as_str(), condition.reason.as_str(), condition.message.as_str()),
            expected,
            "{what}"
        );
    }
}

#[test]
fn paused_and_deleting_are_always_there_or_only_while_they_are_true() {
    let going = || json!({ "metadata": { "deletionTimestamp": "x" } });
    for (what, fields, style, expected) in [
        ("always", json!({}), Shared::Always, vec![("Deleting", "False"), ("Paused", "False")]),
        ("always, going", going(), Shared::Always, vec![("Deleting", "True"), ("Paused", "False")]),
        ("when true", json!({}), Shared::WhenTrue, vec![]),
        ("when true, going", going(), Shared::WhenTrue, vec![("Deleting", "True")]),
    ] {
        let conditions = shared_conditions(&own(fields), style);
        let seen: Vec<(&str, &str)> = conditions.iter().map(|it| (it.kind.as_str(), it.status.as_str())).collect();
        assert_eq!(seen, expected, "{what}");
    }
}

fn shared_conditions(object: &Object, style: Shared) -> Vec<Condition> {
    super::shared(object, &Progress::Done, style)
}

#[test]
fn what_is_reported_apart_from_a_plan_changes_one_condition_and_nothing_else() {
    let before = json!({ "status": { "phase": "Provisioned", "conditions": [
        { "type": "Paused", "status": "False", "reason": "NotPaused", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z" },
        { "type": "Other", "status": "True", "reason": "Other", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z" }] } });
    let paused = || Condition::new(PAUSED, Status::True, PAUSED, "why");
    let status = amended::<Cluster>(&own(before), paused(), at(0));
    assert_eq!((&status["phase"], status["conditions"].as_array().unwrap().len()), (&json!("Provisioned"), 2));
    assert_eq!(
        (&status["conditions"][0]["status"], &status["conditions"][0]["lastTransitionTime"]),
        (&json!("True"), &json!("1970-01-01T00:00:00Z"))
    );
    assert_eq!(
        status["conditions"][1]["lastTransitionTime"], "2020-01-01T00:00:00Z",
        "a transition time moves only with its status"
    );
    // Said again, it is the same.
    let again = amended::<Cluster>(&own(json!({ "status": status })), paused(), at(100));
    assert_eq!(again, status);
    assert_eq!(
        amended::<Cluster>(&own(json!({})), paused(), at(0))["conditions"].as_array().unwrap().len(),
        1,
        "an object without a status gets one"
    );
}

#[test]
fn empty_messages_are_left_out_where_the_kind_does_not_have_them() {
    let condition = || Condition::new("X", Status::True, "X", "");
    for (what, status, shown) in [
        ("Cluster", amended::<Cluster>(&own(json!({})), condition(), at(0)), Cluster::EMPTY_MESSAGES),
        (
            "OpenStackMachine",
            amended::<OpenStackMachine>(&own(json!({})), condition(), at(0)),
            OpenStackMachine::EMPTY_MESSAGES,
        ),
        ("DataStore", amended::<DataStore>(&own(json!({})), condition(), at(0)), DataStore::EMPTY_MESSAGES),
    ] {
        assert_eq!(status["conditions"][0].get("message").is_some(), shown, "{what}");
    }
}
