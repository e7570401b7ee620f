//! The load balancer of a cluster's API.
//! Flows: twins go -> made with everything below it in one call -> waited for -> what changed, one thing at a time. Holds: while Octavia is at work nothing is asked of it, and it is
//! looked at ever less often; what somebody took away below it comes back; members are exactly the control plane machines.

use std::time::Duration;

use hangar_openstack_types::{
    CreateHealthMonitor, CreateListener, CreateLoadBalancer, CreateMember, CreatePool, HealthMonitor, Listener, Pool,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::cluster_owner::ClusterOwner;
use super::{Cloud, CloudCall, LoadBalancerChange, LoadBalancerTree, ResourceType, oldest};
use crate::plan::Phase;
use crate::planner::Part;

/// The role of the API's load balancer in its owner's key.
pub const ROLE: &str = "api-load-balancer";

/// A control plane machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub name: String,
    pub address: String,
}

pub struct ApiLoadBalancer<'a> {
    pub cloud: &'a Cloud,
    pub owner: ClusterOwner<'a>,
    /// `spec.apiServerLoadBalancer`
    pub spec: &'a Value,
    /// The API's first.
    pub ports: Vec<u16>,
    pub network_id: Option<&'a str>,
    pub subnet_id: Option<&'a str>,
    /// Where members are, if that is another network than the load balancer's.
    pub member_subnet_id: Option<&'a str>,
    /// The address that it is to have; empty if any will do.
    pub address: &'a str,
    pub flavor_id: Option<&'a str>,
    /// `None` lets everybody in.
    pub allowed: Option<Vec<String>>,
    pub targets: Vec<Target>,
}

/// The load balancer that counts.
pub fn of(cloud: &Cloud) -> Option<&LoadBalancerTree> {
    oldest(&cloud.resources.load_balancers, ROLE)
}

pub fn is_pending(tree: &LoadBalancerTree) -> bool {
    tree.balancer.provisioning_status.starts_with("PENDING")
}

