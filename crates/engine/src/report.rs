//! When a changed status is written: what others act on at once, what only people read in a quiet moment.
//!
//! Flows: the status that is there, the status as planned -> now, or later. Holds: what other controllers read, and what people wait for, is written at
//! once; words, counts and addresses are written when they have not changed for [`QUIET`], or after [`LONGEST`], so nothing is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hangar_api::ObjectKey;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::queue::Outcome;
use crate::reads::{GroupKind, value_at};

/// Words that have stood for so long are worth writing; most steps on the way to ready are shorter.
const QUIET: Duration = Duration::from_secs(2);
/// Nobody waits longer for words, even if they never stand still.
const LONGEST: Duration = Duration::from_secs(5);
/// A pass that is this far away does not come soon enough to write what was put off.
const SOON: Duration = Duration::from_secs(5);

/// Of each object what was not written yet.
#[derive(Clone, Default)]
pub struct Unwritten {
    waiting: Arc<Mutex<BTreeMap<ObjectKey, Waiting>>>,
    /// The fields of a status (pointers within it) that other controllers read, by group and kind.
    read: Arc<BTreeMap<GroupKind, BTreeSet<&'static str>>>,
}

struct Waiting {
    since: Timestamp,
    changed: Timestamp,
    planned: Value,
}

