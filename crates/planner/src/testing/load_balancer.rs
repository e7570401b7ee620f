//! What hangs below a load balancer of the tiny cloud.

use hangar_openstack_types::{CreateListener, CreatePool, HealthMonitor, Listener, Member, Pool, Reference};

use super::cloud::with;
use crate::cloud::{LoadBalancerChange, LoadBalancerTree};

/// A change in a few words.
pub fn change(change: &LoadBalancerChange) -> String {
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

fn reference(id: &str) -> Reference {
    Reference { id: id.to_owned() }
}

pub fn grow(tree: &mut LoadBalancerTree, wanted: &CreateListener, ids: &mut dyn FnMut() -> String) {
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

pub fn changed(tree: &mut LoadBalancerTree, change: &LoadBalancerChange, ids: &mut dyn FnMut() -> String) {
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
