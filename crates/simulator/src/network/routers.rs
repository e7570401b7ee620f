//! Routers: a gateway to an external network, and interfaces in subnets. Both are ports.

use hangar_openstack::wire::{CreatePort, CreateRouter, FixedIp, GatewayInfo, Router};
use http::Method;
use serde_json::{Value, json};

use super::{body_of, list, no_network, no_route, no_subnet, one, over, ports, read, refusal, refuse};
use crate::Simulator;
use crate::ask::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{State, World};

const INTERFACE: &str = "network:router_interface";
const GATEWAY: &str = "network:router_gateway";

pub(super) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let state = &world.state;
    let seen = |router: &&Router| ask.sees(&router.project_id);
    match (&ask.method, ask.segments().as_slice()) {
        (&Method::GET, ["routers"]) => list("routers", state.routers.values().filter(seen), ask),
        (&Method::GET, ["routers", id]) => one("router", state.routers.get(*id).filter(seen), || no_router(id)),
        (&Method::POST, ["routers"]) => create(simulator, world, ask),
        (_, ["routers", id, ..]) if !state.routers.get(*id).as_ref().is_some_and(seen) => Err(no_router(id)),
        (&Method::PUT, ["routers", id]) => update(simulator, world, ask, id),
        (&Method::DELETE, ["routers", id]) => delete(world, id),
        (&Method::PUT, ["routers", id, "add_router_interface"]) => add_interface(simulator, world, ask, id),
        (&Method::PUT, ["routers", id, "remove_router_interface"]) => remove_interface(world, ask, id),
        _ => Err(no_route()),
    }
}

fn no_router(id: &str) -> Refusal {
    refusal(404, "RouterNotFound", format!("Router {id} could not be found"))
}

fn bad<T>(words: String) -> Result<T, Refusal> {
    refuse(400, "BadRequest", format!("Bad router request: {words}"))
}

fn create(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let wanted: CreateRouter = read(&body_of(ask, "router")?)?;
    let used = world.state.routers.values().filter(|router| router.project_id == ask.project_id).count();
    over(&world.state, &ask.project_id, "router", used)?;
    let now = Some(simulator.now_text());
    let id = world.ids.text();
    let router = Router {
        id: id.clone(),
        name: wanted.name,
        description: wanted.description.unwrap_or_default(),
        status: "ACTIVE".to_owned(),
        admin_state_up: wanted.admin_state_up.unwrap_or(true),
        project_id: ask.project_id.clone(),
        tenant_id: ask.project_id.clone(),
        revision_number: 1,
        created_at: now.clone(),
        updated_at: now,
        ..Router::default()
    };
    world.state.routers.insert(id.clone(), router);
    if let Some(info) = wanted.external_gateway_info.filter(|info| !info.network_id.is_empty())
        && let Err(refused) = set_gateway(simulator, world, &id, info)
    {
        world.state.routers.remove(&id);
        return Err(refused);
    }
    Ok(Reply::new(201, json!({"router": world.state.routers.get(&id)})))
}

fn update(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let wanted = body_of(ask, "router")?;
    match wanted.get("external_gateway_info") {
        None => {}
        Some(info) if info["network_id"].is_string() => set_gateway(simulator, world, id, read(info)?)?,
        Some(_) => clear_gateway(world, id)?,
    }
    if let Some(router) = world.state.routers.get_mut(id) {
        router.name = wanted["name"].as_str().map_or_else(|| router.name.clone(), str::to_owned);
        router.description = wanted["description"].as_str().map_or_else(|| router.description.clone(), str::to_owned);
        router.admin_state_up = wanted["admin_state_up"].as_bool().unwrap_or(router.admin_state_up);
        router.routes = wanted["routes"].as_array().cloned().unwrap_or_else(|| router.routes.clone());
        router.revision_number += 1;
        router.updated_at = Some(simulator.now_text());
    }
    Ok(Reply::ok(json!({"router": world.state.routers.get(id)})))
}

