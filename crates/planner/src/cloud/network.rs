//! The network of a cluster and its subnets.
//! Flows: network -> subnets -> what changed in them -> tags; twins go when the router has left them. Holds: only what carries our key is touched; name servers and pools change in place; a network
//! goes with its subnets, and what of others keeps it is named.

use hangar_openstack_types::{AllocationPool, CreateNetwork, CreateSubnet, Network, Port, Subnet};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::cluster_owner::ClusterOwner;
use super::resources::first;
use super::{Cloud, CloudCall, ResourceType};
use crate::plan::Phase;
use crate::planner::Part;
use crate::step::Step;

/// The role of the network in its owner's key.
pub const ROLE: &str = "network";

pub fn subnet_role(index: usize) -> String {
    format!("subnet-{index}")
}

/// Ports that Neutron makes in a network for itself, and takes away with it.
const OF_NEUTRON: [&str; 2] = ["network:dhcp", "network:distributed"];

pub struct ManagedNetwork<'a> {
    pub cloud: &'a Cloud,
    pub owner: ClusterOwner<'a>,
    /// The OpenStackCluster's.
    pub spec: &'a Value,
    /// Every port in the network, whoever has it; known when it is about to go.
    pub ports: &'a [Port],
}

/// The network that counts.
pub fn of(cloud: &Cloud) -> Option<&Network> {
    cloud.counting(&cloud.resources.networks, ROLE)
}

/// Its subnets, in the order of the spec.
pub fn subnets_of(cloud: &Cloud) -> Vec<&Subnet> {
    let Some(network) = of(cloud) else { return vec![] };
    let all = (0..cloud.resources.subnets.len()).filter_map(|index| subnet(cloud, index));
    all.filter(|subnet| subnet.network_id == network.id).collect()
}

fn subnet(cloud: &Cloud, index: usize) -> Option<&Subnet> {
    let network = of(cloud).map(|network| network.id.as_str());
    let elsewhere = |subnet: &Subnet| network != Some(&subnet.network_id);
    first(&cloud.resources.subnets, &subnet_role(index), |subnet| (elsewhere(subnet), cloud.rank(subnet)))
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn pools(spec: &Value) -> Vec<AllocationPool> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = spec["allocationPools"].as_array().into_iter().flatten();
    all.map(|pool| AllocationPool { start: text(&pool["start"]), end: text(&pool["end"]) }).collect()
}

