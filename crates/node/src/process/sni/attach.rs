//! Which routes belong to which listeners of which Gateways, and what follows: tables of names, and verdicts for the statuses.
//!
//! Holds: pure; routes are taken from the oldest to the newest, so that a name belongs to whoever had it first.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};

use kube::core::{Selector, SelectorExt as _};
use serde_json::Value;

use super::backends::{Find, split};
use super::condition::Condition;
use super::hosts::{Host, Table};
use super::objects::{GROUP, Gateway, Listener, ParentRef, Route};

/// What is known in one pass. The Gateways are those of our classes.
pub(super) struct World<'a> {
    pub gateways: &'a [Gateway],
    pub routes: &'a [Route],
    /// By the uid of the Gateway.
    pub addresses: &'a HashMap<String, Ipv4Addr>,
    /// Labels by the name of the namespace.
    pub namespaces: &'a HashMap<String, BTreeMap<String, String>>,
    pub find: &'a dyn Find,
}

/// What is said of one route to one of its parents.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    pub parent: Value,
    pub accepted: Condition,
    pub resolved: Condition,
}

#[derive(Debug, Default)]
pub(super) struct Attached {
    pub tables: BTreeMap<SocketAddr, Table>,
    /// In the order of the World's routes.
    pub verdicts: Vec<Vec<Verdict>>,
    /// Routes by the uid of the Gateway and the name of the listener.
    pub counts: HashMap<(String, String), usize>,
}

pub(super) fn attach(world: &World<'_>) -> Attached {
    let mut attached = Attached { verdicts: vec![vec![]; world.routes.len()], ..Attached::default() };
    for gateway in world.gateways {
        let Some(address) = world.addresses.get(&gateway.uid) else { continue };
        for listener in &gateway.spec.listeners {
            if refusal(listener).is_none() && !conflicts(gateway, listener) {
                attached.tables.entry((*address, listener.port).into()).or_default();
            }
        }
    }
    let mut order: Vec<usize> = (0..world.routes.len()).collect();
    let age = |at: &usize| world.routes.get(*at).map(|route| (route.created, &route.namespace, &route.name));
    order.sort_by(|a, b| age(a).cmp(&age(b)));
    for at in order {
        let Some(route) = world.routes.get(at) else { continue };
        let verdicts = route.spec.parent_refs.iter().filter_map(|parent| verdict(world, route, parent, &mut attached));
        let verdicts: Vec<Verdict> = verdicts.collect();
        if let Some(place) = attached.verdicts.get_mut(at) {
            *place = verdicts;
        }
    }
    attached
}

/// None if the parent is no Gateway of ours.
fn verdict(world: &World<'_>, route: &Route, parent: &Value, attached: &mut Attached) -> Option<Verdict> {
    let reference: ParentRef = serde_json::from_value(parent.clone()).ok()?;
    let of_group = reference.group.as_deref().unwrap_or(GROUP) == GROUP;
    if !of_group || reference.kind.as_deref().unwrap_or("Gateway") != "Gateway" {
        return None;
    }
    let namespace = reference.namespace.as_deref().unwrap_or(&route.namespace);
    let gateway = world.gateways.iter().find(|one| one.namespace == namespace && one.name == reference.name)?;
    let (split, resolved) = split(world.find, route);
    let accepted = match fitting(world, route, gateway, &reference) {
        Err(refusal) => refusal,
        Ok(fitting) => {
            for (listener, hosts) in fitting {
                *attached.counts.entry((gateway.uid.clone(), listener.name.clone())).or_default() += 1;
                let Some(address) = world.addresses.get(&gateway.uid) else { continue };
                let table = attached.tables.entry((*address, listener.port).into()).or_default();
                hosts.into_iter().for_each(|host| table.add(host, split.clone()));
            }
            Condition::met("Accepted", "the route is served")
        }
    };
    Some(Verdict { parent: parent.clone(), accepted, resolved })
}

type Fitting<'a> = Vec<(&'a Listener, Vec<Host>)>;

