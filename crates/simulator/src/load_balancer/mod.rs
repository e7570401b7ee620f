//! Octavia: load balancers. What hangs below them is in [`children`].
//!
//! Holds: every change puts the load balancer and what changed into `PENDING_*`, and while it is, every other change of the
//! tree is refused with 409; the VIP is a port of Neutron, and it goes with the load balancer if Octavia made it.

mod children;
mod members;

pub(crate) use members::targets;

use hangar_openstack::wire::{
    CreateLoadBalancer, CreatePort, FixedIp, HealthMonitor, Listener, LoadBalancer, Member, Pool, Reference,
};
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Simulator;
use crate::ask::Ask;
use crate::listing::{self, BadPage, Listed, listed};
use crate::network::{floating_ips, ports};
use crate::reply::{Outcome, Refusal, Reply};
use crate::starter;
use crate::state::{Effect, State, World};

listed! {
    LoadBalancer: name, project_id, provisioning_status;
    Listener: name, project_id;
    Pool: name, project_id;
    Member: name, project_id, address;
    HealthMonitor: name, project_id;
}

const VIP_OWNER: &str = "Octavia";
const PROVIDERS: [(&str, &str); 3] = [
    ("amphora", "The Octavia Amphora driver."),
    ("octavia", "Deprecated alias of the Octavia Amphora driver."),
    ("ovn", "Octavia OVN driver."),
];

pub(crate) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let segments = ask.segments();
    let segments = match segments.as_slice() {
        [] => return Ok(Reply::ok(json!({"versions": versions(ask)}))),
        ["lbaas" | "octavia", rest @ ..] => rest,
        rest => rest,
    };
    match (&ask.method, segments) {
        (&Method::GET, ["loadbalancers"]) => list("loadbalancers", world.state.load_balancers.values(), ask),
        (&Method::POST, ["loadbalancers"]) => create(simulator, world, ask),
        (_, ["loadbalancers", id, ..]) if !seen(&world.state, ask, id) => Err(missing("Load Balancer", id)),
        (&Method::GET, ["loadbalancers", id]) => one("loadbalancer", world.state.load_balancers.get(*id)),
        (&Method::GET, ["loadbalancers", id, "status"]) => {
            Ok(Reply::ok(json!({"statuses": {"loadbalancer": world.state.load_balancers.get(*id)}})))
        }
        (&Method::PUT, ["loadbalancers", id]) => update(simulator, world, ask, id),
        (&Method::DELETE, ["loadbalancers", id]) => delete(world, ask, id),
        (&Method::GET, ["providers"]) => {
            let all: Vec<Value> =
                PROVIDERS.iter().map(|(name, text)| json!({"name": name, "description": text})).collect();
            Ok(Reply::ok(json!({"providers": all})))
        }
        (&Method::GET, ["flavors"]) => {
            let (name, id) = starter::LOAD_BALANCER_FLAVOR;
            let flavor = json!({"id": id, "name": name, "description": "", "enabled": true, "flavor_profile_id": id});
            Ok(Reply::ok(json!({"flavors": [flavor]})))
        }
        (&Method::GET, ["availabilityzones"]) => Ok(Reply::ok(json!({"availability_zones": []}))),
        (&Method::GET, ["quotas", project]) => {
            Ok(Reply::ok(json!({"quota": {"load_balancer": world.state.limit(project, "load_balancer")}})))
        }
        (&Method::PUT, ["quotas", project]) if ask.admin => {
            let limit = body_of(ask, "quota")?["load_balancer"].as_i64().unwrap_or(-1);
            let mut known = world.state.quotas.get(*project).cloned().unwrap_or_default();
            known.insert("load_balancer".to_owned(), limit);
            world.state.quotas.insert(*project, known);
            Ok(Reply::new(202, json!({"quota": {"load_balancer": limit}})))
        }
        (_, ["listeners" | "pools" | "healthmonitors", ..]) => children::answer(simulator, world, ask, segments),
        _ => Err(no_route()),
    }
}

fn no_route() -> Refusal {
    Refusal(Box::new(Reply::new(404, json!({"code": 404, "title": "Not Found", "description": ""}))))
}

/// The last entry is what clients take for the version.
fn versions(ask: &Ask) -> Vec<Value> {
    let base = ask.root.trim_end_matches(".0");
    (0..=27)
        .map(|minor| {
            let status = if minor == 27 { "CURRENT" } else { "SUPPORTED" };
            json!({"id": format!("v2.{minor}"), "status": status, "updated": "2024-01-01T00:00:00Z", "links": [{"href": base, "rel": "self"}]})
        })
        .collect()
}