impl ManagedNetwork<'_> {
    fn specs(&self) -> impl Iterator<Item = (usize, &Value)> {
        self.spec["managedSubnets"].as_array().into_iter().flatten().enumerate()
    }

    fn network(&self) -> Phase {
        if of(self.cloud).is_some() {
            return Phase::Done;
        }
        let create = CreateNetwork {
            name: self.owner.name(),
            description: Some(self.owner.description(ROLE)),
            admin_state_up: Some(true),
            port_security_enabled: self.port_security(),
            mtu: self.mtu(),
            ..CreateNetwork::default()
        };
        Phase::steps([self.cloud.step(CloudCall::CreateNetwork(Box::new(create)))])
    }

    fn port_security(&self) -> Option<bool> {
        (self.spec["disablePortSecurity"] == true).then_some(false)
    }

    fn mtu(&self) -> Option<u32> {
        self.spec["networkMTU"].as_u64().and_then(|mtu| u32::try_from(mtu).ok()).filter(|mtu| *mtu > 0)
    }

    /// Somebody changed it behind our back.
    fn network_changes(&self) -> Phase {
        let Some(network) = of(self.cloud) else { return Phase::Done };
        let mut changes = json!({});
        if !network.admin_state_up {
            changes["admin_state_up"] = true.into();
        }
        if let Some(mtu) = self.mtu().filter(|mtu| network.mtu != Some(*mtu)) {
            changes["mtu"] = mtu.into();
        }
        if let Some(wanted) = self.port_security().filter(|wanted| network.port_security_enabled == Some(!*wanted)) {
            changes["port_security_enabled"] = wanted.into();
        }
        let update = || CloudCall::UpdateNetwork { id: network.id.clone(), changes: changes.clone() };
        Phase::steps((changes != json!({})).then(|| self.cloud.step(update())))
    }

    fn subnets(&self) -> Phase {
        let Some(network) = of(self.cloud) else { return Phase::Done };
        let missing = self
            .specs()
            .filter(|(index, _)| subnet(self.cloud, *index).is_none_or(|subnet| subnet.network_id != network.id));
        Phase::steps(missing.map(|(index, spec)| {
            let cidr = spec["cidr"].as_str().unwrap_or_default().to_owned();
            self.cloud.step(CloudCall::CreateSubnet(Box::new(CreateSubnet {
                network_id: network.id.clone(),
                name: self.owner.name(),
                ip_version: if cidr.contains(':') { 6 } else { 4 },
                cidr,
                description: Some(self.owner.description(&subnet_role(index))),
                allocation_pools: pools(spec),
                dns_nameservers: texts(&spec["dnsNameservers"]),
                ..CreateSubnet::default()
            })))
        }))
    }

    /// What may change in a subnet, by the user or behind our back.
    fn changes(&self) -> Phase {
        Phase::steps(self.specs().filter_map(|(index, spec)| {
            let subnet = subnet(self.cloud, index)?;
            let (servers, pools) = (texts(&spec["dnsNameservers"]), pools(spec));
            let mut changes = json!({});
            if subnet.dns_nameservers != servers {
                changes["dns_nameservers"] = json!(servers);
            }
            let sorted = |pools: &[AllocationPool]| {
                let mut all: Vec<_> = pools.iter().map(|pool| (pool.start.clone(), pool.end.clone())).collect();
                all.sort();
                all
            };
            if !pools.is_empty() && sorted(&subnet.allocation_pools) != sorted(&pools) {
                changes["allocation_pools"] = json!(pools);
            }
            let update = CloudCall::UpdateSubnet { id: subnet.id.clone(), changes: changes.clone() };
            (changes != json!({})).then(|| self.cloud.step(update))
        }))
    }

    fn tags(&self) -> Phase {
        let network = of(self.cloud);
        let network = network.and_then(|it| self.owner.tag(self.cloud, ResourceType::Network, &it.id, &it.tags));
        let subnets = subnets_of(self.cloud).into_iter();
        let subnets = subnets.filter_map(|it| self.owner.tag(self.cloud, ResourceType::Subnet, &it.id, &it.tags));
        Phase::steps(network.into_iter().chain(subnets))
    }

    /// In the network that counts; those of other networks go with them.
    fn surplus_subnets(&self) -> Vec<Step> {
        let Some(network) = of(self.cloud) else { return vec![] };
        let here = self.cloud.resources.subnets.iter().filter(|(_, subnet)| subnet.network_id == network.id);
        self.cloud.twins(&here.map(|(id, subnet)| (id.clone(), subnet.clone())).collect())
    }

    /// Networks that came twice, when the router has no interface in them any more.
    pub fn surplus(&self) -> Phase {
        Phase::steps(self.cloud.twins(&self.cloud.resources.networks))
    }

    /// A port of somebody else keeps the network; Neutron says so without saying which. Until it is gone the router stays, too: whoever is there may
    /// still need it.
    pub fn kept(&self) -> Phase {
        let ours = &self.cloud.resources;
        // Routers of ours have ports of their own beside the interface.
        let of_router =
            |port: &Port| port.device_owner.starts_with("network:") && ours.routers.contains_key(&port.device_id);
        let keeps = |port: &&Port| {
            ours.networks.contains_key(&port.network_id)
                && !OF_NEUTRON.contains(&port.device_owner.as_str())
                && !ours.ports.contains_key(&port.id)
                && !of_router(port)
        };
        let kept: Vec<String> = self.ports.iter().filter(keeps).map(described).collect();
        match kept.len() {
            0 => Phase::Done,
            count => {
                let shown = kept.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
                let more = if count > 5 { ", ..." } else { "" };
                let name = of(self.cloud).map_or("", |network| &network.name);
                let text = format!("network {name} is kept by {count} ports of others ({shown}{more}): delete them");
                Phase::blocked("NetworkInUse", text)
            }
        }
    }
}

fn described(port: &Port) -> String {
    let owner = if port.device_owner.is_empty() { "not attached" } else { &port.device_owner };
    format!("{} of {owner}", if port.name.is_empty() { &port.id } else { &port.name })
}

impl Part for ManagedNetwork<'_> {
    fn build(&self, _now: Timestamp) -> Phase {
        self.network()
            .then(|| self.network_changes())
            .then(|| Phase::steps(self.surplus_subnets()))
            .then(|| self.subnets())
            .then(|| self.changes())
            .then(|| self.tags())
    }

    /// The subnets go with their network.
    fn delete(&self, _now: Timestamp) -> Phase {
        let resources = &self.cloud.resources;
        let alone = resources.subnets.values().filter(|subnet| !resources.networks.contains_key(&subnet.network_id));
        let networks = resources.networks.keys().map(|id| self.cloud.delete(ResourceType::Network, id));
        let subnets = alone.map(|subnet| self.cloud.delete(ResourceType::Subnet, &subnet.id));
        self.kept().then(|| Phase::steps(networks.chain(subnets)))
    }
}
