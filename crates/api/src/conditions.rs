//! Conditions with Cluster API's v1beta2 meaning, and how several become one.
//!
//! Holds: a transition time changes only with the status, so that an unchanged world yields an unchanged list.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One condition of an object, in the shape of any version: `severity` is of the old one only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
}

impl Condition {
    pub fn new(kind: &str, status: Status, reason: &str, message: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            status: status.to_string(),
            reason: reason.to_owned(),
            message: message.into(),
            ..Self::default()
        }
    }

    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The three values of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl From<bool> for Status {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        })
    }
}

/// The wanted conditions with the transition times of those that did not change, in the wanted order.
pub fn settle(wanted: Vec<Condition>, present: &[Condition], now: Timestamp) -> Vec<Condition> {
    // API times have whole seconds; a finer one would differ from what comes back and be written again for ever.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let settled = |mut condition: Condition| {
        let before = present.iter().find(|old| old.kind == condition.kind && old.status == condition.status);
        let since = before.and_then(|old| old.last_transition_time.clone());
        condition.last_transition_time = Some(since.unwrap_or_else(|| now.clone()));
        condition
    };
    wanted.into_iter().map(settled).collect()
}

pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// One condition from several of one object: true if all are; else the issues come first, then the unknowns, as lines of
/// `* Type: message`.
pub fn summary(kind: &str, parts: &[&Condition]) -> Condition {
    let lines = |status: &str| -> Vec<String> {
        let of_status = parts.iter().filter(|part| part.status == status);
        of_status.map(|part| format!("* {}: {}", part.kind, or_reason(part))).collect()
    };
    let (issues, unknowns) = (lines("False"), lines("Unknown"));
    match (issues.is_empty(), unknowns.is_empty()) {
        (true, true) => Condition::new(kind, Status::True, kind, ""),
        (true, false) => Condition::new(kind, Status::Unknown, &format!("{kind}Unknown"), unknowns.join("\n")),
        (false, _) => {
            let all: Vec<String> = issues.into_iter().chain(unknowns).collect();
            Condition::new(kind, Status::False, &format!("Not{kind}"), all.join("\n"))
        }
    }
}

/// One condition from the same condition of many objects; at most three objects are named.
pub fn aggregate(kind: &str, parts: &[(String, Option<&Condition>)]) -> Condition {
    let bad: Vec<String> = parts
        .iter()
        .filter(|(_, condition)| !condition.is_some_and(Condition::is_true))
        .map(|(name, condition)| match condition {
            Some(condition) => format!("{name}: {}", or_reason(condition)),
            None => format!("{name}: not reported yet"),
        })
        .collect();
    if bad.is_empty() {
        return Condition::new(kind, Status::True, kind, "");
    }
    if let [only] = bad.as_slice() {
        return Condition::new(kind, Status::False, &format!("Not{kind}"), only.clone());
    }
    let mut lines: Vec<String> = bad.iter().take(3).map(|line| format!("* {line}")).collect();
    if bad.len() > lines.len() {
        lines.push(format!("... and {} more", bad.len() - lines.len()));
    }
    Condition::new(kind, Status::False, &format!("Not{kind}"), lines.join("\n"))
}

fn or_reason(condition: &Condition) -> &str {
    if condition.message.is_empty() { &condition.reason } else { &condition.message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_transition_time_moves_only_with_the_status() {
        let first = settle(vec![Condition::new("Ready", Status::False, "Waiting", "for a")], &[], at(10));
        let same = settle(vec![Condition::new("Ready", Status::False, "Waiting", "for b")], &first, at(20));
        let changed = settle(vec![Condition::new("Ready", Status::True, "Ready", "")], &same, at(30));
        assert_eq!(same[0].last_transition_time, first[0].last_transition_time);
        assert_eq!(changed[0].last_transition_time.as_deref(), Some("1970-01-01T00:00:30Z"));
    }

    #[test]
    fn a_summary_lists_issues_before_unknowns() {
        let good = Condition::new("A", Status::True, "A", "");
        let unknown = Condition::new("B", Status::Unknown, "Later", "");
        let bad = Condition::new("C", Status::False, "Broken", "the cloud said no");
        assert!(summary("Ready", &[&good]).is_true());
        assert_eq!(summary("Ready", &[&good, &unknown]).status, "Unknown");
        assert_eq!(summary("Ready", &[&unknown, &bad]).message, "* C: the cloud said no\n* B: Later");
    }

    #[test]
    fn an_aggregate_names_three_objects_at_most() {
        let bad = Condition::new("Ready", Status::False, "Broken", "no");
        let parts: Vec<_> = (0..5).map(|index| (format!("m{index}"), Some(&bad))).collect();
        assert_eq!(aggregate("MachinesReady", &parts).message, "* m0: no\n* m1: no\n* m2: no\n... and 2 more");
    }
}
