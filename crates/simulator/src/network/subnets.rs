//! Subnets: ranges of addresses, their gateway and pools, and the DHCP port that a cloud puts into each.

use std::net::IpAddr;

use hangar_openstack::wire::{AllocationPool, CreatePort, CreateSubnet, FixedIp, Subnet};
use http::Method;
use ipnet::IpNet;
use serde_json::json;

use super::addressing::number;
use super::{body_of, list, missing, no_network, no_route, no_subnet, one, over, ports, read, refuse};
use crate::Simulator;
use crate::ask::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{State, World};

pub(super) const DHCP: &str = "network:dhcp";

pub(super) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let state = &world.state;
    let seen = |subnet: &&Subnet| {
        let network = state.networks.get(&subnet.network_id);
        network.is_some_and(|network| ask.sees(&network.project_id) || network.shared || network.external)
    };
    match (&ask.method, ask.segments().as_slice()) {
        (&Method::GET, ["subnets"]) => list("subnets", state.subnets.values().filter(seen), ask),
        (&Method::GET, ["subnets", id]) => one("subnet", state.subnets.get(*id).filter(seen), || no_subnet(id)),
        (&Method::POST, ["subnets"]) => create(simulator, world, ask),
        (&Method::PUT, ["subnets", id]) => update(simulator, world, ask, id),
        (&Method::DELETE, ["subnets", id]) => delete(world, ask, id),
        _ => Err(no_route()),
    }
}

fn invalid<T>(words: String) -> Result<T, Refusal> {
    refuse(400, "InvalidInput", format!("Invalid input for operation: {words}"))
}

fn create(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let wanted: CreateSubnet = read(&body_of(ask, "subnet")?)?;
    let state = &world.state;
    let network = state.networks.get(&wanted.network_id).filter(|network| ask.sees(&network.project_id));
    let network = network.ok_or_else(|| no_network(&wanted.network_id))?;
    let Ok(net) = wanted.cidr.parse::<IpNet>() else {
        return invalid(format!("{} is not in a CIDR format.", wanted.cidr));
    };
    let version = if net.addr().is_ipv6() { 6 } else { 4 };
    if wanted.ip_version != version {
        return invalid(format!("cidr '{}' does not match the ip_version '{}'.", wanted.cidr, wanted.ip_version));
    }
    let overlaps = |subnet: &Subnet| {
        subnet.cidr.parse::<IpNet>().is_ok_and(|other| other.contains(&net.network()) || net.contains(&other.network()))
    };
    if network.subnets.iter().filter_map(|id| state.subnets.get(id)).any(overlaps) {
        let words =
            format!("Requested subnet with cidr: {net} for network: {} overlaps with another subnet.", network.id);
        return invalid(words);
    }
    let project = network.project_id.clone();
    let used = state.subnets.values().filter(|subnet| subnet.project_id == project).count();
    over(state, &project, "subnet", used)?;
    let first = nth(net, 1);
    let gateway = match wanted.gateway_ip {
        None => first.map(|address| address.to_string()),
        Some(chosen) => chosen,
    };
    let now = Some(simulator.now_text());
    let subnet = Subnet {
        id: world.ids.text(),
        name: wanted.name,
        description: wanted.description.unwrap_or_default(),
        network_id: wanted.network_id,
        ip_version: version,
        cidr: net.trunc().to_string(),
        allocation_pools: if wanted.allocation_pools.is_empty() {
            pools(net, gateway.as_deref())
        } else {
            wanted.allocation_pools
        },
        gateway_ip: gateway,
        dns_nameservers: wanted.dns_nameservers,
        host_routes: wanted.host_routes,
        enable_dhcp: wanted.enable_dhcp.unwrap_or(true),
        ipv6_address_mode: wanted.ipv6_address_mode,
        ipv6_ra_mode: wanted.ipv6_ra_mode,
        project_id: project.clone(),
        tenant_id: project,
        created_at: now.clone(),
        updated_at: now,
        ..Subnet::default()
    };
    world.state.subnets.insert(subnet.id.clone(), subnet.clone());
    if let Some(network) = world.state.networks.get_mut(&subnet.network_id) {
        network.subnets.push(subnet.id.clone());
        network.revision_number += 1;
    }
    if subnet.enable_dhcp && simulator.0.options.dhcp_ports {
        dhcp_port(simulator, world, &subnet)?;
    }
    Ok(Reply::new(201, json!({"subnet": subnet})))
}

/// As an agent does it: one port per network, with an address of each of its subnets. It goes with the network.
fn dhcp_port(simulator: &Simulator, world: &mut World, subnet: &Subnet) -> Result<(), Refusal> {
    let there =
        world.state.ports.values().find(|port| port.network_id == subnet.network_id && port.device_owner == DHCP);
    let address = FixedIp { subnet_id: Some(subnet.id.clone()), ip_address: None };
    if let Some(id) = there.map(|port| port.id.clone()) {
        let more = super::addressing::choose(&mut world.state, &subnet.network_id, Some(vec![address]))?;
        world.state.ports.change(&id, |port| port.fixed_ips.extend(more));
        return Ok(());
    }
    let wanted = CreatePort {
        network_id: subnet.network_id.clone(),
        fixed_ips: Some(vec![address]),
        device_id: Some(format!("dhcp-{}", subnet.network_id)),
        device_owner: Some(DHCP.to_owned()),
        port_security_enabled: Some(false),
        ..CreatePort::default()
    };
    let port = ports::make(simulator, world, &subnet.project_id, wanted)?;
    world.state.ports.change(&port.id, |port| port.status = "ACTIVE".to_owned());
    Ok(())
}

