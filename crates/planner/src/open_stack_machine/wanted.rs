//! The server that a machine wants: its spec, in its cluster's network and groups.

use hangar_api::Object;

use super::{World, infrastructure, machine};
use crate::cloud::instance::Instance;
use hangar_api::names::CONTROL_PLANE_LABEL;

pub fn instance(world: &World) -> Instance<'_> {
    let facts = &world.facts;
    let of_cluster = |pointer| infrastructure(world).map_or("", |cluster| cluster.text(pointer));
    let list = |pointer| {
        let list = infrastructure(world).and_then(|cluster| cluster.get(pointer).as_array());
        list.map_or(&[][..], Vec::as_slice).iter()
    };
    // Only where the user chose among the subnets of the network; else Neutron may.
    let is_chosen = list("/spec/subnets").len() > 0;
    let subnets = list("/status/network/subnets").filter(|_| is_chosen).filter_map(|subnet| subnet["id"].as_str());
    Instance {
        spec: &world.typed().spec,
        resolved: &facts.resolved,
        name: world.object().name(),
        cluster_name: world.cluster().map_or("", Object::name),
        cluster_uid: world.cluster().map_or("", Object::uid),
        object_uid: world.object().uid(),
        network_id: of_cluster("/status/network/id"),
        subnet_ids: subnets.collect(),
        managed_group: of_cluster(match is_control_plane(world) {
            true => "/status/controlPlaneSecurityGroup/id",
            false => "/status/workerSecurityGroup/id",
        }),
        zone: machine(world).map_or("", |machine| machine.text("/spec/failureDomain")),
        tags: list("/spec/tags").filter_map(|tag| tag.as_str()).map(str::to_owned).collect(),
        user_data: facts.user_data.as_ref().map(|data| data.0.as_str()),
        note: None,
    }
}

/// The label that control plane providers set on their machines.
fn is_control_plane(world: &World) -> bool {
    let objects = [Some(world.object()), machine(world)];
    objects.into_iter().flatten().any(|object| object.label(CONTROL_PLANE_LABEL).is_some())
}
