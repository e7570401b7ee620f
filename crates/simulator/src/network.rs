//! Neutron: networks, subnets, routers to read; ports to make and delete. Security groups have their own file.

use std::collections::HashSet;
use std::net::IpAddr;

use hangar_openstack::wire::{CreatePort, FixedIp, Port, Subnet};
use http::Method;
use serde::Serialize;
use serde_json::{Value, json};

use crate::front::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{State, World};
use crate::{Simulator, listing, security_group};

const EXTENSIONS: [&str; 6] =
    ["standard-attr-tag", "port-security", "net-mtu", "security-group", "router", "external-net"];

pub(crate) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let state = &world.state;
    let project = ask.project_id.as_str();
    let seen = |network: &&hangar_openstack::wire::Network| {
        network.project_id == project || network.shared || network.external
    };
    match (ask.versioned, &ask.method, ask.segments().as_slice()) {
        (false, &Method::GET, []) => Ok(Reply::ok(json!({"versions": [{"id": "v2.0", "status": "CURRENT",
            "links": [{"rel": "self", "href": format!("{}/", ask.root)}]}]}))),
        (true, &Method::GET, ["extensions"]) => {
            let known = EXTENSIONS.map(|alias| json!({"alias": alias, "name": alias, "description": "", "links": []}));
            Ok(Reply::ok(json!({"extensions": known})))
        }
        (true, &Method::GET, ["networks"]) => list("networks", state.networks.values().filter(seen), ask),
        (true, &Method::GET, ["networks", id]) => {
            one("network", state.networks.get(*id).filter(seen), || missing("Network", id, "could not be found."))
        }
        (true, &Method::GET, ["subnets"]) => {
            let seen = |subnet: &&Subnet| state.networks.get(&subnet.network_id).as_ref().is_some_and(seen);
            list("subnets", state.subnets.values().filter(seen), ask)
        }
        (true, &Method::GET, ["subnets", id]) => {
            one("subnet", state.subnets.get(*id), || missing("Subnet", id, "could not be found."))
        }
        (true, &Method::GET, ["routers"]) => {
            list("routers", state.routers.values().filter(|router| router.project_id == project), ask)
        }
        (true, &Method::GET, ["ports"]) => list("ports", state.ports_of(project), ask),
        (true, &Method::GET, ["ports", id]) => one("port", own_port(state, project, id), || no_port(id)),
        (true, &Method::POST, ["ports"]) => create_port(simulator, world, ask),
        (true, &Method::DELETE, ["ports", id]) => delete_port(world, ask, id),
        (true, &Method::PUT, [collection, id, "tags"]) => set_tags(&mut world.state, ask, collection, id),
        (true, _, ["security-groups" | "security-group-rules", ..]) => security_group::answer(simulator, world, ask),
        _ => Err(Refusal::neutron(404, "HTTPNotFound", "The resource could not be found.")),
    }
}

pub(crate) fn list<T: Serialize>(collection: &str, items: impl Iterator<Item = T>, ask: &Ask) -> Outcome {
    let items: Vec<Value> =
        items.map(|item| json!(item)).filter(|item| listing::neutron_filter(item, &ask.query)).collect();
    let bad = |why: String| Refusal::neutron(400, "HTTPBadRequest", why);
    let (page, next) = listing::page(items, &ask.query).map_err(bad)?;
    Ok(Reply::ok(listing::body(collection, &ask.url(), page, next)))
}

pub(crate) fn one<T: Serialize>(name: &str, item: Option<T>, missing: impl FnOnce() -> Refusal) -> Outcome {
    Ok(Reply::ok(json!({name: item.ok_or_else(missing)?})))
}

fn missing(kind: &str, id: &str, words: &str) -> Refusal {
    Refusal::neutron(404, &format!("{kind}NotFound"), format!("{kind} {id} {words}"))
}

fn no_port(id: &str) -> Refusal {
    missing("Port", id, "could not be found.")
}

fn own_port<'a>(state: &'a State, project: &str, id: &str) -> Option<&'a Port> {
    state.ports.get(id).filter(|port| port.project_id == project)
}

fn create_port(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let bad = |why: String| Refusal::neutron(400, "HTTPBadRequest", why);
    let body = ask.json().map_err(bad)?;
    let wanted: CreatePort = serde_json::from_value(body["port"].clone())
        .map_err(|error| bad(format!("Invalid input for port: {error}")))?;
    Ok(Reply::new(201, json!({"port": make_port(simulator, world, ask, wanted)?})))
}