impl ApiLoadBalancer<'_> {
    fn name(&self) -> String {
        format!("{}-kubeapi", self.owner.name())
    }

    fn name_of(&self, port: u16) -> String {
        format!("{}-{port}", self.name())
    }

    fn monitor(&self, name: String, pool_id: Option<String>) -> CreateHealthMonitor {
        let number = |field: &str, default: u32| {
            let set = self.spec["monitor"][field].as_u64().and_then(|number| u32::try_from(number).ok());
            set.filter(|number| *number > 0).unwrap_or(default)
        };
        CreateHealthMonitor {
            name,
            pool_id,
            kind: "TCP".into(),
            delay: number("delay", 10),
            timeout: number("timeout", 5),
            max_retries: number("maxRetries", 5),
            max_retries_down: Some(number("maxRetriesDown", 3)),
        }
    }

    fn pool(&self, port: u16) -> CreatePool {
        let is_ovn = self.spec["provider"] == "ovn";
        CreatePool {
            name: self.name_of(port),
            protocol: "TCP".into(),
            lb_algorithm: if is_ovn { "SOURCE_IP_PORT" } else { "ROUND_ROBIN" }.into(),
            members: self.members(port),
            healthmonitor: Some(self.monitor(self.name_of(port), None)),
            tags: self.owner.tags.to_vec(),
            ..CreatePool::default()
        }
    }

    fn listener(&self, port: u16) -> CreateListener {
        CreateListener {
            name: self.name_of(port),
            protocol: "TCP".into(),
            protocol_port: port,
            allowed_cidrs: self.allowed.clone(),
            default_pool: Some(Box::new(self.pool(port))),
            tags: self.owner.tags.to_vec(),
            ..CreateListener::default()
        }
    }

    fn members(&self, port: u16) -> Vec<CreateMember> {
        let member = |target: &Target| CreateMember {
            name: format!("{}-{}", self.name_of(port), target.name),
            address: target.address.clone(),
            protocol_port: port,
            subnet_id: self.member_subnet_id.map(str::to_owned),
            tags: self.owner.tags.to_vec(),
            ..CreateMember::default()
        };
        self.targets.iter().map(member).collect()
    }

    fn made(&self) -> Phase {
        if of(self.cloud).is_some() {
            return Phase::Done;
        }
        let text = |field: &str| self.spec[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let create = CreateLoadBalancer {
            name: self.name(),
            description: Some(self.owner.description(ROLE)),
            vip_subnet_id: self.subnet_id.map(str::to_owned),
            vip_network_id: self.network_id.map(str::to_owned),
            vip_address: Some(self.address.to_owned()).filter(|address| !address.is_empty()),
            provider: text("provider"),
            flavor_id: self.flavor_id.map(str::to_owned),
            availability_zone: text("availabilityZone"),
            tags: self.owner.tags.to_vec(),
            listeners: self.ports.iter().map(|port| self.listener(*port)).collect(),
            ..CreateLoadBalancer::default()
        };
        Phase::steps([self.cloud.step(CloudCall::CreateLoadBalancer(Box::new(create)))])
    }

    fn settled(&self, now: Timestamp) -> Phase {
        let Some(tree) = of(self.cloud) else { return Phase::Done };
        let name = &tree.balancer.name;
        match tree.balancer.provisioning_status.as_str() {
            "ACTIVE" => Phase::Done,
            "ERROR" => Phase::blocked(
                "LoadBalancerError",
                format!(
                    "load balancer {name} is in ERROR: ask the operators of the cloud for its failover, or delete it to have it made again"
                ),
            ),
            status => {
                let text = format!("waiting for load balancer {name}, which is {status}");
                Phase::wait_for("WaitingForLoadBalancer", text, patience(tree, now))
            }
        }
    }

    fn tree(&self) -> Option<&LoadBalancerTree> {
        of(self.cloud)
    }

    fn listener_on(&self, port: u16) -> Option<&Listener> {
        self.tree()?.listeners.iter().find(|listener| listener.protocol_port == port)
    }

    fn pool_on(&self, port: u16) -> Option<&Pool> {
        let id = self.listener_on(port)?.default_pool_id.as_deref()?;
        self.tree()?.pools.iter().find(|pool| pool.id == id)
    }

    /// What is left of a listener that somebody deleted.
    fn spare_pool(&self, port: u16) -> Option<&Pool> {
        let (tree, name) = (self.tree()?, self.name_of(port));
        let is_used = |pool: &Pool| tree.listeners.iter().any(|it| it.default_pool_id.as_deref() == Some(&pool.id));
        tree.pools.iter().find(|pool| pool.name == name && !is_used(pool))
    }

    fn monitor_on(&self, port: u16) -> Option<&HealthMonitor> {
        let id = self.pool_on(port)?.healthmonitor_id.as_deref()?;
        self.tree()?.monitors.iter().find(|monitor| monitor.id == id)
    }

    /// The first thing that is not as it should be.
    fn change(&self) -> Option<LoadBalancerChange> {
        self.ports.iter().find_map(|port| self.change_on(*port))
    }

    fn change_on(&self, port: u16) -> Option<LoadBalancerChange> {
        let tree = self.tree()?;
        let Some(listener) = self.listener_on(port) else {
            let loadbalancer_id = Some(tree.balancer.id.clone());
            let mut listener = CreateListener { loadbalancer_id, ..self.listener(port) };
            if let Some(pool) = self.spare_pool(port) {
                (listener.default_pool, listener.default_pool_id) = (None, Some(pool.id.clone()));
            }
            return Some(LoadBalancerChange::CreateListener(Box::new(listener)));
        };
        if !same_cidrs(listener.allowed_cidrs.as_deref(), self.allowed.as_deref()) {
            let changes = json!({ "allowed_cidrs": self.allowed });
            return Some(LoadBalancerChange::UpdateListener { id: listener.id.clone(), changes });
        }
        let Some(pool) = self.pool_on(port) else {
            if let Some(pool) = self.spare_pool(port) {
                let changes = json!({ "default_pool_id": pool.id });
                return Some(LoadBalancerChange::UpdateListener { id: listener.id.clone(), changes });
            }
            let pool = CreatePool { listener_id: Some(listener.id.clone()), ..self.pool(port) };
            return Some(LoadBalancerChange::CreatePool(Box::new(pool)));
        };
        self.monitor_change(tree, port, pool).or_else(|| self.member_change(tree, port, pool))
    }

    fn monitor_change(&self, tree: &LoadBalancerTree, port: u16, pool: &Pool) -> Option<LoadBalancerChange> {
        let wanted = self.monitor(self.name_of(port), Some(pool.id.clone()));
        match self.monitor_on(port) {
            // The provider has none.
            None if tree.no_monitors => None,
            None => Some(LoadBalancerChange::CreateMonitor(wanted)),
            Some(there) => {
                let is = (there.delay, there.timeout, there.max_retries, Some(there.max_retries_down));
                if is == (wanted.delay, wanted.timeout, wanted.max_retries, wanted.max_retries_down) {
                    return None;
                }
                let changes = json!({
                    "delay": wanted.delay, "timeout": wanted.timeout,
                    "max_retries": wanted.max_retries, "max_retries_down": wanted.max_retries_down,
                });
                Some(LoadBalancerChange::UpdateMonitor { id: there.id.clone(), changes })
            }
        }
    }

    fn member_change(&self, tree: &LoadBalancerTree, port: u16, pool: &Pool) -> Option<LoadBalancerChange> {
        let wanted = self.members(port);
        let mut is: Vec<(&str, u16)> = tree
            .members
            .get(&pool.id)
            .into_iter()
            .flatten()
            .map(|member| (member.address.as_str(), member.protocol_port))
            .collect();
        let mut want: Vec<(&str, u16)> =
            wanted.iter().map(|member| (member.address.as_str(), member.protocol_port)).collect();
        is.sort_unstable();
        want.sort_unstable();
        (is != want).then(|| LoadBalancerChange::SetMembers { pool_id: pool.id.clone(), members: wanted.clone() })
    }

    fn changed(&self) -> Phase {
        let Some(tree) = self.tree() else { return Phase::Done };
        let step = |change| self.cloud.step(CloudCall::ChangeLoadBalancer { id: tree.balancer.id.clone(), change });
        Phase::steps(self.change().map(step))
    }
}

