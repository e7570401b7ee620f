//! Listeners, pools and health monitors.

use hangar_openstack::wire::{
    CreateHealthMonitor, CreateListener, CreatePool, HealthMonitor, Listener, Pool, Reference,
};
use http::Method;
use serde_json::{Value, json};

use super::{body_of, list, lock, members, missing, no_route, one, read, reference};
use crate::Simulator;
use crate::ask::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{State, World};

pub(super) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask, segments: &[&str]) -> Outcome {
    let state = &world.state;
    let own = |project: Option<&String>| project.is_some_and(|project| ask.sees(project));
    match (&ask.method, segments) {
        (&Method::GET, ["listeners"]) => list("listeners", state.listeners.values(), ask),
        (&Method::GET, ["pools"]) => list("pools", state.pools.values(), ask),
        (&Method::GET, ["healthmonitors"]) => list("healthmonitors", state.health_monitors.values(), ask),
        (&Method::POST, ["listeners"]) => create_listener(simulator, world, ask),
        (&Method::POST, ["pools"]) => create_pool(simulator, world, ask),
        (&Method::POST, ["healthmonitors"]) => create_monitor(simulator, world, ask),
        (_, ["listeners", id, ..]) if !own(state.listeners.get(*id).map(|row| &row.project_id)) => {
            Err(missing("Listener", id))
        }
        (_, ["pools", id, ..]) if !own(state.pools.get(*id).map(|row| &row.project_id)) => Err(missing("Pool", id)),
        (_, ["healthmonitors", id, ..]) if !own(state.health_monitors.get(*id).map(|row| &row.project_id)) => {
            Err(missing("Health Monitor", id))
        }
        (&Method::GET, ["listeners", id]) => one("listener", state.listeners.get(*id)),
        (&Method::GET, ["pools", id]) => one("pool", state.pools.get(*id)),
        (&Method::GET, ["healthmonitors", id]) => one("healthmonitor", state.health_monitors.get(*id)),
        (&Method::PUT, ["listeners", id]) => update_listener(simulator, world, ask, id),
        (&Method::PUT, ["pools", id]) => update_pool(simulator, world, ask, id),
        (&Method::PUT, ["healthmonitors", id]) => update_monitor(simulator, world, ask, id),
        (&Method::DELETE, [kind @ ("listeners" | "pools" | "healthmonitors"), id]) => delete(world, kind, id),
        (_, ["pools", id, "members", ..]) => members::answer(simulator, world, ask, id, &segments[3..]),
        _ => Err(no_route()),
    }
}

fn first(list: &[Reference]) -> String {
    list.first().map(|reference| reference.id.clone()).unwrap_or_default()
}

pub(super) fn balancer_of_pool(state: &State, pool: &str) -> String {
    state.pools.get(pool).map(|pool| first(&pool.loadbalancers)).unwrap_or_default()
}

fn create_listener(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let wanted: CreateListener = read(body_of(ask, "listener")?)?;
    let balancer = wanted.loadbalancer_id.clone().unwrap_or_default();
    if !super::seen(&world.state, ask, &balancer) {
        return Err(missing("Load Balancer", &balancer));
    }
    check_listener(&world.state, &balancer, &wanted)?;
    lock(world, &balancer, "PENDING_UPDATE")?;
    let listener = make_listener(simulator, world, ask, &balancer, wanted)?;
    Ok(Reply::new(201, json!({"listener": listener})))
}

fn check_listener(state: &State, balancer: &str, wanted: &CreateListener) -> Result<(), Refusal> {
    let on = state.load_balancers.get(balancer).map(|balancer| balancer.listeners.as_slice()).unwrap_or_default();
    let udp = |protocol: &str| matches!(protocol, "UDP" | "SCTP");
    let same = |listener: &Listener| {
        listener.protocol_port == wanted.protocol_port && udp(&listener.protocol) == udp(&wanted.protocol)
    };
    if on.iter().filter_map(|reference| state.listeners.get(&reference.id)).any(same) {
        let words = format!(
            "Another Listener on this Load Balancer is already using protocol {} and protocol_port {}",
            wanted.protocol, wanted.protocol_port
        );
        return Err(Refusal::octavia(409, words));
    }
    let known = ["TCP", "HTTP", "HTTPS", "TERMINATED_HTTPS", "UDP", "SCTP", "PROMETHEUS"];
    if !known.contains(&wanted.protocol.as_str()) {
        let words = format!("Invalid input for field/attribute protocol. Value: '{}'.", wanted.protocol);
        return Err(Refusal::octavia(400, words));
    }
    let bad = wanted.allowed_cidrs.iter().flatten().find(|cidr| cidr.parse::<ipnet::IpNet>().is_err());
    bad.map_or(Ok(()), |cidr| Err(Refusal::octavia(400, format!("Invalid input for field/attribute allowed_cidrs. Value: '{cidr}'. Value should be IPv4 or IPv6 CIDR format"))))
}

