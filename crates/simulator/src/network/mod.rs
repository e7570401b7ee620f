//! Neutron: networks, tags, extensions and quotas; everything else has its own file beside this one.
//!
//! Holds: what is asked with `If-Match: revision_number=N` is done only while that is the revision.

pub(crate) mod addressing;
pub(crate) mod floating_ips;
pub(crate) mod ports;
mod quotas;
pub(crate) mod routers;
pub(crate) mod security_groups;
mod subnets;
mod tags;
mod trunks;

use hangar_openstack::wire::{
    CreateNetwork, FloatingIp, Network, Port, Router, SecurityGroup, SecurityGroupRule, Subnet, Trunk,
};
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::listing::{self, BadPage, Listed, listed};
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{State, World};
use crate::{Simulator, starter};

listed! {
    Network: name, project_id, status;
    Subnet: name, project_id, network_id, cidr;
    Port: name, project_id, network_id, device_id, device_owner, status, mac_address;
    Router: name, project_id;
    FloatingIp: project_id, floating_network_id, floating_ip_address;
    Trunk: name, project_id, port_id;
    SecurityGroup: name, project_id;
    SecurityGroupRule: project_id, security_group_id, direction;
}

const EXTENSIONS: [&str; 25] = [
    "address-scope",
    "agent",
    "allowed-address-pairs",
    "availability_zone",
    "binding",
    "default-subnetpools",
    "dhcp_agent_scheduler",
    "external-net",
    "extra_dhcp_opt",
    "net-mtu",
    "net-mtu-writable",
    "network_availability_zone",
    "port-security",
    "provider",
    "quotas",
    "rbac-policies",
    "router",
    "security-group",
    "standard-attr-description",
    "standard-attr-revisions",
    "standard-attr-tag",
    "standard-attr-timestamp",
    "trunk",
    "trunk-details",
    "uplink-status-propagation",
];

pub(crate) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let segments = ask.segments();
    if !ask.versioned {
        let versions = json!({"versions": [{"id": "v2.0", "status": "CURRENT",
            "links": [{"rel": "self", "href": format!("{}/", ask.root)}]}]});
        return if segments.is_empty() { Ok(Reply::ok(versions)) } else { Err(no_route()) };
    }
    constraint(&world.state, ask, &segments)?;
    match segments.as_slice() {
        [] => Ok(Reply::ok(json!({"resources": []}))),
        ["extensions"] => Ok(Reply::ok(json!({"extensions": EXTENSIONS.map(extension)}))),
        ["extensions", alias] => {
            let found = EXTENSIONS.contains(alias).then(|| extension(alias));
            one("extension", found, || {
                refusal(404, "ExtensionNotFound", format!("Extension with alias {alias} does not exist"))
            })
        }
        ["availability_zones"] => {
            let zone = |resource: &str| json!({"name": starter::ZONE, "resource": resource, "state": "available"});
            Ok(Reply::ok(json!({"availability_zones": [zone("network"), zone("router")]})))
        }
        ["agents"] => Ok(Reply::ok(json!({"agents": []}))),
        ["quotas", ..] => quotas::answer(world, ask),
        [collection, id, "tags", rest @ ..] => tags::answer(&mut world.state, ask, collection, id, rest),
        ["networks", ..] => networks(simulator, world, ask),
        ["subnets", ..] => subnets::answer(simulator, world, ask),
        ["ports", ..] => ports::answer(simulator, world, ask),
        ["routers", ..] => routers::answer(simulator, world, ask),
        ["floatingips", ..] => floating_ips::answer(simulator, world, ask),
        ["trunks", ..] => trunks::answer(simulator, world, ask),
        ["security-groups" | "security-group-rules", ..] => security_groups::answer(simulator, world, ask),
        _ => Err(no_route()),
    }
}

fn extension(alias: &str) -> Value {
    json!({"alias": alias, "name": alias, "description": "", "links": [], "updated": "2026-01-01T00:00:00-00:00"})
}