/// Neither order nor an empty list matters.
fn same_cidrs(one: Option<&[String]>, other: Option<&[String]>) -> bool {
    let sorted = |list: Option<&[String]>| {
        let mut all = list.unwrap_or_default().to_vec();
        all.sort();
        all
    };
    sorted(one) == sorted(other)
}

/// The longer it takes, the longer until the next look.
fn patience(tree: &LoadBalancerTree, now: Timestamp) -> Duration {
    let since = tree.balancer.updated_at.as_ref().unwrap_or(&tree.balancer.created_at);
    let parsed = since.parse::<Timestamp>().or_else(|_| format!("{since}Z").parse());
    let age = parsed.map_or(0, |since| now.as_second() - since.as_second());
    Duration::from_millis(u64::try_from(age.clamp(0, 120) * 125).unwrap_or_default().clamp(1_000, 15_000))
}

impl Part for ApiLoadBalancer<'_> {
    fn build(&self, now: Timestamp) -> Phase {
        self.made()
            .then(|| self.settled(now))
            .then(|| Phase::steps(self.cloud.twins(&self.cloud.resources.load_balancers)))
            .then(|| self.changed())
    }

    fn delete(&self, now: Timestamp) -> Phase {
        gone(self.cloud, now)
    }
}

/// Everything below it goes with it; Octavia takes its time.
pub fn gone(cloud: &Cloud, now: Timestamp) -> Phase {
    let all = cloud.resources.load_balancers.values();
    let idle = all.clone().filter(|tree| !is_pending(tree));
    Phase::steps(idle.map(|tree| cloud.delete(ResourceType::LoadBalancer, &tree.balancer.id))).then(|| {
        match all.clone().next() {
            None => Phase::Done,
            Some(tree) => {
                let (name, status) = (&tree.balancer.name, &tree.balancer.provisioning_status);
                let text = format!("waiting for load balancer {name} to be deleted, which is {status}");
                Phase::wait_for("WaitingForLoadBalancerDeletion", text, patience(tree, now))
            }
        }
    })
}
