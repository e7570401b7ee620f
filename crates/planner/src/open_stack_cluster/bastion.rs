//! The bastion: a server like any other, with a port in the cluster's network, a group of its own and a floating IP.
//!
//! Flows: another spec than it was made from, or a port lost -> it goes -> port -> server -> floating IP. Holds: the rest of the cluster never waits for it; a spec that changed is known by
//! the fingerprint in the server's metadata.

use hangar_api::kinds::OpenStackMachineSpec;
use hangar_openstack_types::{Port, Server as Nova};
use jiff::Timestamp;
use serde_json::Value;

use crate::cloud::floating_ip::{self, Address};
use crate::cloud::instance::{self, Instance, Whole};
use crate::cloud::quota::Needs;
use crate::cloud::rules::Role;
use crate::cloud::server;
use crate::cloud::{Cloud, oldest, security_groups};
use crate::planner::Part;
use crate::{Phase, intent};

use super::World;
use super::parts::{bastion_enabled, external, network, owner, spec};
use super::room::room_for_bastion;

/// The metadata entry of its server that says which spec it was made from.
pub const FINGERPRINT_METADATA: &str = "hangar-spec";

fn is_role(role: &str) -> bool {
    role == server::ROLE || ["port-", "trunk-", "volume-"].iter().any(|start| role.starts_with(start))
}

fn part_of(world: &World) -> Cloud {
    world.facts.cloud.of_roles(is_role)
}

pub fn current(world: &World) -> Option<&Nova> {
    server::of(&world.facts.cloud)
}

pub fn port(world: &World) -> Option<&Port> {
    oldest(&world.facts.cloud.resources.ports, &instance::role(0))
}

pub fn is_there(world: &World) -> bool {
    current(world).is_some() || port(world).is_some()
}

pub fn name(world: &World) -> String {
    format!("{}-bastion", owner(world).cluster_name)
}

pub fn address(world: &World) -> Address<'_> {
    Address {
        cloud: &world.facts.cloud,
        owner: owner(world),
        role: floating_ip::BASTION,
        given: spec(world)["bastion"]["floatingIP"].as_str().unwrap_or_default(),
        known: world.facts.found.bastion_address.as_ref(),
        before: "",
        network_id: external(world).map_or("", |network| &network.id),
        port_id: port(world).map(|port| port.id.as_str()),
        leaves: vec![],
    }
}

/// Within the network and outside.
pub fn addresses(world: &World) -> Vec<String> {
    let fixed = port(world).into_iter().flat_map(|port| &port.fixed_ips).filter_map(|ip| ip.ip_address.clone());
    let floating = address(world).ip().filter(|_| bastion_enabled(world)).map(|ip| ip.floating_ip_address.clone());
    fixed.chain(floating).collect()
}

fn fingerprint(world: &World) -> String {
    let bastion = &spec(world)["bastion"];
    intent::fingerprint(&serde_json::json!([bastion["spec"], bastion["availabilityZone"]]))
}

fn with_whole<T>(world: &World, what: impl FnOnce(&Whole<'_>) -> T) -> T {
    let view = part_of(world);
    let (name, resolved, owner) = (name(world), &world.facts.bastion, owner(world));
    let nothing = OpenStackMachineSpec::default();
    let typed = world.typed().spec.bastion.as_ref();
    let instance = Instance {
        spec: typed.and_then(|bastion| bastion.spec.as_ref()).unwrap_or(&nothing),
        name: &name,
        cluster_name: owner.cluster_name,
        cluster_uid: owner.cluster_uid,
        object_uid: owner.object_uid,
        network_id: network(world).map_or("", |network| &network.id),
        subnet_ids: vec![],
        managed_group: security_groups::of(&world.facts.cloud, Role::Bastion).map_or("", |group| &group.id),
        zone: spec(world)["bastion"]["availabilityZone"].as_str().unwrap_or_default(),
        tags: world.typed().spec.tags.clone().unwrap_or_default(),
        user_data: None,
        note: Some((FINGERPRINT_METADATA, fingerprint(world))),
        resolved,
    };
    // One that somebody deletes is made again: nothing depends on it.
    what(&Whole { instance, cloud: &view, was_ready: false, wanted_since: world.object().created() })
}

/// It was made from another spec.
fn is_outdated(world: &World) -> bool {
    current(world).is_some_and(|it| it.metadata.get(FINGERPRINT_METADATA) != Some(&fingerprint(world)))
}

/// Somebody deleted it: a server is on the ports that it was made with.
fn has_lost_a_port(world: &World) -> bool {
    let ports = &world.facts.cloud.resources.ports;
    let wanted = || with_whole(world, |whole| whole.instance.ports());
    current(world).is_some_and(server::is_active) && wanted().iter().any(|port| oldest(ports, &port.role).is_none())
}

/// What of its server is still to be made.
pub fn needs(world: &World) -> Needs {
    let is_valid =
        not_built_yet(&spec(world)["bastion"]["spec"]).is_none() && world.facts.bastion.image_waits.is_none();
    let needs = |whole: &Whole<'_>| match whole.instance.problem("") {
        None => whole.instance.needs(&whole.cloud.resources),
        Some(_) => Needs::default(),
    };
    if is_valid { with_whole(world, needs) } else { Needs::default() }
}

pub fn build(world: &World, now: Timestamp) -> Phase {
    if !bastion_enabled(world) {
        return delete(world, now);
    }
    if let Some(what) = not_built_yet(&spec(world)["bastion"]["spec"]) {
        return Phase::blocked("NotBuiltYet", what);
    }
    if is_outdated(world) || has_lost_a_port(world) {
        return machine_gone(world, now);
    }
    // Once there is a server, its names have served their purpose.
    if current(world).is_none()
        && let Some(reason) = &world.facts.bastion.image_waits
    {
        return Phase::Wait(reason.clone());
    }
    if current(world).is_none()
        && let Some(problem) = with_whole(world, |whole| whole.instance.problem("spec.bastion.spec"))
    {
        return Phase::blocked("InvalidBastionSpec", problem);
    }
    room_for_bastion(world).then(|| with_whole(world, |whole| whole.build(now))).then(|| match external(world) {
        Some(_) => address(world).build(now),
        None => Phase::Done,
    })
}

/// Said out loud instead of left out.
fn not_built_yet(spec: &Value) -> Option<&'static str> {
    if spec["floatingIPPoolRef"].is_object() {
        return Some(
            "spec.bastion.spec.floatingIPPoolRef is not built yet; name an address in spec.bastion.floatingIP, or none",
        );
    }
    None
}

fn machine_gone(world: &World, now: Timestamp) -> Phase {
    with_whole(world, |whole| whole.delete(now))
}

pub fn delete(world: &World, now: Timestamp) -> Phase {
    machine_gone(world, now).then(|| address(world).delete(now))
}
