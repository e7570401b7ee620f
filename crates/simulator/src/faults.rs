//! Trouble on order: rules as data, a hook for simulations, and the journal of what was asked.
//!
//! Holds: the same rules, the same seed and the same calls make the same trouble.

use std::sync::Arc;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::state::splitmix;

/// When it applies and what it does. Rules are tried in order; the first that fits and is not used up applies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultRule {
    /// `identity`, `compute`, `network`, `image`, `volume`, `load-balancer`, or `*`.
    pub service: String,
    /// `POST`, ..., or `*`.
    pub method: String,
    /// Searched in the path below the service's version, such as `^/servers$`.
    pub path_regex: String,
    /// Only calls of this project, by name or id.
    pub project: Option<String>,
    /// This many calls that fit pass unharmed first.
    pub after: u32,
    /// How often; `None` is for ever.
    pub times: Option<u32>,
    /// Of the calls that fit, this share is hit; the dice are those of `seed`.
    pub probability: Option<f64>,
    pub seed: u64,
    pub action: FaultAction,
}

impl Default for FaultRule {
    fn default() -> Self {
        Self {
            service: "*".to_owned(),
            method: "*".to_owned(),
            path_regex: String::new(),
            project: None,
            after: 0,
            times: None,
            probability: None,
            seed: 0,
            action: FaultAction::Status(500),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FaultAction {
    /// Nothing is done, this is answered.
    Fail {
        status: u16,
        #[serde(default)]
        body: Value,
    },
    /// Nothing is done, this status is answered in the shape the service has for it.
    Status(u16),
    /// Nothing is done: a limit of the project, in the service's own words.
    Quota,
    /// Nothing is done: come back after this many seconds (429).
    TooManyRequests(u64),
    /// Nothing is done: the same in the old way (413 with Retry-After).
    OverLimit(u64),
    /// It is done, but this is answered.
    FailAfter { status: u16 },
    /// It is done, but the answer gets lost.
    LoseReply,
    /// The connection is closed before anything is done.
    Drop,
    /// It is done twice, as when a proxy repeats a request; the second answer is given.
    Twice,
    /// It is done, this many milliseconds later.
    Delay(u64),
    /// The server that is being created ends in ERROR with this message.
    ServerError(String),
    /// The server that is being created finds no host.
    NoValidHost,
    /// The token is not accepted.
    Unauthorized,
    /// Somebody else deletes what the path names, and then it is done.
    DeletedElsewhere,
    /// A page of a proxy instead of an answer; nothing is done.
    ProxyPage(u16),
    /// It is done, and half of the answer arrives.
    HalfAnswer,
    /// It is done, and the answer never ends.
    Endless,
}

/// One request as the journal has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub service: String,
    pub method: String,
    pub path: String,
    pub query: String,
    /// 0 if nothing was answered.
    pub status: u16,
    /// Milliseconds since the simulator was made.
    pub at: u64,
    /// Milliseconds it took.
    pub duration: u64,
    /// `user@project`; empty without a token.
    pub caller: String,
    /// `answered`, `lost` (done, not answered) or `dropped` (not done).
    pub outcome: String,
}

/// What the hook gets to see, before anything is done.
#[derive(Debug, Clone, PartialEq)]
pub struct CallInfo {
    pub service: String,
    pub method: String,
    pub path: String,
    pub query: String,
    /// Counts every request, from 0.
    pub number: u64,
}

/// What the hook wants to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The request is lost: nothing is done.
    Before,
    /// It is done and the answer is lost.
    After,
}

pub(crate) type Hook = Arc<dyn Fn(&CallInfo) -> Fault + Send + Sync>;

#[derive(Default)]
pub(crate) struct Faults {
    rules: Vec<Armed>,
    pub hook: Option<Hook>,
    pub calls: u64,
}

struct Armed {
    rule: FaultRule,
    path: Regex,
    /// Where the dice are.
    dice: u64,
}

impl Faults {
    /// A pattern that is no regular expression is looked for as it stands.
    pub(crate) fn set(&mut self, rules: Vec<FaultRule>) {
        let arm = |rule: FaultRule| {
            let path = Regex::new(&rule.path_regex).or_else(|_| Regex::new(&regex::escape(&rule.path_regex)));
            path.ok().map(|path| Armed { path, dice: rule.seed, rule })
        };
        self.rules = rules.into_iter().filter_map(arm).collect();
    }

    /// `projects` are the names that the caller's project goes by.
    pub(crate) fn take(&mut self, call: &CallInfo, projects: &[String]) -> Option<FaultAction> {
        let any = |wanted: &str, is: &str| wanted == "*" || wanted.eq_ignore_ascii_case(is);
        for armed in &mut self.rules {
            let rule = &mut armed.rule;
            let fits = rule.times != Some(0)
                && any(&rule.service, &call.service)
                && any(&rule.method, &call.method)
                && rule.project.as_ref().is_none_or(|wanted| projects.contains(wanted))
                && armed.path.is_match(&call.path);
            if !fits {
                continue;
            }
            if rule.after > 0 {
                rule.after -= 1;
                continue;
            }
            if rule.probability.is_some_and(|share| unit(&mut armed.dice) >= share) {
                continue;
            }
            rule.times = rule.times.map(|left| left - 1);
            return Some(rule.action.clone());
        }
        None
    }
}

/// A number from 0 to below 1.
fn unit(dice: &mut u64) -> f64 {
    (splitmix(dice) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(path: &str) -> CallInfo {
        CallInfo { service: "compute".into(), method: "GET".into(), path: path.into(), query: String::new(), number: 0 }
    }

    fn faults(rule: FaultRule) -> Faults {
        let mut faults = Faults::default();
        faults.set(vec![rule]);
        faults
    }

    #[test]
    fn a_rule_hits_its_project_after_some_calls_and_is_used_up() {
        let rule = FaultRule { project: Some("demo".into()), after: 1, times: Some(1), ..FaultRule::default() };
        let mut faults = faults(rule);
        let demo = ["demo".to_owned()];
        let hits: Vec<bool> = (0..4).map(|_| faults.take(&call("/servers"), &demo).is_some()).collect();
        assert_eq!(hits, [false, true, false, false]);
        assert!(faults.take(&call("/servers"), &["other".to_owned()]).is_none());
    }

    #[test]
    fn dice_of_one_seed_fall_the_same_way() {
        let rule = FaultRule { probability: Some(0.3), seed: 7, ..FaultRule::default() };
        let roll = || {
            let mut faults = faults(rule.clone());
            (0..1000).map(|_| faults.take(&call("/x"), &[]).is_some()).collect::<Vec<_>>()
        };
        let first = roll();
        assert_eq!(first, roll());
        let hits = first.iter().filter(|hit| **hit).count();
        assert!((200..400).contains(&hits), "{hits}");
    }

    #[test]
    fn rules_are_read_from_short_json() {
        let rule: FaultRule = serde_json::from_str(r#"{"service": "compute", "action": {"status": 503}}"#).unwrap();
        assert_eq!(
            rule,
            FaultRule { service: "compute".into(), action: FaultAction::Status(503), ..FaultRule::default() }
        );
        let rule: FaultRule = serde_json::from_str(r#"{"action": "noValidHost", "times": 1}"#).unwrap();
        assert_eq!(rule.action, FaultAction::NoValidHost);
    }
}