pub(super) fn make_listener(
    simulator: &Simulator,
    world: &mut World,
    ask: &Ask,
    balancer: &str,
    wanted: CreateListener,
) -> Result<Listener, Refusal> {
    check_listener(&world.state, balancer, &wanted)?;
    let id = world.ids.text();
    let listener = Listener {
        id: id.clone(),
        name: wanted.name,
        description: wanted.description.unwrap_or_default(),
        protocol: wanted.protocol,
        protocol_port: wanted.protocol_port,
        connection_limit: wanted.connection_limit.unwrap_or(-1),
        default_pool_id: wanted.default_pool_id,
        allowed_cidrs: wanted.allowed_cidrs,
        loadbalancers: vec![reference(balancer)],
        provisioning_status: "PENDING_CREATE".to_owned(),
        operating_status: "OFFLINE".to_owned(),
        admin_state_up: true,
        tags: wanted.tags,
        project_id: ask.project_id.clone(),
        created_at: simulator.now_seconds(),
        updated_at: None,
    };
    world.state.listeners.insert(id.clone(), listener);
    if let Some(balancer) = world.state.load_balancers.get_mut(balancer) {
        balancer.listeners.push(reference(&id));
    }
    if let Some(pool) = wanted.default_pool {
        make_pool(simulator, world, ask, balancer, Some(&id), *pool)?;
    }
    world.state.listeners.get(&id).cloned().ok_or_else(|| missing("Listener", &id))
}

fn create_pool(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let wanted: CreatePool = read(body_of(ask, "pool")?)?;
    let listener = wanted.listener_id.clone();
    let balancer = match (&listener, &wanted.loadbalancer_id) {
        (Some(id), _) => {
            let known = world.state.listeners.get(id).filter(|known| ask.sees(&known.project_id));
            let known = known.ok_or_else(|| missing("Listener", id))?;
            if known.default_pool_id.is_some() {
                return Err(Refusal::octavia(409, format!("Listener {id} already has a default pool.")));
            }
            first(&known.loadbalancers)
        }
        (None, Some(id)) => id.clone(),
        (None, None) => return super::invalid("Must provide at least one of: loadbalancer_id, listener_id"),
    };
    lock(world, &balancer, "PENDING_UPDATE")?;
    let pool = make_pool(simulator, world, ask, &balancer, listener.as_deref(), wanted)?;
    Ok(Reply::new(201, json!({"pool": pool})))
}

pub(super) fn make_pool(
    simulator: &Simulator,
    world: &mut World,
    ask: &Ask,
    balancer: &str,
    listener: Option<&str>,
    wanted: CreatePool,
) -> Result<Pool, Refusal> {
    let provider = world.state.load_balancers.get(balancer).map(|balancer| balancer.provider.clone());
    if provider.as_deref() == Some("ovn") && wanted.lb_algorithm != "SOURCE_IP_PORT" {
        let words = format!(
            "Provider 'ovn' does not support a requested option: OVN provider does not support {} algorithm",
            wanted.lb_algorithm
        );
        return Err(Refusal::octavia(501, words));
    }
    let id = world.ids.text();
    let pool = Pool {
        id: id.clone(),
        name: wanted.name,
        description: wanted.description.unwrap_or_default(),
        protocol: wanted.protocol,
        lb_algorithm: wanted.lb_algorithm,
        loadbalancers: vec![reference(balancer)],
        listeners: listener.map(reference).into_iter().collect(),
        provisioning_status: "PENDING_CREATE".to_owned(),
        operating_status: "OFFLINE".to_owned(),
        admin_state_up: true,
        tags: wanted.tags,
        project_id: ask.project_id.clone(),
        created_at: simulator.now_seconds(),
        ..Pool::default()
    };
    world.state.pools.insert(id.clone(), pool);
    if let Some(balancer) = world.state.load_balancers.get_mut(balancer) {
        balancer.pools.push(reference(&id));
    }
    if let Some(listener) = listener.and_then(|id| world.state.listeners.get_mut(id)) {
        listener.default_pool_id = Some(id.clone());
    }
    for member in wanted.members {
        members::make(simulator, world, ask, &id, member)?;
    }
    if let Some(monitor) = wanted.healthmonitor {
        make_monitor(simulator, world, ask, &id, monitor)?;
    }
    world.state.pools.get(&id).cloned().ok_or_else(|| missing("Pool", &id))
}

