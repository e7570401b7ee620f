//! What of a cluster is still to be made, as clouds count it, and whether the quota leaves room for all of it.
//!
//! Holds: a cluster is not begun that cannot be finished; the bastion keeps nobody waiting.

use crate::Phase;
use crate::cloud::quota::{Counted, Needs};
use crate::cloud::{load_balancer, network, oldest, router};

use super::parts::{
    api_ports, bastion_enabled, external, groups, is_managed, needs_load_balancers, network as network_of, spec,
    wants_api_address,
};
use super::{World, bastion, endpoint, names, owner};

/// Without the bastion's.
pub fn needs(world: &World) -> Needs {
    let mut needs = Needs::default();
    let is_next = !world.object().is_deleting() && world.facts_error.is_none();
    if !is_next || !owner(world).then(|| names::names(world)).is_done() {
        return needs;
    }
    let there = &world.facts.cloud.resources;
    let subnets = subnets_to_be(world);
    if is_managed(world) {
        needs.add(Counted::Networks, u64::from(network_of(world).is_none()));
        let leads_out = external(world).is_some() || world.facts.found.router.is_some();
        needs.add(Counted::Routers, u64::from(external(world).is_some() && super::parts::router(world).is_none()));
        for index in 0..subnets.len() {
            needs.add(Counted::Subnets, u64::from(oldest(&there.subnets, &network::subnet_role(index)).is_none()));
            let interface = oldest(&there.ports, &router::interface_role(index));
            needs.add(Counted::Ports, u64::from(leads_out && interface.is_none()));
        }
    }
    needs.add_all(&groups(world).needs(&subnets, &api_ports(world)));
    if needs_load_balancers(world) && load_balancer::of(&world.facts.cloud).is_none() {
        needs.add(Counted::LoadBalancers, 1);
        // Its address is a port of Neutron's.
        needs.add(Counted::Ports, 1);
    }
    let address = wants_api_address(world) && external(world).is_some() && endpoint::wants_new_address(world);
    needs.add(Counted::FloatingIps, u64::from(address));
    needs
}

fn subnets_to_be(world: &World) -> Vec<&str> {
    let all = spec(world)["managedSubnets"].as_array().into_iter().flatten();
    let managed: Vec<&str> = all.filter_map(|subnet| subnet["cidr"].as_str()).collect();
    match is_managed(world) {
        true => managed,
        false => super::parts::subnets(world).into_iter().map(|subnet| subnet.cidr.as_str()).collect(),
    }
}

/// The bastion's server and address. Its group is made with the others.
pub fn bastion_needs(world: &World) -> Needs {
    let is_next = !world.object().is_deleting() && world.facts_error.is_none() && bastion_enabled(world);
    if !is_next || !owner(world).then(|| names::names(world)).is_done() {
        return Needs::default();
    }
    let mut needs = bastion::needs(world);
    let address = external(world).is_some() && bastion::address(world).ip().is_none();
    needs.add(Counted::FloatingIps, u64::from(address));
    needs
}

pub fn room(world: &World) -> Phase {
    world.facts.quota.room(&needs(world))
}

pub fn room_for_bastion(world: &World) -> Phase {
    world.facts.quota.room(&bastion_needs(world))
}