/// `If-Match: revision_number=N`.
fn constraint(state: &State, ask: &Ask, segments: &[&str]) -> Result<(), Refusal> {
    let wanted = ask.header("if-match").and_then(|text| text.trim_matches('"').strip_prefix("revision_number="));
    let (Some(wanted), [collection, id, ..], false) = (wanted, segments, ask.method == Method::GET) else {
        return Ok(());
    };
    let current = match *collection {
        "networks" => state.networks.get(*id).map(|row| row.revision_number),
        "subnets" => state.subnets.get(*id).map(|row| row.revision_number),
        "ports" => state.ports.get(*id).map(|row| row.revision_number),
        "routers" => state.routers.get(*id).map(|row| row.revision_number),
        "floatingips" => state.floating_ips.get(*id).map(|row| row.revision_number),
        "trunks" => state.trunks.get(*id).map(|row| row.revision_number),
        "security-groups" => state.security_groups.get(*id).map(|row| row.revision_number),
        _ => None,
    };
    match current {
        Some(current) if current.to_string() != wanted => {
            let words = format!("Constrained to {wanted}, but current revision is {current}");
            refuse(412, "RevisionNumberConstraintFailed", words)
        }
        _ => Ok(()),
    }
}

pub(crate) fn list<T: Listed>(collection: &str, items: impl Iterator<Item = T>, ask: &Ask) -> Outcome {
    let page = listing::page(items, &ask.query, |item| listing::neutron_filter(item, &ask.query));
    let page = page.map_err(|bad| match bad {
        BadPage::Limit(text) => refusal(
            400,
            "BadRequest",
            format!("Bad limit request: Limit must be an integer 0 or greater and not '{text}'."),
        ),
        BadPage::Marker(id) => {
            let mut kind = collection.trim_end_matches('s').to_owned();
            kind[..1].make_ascii_uppercase();
            missing(&kind, &id, " could not be found.")
        }
    })?;
    Ok(Reply::ok(listing::body(collection, &ask.url(), page)))
}

pub(crate) fn one<T: Serialize>(name: &str, item: Option<T>, missing: impl FnOnce() -> Refusal) -> Outcome {
    Ok(Reply::ok(json!({name: item.ok_or_else(missing)?})))
}

fn refusal(status: u16, kind: &str, words: impl Into<String>) -> Refusal {
    Refusal::neutron(status, kind, words)
}

fn refuse<T>(status: u16, kind: &str, words: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::neutron(status, kind, words))
}

fn missing(kind: &str, id: &str, words: &str) -> Refusal {
    Refusal::neutron(404, &format!("{kind}NotFound"), format!("{kind} {id}{words}"))
}

fn no_network(id: &str) -> Refusal {
    missing("Network", id, " could not be found.")
}

fn no_subnet(id: &str) -> Refusal {
    subnets::missing_subnet(id)
}

fn no_route() -> Refusal {
    Refusal::neutron(404, "HTTPNotFound", "The resource could not be found.")
}

fn forbidden(rule: &str) -> Refusal {
    Refusal::neutron(403, "PolicyNotAuthorized", format!("{rule} is disallowed by policy"))
}

