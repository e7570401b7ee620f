//! A tiny cloud for tests of planners: carries out calls and says what they were.

use std::sync::Arc;

use hangar_openstack_types::{
    CreateListener, CreatePool, FloatingIp, HealthMonitor, Listener, LoadBalancer, Member, Network, Pool, Port,
    Reference, Router, SecurityGroup, SecurityGroupRule, Server, Subnet, Trunk, Volume,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::cloud::{CloudAnswer, CloudCall, LoadBalancerChange, LoadBalancerTree, Resource, ResourceType, Resources};

/// A call in a few words.
pub fn call(call: &CloudCall) -> String {
    match call {
        CloudCall::CreatePort(port) => format!("create port {}", port.name),
        CloudCall::UpdatePort { id, changes } => format!("update port {id} {changes}"),
        CloudCall::CreateServer(server) => format!("create server {}", server.name),
        CloudCall::CreateVolume(volume) => format!("create volume {}", volume.name),
        CloudCall::CreateTrunk(trunk) => format!("create trunk {}", trunk.name),
        CloudCall::RemoveSubPorts { trunk_id, port_ids } => {
            format!("remove sub-ports {} of {trunk_id}", port_ids.join(","))
        }
        CloudCall::CreateSecurityGroup(group) => format!("create group {}", group.name),
        CloudCall::CreateRules { group_id, rules } => format!("create {} rules of {group_id}", rules.len()),
        CloudCall::DeleteRule { group_id, id } => format!("delete rule {id} of {group_id}"),
        CloudCall::CreateNetwork(network) => format!("create network {}", network.name),
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
        CloudCall::ChangeLoadBalancer { id, change } => format!("{} of {id}", self::change(change)),
        CloudCall::Tag { of, id, tags } => format!("tag {of:?} {id} {}", tags.join(",")),
        CloudCall::Delete(of, id) => format!("delete {of:?} {id}"),
    }
}

fn change(change: &LoadBalancerChange) -> String {
    match change {
        LoadBalancerChange::CreateListener(listener) => format!("create listener {}", listener.name),
        LoadBalancerChange::UpdateListener { id, changes } => format!("update listener {id} {changes}"),
        LoadBalancerChange::DeleteListener(id) => format!("delete listener {id}"),
        LoadBalancerChange::CreatePool(pool) => format!("create pool {}", pool.name),
        LoadBalancerChange::DeletePool(id) => format!("delete pool {id}"),
        LoadBalancerChange::SetMembers { pool_id, members } => {
            let all: Vec<String> =
                members.iter().map(|member| format!("{}:{}", member.address, member.protocol_port)).collect();
            format!("set members {} of pool {pool_id}", all.join(","))
        }
        LoadBalancerChange::CreateMonitor(monitor) => format!("create monitor {}", monitor.name),
        LoadBalancerChange::UpdateMonitor { id, changes } => format!("update monitor {id} {changes}"),
        LoadBalancerChange::DeleteMonitor(id) => format!("delete monitor {id}"),
    }
}

/// Fields of an existing resource change as a service would change them.
fn with<T: serde::Serialize + serde::de::DeserializeOwned>(resource: &T, changes: &Value) -> T {
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
            mtu: network.mtu,
            port_security_enabled: network.port_security_enabled,
            created_at,
            ..Network::default()
        }
        .into(),
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
            wanted.listeners.iter().for_each(|listener| grow(&mut tree, listener, ids));
            tree.into()
        }
        CloudCall::ChangeLoadBalancer { id, change } => {
            let mut tree = (*cloud.load_balancers[id]).clone();
            changed(&mut tree, change, ids);
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
        ResourceType::Server | ResourceType::LoadBalancer | ResourceType::Volume => {
            panic!("{of:?} has no tags that are set afterwards")
        }
    }
}

fn reference(id: &str) -> Reference {
    Reference { id: id.to_owned() }
}

fn grow(tree: &mut LoadBalancerTree, wanted: &CreateListener, ids: &mut dyn FnMut() -> String) {
    let pool = wanted.default_pool.as_ref().map(|pool| plant(tree, pool, ids));
    tree.listeners.push(Listener {
        id: ids(),
        name: wanted.name.clone(),
        protocol_port: wanted.protocol_port,
        allowed_cidrs: wanted.allowed_cidrs.clone(),
        default_pool_id: pool.or_else(|| wanted.default_pool_id.clone()),
        loadbalancers: vec![reference(&tree.balancer.id)],
        ..Listener::default()
    });
}

fn plant(tree: &mut LoadBalancerTree, wanted: &CreatePool, ids: &mut dyn FnMut() -> String) -> String {
    let id = ids();
    let monitor = wanted.healthmonitor.as_ref().map(|monitor| {
        let pools = vec![reference(&id)];
        tree.monitors.push(HealthMonitor {
            id: ids(),
            name: monitor.name.clone(),
            delay: monitor.delay,
            timeout: monitor.timeout,
            max_retries: monitor.max_retries,
            max_retries_down: monitor.max_retries_down.unwrap_or(3),
            pools,
            ..HealthMonitor::default()
        });
        tree.monitors[tree.monitors.len() - 1].id.clone()
    });
    tree.pools.push(Pool {
        id: id.clone(),
        name: wanted.name.clone(),
        lb_algorithm: wanted.lb_algorithm.clone(),
        healthmonitor_id: monitor,
        loadbalancers: vec![reference(&tree.balancer.id)],
        ..Pool::default()
    });
    if let Some(listener) = &wanted.listener_id {
        for it in tree.listeners.iter_mut().filter(|it| it.id == *listener) {
            it.default_pool_id = Some(id.clone());
        }
    }
    id
}

fn changed(tree: &mut LoadBalancerTree, change: &LoadBalancerChange, ids: &mut dyn FnMut() -> String) {
    match change {
        LoadBalancerChange::CreateListener(listener) => grow(tree, listener, ids),
        LoadBalancerChange::UpdateListener { id, changes } => {
            for it in tree.listeners.iter_mut().filter(|it| it.id == *id) {
                *it = with(it, changes);
            }
        }
        LoadBalancerChange::DeleteListener(id) => tree.listeners.retain(|it| it.id != *id),
        LoadBalancerChange::CreatePool(pool) => drop(plant(tree, pool, ids)),
        LoadBalancerChange::DeletePool(id) => tree.pools.retain(|it| it.id != *id),
        LoadBalancerChange::SetMembers { pool_id, members } => {
            let members = members.iter().map(|member| Member {
                id: ids(),
                name: member.name.clone(),
                address: member.address.clone(),
                protocol_port: member.protocol_port,
                ..Member::default()
            });
            tree.members.insert(pool_id.clone(), members.collect());
        }
        LoadBalancerChange::CreateMonitor(monitor) => {
            let pool = monitor.pool_id.clone().unwrap_or_default();
            let id = ids();
            for it in tree.pools.iter_mut().filter(|it| it.id == pool) {
                it.healthmonitor_id = Some(id.clone());
            }
            tree.monitors.push(HealthMonitor {
                id,
                name: monitor.name.clone(),
                delay: monitor.delay,
                timeout: monitor.timeout,
                max_retries: monitor.max_retries,
                max_retries_down: monitor.max_retries_down.unwrap_or(3),
                pools: vec![reference(&pool)],
                ..HealthMonitor::default()
            });
        }
        LoadBalancerChange::UpdateMonitor { id, changes } => {
            for it in tree.monitors.iter_mut().filter(|it| it.id == *id) {
                *it = with(it, changes);
            }
        }
        LoadBalancerChange::DeleteMonitor(id) => tree.monitors.retain(|it| it.id != *id),
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
