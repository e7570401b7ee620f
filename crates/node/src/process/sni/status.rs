//! Statuses of GatewayClasses, Gateways and TLSRoutes, as the Gateway API wants them.
//!
//! Holds: pure; what other controllers said of a route stays.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::CONTROLLER;
use super::attach::{Verdict, conflicts, refusal};
use super::condition::{Condition, conditions};
use super::objects::{Class, GROUP, Gateway, Listener, Route};

pub(super) fn of_class(class: &Class, now: &str) -> Value {
    let accepted = Condition::met("Accepted", "TLSRoutes of this class are served by the process node");
    let before = &class.status["conditions"];
    json!({"conditions": conditions(before, class.generation, now, &[("Accepted", accepted)])})
}

/// What a pass found out about a Gateway.
#[derive(Default)]
pub(super) struct Facts {
    pub address: Option<Ipv4Addr>,
    /// Why there is none, or not the one asked for.
    pub complaint: Option<String>,
    /// Why a port is not listened on.
    pub refused: HashMap<u16, String>,
    /// Routes on a listener, by its name.
    pub routes: HashMap<String, usize>,
}

pub(super) fn of_gateway(gateway: &Gateway, facts: &Facts, now: &str) -> Value {
    let listeners: Vec<(bool, Value)> =
        gateway.spec.listeners.iter().map(|listener| of_listener(gateway, listener, facts, now)).collect();
    let good = listeners.iter().filter(|(good, _)| *good).count();
    let accepted = match (&facts.complaint, good == listeners.len()) {
        (Some(complaint), _) if facts.address.is_none() => Condition::unmet("UnsupportedAddress", complaint),
        (_, true) => Condition::met(
            "Accepted",
            facts.complaint.as_deref().unwrap_or("the Gateway is served by the process node"),
        ),
        (_, false) if good > 0 => {
            Condition::met("ListenersNotValid", "some listeners are not served, see their conditions")
        }
        (_, false) => Condition::unmet("ListenersNotValid", "no listener can be served, see their conditions"),
    };
    let programmed = match facts.address {
        Some(_) if good > 0 => Condition::met("Programmed", "listeners that can be served are listening"),
        Some(_) => Condition::unmet("Invalid", "no listener can be served, see their conditions"),
        None => Condition::unmet("AddressNotAssigned", facts.complaint.as_deref().unwrap_or("no address assigned yet")),
    };
    let all = [("Accepted", accepted), ("Programmed", programmed)];
    let addresses: Vec<Value> =
        facts.address.iter().map(|address| json!({"type": "IPAddress", "value": address.to_string()})).collect();
    json!({
        "addresses": addresses,
        "conditions": conditions(&gateway.status["conditions"], gateway.generation, now, &all),
        "listeners": listeners.into_iter().map(|(_, listener)| listener).collect::<Vec<_>>(),
    })
}

fn of_listener(gateway: &Gateway, listener: &Listener, facts: &Facts, now: &str) -> (bool, Value) {
    let known = gateway.status["listeners"].as_array().into_iter().flatten();
    let before = known.into_iter().find(|known| known["name"] == listener.name.as_str());
    let before = before.map_or(&Value::Null, |before| &before["conditions"]);
    let foreign = listener.allowed_routes.kinds.iter();
    let foreign: Vec<&str> = foreign.map(|kind| kind.kind.as_str()).filter(|kind| *kind != "TLSRoute").collect();
    let only_foreign = !foreign.is_empty() && foreign.len() == listener.allowed_routes.kinds.len();
    let resolved = match foreign.is_empty() {
        true => Condition::met("ResolvedRefs", "all references were found"),
        false => {
            Condition::unmet("InvalidRouteKinds", &format!("{} is not supported, only TLSRoute", foreign.join(", ")))
        }
    };
    let conflict = conflicts(gateway, listener);
    let conflicted = match conflict {
        true => Condition {
            holds: true,
            reason: "HostnameConflict",
            message: "another listener has the same port and hostname".into(),
        },
        false => Condition { holds: false, reason: "NoConflicts", message: String::new() },
    };
    let unavailable = facts.refused.get(&listener.port).map(|why| Condition::unmet("PortUnavailable", why));
    let accepted =
        refusal(listener).or(unavailable).unwrap_or_else(|| Condition::met("Accepted", "the listener is served"));
    let good = accepted.holds && !conflict && facts.address.is_some() && !only_foreign;
    let programmed = match good {
        true => Condition::met("Programmed", "the listener is listening"),
        false => Condition::unmet("Invalid", "the listener is not served"),
    };
    let all =
        [("Accepted", accepted), ("Conflicted", conflicted), ("Programmed", programmed), ("ResolvedRefs", resolved)];
    let kinds = if only_foreign { json!([]) } else { json!([{"group": GROUP, "kind": "TLSRoute"}]) };
    let status = json!({
        "name": listener.name,
        "attachedRoutes": facts.routes.get(&listener.name).copied().unwrap_or_default(),
        "supportedKinds": kinds,
        "conditions": conditions(before, gateway.generation, now, &all),
    });
    (good, status)
}

/// Our parents after those of others; nothing if there is nothing to say and nothing was said.
pub(super) fn of_route(route: &Route, verdicts: &[Verdict], now: &str) -> Option<Value> {
    let before: Vec<&Value> = route.status["parents"].as_array().into_iter().flatten().collect();
    if verdicts.is_empty() && !before.iter().any(|parent| parent["controllerName"] == CONTROLLER) {
        return None;
    }
    let others = before.iter().filter(|parent| parent["controllerName"] != CONTROLLER).map(|parent| (*parent).clone());
    let ours = verdicts.iter().map(|verdict| {
        let known = before.iter();
        let known =
            known.copied().find(|one| one["controllerName"] == CONTROLLER && one["parentRef"] == verdict.parent);
        let known = known.map_or(&Value::Null, |known| &known["conditions"]);
        let all = [("Accepted", verdict.accepted.clone()), ("ResolvedRefs", verdict.resolved.clone())];
        let conditions = conditions(known, route.generation, now, &all);
        json!({"parentRef": verdict.parent, "controllerName": CONTROLLER, "conditions": conditions})
    });
    Some(json!({"parents": others.chain(ours).collect::<Vec<_>>()}))
}
