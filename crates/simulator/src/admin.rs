//! `/admin`: what tests do to the cloud, over HTTP, with a token of its own ([`crate::Access`]).

use std::collections::BTreeMap;

use http::Method;
use regex::Regex;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::Simulator;
use crate::ask::Ask;
use crate::faults::FaultRule;
use crate::reply::{Outcome, Refusal, Reply};

pub(crate) fn answer(simulator: &Simulator, ask: &Ask) -> Outcome {
    match (&ask.method, ask.segments().as_slice()) {
        (&Method::GET, ["inventory"]) => Ok(Reply::ok(json!(simulator.inventory()))),
        (&Method::GET, ["journal"]) => Ok(Reply::ok(json!(simulator.journal()))),
        (&Method::DELETE, ["journal"]) => {
            simulator.clear_journal();
            Ok(Reply::empty(204))
        }
        (&Method::PUT, ["faults"]) => {
            let rules: Vec<FaultRule> = read(ask)?;
            for rule in &rules {
                Regex::new(&rule.path_regex)
                    .map_err(|error| bad(format!("path_regex {}: {error}", rule.path_regex)))?;
            }
            simulator.set_faults(rules);
            Ok(Reply::empty(204))
        }
        (&Method::PUT, ["quotas", project]) => {
            for (name, limit) in read::<BTreeMap<String, i64>>(ask)? {
                simulator.set_quota(project, &name, limit);
            }
            Ok(Reply::empty(204))
        }
        (&Method::PUT | &Method::POST, ["password"]) => {
            let wanted: BTreeMap<String, String> = read(ask)?;
            let (Some(user), Some(password)) = (wanted.get("user"), wanted.get("password")) else {
                return Err(bad("the body needs user and password".to_owned()));
            };
            simulator.set_password(user, password);
            Ok(Reply::empty(204))
        }
        (&Method::PUT, ["backends"]) => {
            // "ADDRESS:PORT" of the simulated networks -> "ADDRESS:PORT" on this machine
            for (at, target) in read::<BTreeMap<String, Option<String>>>(ask)? {
                let split = at.rsplit_once(':').and_then(|(address, port)| Some((address, port.parse().ok()?)));
                let (address, port) = split.ok_or_else(|| bad(format!("{at} is no ADDRESS:PORT")))?;
                simulator.set_backend(address, port, target.as_deref());
            }
            Ok(Reply::empty(204))
        }
        (&Method::GET, ["forwards"]) => Ok(Reply::ok(json!(simulator.forwards()))),
        (&Method::DELETE, ["tokens"]) => {
            simulator.revoke_tokens();
            Ok(Reply::empty(204))
        }
        (&Method::DELETE, ["objects", service, rest @ ..]) => {
            crate::lifecycle::vanish(simulator, service, rest);
            Ok(Reply::empty(204))
        }
        (&Method::GET, ["state"]) => Ok(Reply::ok(json!(simulator.world().state))),
        (&Method::GET, ["console", server]) => Ok(Reply::ok(json!({"output": simulator.console(server)}))),
        _ => Err(Refusal::keystone(404, "Not Found", format!("there is no {} /admin{}", ask.method, ask.path))),
    }
}

fn bad(why: String) -> Refusal {
    Refusal::keystone(400, "Bad Request", why)
}

fn read<T: DeserializeOwned>(ask: &Ask) -> Result<T, Refusal> {
    serde_json::from_slice(&ask.body).map_err(|error| bad(error.to_string()))
}
