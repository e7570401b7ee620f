//! Where the API answers: at a load balancer, a floating IP or a fixed address, or wherever a hosted control plane says.
//!
//! Holds: an endpoint that is set is never changed; with a hosted control plane nothing is allocated; what was allocated is remembered by its owner's key, and its address
//! together with the endpoint.

use std::net::IpAddr;

use hangar_api::Object;
use hangar_api::kinds::OpenStackMachine;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cloud::floating_ip::{self, Address};
use crate::cloud::load_balancer::{self, ApiLoadBalancer, Target};
use crate::planner::Part;
use crate::{Phase, intent};
use hangar_api::names::CONTROL_PLANE_LABEL;

use super::parts::{
    api_port, api_ports, as_cidr, external, is_hosted, needs_load_balancers, network, owner, router, router_addresses,
    spec, subnets, wants_api_address,
};
use super::{World, bastion};

/// The address that was allocated for the API.
pub const API_ADDRESS_ANNOTATION: &str = "hangar.dev/api-floating-ip";

fn host(world: &World) -> &str {
    world.object().text("/spec/controlPlaneEndpoint/host")
}

fn fixed_ip(world: &World) -> Option<&str> {
    spec(world)["apiServerFixedIP"].as_str()
}

pub fn balancer(world: &World, now: Timestamp) -> Phase {
    if needs_load_balancers(world) { balancer_part(world).build(now) } else { Phase::Done }
}

fn balancer_part(world: &World) -> ApiLoadBalancer<'_> {
    let found = &world.facts.found;
    let own_network = found.balancer_network.id().or(found.balancer_subnet.id()).is_some();
    let first = subnets(world).first().map(|subnet| subnet.id.as_str());
    ApiLoadBalancer {
        cloud: &world.facts.cloud,
        owner: owner(world),
        spec: &spec(world)["apiServerLoadBalancer"],
        ports: api_ports(world),
        network_id: found.balancer_network.id(),
        subnet_id: found.balancer_subnet.id().or(first.filter(|_| !own_network)),
        member_subnet_id: first.filter(|_| own_network),
        address: fixed_address(world),
        flavor_id: found.balancer_flavor.id(),
        allowed: allowed(world),
        targets: targets(world),
    }
}

/// Where the load balancer is to be within its network.
fn fixed_address(world: &World) -> &str {
    let is_address = |text: &&str| text.parse::<IpAddr>().is_ok();
    let internal = world.object().text("/status/apiServerLoadBalancer/internalIP");
    let endpoint = if wants_api_address(world) { "" } else { host(world) };
    [internal, fixed_ip(world).unwrap_or_default(), endpoint].into_iter().find(is_address).unwrap_or_default()
}

/// Whoever the user lets in, and what the cluster itself needs.
fn allowed(world: &World) -> Option<Vec<String>> {
    let written = spec(world)["apiServerLoadBalancer"]["allowedCIDRs"].as_array()?;
    if written.is_empty() {
        return None;
    }
    let mut all: Vec<String> = written.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    all.extend(subnets(world).into_iter().map(|subnet| subnet.cidr.clone()));
    all.extend(router(world).into_iter().flat_map(router_addresses));
    all.extend(bastion::addresses(world));
    // Octavia takes only what is of the family of its address.
    let mut all: Vec<String> = all.iter().filter(|cidr| !cidr.contains(':')).filter_map(|cidr| as_cidr(cidr)).collect();
    all.sort();
    all.dedup();
    Some(all)
}

fn control_planes(world: &World) -> impl Iterator<Item = &Object> {
    world.all::<OpenStackMachine>().filter(|it| it.label(CONTROL_PLANE_LABEL).is_some())
}

/// Control plane machines with an address.
fn targets(world: &World) -> Vec<Target> {
    let planes = control_planes(world).filter(|it| !it.is_deleting());
    let address = |it: &Object| {
        let all = it.get("/status/addresses").as_array()?;
        let first = all.iter().find(|address| address["type"] == "InternalIP")?;
        Some(Target { name: it.name().to_owned(), address: first["address"].as_str()?.to_owned() })
    };
    planes.filter_map(address).collect()
}

/// Ports of control plane machines: of those that answer, and of those that no longer do.
fn control_plane_ports(world: &World) -> (Vec<&str>, Vec<&str>) {
    let (mut well, mut unwell) = (vec![], vec![]);
    for machine in control_planes(world) {
        let port = machine.text("/status/resources/ports/0/id");
        let answers = !machine.is_deleting() && machine.get("/status/ready") == true;
        if !port.is_empty() {
            if answers { well.push(port) } else { unwell.push(port) }
        }
    }
    (well, unwell)
}