pub(crate) fn make_port(
    simulator: &Simulator,
    world: &mut World,
    ask: &Ask,
    wanted: CreatePort,
) -> Result<Port, Refusal> {
    let state = &mut world.state;
    let network = state.networks.get(&wanted.network_id);
    let network = network.ok_or_else(|| missing("Network", &wanted.network_id, "could not be found."))?.clone();
    let full = |_| Refusal::neutron(409, "OverQuota", "Quota exceeded for resources: ['port'].");
    state.room(&ask.project_id, "ports", state.ports_of(&ask.project_id).count(), 1).map_err(full)?;
    let security_groups = match wanted.security_groups {
        Some(groups) => groups,
        None if wanted.port_security_enabled == Some(false) => vec![],
        None => state
            .groups_of(&ask.project_id)
            .filter(|group| group.name == "default")
            .map(|group| group.id.clone())
            .collect(),
    };
    for id in &security_groups {
        if state.security_groups.get(id).is_none_or(|group| group.project_id != ask.project_id) {
            return Err(security_group::no_group(id));
        }
    }
    let fixed_ips = fixed_ips(state, &network.id, &network.subnets, wanted.fixed_ips)?;
    state.last_mac += 1;
    let [_, a, b, c] = state.last_mac.to_be_bytes();
    let now = Some(simulator.now_text());
    let port = Port {
        id: world.ids.text(),
        name: wanted.name,
        description: wanted.description.unwrap_or_default(),
        network_id: network.id,
        mac_address: wanted.mac_address.unwrap_or_else(|| format!("fa:16:3e:{a:02x}:{b:02x}:{c:02x}")),
        admin_state_up: wanted.admin_state_up.unwrap_or(true),
        status: "DOWN".to_owned(),
        fixed_ips,
        security_groups,
        allowed_address_pairs: wanted.allowed_address_pairs.unwrap_or_default(),
        device_id: wanted.device_id.unwrap_or_default(),
        device_owner: wanted.device_owner.unwrap_or_default(),
        vnic_type: Some(wanted.vnic_type.unwrap_or_else(|| "normal".to_owned())),
        host_id: wanted.host_id,
        port_security_enabled: Some(wanted.port_security_enabled.unwrap_or(true)),
        project_id: ask.project_id.clone(),
        tenant_id: ask.project_id.clone(),
        revision_number: 1,
        created_at: now.clone(),
        updated_at: now,
        ..Port::default()
    };
    state.ports.insert(port.id.clone(), port.clone());
    Ok(port)
}

/// One address of the first subnet unless the request says which.
fn fixed_ips(
    state: &State,
    network_id: &str,
    subnets: &[String],
    wanted: Option<Vec<FixedIp>>,
) -> Result<Vec<FixedIp>, Refusal> {
    let wanted = match wanted {
        Some(wanted) => wanted,
        None => {
            subnets.first().map(|id| FixedIp { subnet_id: Some(id.clone()), ip_address: None }).into_iter().collect()
        }
    };
    let on_network = state.ports.values().filter(|port| port.network_id == network_id);
    let mut used: HashSet<String> =
        on_network.flat_map(|port| &port.fixed_ips).filter_map(|ip| ip.ip_address.clone()).collect();
    let mut given = vec![];
    for ip in wanted {
        let fits = |subnet: &&Subnet| match (&ip.subnet_id, &ip.ip_address) {
            (Some(id), _) => subnet.id == *id,
            (None, Some(address)) => holds(&subnet.cidr, address),
            (None, None) => true,
        };
        let subnet = subnets.iter().filter_map(|id| state.subnets.get(id)).find(fits);
        let subnet = subnet.ok_or_else(|| {
            Refusal::neutron(
                400,
                "InvalidIpForNetwork",
                "IP address is not a valid IP for any of the subnets on the specified network.",
            )
        })?;
        let address = match ip.ip_address {
            Some(address) if used.contains(&address) => {
                let words = format!(
                    "Unable to complete operation for network {network_id}. The IP address {address} is in use."
                );
                return Err(Refusal::neutron(409, "IpAddressInUse", words));
            }
            Some(address) => address,
            None => free(subnet, &used).ok_or_else(|| {
                let words = format!("No more IP addresses available on network {network_id}.");
                Refusal::neutron(409, "IpAddressGenerationFailure", words)
            })?,
        };
        used.insert(address.clone());
        given.push(FixedIp { subnet_id: Some(subnet.id.clone()), ip_address: Some(address) });
    }
    Ok(given)
}

fn holds(cidr: &str, address: &str) -> bool {
    matches!((cidr.parse::<ipnet::IpNet>(), address.parse::<IpAddr>()), (Ok(net), Ok(address)) if net.contains(&address))
}

fn free(subnet: &Subnet, used: &HashSet<String>) -> Option<String> {
    subnet.allocation_pools.iter().find_map(|pool| {
        let (start, end) = (pool.start.parse().ok()?, pool.end.parse().ok()?);
        ipnet::Ipv4AddrRange::new(start, end).map(|address| address.to_string()).find(|address| !used.contains(address))
    })
}

fn set_tags(state: &mut State, ask: &Ask, collection: &str, id: &str) -> Outcome {
    let project = ask.project_id.as_str();
    let body = ask.json().map_err(|why| Refusal::neutron(400, "HTTPBadRequest", why))?;
    let wanted: Vec<String> = serde_json::from_value(body["tags"].clone())
        .map_err(|error| Refusal::neutron(400, "HTTPBadRequest", format!("Invalid input for tags: {error}")))?;
    let found = match collection {
        "ports" => state.ports.get_mut(id).filter(|port| port.project_id == project).map(|port| &mut port.tags),
        "networks" => state.networks.get_mut(id).filter(|own| own.project_id == project).map(|own| &mut own.tags),
        "subnets" => state.subnets.get_mut(id).filter(|own| own.project_id == project).map(|own| &mut own.tags),
        "security-groups" => {
            state.security_groups.get_mut(id).filter(|group| group.project_id == project).map(|group| &mut group.tags)
        }
        _ => None,
    };
    let tags = found.ok_or_else(|| {
        Refusal::neutron(404, "TagResourceNotFound", format!("Resource {collection} {id} could not be found."))
    })?;
    tags.clone_from(&wanted);
    Ok(Reply::ok(json!({"tags": wanted})))
}

fn delete_port(world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let port = own_port(&world.state, &ask.project_id, id).ok_or_else(|| no_port(id))?;
    if port.device_owner.starts_with("network:router") {
        let words =
            format!("Port {id} cannot be deleted directly via the port API: has device owner {}.", port.device_owner);
        return Err(Refusal::neutron(409, "ServicePortInUse", words));
    }
    world.state.ports.remove(id);
    Ok(Reply::empty(204))
}
