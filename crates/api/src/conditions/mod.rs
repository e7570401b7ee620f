//! Conditions with Cluster API's v1beta2 meaning, and how several become one.
//!
//! Holds: a transition time changes only with the status, so that an unchanged world yields an unchanged list.

mod merge;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use merge::{Part, Polarity, aggregate, mirror, summarize, summary};

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
    /// As an object has it; nothing if that is no condition.
    pub fn read(value: &serde_json::Value) -> Option<Self> {
        Self::deserialize(value).ok()
    }

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
}