fn nth(net: IpNet, offset: u128) -> Option<IpAddr> {
    let number = number(net.network()).checked_add(offset)?;
    match net {
        IpNet::V4(_) => u32::try_from(number).ok().map(|number| IpAddr::V4(number.into())),
        IpNet::V6(_) => Some(IpAddr::V6(number.into())),
    }
}

/// Everything but the ends of the range and the gateway.
fn pools(net: IpNet, gateway: Option<&str>) -> Vec<AllocationPool> {
    let size = 1u128.checked_shl(u32::from(net.max_prefix_len() - net.prefix_len())).unwrap_or(u128::MAX);
    let v4 = net.addr().is_ipv4();
    let (first, last) = if v4 && size > 2 { (1, size - 2) } else { (u128::from(size > 1), size - 1) };
    let gateway = gateway.and_then(|text| text.parse::<IpAddr>().ok()).filter(|address| net.contains(address));
    let hole = gateway.map(|address| number(address) - number(net.network()));
    let mut parts = vec![(first, last)];
    if let Some(hole) = hole.filter(|hole| (first..=last).contains(hole)) {
        parts = vec![(first, hole.saturating_sub(1)), (hole + 1, last)];
    }
    let pool = |(start, end): (u128, u128)| {
        (start <= end && start >= first).then_some(())?;
        Some(AllocationPool { start: nth(net, start)?.to_string(), end: nth(net, end)?.to_string() })
    };
    parts.into_iter().filter_map(pool).collect()
}

fn update(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let wanted = body_of(ask, "subnet")?;
    let own = world.state.subnets.get(id).is_some_and(|subnet| ask.sees(&subnet.project_id));
    let subnet = world.state.subnets.get_mut(id).filter(|_| own).ok_or_else(|| no_subnet(id))?;
    if let Some(list) = wanted.get("dns_nameservers") {
        subnet.dns_nameservers = read(list)?;
    }
    if let Some(list) = wanted.get("allocation_pools") {
        subnet.allocation_pools = read(list)?;
    }
    if let Some(list) = wanted.get("host_routes") {
        subnet.host_routes = read(list)?;
    }
    if let Some(gateway) = wanted.get("gateway_ip") {
        subnet.gateway_ip = gateway.as_str().map(str::to_owned);
    }
    subnet.enable_dhcp = wanted["enable_dhcp"].as_bool().unwrap_or(subnet.enable_dhcp);
    subnet.name = wanted["name"].as_str().map_or_else(|| subnet.name.clone(), str::to_owned);
    subnet.description = wanted["description"].as_str().map_or_else(|| subnet.description.clone(), str::to_owned);
    subnet.revision_number += 1;
    subnet.updated_at = Some(simulator.now_text());
    Ok(Reply::ok(json!({"subnet": subnet})))
}

fn delete(world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let state = &mut world.state;
    let subnet =
        state.subnets.get(id).filter(|subnet| ask.sees(&subnet.project_id)).ok_or_else(|| no_subnet(id))?.clone();
    let on_it =
        |port: &hangar_openstack::wire::Port| port.fixed_ips.iter().any(|ip| ip.subnet_id.as_deref() == Some(id));
    if state.ports.values().any(|port| port.device_owner != DHCP && on_it(port)) {
        let words = format!(
            "Unable to complete operation on subnet {id}: One or more ports have an IP allocation from this subnet."
        );
        return refuse(409, "SubnetInUse", words);
    }
    remove(state, &subnet);
    if let Some(network) = state.networks.get_mut(&subnet.network_id) {
        network.subnets.retain(|own| own != id);
        network.revision_number += 1;
    }
    Ok(Reply::empty(204))
}

/// With the addresses that the DHCP port has on it, and that port with the last of them.
pub(super) fn remove(state: &mut State, subnet: &Subnet) {
    let dhcp: Vec<String> = state
        .ports
        .values()
        .filter(|port| port.network_id == subnet.network_id && port.device_owner == DHCP)
        .map(|port| port.id.clone())
        .collect();
    for id in dhcp {
        let left = state.ports.change(&id, |port| {
            port.fixed_ips.retain(|ip| ip.subnet_id.as_deref() != Some(&subnet.id));
            port.fixed_ips.len()
        });
        if left == Some(0) {
            state.ports.remove(&id);
        }
    }
    state.subnets.remove(&subnet.id);
}

pub(super) fn missing_subnet(id: &str) -> Refusal {
    missing("Subnet", id, " could not be found.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_leave_out_the_ends_and_the_gateway() {
        type Row = (&'static str, Option<&'static str>, &'static [(&'static str, &'static str)]);
        let table: [Row; 4] = [
            ("10.0.0.0/24", Some("10.0.0.1"), &[("10.0.0.2", "10.0.0.254")]),
            ("10.0.0.0/29", Some("10.0.0.3"), &[("10.0.0.1", "10.0.0.2"), ("10.0.0.4", "10.0.0.6")]),
            ("10.0.0.0/30", None, &[("10.0.0.1", "10.0.0.2")]),
            ("2001:db8::/126", Some("2001:db8::1"), &[("2001:db8::2", "2001:db8::3")]),
        ];
        for (cidr, gateway, expected) in table {
            let found = pools(cidr.parse().unwrap(), gateway);
            let found: Vec<(&str, &str)> = found.iter().map(|pool| (pool.start.as_str(), pool.end.as_str())).collect();
            assert_eq!(found, expected, "{cidr}");
        }
    }
}