impl Unwritten {
    pub fn new(read: BTreeMap<GroupKind, BTreeSet<&'static str>>) -> Self {
        Self { waiting: Arc::default(), read: Arc::new(read) }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: write now. Else: do not write, and look again as it says.
    pub fn put_off(
        &self,
        key: &ObjectKey,
        stands: &Value,
        planned: &Value,
        outcome: Outcome,
        now: Timestamp,
    ) -> Option<Outcome> {
        let later = match outcome {
            Outcome::Settled => Outcome::After(QUIET),
            Outcome::After(time) if time <= SOON => Outcome::After(time),
            // The next look may be far away, and a failure is news.
            Outcome::After(_) | Outcome::Failed => return None,
        };
        if is_same(stands, planned) || self.is_awaited(key, stands, planned) {
            return None;
        }
        let mut all = self.waiting();
        let fresh = || Waiting { since: now, changed: now, planned: planned.clone() };
        let waiting = all.entry(key.clone()).or_insert_with(fresh);
        if waiting.planned != *planned {
            *waiting = Waiting { since: waiting.since, ..fresh() };
        }
        let passed = |since: Timestamp| Duration::try_from(now.duration_since(since)).unwrap_or_default();
        (passed(waiting.changed) < QUIET && passed(waiting.since) < LONGEST).then_some(later)
    }

    /// Whether somebody acts on the change: a controller that reads the field, or a person who waits for Ready or Available.
    fn is_awaited(&self, key: &ObjectKey, stands: &Value, planned: &Value) -> bool {
        let mut read = self.read.get(&(key.group.as_str(), key.kind.as_str())).into_iter().flatten().copied();
        let differs = |path: &str| match (value_at(stands, path), value_at(planned, path)) {
            (before, after) if before == after => false,
            // In a first status what does not hold is no news.
            (Value::Null, after) => is_true(after),
            _ => true,
        };
        // People wait for something to become true, or to be true no longer: whether it is false or unknown until then is words.
        let turns = |path: &str| (value_at(stands, path) == "True") != (value_at(planned, path) == "True");
        read.any(differs) || FOR_PEOPLE.into_iter().any(turns)
    }

    /// The status is written as planned.
    pub fn written(&self, key: &ObjectKey) {
        self.waiting().remove(key);
    }
}

/// Whether two statuses say the same: conditions have no order, and one that is new may stand at the end where the API server has put it.
pub(crate) fn is_same(stands: &Value, planned: &Value) -> bool {
    if stands == planned {
        return true;
    }
    let (Some(one), Some(other)) = (stands.as_object(), planned.as_object()) else { return false };
    let rest = |fields: &Map<String, Value>| fields.keys().filter(|name| *name != "conditions").count();
    let by_type = |fields: &Map<String, Value>| -> Option<BTreeMap<String, Value>> {
        let all = fields.get("conditions")?.as_array()?.iter();
        all.map(|condition| Some((condition["type"].as_str()?.to_owned(), condition.clone()))).collect()
    };
    rest(one) == rest(other)
        && one.iter().all(|(name, value)| name == "conditions" || other.get(name) == Some(value))
        && by_type(one).is_some_and(|conditions| Some(conditions) == by_type(other))
}

/// What people and their scripts wait for.
const FOR_PEOPLE: [&str; 3] = ["/conditions[Ready]", "/conditions[Available]", "/conditions[Paused]"];

/// Whether a field says that something holds or is there.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::String(text) => !["", "False", "Unknown"].contains(&text.as_str()),
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Array(list) => list.iter().any(is_true),
        Value::Object(fields) => fields.values().any(is_true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(status: &str, reason: &str) -> Value {
        json!({ "phase": "Pending", "conditions": [{ "type": "Ready", "status": status, "reason": reason }] })
    }

    #[test]
    fn words_wait_and_facts_do_not() {
        let key = ObjectKey::new("", "Machine", "default", "a");
        let now = Timestamp::UNIX_EPOCH;
        let waiting = condition("False", "WaitingForA");
        let table = [
            ("no change", waiting.clone(), false),
            ("another reason", condition("False", "WaitingForB"), true),
            ("unknown instead of false", condition("Unknown", "WaitingForA"), true),
            ("turned true", condition("True", "Ready"), false),
            ("a number", json!({ "conditions": waiting["conditions"], "replicas": 1 }), true),
            (
                "a flag",
                json!({ "conditions": waiting["conditions"], "initialization": { "provisioned": true } }),
                false,
            ),
            ("a flag that nobody reads", json!({ "conditions": waiting["conditions"], "ready": true }), true),
            (
                "a flag that is down",
                json!({ "conditions": waiting["conditions"], "initialization": { "provisioned": false } }),
                true,
            ),
        ];
        for (what, planned, waits) in table {
            let read = BTreeMap::from([(("", "Machine"), BTreeSet::from(["/initialization"]))]);
            let unwritten = Unwritten::new(read);
            let answer = unwritten.put_off(&key, &waiting, &planned, Outcome::Settled, now);
            assert_eq!(answer, waits.then_some(Outcome::After(QUIET)), "{what}");
        }
    }

    #[test]
    fn conditions_have_no_order() {
        let (a, b) = (json!({ "type": "A", "status": "True" }), json!({ "type": "B", "status": "True" }));
        let status = |conditions: Value| json!({ "phase": "x", "conditions": conditions });
        let off = json!({ "type": "B", "status": "False" });
        for (one, other, same) in [
            (status(json!([a, b])), status(json!([b, a])), true),
            (status(json!([a, b])), status(json!([a])), false),
            (status(json!([a, b])), status(json!([off, a])), false),
            (status(json!([a])), json!({ "phase": "y", "conditions": [a] }), false),
            (status(json!([a])), json!({ "phase": "x", "more": 1, "conditions": [a] }), false),
            (json!({}), json!({}), true),
            (Value::Null, json!({}), false),
        ] {
            assert_eq!(is_same(&one, &other), same, "{one} {other}");
            assert_eq!(is_same(&other, &one), same, "{other} {one}");
        }
    }

    #[test]
    fn words_are_written_after_a_quiet_moment_and_failures_at_once() {
        let key = ObjectKey::new("", "Machine", "default", "a");
        let unwritten = Unwritten::default();
        let stands = condition("False", "A");
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        let ask = |reason, outcome, millis| {
            unwritten.put_off(&key, &stands, &condition("False", reason), outcome, at(millis)).is_some()
        };
        assert!(!ask("B", Outcome::Failed, 0));
        assert!(!ask("B", Outcome::After(Duration::from_secs(60)), 0));
        assert!(ask("B", Outcome::Settled, 0));
        assert!(ask("B", Outcome::Settled, 1999));
        assert!(!ask("B", Outcome::Settled, 2000));
        unwritten.written(&key);
        for (reason, millis) in [("B", 10_000), ("C", 11_900), ("D", 13_800), ("E", 14_999)] {
            assert!(ask(reason, Outcome::Settled, millis), "{reason} is news");
        }
        assert!(!ask("F", Outcome::Settled, 15_000), "words that never stand still are written as well");
    }
}
