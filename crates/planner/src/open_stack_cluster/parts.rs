//! The parts of a cluster in its cloud, from its spec and what was found.

use std::collections::BTreeSet;
use std::net::IpAddr;

use hangar_api::Object;
use hangar_openstack_types::{FixedIp, Network, Router, Subnet};
use serde_json::Value;

use crate::cloud::cluster_owner::ClusterOwner;
use crate::cloud::network::{self, ManagedNetwork};
use crate::cloud::router::{self, ManagedRouter};
use crate::cloud::security_groups::SecurityGroups;
use crate::hosted;

use super::World;
use super::bastion;

pub fn spec(world: &World) -> &Value {
    world.object().get("/spec")
}

/// Whether the control plane runs elsewhere than on machines of this cloud.
pub fn is_hosted(world: &World) -> bool {
    let reference = world.cluster().map_or(&Value::Null, |cluster| cluster.get("/spec/controlPlaneRef"));
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    hosted::KINDS.contains(&(text("apiGroup"), text("kind")))
}

/// Whether network and subnets are ours.
pub fn is_managed(world: &World) -> bool {
    spec(world)["managedSubnets"].as_array().is_some_and(|subnets| !subnets.is_empty())
}

pub fn bastion_enabled(world: &World) -> bool {
    let bastion = &spec(world)["bastion"];
    bastion.is_object() && bastion["enabled"] != false && bastion["spec"].is_object()
}

/// Octavia's, if it is asked for and the control plane does not bring an address of its own.
pub fn needs_load_balancers(world: &World) -> bool {
    spec(world)["apiServerLoadBalancer"]["enabled"] == true && !is_hosted(world)
}

fn has_way_out(world: &World) -> bool {
    spec(world)["disableExternalNetwork"] != true
}

/// Whether the API gets one.
pub fn wants_api_address(world: &World) -> bool {
    has_way_out(world) && spec(world)["disableAPIServerFloatingIP"] != true && !is_hosted(world)
}

pub fn needs_floating_ips(world: &World) -> bool {
    wants_api_address(world) || (has_way_out(world) && spec(world)["bastion"].is_object())
}

/// Whether the external network has to be known.
pub fn wants_external(world: &World) -> bool {
    let named = spec(world)["externalNetwork"].is_object();
    has_way_out(world) && (named || is_managed(world) || wants_api_address(world) || bastion_enabled(world))
}

pub fn external(world: &World) -> Option<&Network> {
    world.facts.found.external_network.as_ref().filter(|_| wants_external(world))
}

pub fn network(world: &World) -> Option<&Network> {
    let found = &world.facts.found;
    if is_managed(world) { network::of(&world.facts.cloud) } else { found.network.as_ref() }
}

pub fn subnets(world: &World) -> Vec<&Subnet> {
    if is_managed(world) { network::subnets_of(&world.facts.cloud) } else { world.facts.found.subnets.iter().collect() }
}

pub fn router(world: &World) -> Option<&Router> {
    world.facts.found.router.as_ref().or_else(|| router::of(&world.facts.cloud))
}

pub fn api_port(world: &World) -> u16 {
    let set = [&spec(world)["controlPlaneEndpoint"]["port"], &spec(world)["apiServerPort"]];
    let mut set = set.into_iter().filter_map(Value::as_u64).filter_map(|port| u16::try_from(port).ok());
    set.find(|port| *port > 0).unwrap_or(6443)
}

/// The API's port first, then what the load balancer opens beside it.
pub fn api_ports(world: &World) -> Vec<u16> {
    let more = spec(world)["apiServerLoadBalancer"]["additionalPorts"].as_array().into_iter().flatten();
    let more = more.filter_map(Value::as_u64).filter_map(|port| u16::try_from(port).ok());
    let mut ports = vec![api_port(world)];
    for port in more.filter(|_| needs_load_balancers(world)) {
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    ports
}

pub fn owner(world: &World) -> ClusterOwner<'_> {
    ClusterOwner {
        namespace: world.object().namespace(),
        cluster_name: world.cluster().map_or_else(|| world.object().name(), Object::name),
        cluster_uid: world.cluster().map_or("", Object::uid),
        object_uid: world.object().uid(),
        tags: world.typed().spec.tags.as_deref().unwrap_or_default(),
    }
}

