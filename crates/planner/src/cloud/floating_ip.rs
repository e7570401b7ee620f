//! One floating IP of one owner.
//! Flows: the user's address, or one with our key -> made -> twins go -> bound. Holds: it belongs to the cluster, not to what it leads to; it never moves by itself; an address that
//! the user gave is made without our key and never deleted.

use hangar_openstack_types::{CreateFloatingIp, FloatingIp};
use jiff::Timestamp;

use super::cluster_owner::ClusterOwner;
use super::resources::first;
use super::{Cloud, CloudCall, Owned, ResourceType};
use crate::plan::Phase;
use crate::planner::Part;

/// The role of the API's floating IP in its owner's key.
pub const API: &str = "api-floating-ip";
pub const BASTION: &str = "bastion-floating-ip";

pub struct Address<'a> {
    pub cloud: &'a Cloud,
    pub owner: ClusterOwner<'a>,
    pub role: &'static str,
    /// From the spec; empty if any address will do.
    pub given: &'a str,
    /// The user's floating IP with that address, if there is one.
    pub known: Option<&'a FloatingIp>,
    /// What was handed out before: it is made with this address and no other.
    pub before: &'a str,
    /// Where it comes from.
    pub network_id: &'a str,
    /// Where it leads, if that is known.
    pub port_id: Option<&'a str>,
    /// Ports that it may be taken from: nobody answers there any more.
    pub leaves: Vec<&'a str>,
}

impl<'a> Address<'a> {
    pub fn ip(&self) -> Option<&'a FloatingIp> {
        if !self.given.is_empty() {
            let mut all = self.cloud.resources.floating_ips.values().map(AsRef::as_ref);
            return all.find(|ip| ip.floating_ip_address == self.given).or(self.known);
        }
        // What was handed out stays, whichever is older.
        let is_other = |ip: &FloatingIp| ip.floating_ip_address != self.before;
        first(&self.cloud.resources.floating_ips, self.role, |ip| (is_other(ip), ip.age()))
    }

    fn made(&self) -> Phase {
        if self.ip().is_some() {
            return Phase::Done;
        }
        let address = [self.given, self.before].into_iter().find(|address| !address.is_empty());
        let description = self.given.is_empty().then(|| self.owner.description(self.role));
        let create = CreateFloatingIp {
            floating_network_id: self.network_id.to_owned(),
            floating_ip_address: address.map(str::to_owned),
            port_id: self.port_id.map(str::to_owned),
            description,
            ..CreateFloatingIp::default()
        };
        Phase::steps([self.cloud.step(CloudCall::CreateFloatingIp(Box::new(create)))])
    }

    fn twins(&self) -> Phase {
        let chosen = self.ip().map(|ip| ip.id.as_str());
        let twins = self.keyed().filter(|ip| Some(ip.id.as_str()) != chosen);
        Phase::steps(twins.map(|ip| self.cloud.delete(ResourceType::FloatingIp, &ip.id)))
    }

    fn keyed(&self) -> impl Iterator<Item = &'a FloatingIp> {
        let (all, role) = (self.cloud.resources.floating_ips.values().map(AsRef::as_ref), self.role);
        all.filter(move |ip: &&FloatingIp| ip.owner_key().is_some_and(|key| key.role == role))
    }

    fn bound(&self) -> Phase {
        let (Some(ip), Some(port)) = (self.ip(), self.port_id) else { return Phase::Done };
        match ip.port_id.as_deref().filter(|bound| !bound.is_empty()) {
            Some(bound) if bound == port => Phase::Done,
            // Nobody's connection is taken away.
            Some(bound) if !self.leaves.contains(&bound) => Phase::blocked(
                "FloatingIPInUse",
                format!("floating IP {} leads to port {bound}, not to {port}: disassociate it", ip.floating_ip_address),
            ),
            _ => {
                // Not if somebody else binds it at the same moment.
                let revision = Some(ip.revision_number).filter(|revision| *revision > 0);
                let port_id = Some(port.to_owned());
                Phase::steps([self.cloud.step(CloudCall::BindFloatingIp { id: ip.id.clone(), port_id, revision })])
            }
        }
    }

    fn tags(&self) -> Phase {
        let ip = self.ip().filter(|_| self.given.is_empty());
        Phase::steps(ip.and_then(|it| self.owner.tag(self.cloud, ResourceType::FloatingIp, &it.id, &it.tags)))
    }
}

impl Part for Address<'_> {
    fn build(&self, _now: Timestamp) -> Phase {
        self.made().then(|| self.twins()).then(|| self.bound()).then(|| self.tags())
    }

    /// One whose address the user has written down since stays: it is the user's now.
    fn delete(&self, _now: Timestamp) -> Phase {
        let gone = self.keyed().filter(|ip| self.given.is_empty() || ip.floating_ip_address != self.given);
        Phase::steps(gone.map(|ip| self.cloud.delete(ResourceType::FloatingIp, &ip.id)))
    }
}