/// Names as Neutron's quotas have them: `network`, `floatingip`, ...
fn over(state: &State, project: &str, name: &str, used: usize) -> Result<(), Refusal> {
    let full = |_| Refusal::neutron(409, "OverQuota", format!("Quota exceeded for resources: ['{name}']."));
    state.room(project, name, used, 1).map_err(full)
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Refusal> {
    T::deserialize(value).map_err(|error| Refusal::neutron(400, "HTTPBadRequest", format!("Invalid input: {error}")))
}

fn body_of(ask: &Ask, name: &str) -> Result<Value, Refusal> {
    let bad = |why: String| Refusal::neutron(400, "HTTPBadRequest", why);
    let mut body = ask.json().map_err(bad)?;
    body.get_mut(name).map(Value::take).ok_or_else(|| bad(format!("Unable to find '{name}' in request body")))
}

fn networks(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let state = &world.state;
    let seen = |network: &&Network| ask.sees(&network.project_id) || network.shared || network.external;
    match (&ask.method, ask.segments().as_slice()) {
        (&Method::GET, ["networks"]) => {
            let seen = state.networks.values().filter(seen);
            if ask.admin {
                list("networks", seen, ask)
            } else {
                list("networks", seen.map(|network| shown(network, ask)), ask)
            }
        }
        (&Method::GET, ["networks", id]) => {
            one("network", state.networks.get(*id).filter(seen).map(|network| shown(network, ask)), || no_network(id))
        }
        (&Method::POST, ["networks"]) => create(simulator, world, ask),
        (&Method::PUT, ["networks", id]) => update(simulator, world, ask, id),
        (&Method::DELETE, ["networks", id]) => delete(world, ask, id),
        _ => Err(no_route()),
    }
}

/// How a network is made is for administrators.
fn shown(network: &Network, ask: &Ask) -> Value {
    let mut shown = json!(network);
    if !ask.admin
        && let Some(fields) = shown.as_object_mut()
    {
        fields.retain(|key, _| !key.starts_with("provider:"));
    }
    shown
}

fn create(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let wanted: CreateNetwork = read(&body_of(ask, "network")?)?;
    let privileged = [
        (wanted.external == Some(true), "router:external"),
        (wanted.shared == Some(true), "shared"),
        (wanted.network_type.is_some(), "provider:network_type"),
    ];
    if let Some((_, field)) = privileged.iter().find(|(asked, _)| *asked && !ask.admin) {
        return Err(forbidden(&format!("(rule:create_network and rule:create_network:{field})")));
    }
    let state = &mut world.state;
    let used = state.networks.values().filter(|network| network.project_id == ask.project_id).count();
    over(state, &ask.project_id, "network", used)?;
    let segment = u32::try_from(state.count_up("segment")).unwrap_or(1);
    let now = Some(simulator.now_text());
    let flat = wanted.network_type.is_some();
    let network = Network {
        id: world.ids.text(),
        name: wanted.name,
        description: wanted.description.unwrap_or_default(),
        status: "ACTIVE".to_owned(),
        admin_state_up: wanted.admin_state_up.unwrap_or(true),
        shared: wanted.shared.unwrap_or(false),
        external: wanted.external.unwrap_or(false),
        mtu: Some(wanted.mtu.unwrap_or(if flat { 1500 } else { 1450 })),
        port_security_enabled: Some(wanted.port_security_enabled.unwrap_or(true)),
        segmentation_id: wanted.segmentation_id.or((!flat).then_some(segment)),
        network_type: Some(wanted.network_type.unwrap_or_else(|| "vxlan".to_owned())),
        physical_network: wanted.physical_network,
        project_id: ask.project_id.clone(),
        tenant_id: ask.project_id.clone(),
        revision_number: 1,
        created_at: now.clone(),
        updated_at: now,
        ..Network::default()
    };
    world.state.networks.insert(network.id.clone(), network.clone());
    Ok(Reply::new(201, json!({"network": shown(&network, ask)})))
}

fn update(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let wanted = body_of(ask, "network")?;
    let own = world.state.networks.get(id).is_some_and(|network| ask.sees(&network.project_id));
    let network = world.state.networks.get_mut(id).filter(|_| own).ok_or_else(|| no_network(id))?;
    network.name = wanted["name"].as_str().map_or_else(|| network.name.clone(), str::to_owned);
    network.description = wanted["description"].as_str().map_or_else(|| network.description.clone(), str::to_owned);
    network.admin_state_up = wanted["admin_state_up"].as_bool().unwrap_or(network.admin_state_up);
    network.port_security_enabled = wanted["port_security_enabled"].as_bool().or(network.port_security_enabled);
    network.mtu = wanted["mtu"].as_u64().and_then(|mtu| u32::try_from(mtu).ok()).or(network.mtu);
    if ask.admin {
        network.shared = wanted["shared"].as_bool().unwrap_or(network.shared);
        network.external = wanted["router:external"].as_bool().unwrap_or(network.external);
    }
    network.revision_number += 1;
    network.updated_at = Some(simulator.now_text());
    let network = network.clone();
    Ok(Reply::ok(json!({"network": shown(&network, ask)})))
}

/// Its subnets go with it; ports of anybody but the DHCP agent keep it.
fn delete(world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let state = &mut world.state;
    state.networks.get(id).filter(|network| ask.sees(&network.project_id)).ok_or_else(|| no_network(id))?;
    let users: Vec<&str> = state
        .ports
        .values()
        .filter(|port| port.network_id == id && port.device_owner != subnets::DHCP)
        .map(|port| port.id.as_str())
        .collect();
    if !users.is_empty() {
        let words = format!(
            "Unable to complete operation on network {id}. There are one or more ports still in use on the network, id for these ports is: {}.",
            users.join(",")
        );
        return refuse(409, "NetworkInUse", words);
    }
    remove(state, id);
    Ok(Reply::empty(204))
}

/// With its subnets.
fn remove(state: &mut State, id: &str) {
    let Some(network) = state.networks.get(id) else { return };
    let rows: Vec<Subnet> = network.subnets.iter().filter_map(|id| state.subnets.get(id)).cloned().collect();
    rows.iter().for_each(|subnet| subnets::remove(state, subnet));
    state.networks.remove(id);
}

/// With everything in it.
pub(crate) fn vanish(state: &mut State, id: &str) {
    let ports = state.ports.values().filter(|port| port.network_id == id).map(|port| port.id.clone());
    for port in ports.collect::<Vec<_>>() {
        state.ports.remove(&port);
    }
    remove(state, id);
}