/// Nothing of it is built on an existing network; whatever carries our key goes in any case.
pub fn network_part(world: &World) -> NetworkPart<'_> {
    let part = ManagedNetwork {
        cloud: &world.facts.cloud,
        owner: owner(world),
        spec: spec(world),
        ports: &world.facts.network_ports,
    };
    NetworkPart { part, managed: is_managed(world) }
}

pub struct NetworkPart<'a> {
    pub part: ManagedNetwork<'a>,
    managed: bool,
}

impl crate::planner::Part for NetworkPart<'_> {
    fn build(&self, now: jiff::Timestamp) -> crate::Phase {
        if self.managed { self.part.build(now) } else { crate::Phase::Done }
    }
    fn delete(&self, now: jiff::Timestamp) -> crate::Phase {
        self.part.delete(now)
    }
}

/// Only subnets of ours are joined to a router.
pub fn router_part(world: &World) -> ManagedRouter<'_> {
    let ours = is_managed(world);
    ManagedRouter {
        cloud: &world.facts.cloud,
        owner: owner(world),
        external: external(world).filter(|_| ours),
        existing: world.facts.found.router.as_ref().filter(|_| ours),
        external_ips: external_ips(world),
        subnets: if ours { subnets(world) } else { vec![] },
    }
}

fn external_ips(world: &World) -> Vec<FixedIp> {
    let all = spec(world)["externalRouterIPs"].as_array().into_iter().flatten().enumerate();
    all.map(|(index, ip)| FixedIp {
        subnet_id: world.facts.found.external_subnets.get(index).and_then(|lookup| lookup.id()).map(str::to_owned),
        ip_address: ip["fixedIP"].as_str().filter(|address| !address.is_empty()).map(str::to_owned),
    })
    .collect()
}

/// Of the router in the external network.
pub fn router_addresses(router: &Router) -> Vec<String> {
    let ips = router.external_gateway_info.iter().flat_map(|info| &info.external_fixed_ips);
    ips.filter_map(|ip| ip.ip_address.clone()).collect()
}

pub fn groups(world: &World) -> SecurityGroups<'_> {
    SecurityGroups {
        cloud: &world.facts.cloud,
        owner: owner(world),
        spec: world.object().get("/spec/managedSecurityGroups"),
        // Its group goes after the bastion, not before.
        bastion: bastion_enabled(world) || bastion::is_there(world),
        cidrs: subnets(world).into_iter().map(|subnet| subnet.cidr.as_str()).collect(),
        api_ports: api_ports(world),
    }
}

/// What the status has named to machines.
pub fn told_to_machines(object: &Object) -> BTreeSet<String> {
    let places = [
        "/status/network/id",
        "/status/router/id",
        "/status/controlPlaneSecurityGroup/id",
        "/status/workerSecurityGroup/id",
        "/status/bastionSecurityGroup/id",
    ];
    places.map(|place| object.text(place).to_owned()).into_iter().filter(|id| !id.is_empty()).collect()
}

/// What came twice goes when nothing hangs on it any more.
pub fn surplus(world: &World) -> crate::Phase {
    if is_managed(world) { network_part(world).part.surplus() } else { crate::Phase::Done }
}

/// An address as a network of its own.
pub fn as_cidr(address: &str) -> Option<String> {
    if address.contains('/') {
        return address.parse::<ipnet::IpNet>().is_ok().then(|| address.to_owned());
    }
    let parsed = address.parse::<IpAddr>().ok()?;
    Some(format!("{address}/{}", if parsed.is_ipv4() { 32 } else { 128 }))
}
