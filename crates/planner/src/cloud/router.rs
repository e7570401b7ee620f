//! The router of a cluster, and its interfaces in the cluster's subnets.
//! Flows: router -> twins go -> gateway -> a port of ours for each subnet -> interfaces -> tags. Holds: the port of an interface carries our key from its create call, so that an
//! interface is found again whoever the router belongs to; a router of the user's gets interfaces and is never deleted.

use hangar_openstack_types::{CreatePort, CreateRouter, FixedIp, GatewayInfo, Network, Port, Router, Subnet};
use jiff::Timestamp;
use serde_json::json;

use super::cluster_owner::ClusterOwner;
use super::resources::first;
use super::{Cloud, CloudCall, Owned, ResourceType};
use crate::plan::Phase;
use crate::planner::Part;
use crate::step::Step;

/// The role of the router in its owner's key.
pub const ROLE: &str = "router";
const INTERFACE: &str = "router-interface-";

/// Whether a role is that of a router's interface.
pub fn interface_role(index: usize) -> String {
    format!("{INTERFACE}{index}")
}

pub fn is_interface(role: &str) -> bool {
    role.starts_with(INTERFACE)
}

pub struct ManagedRouter<'a> {
    pub cloud: &'a Cloud,
    pub owner: ClusterOwner<'a>,
    /// Without one there is no way out, and no router of ours.
    pub external: Option<&'a Network>,
    /// The user's, which is used instead of one of ours.
    pub existing: Option<&'a Router>,
    /// Its addresses in the external network.
    pub external_ips: Vec<FixedIp>,
    pub subnets: Vec<&'a Subnet>,
}

/// Our router.
/// Of two that a lost answer made the one that has an interface of ours: floating IPs behind it would hold it there.
pub fn of(cloud: &Cloud) -> Option<&Router> {
    let has_interface = |router: &Router| {
        let mut ports = cloud.resources.ports.values();
        ports.any(|port| port.device_id == router.id && port.owner_key().is_some_and(|key| is_interface(&key.role)))
    };
    first(&cloud.resources.routers, ROLE, |router| (!has_interface(router), cloud.rank(router)))
}

