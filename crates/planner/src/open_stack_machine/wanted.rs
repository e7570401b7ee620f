//! The ports and the server that a machine wants: its spec, in its cluster's network and groups.

use hangar_api::Object;
use hangar_openstack_types::CreateServer;

use super::{World, infrastructure, machine};
use crate::cloud::instance::{self, Instance};
use crate::cloud::ports::WantedPort;

pub fn instance(world: &World) -> Instance<'_> {
    let facts = &world.facts;
    let of_cluster = |pointer| infrastructure(world).map_or("", |cluster| cluster.text(pointer));
    Instance {
        spec: &world.typed().spec,
        name: world.object().name(),
        cluster_name: world.cluster().map_or("", Object::name),
        cluster_uid: world.cluster().map_or("", Object::uid),
        object_uid: world.object().uid(),
        network_id: of_cluster("/status/network/id"),
        managed_group: of_cluster("/status/workerSecurityGroup/id"),
        zone: machine(world).map_or("", |machine| machine.text("/spec/failureDomain")),
        user_data: facts.user_data.as_ref().map(|data| data.0.as_str()),
        flavor: &facts.flavor,
        image: &facts.image,
        port_networks: &facts.port_networks,
    }
}

pub fn ports(world: &World) -> Vec<WantedPort> {
    instance(world).ports()
}

pub fn server(world: &World) -> CreateServer {
    instance(world).server(&world.facts.cloud.resources.ports)
}

/// What the spec asks for and nobody makes yet; the first of it.
pub fn unsupported(world: &World) -> Option<String> {
    instance::unsupported(world.object().get("/spec"), "spec")
}
