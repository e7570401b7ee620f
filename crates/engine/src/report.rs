//! When a changed status is written: what others act on at once, what only people read in a quiet moment.
//!
//! Flows: the status that stands, the status as planned -> now, or later. Holds: what turns true or stops being true is written at once, since
//! others wait for it; words, counts and addresses are written when they have not changed for [`QUIET`], or after [`LONGEST`], so nothing is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hangar_api::ObjectKey;
use jiff::Timestamp;
use serde_json::Value;

use crate::queue::Outcome;

/// Words that have stood for so long are worth writing; most steps on the way to ready are shorter.
const QUIET: Duration = Duration::from_secs(2);
/// Nobody waits longer for words, even if they never stand still.
const LONGEST: Duration = Duration::from_secs(5);
/// A pass that is this far away does not come soon enough to write what was put off.
const SOON: Duration = Duration::from_secs(5);

/// Of each object what was not written yet.
#[derive(Clone, Default)]
pub struct Unwritten(Arc<Mutex<BTreeMap<ObjectKey, Waiting>>>);

struct Waiting {
    since: Timestamp,
    changed: Timestamp,
    planned: Value,
}

impl Unwritten {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        if stands == planned || facts(stands, planned) {
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

    /// The status stands as planned.
    pub fn written(&self, key: &ObjectKey) {
        self.waiting().remove(key);
    }
}

/// True things that nobody waits for: conditions that hold while something is going on, and what never changes.
const WORDS: [&str; 7] = [
    "ScalingUp",
    "ScalingDown",
    "RollingOut",
    "Remediating",
    "Deleting",
    "TenantControlPlaneAddressReady",
    "externalManagedControlPlane",
];

/// Whether something turned true or stopped being true. In a first status only flags count: conditions are true of the empty set.
fn facts(stands: &Value, planned: &Value) -> bool {
    if stands.is_null() {
        return essence(planned).iter().any(|path| !path.contains("/conditions/"));
    }
    essence(stands) != essence(planned)
}

/// Everything in a status that is true, by where it stands: flags and conditions.
fn essence(status: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(status, "", &mut found);
    found
}

fn collect(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Bool(true) => drop(found.insert(path.to_owned())),
        Value::Object(fields) => {
            let waited_for = fields.iter().filter(|(name, _)| !WORDS.contains(&name.as_str()));
            waited_for.for_each(|(name, value)| collect(value, &format!("{path}/{name}"), found));
        }
        Value::Array(items) if path.ends_with("/conditions") => {
            let is_true = |item: &&Value| item["status"] == "True";
            let types = items.iter().filter(is_true).filter_map(|item| item["type"].as_str());
            found.extend(types.filter(|name| !WORDS.contains(name)).map(|name| format!("{path}/{name}")));
        }
        _ => {}
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
            ("a flag that is down", json!({ "conditions": waiting["conditions"], "ready": false }), true),
        ];
        for (what, planned, waits) in table {
            let unwritten = Unwritten::default();
            let answer = unwritten.put_off(&key, &waiting, &planned, Outcome::Settled, now);
            assert_eq!(answer, waits.then_some(Outcome::After(QUIET)), "{what}");
        }
    }

    #[test]
    fn a_first_status_waits_unless_a_flag_is_up() {
        let empty_set = json!({ "conditions": [{ "type": "MachinesReady", "status": "True" }] });
        assert!(!facts(&Value::Null, &empty_set));
        assert!(facts(&Value::Null, &json!({ "initialization": { "provisioned": true } })));
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
