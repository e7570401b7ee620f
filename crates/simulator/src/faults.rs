//! Trouble on order: rules as data, a hook for simulations, and the journal of what was asked.

use std::sync::Arc;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// When it applies and what it does. Rules are tried in order; the first that fits and is not used up applies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultRule {
    /// `identity`, `compute`, `network`, `image`, or `*`.
    pub service: String,
    /// `POST`, ..., or `*`.
    pub method: String,
    /// Searched in the path below the service's version, such as `^/servers$`.
    pub path_regex: String,
    /// How often; `None` is for ever.
    #[serde(default)]
    pub times: Option<u32>,
    pub action: FaultAction,
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
    /// It is done, but the answer gets lost.
    LoseReply,
    /// It is done, this many milliseconds later.
    Delay(u64),
    /// The server that is being created ends in ERROR with this message.
    ServerError(String),
    /// The token is not accepted.
    Unauthorized,
}

/// One request as the journal has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub service: String,
    pub method: String,
    pub path: String,
    pub query: String,
    pub status: u16,
    /// Milliseconds since the simulator was made.
    pub at: u64,
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
    rules: Vec<(FaultRule, Regex)>,
    pub hook: Option<Hook>,
    pub calls: u64,
}

impl Faults {
    /// A pattern that is no regular expression is looked for as it stands.
    pub(crate) fn set(&mut self, rules: Vec<FaultRule>) {
        let compile = |rule: FaultRule| {
            let regex = Regex::new(&rule.path_regex).or_else(|_| Regex::new(&regex::escape(&rule.path_regex)));
            regex.ok().map(|regex| (rule, regex))
        };
        self.rules = rules.into_iter().filter_map(compile).collect();
    }

    pub(crate) fn take(&mut self, call: &CallInfo) -> Option<FaultAction> {
        let any = |wanted: &str, is: &str| wanted == "*" || wanted.eq_ignore_ascii_case(is);
        let (rule, _) = self.rules.iter_mut().find(|(rule, regex)| {
            rule.times != Some(0)
                && any(&rule.service, &call.service)
                && any(&rule.method, &call.method)
                && regex.is_match(&call.path)
        })?;
        rule.times = rule.times.map(|left| left - 1);
        Some(rule.action.clone())
    }
}
