//! Floating IPs: an address of an external network that leads to a port behind a router.
//!
//! Holds: a fixed address has one floating address per external network at most; the status follows the binding a moment
//! later, as the router's agent reports it.

use hangar_openstack::wire::{CreateFloatingIp, CreatePort, FixedIp, FloatingIp};
use http::Method;
use serde_json::{Value, json};

use super::{body_of, forbidden, list, no_network, no_route, one, over, ports, read, refusal, refuse, routers};
use crate::Simulator;
use crate::ask::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{Effect, State, World};

pub(super) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let state = &world.state;
    let seen = |ip: &&FloatingIp| ask.sees(&ip.project_id);
    match (&ask.method, ask.segments().as_slice()) {
        (&Method::GET, ["floatingips"]) => list("floatingips", state.floating_ips.values().filter(seen), ask),
        (&Method::GET, ["floatingips", id]) => {
            one("floatingip", state.floating_ips.get(*id).filter(seen).map(|ip| shown(state, ip)), || none(id))
        }
        (&Method::POST, ["floatingips"]) => create(simulator, world, ask),
        (_, ["floatingips", id]) if !state.floating_ips.get(*id).as_ref().is_some_and(seen) => Err(none(id)),
        (&Method::PUT, ["floatingips", id]) => update(simulator, world, ask, id),
        (&Method::DELETE, ["floatingips", id]) => {
            remove(world, id);
            Ok(Reply::empty(204))
        }
        _ => Err(no_route()),
    }
}

fn none(id: &str) -> Refusal {
    refusal(404, "FloatingIPNotFound", format!("Floating IP {id} could not be found"))
}

fn shown(state: &State, ip: &FloatingIp) -> Value {
    let mut shown = json!(ip);
    let port = ip.port_id.as_ref().and_then(|id| state.ports.get(id));
    shown["port_details"] = port.map_or(Value::Null, |port| {
        json!({"name": port.name, "network_id": port.network_id, "mac_address": port.mac_address,
            "admin_state_up": port.admin_state_up, "status": port.status, "device_id": port.device_id,
            "device_owner": port.device_owner})
    });
    shown["port_forwardings"] = json!([]);
    shown["qos_policy_id"] = Value::Null;
    shown
}

fn create(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let wanted: CreateFloatingIp = read(&body_of(ask, "floatingip")?)?;
    if wanted.floating_ip_address.is_some() && !ask.admin && !simulator.0.options.floating_ip_by_address {
        return Err(forbidden("(rule:create_floatingip and rule:create_floatingip:floating_ip_address)"));
    }
    let network = world.state.networks.get(&wanted.floating_network_id);
    if !network.ok_or_else(|| no_network(&wanted.floating_network_id))?.external {
        let words =
            format!("Bad floatingip request: Network {} is not a valid external network.", wanted.floating_network_id);
        return refuse(400, "BadRequest", words);
    }
    let used = world.state.floating_ips.values().filter(|ip| ip.project_id == ask.project_id).count();
    over(&world.state, &ask.project_id, "floatingip", used)?;
    // Before an address is taken, so that a refusal leaves nothing behind.
    let bound = match &wanted.port_id {
        Some(port) => {
            Some(check(&world.state, ask, &wanted.floating_network_id, port, wanted.fixed_ip_address.as_deref(), None)?)
        }
        None => None,
    };
    let id = world.ids.text();
    let place = FixedIp { subnet_id: wanted.subnet_id, ip_address: wanted.floating_ip_address };
    let port = CreatePort {
        network_id: wanted.floating_network_id.clone(),
        fixed_ips: (place != FixedIp::default()).then(|| vec![place]),
        device_id: Some(id.clone()),
        device_owner: Some("network:floatingip".to_owned()),
        port_security_enabled: Some(false),
        ..CreatePort::default()
    };
    let port = ports::make(simulator, world, "", port)?;
    let now = Some(simulator.now_text());
    let address = port.fixed_ips.first().and_then(|ip| ip.ip_address.clone()).unwrap_or_default();
    let ip = FloatingIp {
        id: id.clone(),
        floating_ip_address: address,
        floating_network_id: wanted.floating_network_id,
        status: "DOWN".to_owned(),
        description: wanted.description.unwrap_or_default(),
        project_id: ask.project_id.clone(),
        tenant_id: ask.project_id.clone(),
        created_at: now.clone(),
        updated_at: now,
        ..FloatingIp::default()
    };
    world.state.floating_ips.insert(id.clone(), ip);
    if let Some(binding) = bound {
        bind(world, &id, Some(binding));
    }
    let ip = world.state.floating_ips.get(&id).map(|ip| shown(&world.state, ip));
    Ok(Reply::new(201, json!({"floatingip": ip})))
}