fn create_monitor(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let wanted: CreateHealthMonitor = read(body_of(ask, "healthmonitor")?)?;
    let pool = wanted.pool_id.clone().unwrap_or_default();
    let known = world
        .state
        .pools
        .get(&pool)
        .filter(|known| ask.sees(&known.project_id))
        .ok_or_else(|| missing("Pool", &pool))?;
    if known.healthmonitor_id.is_some() {
        return Err(Refusal::octavia(409, "This pool already has a health monitor"));
    }
    if simulator.0.options.no_health_monitors {
        let words = "Provider 'amphora' does not support a requested action: This provider does not support creating health monitors.";
        return Err(Refusal::octavia(501, words));
    }
    let balancer = balancer_of_pool(&world.state, &pool);
    lock(world, &balancer, "PENDING_UPDATE")?;
    let monitor = make_monitor(simulator, world, ask, &pool, wanted)?;
    Ok(Reply::new(201, json!({"healthmonitor": monitor})))
}

fn make_monitor(
    simulator: &Simulator,
    world: &mut World,
    ask: &Ask,
    pool: &str,
    wanted: CreateHealthMonitor,
) -> Result<HealthMonitor, Refusal> {
    if wanted.delay < wanted.timeout {
        return super::invalid(format!(
            "Invalid input received for attributes delay and timeout. Value: delay {} and timeout {}. Delay must be greater than or equal to timeout",
            wanted.delay, wanted.timeout
        ));
    }
    let monitor = HealthMonitor {
        id: world.ids.text(),
        name: wanted.name,
        kind: wanted.kind,
        delay: wanted.delay,
        timeout: wanted.timeout,
        max_retries: wanted.max_retries,
        max_retries_down: wanted.max_retries_down.unwrap_or(3),
        pools: vec![reference(pool)],
        provisioning_status: "PENDING_CREATE".to_owned(),
        operating_status: "OFFLINE".to_owned(),
        admin_state_up: true,
        project_id: ask.project_id.clone(),
        created_at: simulator.now_seconds(),
        ..HealthMonitor::default()
    };
    world.state.health_monitors.insert(monitor.id.clone(), monitor.clone());
    if let Some(pool) = world.state.pools.get_mut(pool) {
        pool.healthmonitor_id = Some(monitor.id.clone());
    }
    Ok(monitor)
}

fn update_listener(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let wanted = body_of(ask, "listener")?;
    let balancer = world.state.listeners.get(id).map(|row| first(&row.loadbalancers)).unwrap_or_default();
    lock(world, &balancer, "PENDING_UPDATE")?;
    if let Some(row) = world.state.listeners.get_mut(id) {
        row.name = wanted["name"].as_str().map_or_else(|| row.name.clone(), str::to_owned);
        if let Some(list) = wanted.get("allowed_cidrs") {
            row.allowed_cidrs = serde_json::from_value(list.clone()).ok().flatten();
        }
        if let Some(pool) = wanted.get("default_pool_id") {
            row.default_pool_id = pool.as_str().map(str::to_owned);
        }
        row.provisioning_status = "PENDING_UPDATE".to_owned();
        row.updated_at = Some(simulator.now_seconds());
    }
    one("listener", world.state.listeners.get(id))
}

fn update_pool(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let wanted = body_of(ask, "pool")?;
    let balancer = balancer_of_pool(&world.state, id);
    lock(world, &balancer, "PENDING_UPDATE")?;
    if let Some(row) = world.state.pools.get_mut(id) {
        row.name = wanted["name"].as_str().map_or_else(|| row.name.clone(), str::to_owned);
        row.lb_algorithm = wanted["lb_algorithm"].as_str().map_or_else(|| row.lb_algorithm.clone(), str::to_owned);
        row.provisioning_status = "PENDING_UPDATE".to_owned();
        row.updated_at = Some(simulator.now_seconds());
    }
    one("pool", world.state.pools.get(id))
}

fn update_monitor(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let wanted = body_of(ask, "healthmonitor")?;
    let pool = world.state.health_monitors.get(id).map(|row| first(&row.pools)).unwrap_or_default();
    let balancer = balancer_of_pool(&world.state, &pool);
    lock(world, &balancer, "PENDING_UPDATE")?;
    let number = |value: &Value, old: u32| value.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(old);
    if let Some(row) = world.state.health_monitors.get_mut(id) {
        row.delay = number(&wanted["delay"], row.delay);
        row.timeout = number(&wanted["timeout"], row.timeout);
        row.max_retries = number(&wanted["max_retries"], row.max_retries);
        row.max_retries_down = number(&wanted["max_retries_down"], row.max_retries_down);
        row.provisioning_status = "PENDING_UPDATE".to_owned();
        row.updated_at = Some(simulator.now_seconds());
    }
    one("healthmonitor", world.state.health_monitors.get(id))
}