impl ManagedRouter<'_> {
    fn current(&self) -> Option<&Router> {
        self.existing.or_else(|| of(self.cloud))
    }

    fn gateway_info(&self) -> Option<GatewayInfo> {
        let network_id = self.external?.id.clone();
        Some(GatewayInfo { network_id, enable_snat: None, external_fixed_ips: self.external_ips.clone() })
    }

    fn router(&self) -> Phase {
        if self.current().is_some() {
            return Phase::Done;
        }
        let create = CreateRouter {
            name: self.owner.name(),
            description: Some(self.owner.description(ROLE)),
            admin_state_up: Some(true),
            external_gateway_info: self.gateway_info(),
        };
        Phase::steps([self.cloud.step(CloudCall::CreateRouter(Box::new(create)))])
    }

    fn twins(&self) -> Phase {
        let chosen = of(self.cloud).map(|router| router.id.as_str());
        let others = self.cloud.resources.routers.keys().filter(|id| Some(id.as_str()) != chosen);
        Phase::steps(others.map(|id| self.cloud.delete(ResourceType::Router, id)))
    }

    /// Somebody took it away, it leads elsewhere, or the router is switched off.
    fn gateway(&self) -> Phase {
        let (Some(router), Some(wanted)) = (of(self.cloud).filter(|_| self.existing.is_none()), self.gateway_info())
        else {
            return Phase::Done;
        };
        let has = |ip: &FixedIp| {
            let there = router.external_gateway_info.iter().flat_map(|info| &info.external_fixed_ips);
            let fits = |wanted: &Option<String>, there: &Option<String>| wanted.is_none() || wanted == there;
            let mut there = there.into_iter();
            there.any(|it| fits(&ip.ip_address, &it.ip_address) && fits(&ip.subnet_id, &it.subnet_id))
        };
        let leads_there =
            router.external_gateway_info.as_ref().is_some_and(|info| info.network_id == wanted.network_id);
        let mut changes = json!({});
        if !leads_there || !wanted.external_fixed_ips.iter().all(has) {
            changes["external_gateway_info"] = json!(wanted);
        }
        if !router.admin_state_up {
            changes["admin_state_up"] = true.into();
        }
        let update = || CloudCall::UpdateRouter { id: router.id.clone(), changes: changes.clone() };
        Phase::steps((changes != json!({})).then(|| self.cloud.step(update())))
    }

    fn interface(&self, index: usize) -> Option<&Port> {
        let role = interface_role(index);
        let ports = &self.cloud.resources.ports;
        let found = first(ports, &role, |port| (self.is_elsewhere(port), self.cloud.rank(port)));
        found.filter(|port| !self.is_elsewhere(port))
    }

    /// In a network that came twice, and is not the one that counts.
    fn is_elsewhere(&self, port: &Port) -> bool {
        !self.subnets.is_empty() && !self.subnets.iter().any(|subnet| subnet.network_id == port.network_id)
    }

    fn ports(&self) -> Phase {
        let missing = self.subnets.iter().enumerate().filter(|(index, _)| self.interface(*index).is_none());
        Phase::steps(missing.filter_map(|(index, subnet)| {
            let address = subnet.gateway_ip.clone()?;
            let create = CreatePort {
                network_id: subnet.network_id.clone(),
                name: self.owner.name(),
                description: Some(self.owner.description(&interface_role(index))),
                fixed_ips: Some(vec![FixedIp { subnet_id: Some(subnet.id.clone()), ip_address: Some(address) }]),
                // The project's default group has no say in what a router forwards.
                security_groups: Some(vec![]),
                ..CreatePort::default()
            };
            Some(self.cloud.step(CloudCall::CreatePort(Box::new(create))))
        }))
    }

    fn interfaces(&self) -> Phase {
        let Some(router) = self.current() else { return Phase::Done };
        let ports = (0..self.subnets.len()).filter_map(|index| self.interface(index));
        Phase::steps(ports.filter(|port| port.device_id != router.id).map(|port| {
            let call = CloudCall::AddRouterInterface { router_id: router.id.clone(), port_id: port.id.clone() };
            self.cloud.step(call)
        }))
    }

    /// Interfaces of a router that is gone, or that is one too many: a port of ours can only have come there by us.
    fn misplaced(&self) -> Phase {
        let Some(router) = self.current() else { return Phase::Done };
        let is_apart = |port: &&Port| port.device_id != router.id || self.is_elsewhere(port);
        let apart = self.interface_ports().filter(|port| !port.device_id.is_empty()).filter(is_apart);
        Phase::steps(apart.map(|port| self.detach(port)))
    }

    fn detach(&self, port: &Port) -> Step {
        self.cloud.step(match port.device_id.as_str() {
            "" => CloudCall::Delete(ResourceType::Port, port.id.clone()),
            router => CloudCall::RemoveRouterInterface { router_id: router.to_owned(), port_id: port.id.clone() },
        })
    }

    /// Twins that were never attached.
    fn surplus(&self) -> Phase {
        let ports = self.interface_ports().filter(|port| port.device_id.is_empty());
        let is_twin = |port: &&Port| {
            let counts = (0..self.subnets.len()).any(|index| self.interface(index).is_some_and(|it| it.id == port.id));
            !counts
        };
        Phase::steps(ports.filter(is_twin).map(|port| self.cloud.delete(ResourceType::Port, &port.id)))
    }

    fn interface_ports(&self) -> impl Iterator<Item = &Port> {
        let all = self.cloud.resources.ports.values().map(AsRef::as_ref);
        all.filter(|port| port.owner_key().is_some_and(|key| is_interface(&key.role)))
    }

    fn tags(&self) -> Phase {
        let router = of(self.cloud);
        Phase::steps(router.and_then(|it| self.owner.tag(self.cloud, ResourceType::Router, &it.id, &it.tags)))
    }
}

impl Part for ManagedRouter<'_> {
    fn build(&self, _now: Timestamp) -> Phase {
        if self.existing.is_none() && self.external.is_none() {
            return Phase::Done;
        }
        self.router()
            .then(|| self.misplaced())
            .then(|| self.twins())
            .then(|| self.gateway())
            .then(|| self.surplus())
            .then(|| self.ports())
            .then(|| self.interfaces())
            .then(|| self.tags())
    }

    fn delete(&self, _now: Timestamp) -> Phase {
        let interfaces = self.interface_ports().map(|port| self.detach(port));
        let routers = self.cloud.resources.routers.keys().map(|id| self.cloud.delete(ResourceType::Router, id));
        Phase::steps(interfaces).then(|| Phase::steps(routers))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cloud::Resource;
    use crate::cloud::tests::cloud;
    use crate::owner_key::OwnerKey;
    use crate::testing::at;

    /// A proxy repeated the request, and the list showed the older one only when floating IPs led through the younger one.
    #[test]
    fn of_two_routers_the_one_with_our_interface_counts() {
        let described = |role: &str| OwnerKey::new("c", "o", role).describe("x");
        let router = |id: &str, created: i64| {
            let (description, created_at) = (described(ROLE), Some(at(created).to_string()));
            Resource::Router(Arc::new(Router { id: id.into(), description, created_at, ..Router::default() }))
        };
        let interface = |device: &str| {
            let (device_id, description) = (device.to_owned(), described(&interface_role(0)));
            Resource::Port(Arc::new(Port { id: "p".into(), device_id, description, ..Port::default() }))
        };
        for (ports, expected) in
            [(vec![], "older"), (vec![interface("younger")], "younger"), (vec![interface("")], "older")]
        {
            let cloud = cloud([vec![router("older", 0), router("younger", 5)], ports].concat());
            assert_eq!(of(&cloud).map(|router| router.id.as_str()), Some(expected));
        }
    }
}