/// Where a floating IP leads.
struct Binding {
    port: String,
    address: String,
    router: String,
}

fn check(
    state: &State,
    ask: &Ask,
    external: &str,
    port_id: &str,
    address: Option<&str>,
    own: Option<&FloatingIp>,
) -> Result<Binding, Refusal> {
    let port =
        state.ports.get(port_id).filter(|port| ask.sees(&port.project_id)).ok_or_else(|| ports::no_port(port_id))?;
    let fits = |ip: &&FixedIp| match (address, &ip.ip_address) {
        (Some(wanted), Some(is)) => wanted == is,
        (None, Some(is)) => !is.contains(':'),
        _ => false,
    };
    let Some(fixed) = port.fixed_ips.iter().find(fits) else {
        let words = format!(
            "Bad floatingip request: Cannot add floating IP to port {port_id} that has no fixed IPv4 addresses."
        );
        return refuse(400, "BadRequest", words);
    };
    let (subnet, fixed) = (fixed.subnet_id.clone().unwrap_or_default(), fixed.ip_address.clone().unwrap_or_default());
    let Some(router) = routers::way_out(state, &subnet, external) else {
        let words = format!(
            "External network {external} is not reachable from subnet {subnet}.  Therefore, cannot associate Port {port_id} with a Floating IP."
        );
        return refuse(404, "ExternalGatewayForFloatingIPNotFound", words);
    };
    let other = state.floating_ips.values().find(|ip| {
        ip.port_id.as_deref() == Some(port_id)
            && ip.fixed_ip_address.as_deref() == Some(&fixed)
            && ip.floating_network_id == external
            && own.is_none_or(|own| own.id != ip.id)
    });
    if other.is_some() {
        let name = own.map_or_else(String::new, |own| format!("{} ({})", own.floating_ip_address, own.id));
        let words = format!(
            "Cannot associate floating IP {name} with port {port_id} using fixed IP {fixed}, as that fixed IP already has a floating IP on external network {external}."
        );
        return refuse(409, "FloatingIPPortAlreadyAssociated", words);
    }
    Ok(Binding { port: port_id.to_owned(), address: fixed, router: router.id.clone() })
}

/// A request that does not name a port takes the floating IP off its port: leaving `port_id` out is saying `null`.
fn update(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let wanted = body_of(ask, "floatingip")?;
    let Some(own) = world.state.floating_ips.get(id) else { return Err(none(id)) };
    let only_description = wanted.get("description").is_some() && wanted.get("port_id").is_none();
    let binding = match wanted["port_id"].as_str() {
        Some(port) => {
            let address = wanted["fixed_ip_address"].as_str();
            Some(check(&world.state, ask, &own.floating_network_id, port, address, Some(own))?)
        }
        None => None,
    };
    if !only_description {
        bind(world, id, binding);
    }
    if let Some(ip) = world.state.floating_ips.get_mut(id) {
        ip.description = wanted["description"].as_str().map_or_else(|| ip.description.clone(), str::to_owned);
        ip.updated_at = Some(simulator.now_text());
    }
    let ip = world.state.floating_ips.get(id).map(|ip| shown(&world.state, ip));
    Ok(Reply::ok(json!({"floatingip": ip})))
}

fn bind(world: &mut World, id: &str, binding: Option<Binding>) {
    let Some(ip) = world.state.floating_ips.get_mut(id) else { return };
    let (port, address, router) = match binding {
        Some(Binding { port, address, router }) => (Some(port), Some(address), Some(router)),
        None => (None, None, None),
    };
    ip.port_id = port;
    ip.fixed_ip_address = address;
    ip.router_id = router;
    ip.revision_number += 1;
    world.effects.push(Effect::FloatingIp(id.to_owned()));
}

/// The router's agent reports.
pub(crate) fn settle(state: &mut State, id: &str) {
    if let Some(ip) = state.floating_ips.get_mut(id) {
        ip.status = if ip.port_id.is_some() { "ACTIVE" } else { "DOWN" }.to_owned();
    }
}

/// The port goes, the address stays the project's.
pub(crate) fn unbind_port(world: &mut World, port: &str) {
    for id in world.state.floating_ips.ids(|ip| ip.port_id.as_deref() == Some(port)) {
        bind(world, &id, None);
    }
}

pub(crate) fn remove(world: &mut World, id: &str) {
    world.state.floating_ips.remove(id);
    let port =
        world.state.ports.values().find(|port| port.device_id == id && port.device_owner == "network:floatingip");
    if let Some(port) = port.map(|port| port.id.clone()) {
        world.state.ports.remove(&port);
    }
}