/// Listeners that take the route, each with the names that both of them allow.
fn fitting<'a>(
    world: &World<'_>,
    route: &Route,
    gateway: &'a Gateway,
    parent: &ParentRef,
) -> Result<Fitting<'a>, Condition> {
    let name = format!("{}/{}", gateway.namespace, gateway.name);
    let named = |listener: &&Listener| {
        parent.section_name.as_ref().is_none_or(|section| *section == listener.name)
            && parent.port.is_none_or(|port| port == listener.port)
    };
    let listeners: Vec<&Listener> = gateway.spec.listeners.iter().filter(named).collect();
    if listeners.is_empty() {
        let note = format!("Gateway {name} has no such listener: check sectionName and port of the parentRef");
        return Err(Condition::unmet("NoMatchingParent", &note));
    }
    let allowed: Vec<&Listener> = listeners
        .into_iter()
        .filter(|listener| refusal(listener).is_none() && !conflicts(gateway, listener))
        .filter(|listener| allows(world, listener, gateway, route))
        .collect();
    if allowed.is_empty() {
        let note = format!(
            "no listener of Gateway {name} allows TLSRoutes from namespace {}: see allowedRoutes and the conditions of its listeners",
            route.namespace
        );
        return Err(Condition::unmet("NotAllowedByListeners", &note));
    }
    let hosts = |listener: &Listener| -> Vec<Host> {
        let own = Host::of_gateway(&listener.hostname);
        match route.spec.hostnames.as_slice() {
            [] => vec![own],
            names => names.iter().filter_map(|name| own.and(&Host::of_gateway(name))).collect(),
        }
    };
    let fitting: Fitting<'a> =
        allowed.into_iter().map(|one| (one, hosts(one))).filter(|(_, h)| !h.is_empty()).collect();
    if fitting.is_empty() {
        let note = format!("no listener of Gateway {name} has a hostname that matches the route");
        return Err(Condition::unmet("NoMatchingListenerHostname", &note));
    }
    Ok(fitting)
}

fn allows(world: &World<'_>, listener: &Listener, gateway: &Gateway, route: &Route) -> bool {
    let (kinds, namespaces) = (&listener.allowed_routes.kinds, &listener.allowed_routes.namespaces);
    let of_kind = kinds.is_empty()
        || kinds.iter().any(|one| one.kind == "TLSRoute" && one.group.as_deref().unwrap_or(GROUP) == GROUP);
    of_kind
        && match namespaces.from.as_deref().unwrap_or("Same") {
            "All" => true,
            "Selector" => {
                let labels = world.namespaces.get(&route.namespace);
                let selector = Selector::try_from(namespaces.selector.clone());
                selector.is_ok_and(|selector| labels.is_some_and(|labels| selector.matches(labels)))
            }
            _ => route.namespace == gateway.namespace,
        }
}

/// Why a listener cannot be served at all.
pub(super) fn refusal(listener: &Listener) -> Option<Condition> {
    let mode = listener.tls.mode.as_deref().unwrap_or("Terminate");
    match (listener.protocol.as_str(), mode) {
        ("TLS", "Passthrough") => None,
        ("TLS", _) => Some(Condition::unmet(
            "UnsupportedProtocol",
            "TLS termination is not supported: set tls.mode to Passthrough",
        )),
        (other, _) => {
            let note = format!("protocol {other} is not supported: set protocol to TLS and tls.mode to Passthrough");
            Some(Condition::unmet("UnsupportedProtocol", &note))
        }
    }
}

/// Two listeners of one Gateway with the same port and the same names cannot be told apart.
pub(super) fn conflicts(gateway: &Gateway, listener: &Listener) -> bool {
    let same = |other: &&Listener| {
        refusal(other).is_none()
            && other.port == listener.port
            && Host::of_gateway(&other.hostname) == Host::of_gateway(&listener.hostname)
    };
    gateway.spec.listeners.iter().filter(same).count() > 1
}