/// Where the API's address leads without a load balancer: to where it leads already, as long as somebody answers there.
fn holder<'a>(bound: Option<&str>, well: &[&'a str], unwell: &[&'a str]) -> Option<&'a str> {
    match bound.filter(|bound| !bound.is_empty()) {
        // What a person has bound it to is a person's to change.
        Some(bound) if !well.contains(&bound) && !unwell.contains(&bound) => None,
        Some(bound) if well.contains(&bound) => well.iter().find(|port| **port == bound).copied(),
        _ => well.first().copied(),
    }
}

/// The API's floating IP.
pub fn api_address(world: &World) -> Address<'_> {
    let given = spec(world)["apiServerFloatingIP"].as_str().unwrap_or_default();
    let allocated = world.object().annotation(API_ADDRESS_ANNOTATION).unwrap_or_default();
    // A load balancer leads to the address that the user chose as the endpoint.
    let chosen = Some(host(world)).filter(|host| needs_load_balancers(world) && host.parse::<IpAddr>().is_ok());
    let (well, unwell) = control_plane_ports(world);
    let mut address = Address {
        cloud: &world.facts.cloud,
        owner: owner(world),
        role: floating_ip::API,
        given,
        known: world.facts.found.api_address.as_ref(),
        before: if allocated.is_empty() { chosen.unwrap_or_default() } else { allocated },
        network_id: external(world).map_or("", |network| &network.id),
        port_id: load_balancer::of(&world.facts.cloud).and_then(|tree| tree.balancer.vip_port_id.as_deref()),
        leaves: vec![],
    };
    if !needs_load_balancers(world) {
        address.port_id = holder(address.ip().and_then(|ip| ip.port_id.as_deref()), &well, &unwell);
        address.leaves = unwell;
    }
    address
}

/// The user said where the API answers, and did not ask for an address.
fn is_elsewhere(world: &World, address: &Address<'_>) -> bool {
    let is_users = !host(world).is_empty() && address.before.is_empty() && address.given.is_empty();
    is_users && !needs_load_balancers(world) && address.ip().is_none()
}

/// A floating IP that is not there yet.
pub fn wants_new_address(world: &World) -> bool {
    let address = api_address(world);
    address.ip().is_none() && !is_elsewhere(world, &address)
}

pub fn address(world: &World, now: Timestamp) -> Phase {
    if !wants_api_address(world) || external(world).is_none() {
        return Phase::Done;
    }
    let address = api_address(world);
    if is_elsewhere(world, &address) { Phase::Done } else { address.build(now) }
}

pub fn endpoint(world: &World) -> Phase {
    if !host(world).is_empty() {
        return Phase::Done;
    }
    if is_hosted(world) {
        return match fixed_ip(world) {
            Some("") => Phase::Done,
            Some(fixed) => set(world, fixed, false),
            None => Phase::wait(
                "WaitingForControlPlaneEndpoint",
                "waiting for the control plane to say where it answers (spec.controlPlaneEndpoint)",
            ),
        };
    }
    let ip = api_address(world).ip().filter(|_| wants_api_address(world)).map(|ip| ip.floating_ip_address.as_str());
    if let Some(address) = ip {
        return set(world, address, spec(world)["apiServerFloatingIP"].as_str().unwrap_or_default().is_empty());
    }
    let balancer = load_balancer::of(&world.facts.cloud).filter(|_| needs_load_balancers(world));
    if let Some(address) = balancer.and_then(|tree| tree.balancer.vip_address.as_deref()) {
        return set(world, address, false);
    }
    match fixed_ip(world) {
        // Somebody fills it in.
        Some("") => Phase::Done,
        Some(fixed) => set(world, fixed, false),
        None => Phase::blocked(
            "NoControlPlaneEndpoint",
            "there is no way to give the API an address: enable apiServerLoadBalancer, allow a floating IP (and have an external network), or set \
             apiServerFixedIP or controlPlaneEndpoint",
        ),
    }
}

fn set(world: &World, host: &str, allocated: bool) -> Phase {
    let mut fields = json!({ "spec": { "controlPlaneEndpoint": { "host": host, "port": api_port(world) } } });
    if allocated {
        fields["metadata"]["annotations"][API_ADDRESS_ANNOTATION] = host.into();
    }
    Phase::steps(intent::touch(world.object(), fields))
}

/// The network in which the load balancer is, if it is not the cluster's.
pub fn is_own_network(world: &World) -> bool {
    let vip = load_balancer::of(&world.facts.cloud).and_then(|tree| tree.balancer.vip_network_id.as_deref());
    vip.is_some() && vip != network(world).map(|network| network.id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CAPO 1265: the address travels with every control plane machine; today it stays on one that is dead.
    #[test]
    fn oc7_the_address_stays_where_somebody_answers_and_leaves_only_whom_nobody_can_reach() {
        for (bound, well, unwell, expected) in [
            (None, &["a", "b"][..], &[][..], Some("a")),
            (Some(""), &["a"], &[], Some("a")),
            (Some("b"), &["a", "b"], &[], Some("b")),
            (Some("b"), &["a"], &["b"], Some("a")),
            (Some("b"), &[], &["b"], None),
            (Some("by hand"), &["a"], &[], None),
            (None, &[], &["b"], None),
        ] {
            assert_eq!(holder(bound, well, unwell), expected, "{bound:?} {well:?} {unwell:?}");
        }
    }
}