fn set_gateway(simulator: &Simulator, world: &mut World, id: &str, info: GatewayInfo) -> Result<(), Refusal> {
    let network = world.state.networks.get(&info.network_id).ok_or_else(|| no_network(&info.network_id))?;
    if !network.external {
        return bad(format!("Network {} is not an external network.", info.network_id));
    }
    let before = world.state.routers.get(id).and_then(|router| router.external_gateway_info.clone());
    let same = before.as_ref().is_some_and(|before| {
        let asked = &info.external_fixed_ips;
        before.network_id == info.network_id
            && (asked.is_empty()
                || asked.iter().all(|ip| {
                    before.external_fixed_ips.iter().any(|own| {
                        ip.ip_address.as_ref().is_none_or(|address| own.ip_address.as_ref() == Some(address))
                    })
                }))
    });
    if same {
        return Ok(());
    }
    if before.is_some_and(|before| before.network_id != info.network_id) {
        clear_gateway(world, id)?;
    }
    remove_port(world, id, GATEWAY);
    let fixed_ips = (!info.external_fixed_ips.is_empty()).then(|| info.external_fixed_ips.clone());
    let wanted = CreatePort {
        network_id: info.network_id.clone(),
        fixed_ips,
        device_id: Some(id.to_owned()),
        device_owner: Some(GATEWAY.to_owned()),
        port_security_enabled: Some(false),
        ..CreatePort::default()
    };
    // Nobody's: a tenant sees the address in the router, not the port.
    let port = ports::make(simulator, world, "", wanted)?;
    if let Some(router) = world.state.routers.get_mut(id) {
        router.external_gateway_info = Some(GatewayInfo {
            network_id: info.network_id,
            enable_snat: Some(info.enable_snat.unwrap_or(true)),
            external_fixed_ips: port.fixed_ips,
        });
    }
    Ok(())
}

fn clear_gateway(world: &mut World, id: &str) -> Result<(), Refusal> {
    let Some(info) = world.state.routers.get(id).and_then(|router| router.external_gateway_info.clone()) else {
        return Ok(());
    };
    if world.state.floating_ips.values().any(|ip| ip.router_id.as_deref() == Some(id)) {
        let words = format!(
            "Gateway cannot be updated for router {id}, since a gateway to external network {} is required by one or more floating IPs.",
            info.network_id
        );
        return refuse(409, "RouterExternalGatewayInUseByFloatingIp", words);
    }
    remove_port(world, id, GATEWAY);
    if let Some(router) = world.state.routers.get_mut(id) {
        router.external_gateway_info = None;
    }
    Ok(())
}

fn remove_port(world: &mut World, router: &str, owner: &str) {
    let found: Vec<String> = world
        .state
        .ports
        .values()
        .filter(|port| port.device_id == router && port.device_owner == owner)
        .map(|port| port.id.clone())
        .collect();
    for id in found {
        world.state.ports.remove(&id);
    }
}

/// With its interfaces and its gateway.
pub(crate) fn vanish(world: &mut World, id: &str) {
    remove_port(world, id, INTERFACE);
    remove_port(world, id, GATEWAY);
    world.state.routers.remove(id);
}

fn delete(world: &mut World, id: &str) -> Outcome {
    let attached: Vec<&str> = interfaces(&world.state, id).map(|port| port.id.as_str()).collect();
    if !attached.is_empty() {
        let words = format!("Router {id} has ports still attached: {}", attached.join(", "));
        return refuse(409, "RouterInUse", words);
    }
    clear_gateway(world, id)?;
    world.state.routers.remove(id);
    Ok(Reply::empty(204))
}

fn interfaces<'a>(state: &'a State, router: &'a str) -> impl Iterator<Item = &'a hangar_openstack::wire::Port> {
    state.ports.values().filter(move |port| port.device_id == router && port.device_owner == INTERFACE)
}

fn on_subnet(port: &hangar_openstack::wire::Port, subnet: &str) -> bool {
    port.fixed_ips.iter().any(|ip| ip.subnet_id.as_deref() == Some(subnet))
}

/// The router that leads from a subnet to an external network.
pub(super) fn way_out<'a>(state: &'a State, subnet: &str, external: &str) -> Option<&'a Router> {
    state.routers.values().find(|router| {
        router.external_gateway_info.as_ref().is_some_and(|info| info.network_id == external)
            && interfaces(state, &router.id).any(|port| on_subnet(port, subnet))
    })
}

fn joined(world: &World, router: &str, subnet: &str, port: &str) -> Value {
    let network = world.state.subnets.get(subnet).map(|subnet| subnet.network_id.clone());
    let project = world.state.routers.get(router).map(|router| router.project_id.clone());
    json!({"id": router, "tenant_id": project, "project_id": project, "port_id": port, "network_id": network,
        "subnet_id": subnet, "subnet_ids": [subnet]})
}

