//! The ports and the server that a machine wants, from its spec and what its names mean in the cloud.

use std::collections::BTreeMap;

use hangar_api::Object;
use hangar_api::kinds::OpenStackMachineSpecPort;

use super::{KEY_METADATA, Named, World, key, our_port, port_role};
use crate::cloud::{NewPort, NewServer};

/// The ports that the user wrote, or one on the cluster's network.
pub fn port_specs(world: &World) -> Vec<OpenStackMachineSpecPort> {
    match &world.machine.spec.ports {
        Some(ports) if !ports.is_empty() => ports.clone(),
        _ => vec![OpenStackMachineSpecPort::default()],
    }
}

/// The port at this position, with our key in its description.
pub fn new_port(world: &World, index: usize) -> NewPort {
    let spec = port_specs(world).swap_remove(index);
    let resolved = world.cloud.as_ref().and_then(|cloud| cloud.port_networks.get(index).cloned().flatten());
    let cluster_network = world.infrastructure.as_ref().map_or("", |cluster| cluster.text("/status/network/id"));
    let fixed_ips = spec
        .fixed_ips
        .iter()
        .flatten()
        .map(|ip| (ip.subnet.as_ref().and_then(|subnet| subnet.id.clone()), ip.ip_address.clone()));
    let key = key(world, &port_role(index));
    let suffix = spec.name_suffix.clone().unwrap_or_else(|| index.to_string());
    let cluster = world.cluster.as_ref().map_or("", Object::name);
    let text = spec
        .description
        .clone()
        .unwrap_or_else(|| format!("Created by cluster-api-provider-openstack cluster {cluster}"));
    NewPort {
        name: format!("{}-{suffix}", world.object.name()),
        description: key.describe(&text),
        key: Some(key),
        network_id: resolved.unwrap_or_else(|| cluster_network.to_owned()),
        fixed_ips: fixed_ips.collect(),
        security_groups: security_groups(world, &spec),
        port_security: spec.disable_port_security.map(|disabled| !disabled),
        allowed_address_pairs: spec
            .allowed_address_pairs
            .iter()
            .flatten()
            .map(|pair| (pair.ip_address.clone(), pair.mac_address.clone()))
            .collect(),
        vnic_type: spec.vnic_type,
        mac_address: spec.mac_address,
        admin_state_up: spec.admin_state_up,
        host_id: spec.host_id,
        propagate_uplink_status: spec.propagate_uplink_status,
        tags: spec.tags.unwrap_or_default(),
    }
}

fn security_groups(world: &World, spec: &OpenStackMachineSpecPort) -> Option<Vec<String>> {
    if spec.disable_port_security == Some(true) {
        return Some(vec![]);
    }
    let mut ids: Vec<String> = spec.security_groups.iter().flatten().filter_map(|group| group.id.clone()).collect();
    if ids.is_empty() {
        let managed =
            world.infrastructure.as_ref().map_or("", |cluster| cluster.text("/status/workerSecurityGroup/id"));
        ids.extend((!managed.is_empty()).then(|| managed.to_owned()));
    }
    ids.extend(world.machine.spec.security_groups.iter().flatten().filter_map(|group| group.id.clone()));
    if ids.is_empty() { None } else { Some(ids) }
}

/// The server, with our key in its metadata.
pub fn new_server(world: &World) -> NewServer {
    let spec = &world.machine.spec;
    let id = |named: Option<&Named>| match named {
        Some(Named::Id(id)) => id.clone(),
        _ => String::new(),
    };
    let key = key(world, "server");
    let mut metadata: BTreeMap<String, String> =
        spec.server_metadata.iter().flatten().map(|entry| (entry.key.clone(), entry.value.clone())).collect();
    metadata.insert(KEY_METADATA.into(), key.to_string());
    let zone = world.owner.as_ref().map_or("", |machine| machine.text("/spec/failureDomain"));
    NewServer {
        key: Some(key),
        name: world.object.name().to_owned(),
        flavor_id: id(world.cloud.as_ref().map(|cloud| &cloud.flavor)),
        image_id: id(world.cloud.as_ref().map(|cloud| &cloud.image)),
        availability_zone: (!zone.is_empty()).then(|| zone.to_owned()),
        key_name: spec.ssh_key_name.clone(),
        port_ids: (0..port_specs(world).len())
            .filter_map(|index| our_port(world, index))
            .map(|port| port.id.clone())
            .collect(),
        user_data: world.user_data.as_ref().map(|data| data.0.clone()).unwrap_or_default(),
        metadata,
        tags: spec.tags.clone().unwrap_or_default(),
        config_drive: spec.config_drive,
        server_group_id: spec.server_group.as_ref().and_then(|group| group.id.clone()),
    }
}
