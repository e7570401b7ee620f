//! Which addresses are taken and which is the next free one.
//!
//! Holds: finding a free address does not walk over all ports; an address that becomes free is given out again before
//! higher ones, so that small clouds look the same every time.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use hangar_openstack::wire::{FixedIp, Port, Subnet};

use super::{no_subnet, refuse};
use crate::reply::Refusal;
use crate::state::State;

#[derive(Clone, Default)]
pub(crate) struct Taken {
    by_network: HashMap<String, HashSet<IpAddr>>,
    /// Below this nothing is free, by subnet.
    lowest: HashMap<String, u128>,
}

impl Taken {
    pub(crate) fn add(&mut self, port: &Port) {
        let taken = self.by_network.entry(port.network_id.clone()).or_default();
        taken.extend(addresses(port).map(|(_, address)| address));
    }

    pub(crate) fn release(&mut self, port: &Port) {
        let Some(taken) = self.by_network.get_mut(&port.network_id) else { return };
        for (subnet, address) in addresses(port) {
            taken.remove(&address);
            if let Some(lowest) = self.lowest.get_mut(subnet) {
                *lowest = number(address).min(*lowest);
            }
        }
    }

    fn has(&self, network: &str, address: &IpAddr) -> bool {
        self.by_network.get(network).is_some_and(|taken| taken.contains(address))
    }

    fn free(&mut self, subnet: &Subnet, also: &[IpAddr]) -> Option<IpAddr> {
        let v6 = subnet.ip_version == 6;
        let from = self.lowest.get(&subnet.id).copied().unwrap_or(0);
        let found = subnet.allocation_pools.iter().find_map(|pool| {
            let (start, end) = (number(pool.start.parse().ok()?), number(pool.end.parse().ok()?));
            (start.max(from)..=end).find_map(|candidate| {
                let candidate = address(candidate, v6)?;
                (!self.has(&subnet.network_id, &candidate) && !also.contains(&candidate)).then_some(candidate)
            })
        })?;
        self.lowest.insert(subnet.id.clone(), number(found));
        Some(found)
    }
}

fn addresses(port: &Port) -> impl Iterator<Item = (&str, IpAddr)> {
    port.fixed_ips.iter().filter_map(|ip| Some((ip.subnet_id.as_deref()?, ip.ip_address.as_ref()?.parse().ok()?)))
}

pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn address(number: u128, v6: bool) -> Option<IpAddr> {
    if v6 {
        Some(IpAddr::V6(number.into()))
    } else {
        u32::try_from(number).ok().map(|number| IpAddr::V4(number.into()))
    }
}

/// What a port gets: what it asks for, or one address of the first subnet of each family.
pub(crate) fn choose(
    state: &mut State,
    network_id: &str,
    wanted: Option<Vec<FixedIp>>,
) -> Result<Vec<FixedIp>, Refusal> {
    let subnets: Vec<Subnet> = {
        let of = state.networks.get(network_id).map(|network| network.subnets.as_slice()).unwrap_or_default();
        of.iter().filter_map(|id| state.subnets.get(id)).cloned().collect()
    };
    let wanted = wanted.unwrap_or_else(|| {
        let first = |version: u8| subnets.iter().find(|subnet| subnet.ip_version == version);
        let any = |subnet: &Subnet| FixedIp { subnet_id: Some(subnet.id.clone()), ip_address: None };
        [first(4), first(6)].into_iter().flatten().map(any).collect()
    });
    let mut given: Vec<IpAddr> = vec![];
    let mut fixed_ips = vec![];
    for ip in wanted {
        let (subnet, address) = place(&subnets, &ip)?;
        let chosen = match address {
            Some(address) if state.ports.taken.has(network_id, &address) || given.contains(&address) => {
                let words = format!("IP address {address} already allocated in subnet {}", subnet.id);
                return refuse(409, "IpAddressAlreadyAllocated", words);
            }
            Some(address) => address,
            None => state.ports.taken.free(subnet, &given).ok_or_else(|| {
                let words = format!("No more IP addresses available on network {network_id}.");
                Refusal::neutron(409, "IpAddressGenerationFailure", words)
            })?,
        };
        given.push(chosen);
        fixed_ips.push(FixedIp { subnet_id: Some(subnet.id.clone()), ip_address: Some(chosen.to_string()) });
    }
    Ok(fixed_ips)
}

fn place<'a>(subnets: &'a [Subnet], ip: &FixedIp) -> Result<(&'a Subnet, Option<IpAddr>), Refusal> {
    let text = ip.ip_address.as_deref();
    let address = text.map(str::parse::<IpAddr>).transpose();
    let bad = |text: &str| {
        Refusal::neutron(
            400,
            "HTTPBadRequest",
            format!("Invalid input for fixed_ips. Reason: '{text}' is not a valid IP address."),
        )
    };
    let address = address.map_err(|_| bad(text.unwrap_or_default()))?;
    let holds =
        |subnet: &Subnet, address: &IpAddr| subnet.cidr.parse::<ipnet::IpNet>().is_ok_and(|net| net.contains(address));
    match (&ip.subnet_id, address) {
        (Some(id), address) => {
            let subnet = subnets.iter().find(|subnet| subnet.id == *id).ok_or_else(|| no_subnet(id))?;
            if address.is_some_and(|address| !holds(subnet, &address)) {
                let words =
                    format!("IP address {} is not a valid IP for the specified subnet.", text.unwrap_or_default());
                return refuse(400, "InvalidIpForSubnet", words);
            }
            Ok((subnet, address))
        }
        (None, Some(address)) => {
            let words =
                format!("IP address {address} is not a valid IP for any of the subnets on the specified network.");
            let found = subnets.iter().find(|subnet| holds(subnet, &address));
            found
                .map(|subnet| (subnet, Some(address)))
                .ok_or_else(|| Refusal::neutron(400, "InvalidIpForNetwork", words))
        }
        (None, None) => {
            let words = "IP allocation requires subnet_id or ip_address.";
            subnets.first().map(|subnet| (subnet, None)).ok_or_else(|| Refusal::neutron(400, "HTTPBadRequest", words))
        }
    }
}