fn add_interface(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let body = ask.json().map_err(|why| Refusal::neutron(400, "HTTPBadRequest", why))?;
    if let Some(port_id) = body["port_id"].as_str() {
        let port = world.state.ports.get(port_id).filter(|port| ask.sees(&port.project_id));
        let port = port.ok_or_else(|| ports::no_port(port_id))?;
        if !port.device_id.is_empty() {
            let words = format!(
                "Unable to complete operation on port {port_id} for network {}. Port already has an attached device {}.",
                port.network_id, port.device_id
            );
            return refuse(409, "PortInUse", words);
        }
        let subnet = port.fixed_ips.first().and_then(|ip| ip.subnet_id.clone()).unwrap_or_default();
        world.state.ports.change(port_id, |port| {
            port.device_id = id.to_owned();
            port.device_owner = INTERFACE.to_owned();
        });
        return Ok(Reply::ok(joined(world, id, &subnet, port_id)));
    }
    let Some(subnet_id) = body["subnet_id"].as_str() else {
        return bad("Either subnet_id or port_id must be specified.".to_owned());
    };
    let subnet = world.state.subnets.get(subnet_id).ok_or_else(|| no_subnet(subnet_id))?.clone();
    if interfaces(&world.state, id).any(|port| on_subnet(port, subnet_id)) {
        return bad(format!("Router already has a port on subnet {subnet_id}."));
    }
    let Some(gateway) = subnet.gateway_ip.clone() else {
        return bad("Subnet for router interface must have a gateway IP.".to_owned());
    };
    let wanted = CreatePort {
        network_id: subnet.network_id.clone(),
        fixed_ips: Some(vec![FixedIp { subnet_id: Some(subnet_id.to_owned()), ip_address: Some(gateway) }]),
        device_id: Some(id.to_owned()),
        device_owner: Some(INTERFACE.to_owned()),
        port_security_enabled: Some(false),
        ..CreatePort::default()
    };
    let project = world.state.routers.get(id).map(|router| router.project_id.clone()).unwrap_or_default();
    let port = ports::make(simulator, world, &project, wanted)?;
    world.state.ports.change(&port.id, |port| port.status = "ACTIVE".to_owned());
    Ok(Reply::ok(joined(world, id, subnet_id, &port.id)))
}

fn remove_interface(world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let body = ask.json().map_err(|why| Refusal::neutron(400, "HTTPBadRequest", why))?;
    let (subnet, port) = (body["subnet_id"].as_str(), body["port_id"].as_str());
    let fits = |candidate: &&hangar_openstack::wire::Port| {
        port.is_none_or(|port| candidate.id == port) && subnet.is_none_or(|subnet| on_subnet(candidate, subnet))
    };
    let Some(found) = interfaces(&world.state, id).find(fits) else {
        return match (subnet, port) {
            (Some(subnet), _) => {
                let words = format!("Router {id} has no interface on subnet {subnet}");
                refuse(404, "RouterInterfaceNotFoundForSubnet", words)
            }
            (None, Some(port)) => {
                refuse(404, "RouterInterfaceNotFound", format!("Router {id} does not have an interface with id {port}"))
            }
            (None, None) => bad("Either subnet_id or port_id must be specified.".to_owned()),
        };
    };
    let port_id = found.id.clone();
    let subnet = found.fixed_ips.first().and_then(|ip| ip.subnet_id.clone()).unwrap_or_default();
    let needs_it = |ip: &hangar_openstack::wire::FloatingIp| {
        let behind = ip.port_id.as_ref().and_then(|port| world.state.ports.get(port));
        ip.router_id.as_deref() == Some(id) && behind.is_some_and(|port| on_subnet(port, &subnet))
    };
    if world.state.floating_ips.values().any(needs_it) {
        let words = format!(
            "Router interface for subnet {subnet} on router {id} cannot be deleted, as it is required by one or more floating IPs."
        );
        return refuse(409, "RouterInterfaceInUseByFloatingIP", words);
    }
    world.state.ports.remove(&port_id);
    Ok(Reply::ok(joined(world, id, &subnet, &port_id)))
}