fn seen(state: &State, ask: &Ask, id: &str) -> bool {
    state.load_balancers.get(id).is_some_and(|balancer| ask.sees(&balancer.project_id))
}

fn missing(kind: &str, id: &str) -> Refusal {
    Refusal::octavia(404, format!("{kind} {id} not found."))
}

fn invalid<T>(words: impl AsRef<str>) -> Result<T, Refusal> {
    Err(Refusal::octavia(400, format!("Validation failure: {}", words.as_ref())))
}

fn one<T: serde::Serialize>(name: &str, item: Option<T>) -> Outcome {
    Ok(Reply::ok(json!({name: item})))
}

fn list<'a, T: 'a>(collection: &str, items: impl Iterator<Item = &'a T>, ask: &Ask) -> Outcome
where
    &'a T: Listed,
{
    let seen = items.filter(|item| item.text("project_id").is_some_and(|project| ask.sees(project)));
    let page = listing::page(seen, &ask.query, |item| listing::neutron_filter(item, &ask.query));
    let page = page.map_err(|bad| match bad {
        BadPage::Marker(id) => Refusal::octavia(400, format!("Validation failure: marker {id} not found")),
        BadPage::Limit(_) => Refusal::octavia(400, "Supplied pagination limit is not valid."),
    })?;
    Ok(Reply::ok(listing::body(collection, &ask.url(), page)))
}

fn body_of(ask: &Ask, name: &str) -> Result<Value, Refusal> {
    let mut body = ask.json().map_err(|why| Refusal::octavia(400, why))?;
    body.get_mut(name).map(Value::take).ok_or_else(|| {
        Refusal::octavia(400, format!("Invalid input for field/attribute {name}. Mandatory field missing."))
    })
}

fn read<T: DeserializeOwned>(mut value: Value) -> Result<T, Refusal> {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    T::deserialize(&value).map_err(|error| Refusal::octavia(400, format!("Invalid input: {error}")))
}

/// Refuses while the tree is changing; otherwise it is changing from now on.
fn lock(world: &mut World, id: &str, pending: &str) -> Result<(), Refusal> {
    let Some(balancer) = world.state.load_balancers.get_mut(id) else { return Err(missing("Load Balancer", id)) };
    if balancer.provisioning_status.starts_with("PENDING") {
        let words = match pending {
            "PENDING_DELETE" => format!("Invalid state {} of loadbalancer resource {id}", balancer.provisioning_status),
            _ => format!("Load Balancer {id} is immutable and cannot be updated."),
        };
        return Err(Refusal::octavia(409, words));
    }
    balancer.provisioning_status = pending.to_owned();
    world.effects.push(Effect::LoadBalancer(id.to_owned()));
    Ok(())
}

fn create(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let wanted: CreateLoadBalancer = read(body_of(ask, "loadbalancer")?)?;
    let provider = wanted.provider.clone().unwrap_or_else(|| "amphora".to_owned());
    if !PROVIDERS.iter().any(|(name, _)| *name == provider) {
        return Err(Refusal::octavia(400, format!("Provider '{provider}' is not enabled.")));
    }
    let used = world.state.load_balancers.values().filter(|balancer| balancer.project_id == ask.project_id).count();
    let full = |_| Refusal::octavia(403, "Quota has been met for resources: load_balancer");
    world.state.room(&ask.project_id, "load_balancer", used, 1).map_err(full)?;
    let id = world.ids.text();
    let (port, subnet) = vip(simulator, world, ask, &wanted, &id)?;
    let balancer = LoadBalancer {
        id: id.clone(),
        name: wanted.name,
        description: wanted.description.unwrap_or_default(),
        provisioning_status: "PENDING_CREATE".to_owned(),
        operating_status: "OFFLINE".to_owned(),
        admin_state_up: wanted.admin_state_up.unwrap_or(true),
        vip_address: port.fixed_ips.first().and_then(|ip| ip.ip_address.clone()),
        vip_port_id: Some(port.id),
        vip_network_id: Some(port.network_id),
        vip_subnet_id: subnet,
        provider: if provider == "octavia" { "amphora".to_owned() } else { provider },
        flavor_id: wanted.flavor_id,
        availability_zone: wanted.availability_zone,
        tags: wanted.tags,
        project_id: ask.project_id.clone(),
        created_at: simulator.now_seconds(),
        ..LoadBalancer::default()
    };
    world.state.load_balancers.insert(id.clone(), balancer);
    // A whole tree may come in one request; all of it or nothing is made.
    let made = wanted
        .listeners
        .into_iter()
        .try_for_each(|listener| children::make_listener(simulator, world, ask, &id, listener).map(drop));
    let made = made.and_then(|()| {
        wanted
            .pools
            .into_iter()
            .try_for_each(|pool| children::make_pool(simulator, world, ask, &id, None, pool).map(drop))
    });
    if let Err(refused) = made {
        remove(world, &id);
        return Err(refused);
    }
    world.effects.push(Effect::LoadBalancer(id.clone()));
    Ok(Reply::new(201, json!({"loadbalancer": world.state.load_balancers.get(&id)})))
}

/// The port of the address, and its subnet.
fn vip(
    simulator: &Simulator,
    world: &mut World,
    ask: &Ask,
    wanted: &CreateLoadBalancer,
    id: &str,
) -> Result<(hangar_openstack::wire::Port, Option<String>), Refusal> {
    if let Some(port) = &wanted.vip_port_id {
        let known = world.state.ports.get(port).filter(|known| ask.sees(&known.project_id));
        let known = known
            .cloned()
            .ok_or_else(|| Refusal::octavia(400, format!("Validation failure: Port {port} not found.")))?;
        let subnet = known.fixed_ips.first().and_then(|ip| ip.subnet_id.clone());
        return Ok((known, subnet));
    }
    let network = match (&wanted.vip_subnet_id, &wanted.vip_network_id) {
        (Some(subnet), _) => match world.state.subnets.get(subnet) {
            Some(known) => known.network_id.clone(),
            None => return invalid(format!("Subnet {subnet} not found.")),
        },
        (None, Some(network)) => match world.state.networks.get(network) {
            Some(known) if known.subnets.is_empty() => return invalid("Supplied network does not contain a subnet."),
            Some(known) => known.id.clone(),
            None => return invalid(format!("Network {network} not found.")),
        },
        (None, None) => return invalid("VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id."),
    };
    let place = FixedIp { subnet_id: wanted.vip_subnet_id.clone(), ip_address: wanted.vip_address.clone() };
    let port = CreatePort {
        network_id: network,
        name: format!("octavia-lb-{id}"),
        fixed_ips: (place != FixedIp::default()).then(|| vec![place]),
        device_id: Some(format!("lb-{id}")),
        device_owner: Some(VIP_OWNER.to_owned()),
        port_security_enabled: Some(false),
        ..CreatePort::default()
    };
    let port = ports::make(simulator, world, &ask.project_id, port)?;
    let subnet = port.fixed_ips.first().and_then(|ip| ip.subnet_id.clone());
    Ok((port, subnet))
}

fn update(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let wanted = body_of(ask, "loadbalancer")?;
    lock(world, id, "PENDING_UPDATE")?;
    if let Some(balancer) = world.state.load_balancers.get_mut(id) {
        balancer.name = wanted["name"].as_str().map_or_else(|| balancer.name.clone(), str::to_owned);
        balancer.description =
            wanted["description"].as_str().map_or_else(|| balancer.description.clone(), str::to_owned);
        balancer.admin_state_up = wanted["admin_state_up"].as_bool().unwrap_or(balancer.admin_state_up);
        if let Some(tags) = wanted["tags"].as_array() {
            balancer.tags = tags.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        }
        balancer.updated_at = Some(simulator.now_seconds());
    }
    one("loadbalancer", world.state.load_balancers.get(id))
}

fn delete(world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let cascade = ask.query.first("cascade").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let balancer = world.state.load_balancers.get(id);
    if !cascade && balancer.is_some_and(|balancer| !balancer.listeners.is_empty() || !balancer.pools.is_empty()) {
        return invalid(format!("Cannot delete Load Balancer {id} - it has children"));
    }
    lock(world, id, "PENDING_DELETE")?;
    Ok(Reply::empty(204))
}

/// What was changing has changed.
pub(crate) fn settle(world: &mut World, id: &str) {
    let Some(balancer) = world.state.load_balancers.get_mut(id) else { return };
    if balancer.provisioning_status == "PENDING_DELETE" {
        return remove(world, id);
    }
    if balancer.provisioning_status.starts_with("PENDING") {
        balancer.provisioning_status = "ACTIVE".to_owned();
        balancer.operating_status = "ONLINE".to_owned();
    }
    children::settle(&mut world.state, id);
}

/// With everything below it, and the port of its address if Octavia made that.
pub(crate) fn remove(world: &mut World, id: &str) {
    children::remove_all(&mut world.state, id);
    let Some(balancer) = world.state.load_balancers.remove(id) else { return };
    let Some(port) = balancer.vip_port_id else { return };
    if world.state.ports.get(&port).is_some_and(|port| port.device_owner == VIP_OWNER) {
        floating_ips::unbind_port(world, &port);
        world.state.ports.remove(&port);
    }
}

fn reference(id: &str) -> Reference {
    Reference { id: id.to_owned() }
}