fn delete(world: &mut World, kind: &str, id: &str) -> Outcome {
    let state = &world.state;
    let balancer = match kind {
        "listeners" => state.listeners.get(id).map(|row| first(&row.loadbalancers)),
        "pools" => Some(balancer_of_pool(state, id)),
        _ => state.health_monitors.get(id).map(|row| balancer_of_pool(state, &first(&row.pools))),
    };
    lock(world, &balancer.unwrap_or_default(), "PENDING_UPDATE")?;
    let state = &mut world.state;
    let status = match kind {
        "listeners" => state.listeners.get_mut(id).map(|row| &mut row.provisioning_status),
        "pools" => state.pools.get_mut(id).map(|row| &mut row.provisioning_status),
        _ => state.health_monitors.get_mut(id).map(|row| &mut row.provisioning_status),
    };
    if let Some(status) = status {
        *status = "PENDING_DELETE".to_owned();
    }
    Ok(Reply::empty(204))
}

/// What was on its way below this load balancer is there, or gone.
pub(super) fn settle(state: &mut State, balancer: &str) {
    let below = |list: &[Reference]| list.iter().any(|reference| reference.id == balancer);
    for id in state.listeners.ids(|row| below(&row.loadbalancers) && row.provisioning_status != "ACTIVE") {
        let Some(row) = state.listeners.get_mut(&id) else { continue };
        if row.provisioning_status == "PENDING_DELETE" {
            remove_listener(state, balancer, &id);
        } else {
            (row.provisioning_status, row.operating_status) = ("ACTIVE".to_owned(), "ONLINE".to_owned());
        }
    }
    let pools = state.pools.ids(|row| below(&row.loadbalancers));
    for id in pools {
        members::settle(state, &id);
        for monitor in state.health_monitors.ids(|row| first(&row.pools) == id && row.provisioning_status != "ACTIVE") {
            let Some(row) = state.health_monitors.get_mut(&monitor) else { continue };
            if row.provisioning_status == "PENDING_DELETE" {
                remove_monitor(state, &id, &monitor);
            } else {
                (row.provisioning_status, row.operating_status) = ("ACTIVE".to_owned(), "ONLINE".to_owned());
            }
        }
        let Some(row) = state.pools.get(&id) else { continue };
        match row.provisioning_status.as_str() {
            "ACTIVE" => {}
            "PENDING_DELETE" => remove_pool(state, balancer, &id),
            _ => {
                if let Some(row) = state.pools.get_mut(&id) {
                    (row.provisioning_status, row.operating_status) = ("ACTIVE".to_owned(), "ONLINE".to_owned());
                }
            }
        }
    }
}

fn remove_listener(state: &mut State, balancer: &str, id: &str) {
    state.listeners.remove(id);
    if let Some(row) = state.load_balancers.get_mut(balancer) {
        row.listeners.retain(|reference| reference.id != id);
    }
    for pool in state.pools.ids(|pool| pool.listeners.iter().any(|reference| reference.id == id)) {
        if let Some(pool) = state.pools.get_mut(&pool) {
            pool.listeners.retain(|reference| reference.id != id);
        }
    }
}

fn remove_pool(state: &mut State, balancer: &str, id: &str) {
    members::remove_all(state, id);
    if let Some(monitor) = state.pools.remove(id).and_then(|pool| pool.healthmonitor_id) {
        state.health_monitors.remove(&monitor);
    }
    for listener in state.listeners.ids(|row| row.default_pool_id.as_deref() == Some(id)) {
        if let Some(row) = state.listeners.get_mut(&listener) {
            row.default_pool_id = None;
        }
    }
    if let Some(row) = state.load_balancers.get_mut(balancer) {
        row.pools.retain(|reference| reference.id != id);
    }
}

fn remove_monitor(state: &mut State, pool: &str, id: &str) {
    state.health_monitors.remove(id);
    if let Some(pool) = state.pools.get_mut(pool) {
        pool.healthmonitor_id = None;
    }
}

pub(super) fn remove_all(state: &mut State, balancer: &str) {
    let below = |list: &[Reference]| list.iter().any(|reference| reference.id == balancer);
    for id in state.pools.ids(|row| below(&row.loadbalancers)) {
        remove_pool(state, balancer, &id);
    }
    for id in state.listeners.ids(|row| below(&row.loadbalancers)) {
        remove_listener(state, balancer, &id);
    }
}
