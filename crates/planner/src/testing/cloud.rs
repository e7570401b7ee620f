//! A tiny cloud for tests of planners: carries out calls and says what they were.

use std::sync::Arc;

use hangar_openstack_types::{
    FloatingIp, Image, LoadBalancer, Network, Port, Router, SecurityGroup, SecurityGroupRule, Server, Subnet, Trunk,
    Volume,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::cloud::{CloudAnswer, CloudCall, LoadBalancerTree, Resource, ResourceType, Resources};

/// A call in a few words.
pub fn call(call: &CloudCall) -> String {
    match call {
        CloudCall::CreatePort(port) => format!("create port {}", port.name),
        CloudCall::UpdatePort { id, changes } => format!("update port {id} {changes}"),
        CloudCall::CreateServer(server) => format!("create server {}", server.name),
        CloudCall::CreateVolume(volume) => format!("create volume {}", volume.name),
        CloudCall::CreateTrunk(trunk) => format!("create trunk {}", trunk.name),
        CloudCall::CreateImage(image) => format!("create image {}", image["name"].as_str().unwrap_or_default()),
        CloudCall::ImportImage { id, url } => format!("import image {id} from {url}"),
        CloudCall::RemoveSubPorts { trunk_id, port_ids } => {
            format!("remove sub-ports {} of {trunk_id}", port_ids.join(","))
        }
        CloudCall::CreateSecurityGroup(group) => format!("create group {}", group.name),
        CloudCall::CreateRules { group_id, rules } => format!("create {} rules of {group_id}", rules.len()),
        CloudCall::DeleteRule { group_id, id } => format!("delete rule {id} of {group_id}"),
        CloudCall::CreateNetwork(network) => format!("create network {}", network.name),
        CloudCall::UpdateNetwork { id, changes } => format!("update network {id} {changes}"),
        CloudCall::CreateSubnet(subnet) => format!("create subnet {} {}", subnet.name, subnet.cidr),
        CloudCall::UpdateSubnet { id, changes } => format!("update subnet {id} {changes}"),
        CloudCall::CreateRouter(router) => format!("create router {}", router.name),
        CloudCall::UpdateRouter { id, changes } => format!("update router {id} {changes}"),
        CloudCall::AddRouterInterface { router_id, port_id } => format!("add interface {port_id} to {router_id}"),
        CloudCall::RemoveRouterInterface { router_id, port_id } => {
            format!("remove interface {port_id} from {router_id}")
        }
        CloudCall::CreateFloatingIp(ip) => match &ip.floating_ip_address {
            Some(address) => format!("create floating IP {address} in {}", ip.floating_network_id),
            None => format!("create floating IP in {}", ip.floating_network_id),
        },
        CloudCall::BindFloatingIp { id, port_id, .. } => {
            format!("bind floating IP {id} to {}", port_id.as_deref().unwrap_or("nothing"))
        }
        CloudCall::CreateLoadBalancer(balancer) => format!("create load balancer {}", balancer.name),
        CloudCall::ChangeLoadBalancer { id, change } => format!("{} of {id}", super::load_balancer::change(change)),
        CloudCall::Tag { of, id, tags } => format!("tag {of:?} {id} {}", tags.join(",")),
        CloudCall::Delete(of, id) => format!("delete {of:?} {id}"),
    }
}

/// Fields of an existing resource change as a service would change them.
pub(super) fn with<T: serde::Serialize + serde::de::DeserializeOwned>(resource: &T, changes: &Value) -> T {
    let mut value = serde_json::to_value(resource).unwrap();
    for (field, change) in changes.as_object().into_iter().flatten() {
        value[field] = change.clone();
    }
    serde_json::from_value(value).unwrap()
}

/// What a call answers. `ids` gives new ones.
pub fn called(cloud: &mut Resources, call: &CloudCall, now: Timestamp, ids: &mut dyn FnMut() -> String) -> CloudAnswer {
    let created = now.to_string();
    let created_at = Some(created.clone());
    let resource: Resource = match call {
        CloudCall::CreatePort(port) => Port {
            id: ids(),
            name: port.name.clone(),
            description: port.description.clone().unwrap_or_default(),
            network_id: port.network_id.clone(),
            fixed_ips: port.fixed_ips.clone().unwrap_or_default(),
            security_groups: port.security_groups.clone().unwrap_or_default(),
            created_at,
            ..Port::default()
        }
        .into(),
        CloudCall::UpdatePort { id, changes } => with(&*cloud.ports[id], changes).into(),
        CloudCall::CreateServer(server) => Server {
            id: ids(),
            name: server.name.clone(),
            status: "BUILD".into(),
            metadata: server.metadata.clone(),
            created,
            ..Server::default()
        }
        .into(),
        CloudCall::CreateVolume(volume) => Volume {
            id: ids(),
            name: volume.name.clone(),
            size: volume.size,
            status: "creating".into(),
            metadata: volume.metadata.clone(),
            created_at: created,
            ..Volume::default()
        }
        .into(),
        CloudCall::CreateImage(image) => {
            with(&Image { id: ids(), status: "queued".into(), ..Image::default() }, image).into()
        }
        CloudCall::ImportImage { id, .. } => Image { status: "importing".into(), ..(*cloud.images[id]).clone() }.into(),
        CloudCall::CreateTrunk(trunk) => Trunk {
            id: ids(),
            name: trunk.name.clone(),
            description: trunk.description.clone().unwrap_or_default(),
            port_id: trunk.port_id.clone(),
            sub_ports: trunk.sub_ports.clone(),
            created_at,
            ..Trunk::default()
        }
        .into(),
        CloudCall::RemoveSubPorts { trunk_id, port_ids } => {
            let mut trunk = (*cloud.trunks[trunk_id]).clone();
            trunk.sub_ports.retain(|port| !port_ids.contains(&port.port_id));
            trunk.into()
        }
        CloudCall::CreateSecurityGroup(group) => SecurityGroup {
            id: ids(),
            security_group_rules: ["IPv4", "IPv6"].map(everything_out).to_vec(),
            name: group.name.clone(),
            description: group.description.clone().unwrap_or_default(),
            created_at,
            ..SecurityGroup::default()
        }
        .into(),
        CloudCall::CreateRules { group_id, rules } => {
            let mut group = (*cloud.security_groups[group_id]).clone();
            for rule in rules {
                group.security_group_rules.push(SecurityGroupRule {
                    id: ids(),
                    security_group_id: rule.security_group_id.clone(),
                    direction: rule.direction.clone(),
                    ethertype: rule.ethertype.clone().unwrap_or_default(),
                    protocol: rule.protocol.clone(),
                    port_range_min: rule.port_range_min,
                    port_range_max: rule.port_range_max,
                    remote_group_id: rule.remote_group_id.clone(),
                    remote_ip_prefix: rule.remote_ip_prefix.clone(),
                    ..SecurityGroupRule::default()
                });
            }
            group.into()
        }
        CloudCall::DeleteRule { group_id, id } => {
            let mut group = (*cloud.security_groups[group_id]).clone();
            group.security_group_rules.retain(|rule| rule.id != *id);
            group.into()
        }
        CloudCall::CreateNetwork(network) => Network {
            id: ids(),
            name: network.name.clone(),
            description: network.description.clone().unwrap_or_default(),
            admin_state_up: network.admin_state_up.unwrap_or(true),
            mtu: network.mtu,
            port_security_enabled: network.port_security_enabled,
            created_at,
            ..Network::default()
        }
        .into(),
        CloudCall::UpdateNetwork { id, changes } => with(&*cloud.networks[id], changes).into(),
        CloudCall::CreateSubnet(subnet) => Subnet {
            id: ids(),
            name: subnet.name.clone(),
            description: subnet.description.clone().unwrap_or_default(),
            network_id: subnet.network_id.clone(),
            ip_version: subnet.ip_version,
            gateway_ip: Some(subnet.cidr.replace("0/24", "1")),
            cidr: subnet.cidr.clone(),
            dns_nameservers: subnet.dns_nameservers.clone(),
            allocation_pools: subnet.allocation_pools.clone(),
            created_at,
            ..Subnet::default()
        }
        .into(),
        CloudCall::UpdateSubnet { id, changes } => with(&*cloud.subnets[id], changes).into(),
        CloudCall::CreateRouter(router) => Router {
            id: ids(),
            name: router.name.clone(),
            description: router.description.clone().unwrap_or_default(),
            admin_state_up: router.admin_state_up.unwrap_or(true),
            external_gateway_info: router.external_gateway_info.clone(),
            created_at,
            ..Router::default()
        }
        .into(),
        CloudCall::UpdateRouter { id, changes } => with(&*cloud.routers[id], changes).into(),
        CloudCall::AddRouterInterface { router_id, port_id } => Port {
            device_id: router_id.clone(),
            device_owner: "network:router_interface".into(),
            ..(*cloud.ports[port_id]).clone()
        }
        .into(),
        CloudCall::RemoveRouterInterface { port_id, .. } => {
            cloud.remove(ResourceType::Port, port_id);
            return CloudAnswer::Gone(ResourceType::Port, port_id.clone());
        }
        CloudCall::CreateFloatingIp(ip) => {
            let address = || format!("203.0.113.{}", cloud.floating_ips.len() + 10);
            FloatingIp {
                id: ids(),
                floating_ip_address: ip.floating_ip_address.clone().unwrap_or_else(address),
                floating_network_id: ip.floating_network_id.clone(),
                port_id: ip.port_id.clone(),
                description: ip.description.clone().unwrap_or_default(),
                created_at,
                ..FloatingIp::default()
            }
            .into()
        }
        CloudCall::BindFloatingIp { id, port_id, .. } => {
            FloatingIp { port_id: port_id.clone(), ..(*cloud.floating_ips[id]).clone() }.into()
        }
        CloudCall::CreateLoadBalancer(wanted) => {
            let balancer = LoadBalancer {
                id: ids(),
                name: wanted.name.clone(),
                description: wanted.description.clone().unwrap_or_default(),
                provisioning_status: "PENDING_CREATE".into(),
                vip_address: Some(wanted.vip_address.clone().unwrap_or_else(|| "10.6.0.5".into())),
                vip_port_id: Some("vip-port".into()),
                vip_subnet_id: wanted.vip_subnet_id.clone(),
                vip_network_id: wanted.vip_network_id.clone(),
                provider: wanted.provider.clone().unwrap_or_else(|| "amphora".into()),
                tags: wanted.tags.clone(),
                created_at: created,
                ..LoadBalancer::default()
            };
            let mut tree = LoadBalancerTree { balancer, ..LoadBalancerTree::default() };
            wanted.listeners.iter().for_each(|listener| super::load_balancer::grow(&mut tree, listener, ids));
            tree.into()
        }
        CloudCall::ChangeLoadBalancer { id, change } => {
            let mut tree = (*cloud.load_balancers[id]).clone();
            super::load_balancer::changed(&mut tree, change, ids);
            tree.balancer.provisioning_status = "PENDING_UPDATE".into();
            tree.into()
        }
        CloudCall::Tag { of, id, tags } => tagged(cloud, *of, id, tags),
        CloudCall::Delete(ResourceType::Server, id) => {
            // Nova takes its time.
            Server { task_state: Some("deleting".into()), ..(*cloud.servers[id]).clone() }.into()
        }
        CloudCall::Delete(ResourceType::LoadBalancer, id) if cloud.load_balancers.contains_key(id) => {
            let mut tree = (*cloud.load_balancers[id]).clone();
            tree.balancer.provisioning_status = "PENDING_DELETE".into();
            tree.into()
        }
        CloudCall::Delete(of, id) => {
            cloud.remove(*of, id);
            return CloudAnswer::Gone(*of, id.clone());
        }
    };
    cloud.insert(resource.clone());
    CloudAnswer::Is(resource)
}

/// Neutron makes it in every group.
fn everything_out(family: &str) -> SecurityGroupRule {
    SecurityGroupRule {
        id: family.to_lowercase(),
        direction: "egress".into(),
        ethertype: family.into(),
        ..SecurityGroupRule::default()
    }
}

fn tagged(cloud: &Resources, of: ResourceType, id: &str, tags: &[String]) -> Resource {
    let tags = tags.to_vec();
    match of {
        ResourceType::Port => Port { tags, ..(*cloud.ports[id]).clone() }.into(),
        ResourceType::SecurityGroup => SecurityGroup { tags, ..(*cloud.security_groups[id]).clone() }.into(),
        ResourceType::Network => Network { tags, ..(*cloud.networks[id]).clone() }.into(),
        ResourceType::Subnet => Subnet { tags, ..(*cloud.subnets[id]).clone() }.into(),
        ResourceType::Router => Router { tags, ..(*cloud.routers[id]).clone() }.into(),
        ResourceType::FloatingIp => FloatingIp { tags, ..(*cloud.floating_ips[id]).clone() }.into(),
        ResourceType::Trunk => Trunk { tags, ..(*cloud.trunks[id]).clone() }.into(),
        ResourceType::Server | ResourceType::LoadBalancer | ResourceType::Volume | ResourceType::Image => {
            panic!("{of:?} has no tags that are set afterwards")
        }
    }
}

/// What takes a while in a real cloud has come to an end.
pub fn settle(cloud: &mut Resources) {
    cloud.servers.retain(|_, server| server.task_state.is_none());
    cloud.load_balancers.retain(|_, tree| tree.balancer.provisioning_status != "PENDING_DELETE");
    for server in cloud.servers.values_mut() {
        if server.status == "BUILD" {
            Arc::make_mut(server).status = "ACTIVE".into();
        }
    }
    for tree in cloud.load_balancers.values_mut() {
        if tree.balancer.provisioning_status.starts_with("PENDING") {
            Arc::make_mut(tree).balancer.provisioning_status = "ACTIVE".into();
        }
    }
    for volume in cloud.volumes.values_mut() {
        if volume.status == "creating" {
            Arc::make_mut(volume).status = "available".into();
        }
    }
}
