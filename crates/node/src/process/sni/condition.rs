//! Conditions as the Gateway API writes them.

use serde_json::{Value, json};

/// What a condition says: whether, why, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub holds: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Condition {
    pub fn met(reason: &'static str, message: &str) -> Self {
        Self { holds: true, reason, message: message.to_owned() }
    }

    pub fn unmet(reason: &'static str, message: &str) -> Self {
        Self { holds: false, reason, message: message.to_owned() }
    }
}

/// The list of conditions; a time of transition stays as long as the status does.
pub(super) fn conditions(before: &Value, generation: i64, now: &str, all: &[(&str, Condition)]) -> Value {
    let condition = |(kind, condition): &(&str, Condition)| {
        let status = if condition.holds { "True" } else { "False" };
        let known = before.as_array().into_iter().flatten();
        let same = known.into_iter().find(|known| known["type"] == *kind && known["status"] == status);
        let since = same.and_then(|known| known["lastTransitionTime"].as_str()).unwrap_or(now);
        json!({
            "type": kind, "status": status, "reason": condition.reason, "message": condition.message,
            "observedGeneration": generation, "lastTransitionTime": since,
        })
    };
    Value::Array(all.iter().map(condition).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transition_is_dated_when_the_status_changes() {
        let first = conditions(&Value::Null, 1, "then", &[("Accepted", Condition::met("Accepted", ""))]);
        let second = conditions(&first, 2, "now", &[("Accepted", Condition::met("Accepted", "still"))]);
        let third = conditions(&second, 2, "now", &[("Accepted", Condition::unmet("NoMatchingParent", ""))]);
        assert_eq!((&second[0]["lastTransitionTime"], &second[0]["observedGeneration"]), (&json!("then"), &json!(2)));
        assert_eq!((&third[0]["lastTransitionTime"], &third[0]["status"]), (&json!("now"), &json!("False")));
    }
}
