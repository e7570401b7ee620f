//! What security groups allow the guests of servers: from Neutron's rules to those of a machine's links.
//!
//! Flows: a change of ports, groups or servers -> the filter of every server -> the driver, which knows what it was told before. Holds: a group on the
//! other side of a rule is the addresses of all ports that have it.

use std::net::Ipv4Addr;

use hangar_machine::{PortFilter, PortRule};
use hangar_openstack::wire::SecurityGroupRule;
use ipnet::Ipv4Net;

use crate::Simulator;
use crate::state::State;

const EVERYBODY: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0);

impl Simulator {
    /// Tells the driver about every change, where guests have networks.
    pub(crate) fn start_filtering(&self) {
        if !self.0.options.forward {
            return;
        }
        let simulator = self.clone();
        tokio::spawn(async move {
            let mut changes = simulator.0.security.subscribe();
            loop {
                if let Some(driver) = simulator.guest_driver() {
                    let filters = all(&simulator.world().state);
                    filters.into_iter().for_each(|(server, filter)| driver.filter(&server, filter));
                }
                tokio::select! {
                    () = simulator.0.closed.cancelled() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                }
            }
        });
    }
}

/// By server; None where ports are not filtered.
fn all(state: &State) -> Vec<(String, Option<PortFilter>)> {
    let of = |ports: &[String]| {
        let ports: Vec<_> = ports.iter().filter_map(|id| state.ports.get(id)).collect();
        if ports.is_empty() || ports.iter().any(|port| port.port_security_enabled == Some(false)) {
            return None;
        }
        let groups = ports.iter().flat_map(|port| &port.security_groups).filter_map(|id| state.security_groups.get(id));
        let rules = groups.flat_map(|group| &group.security_group_rules).filter_map(|rule| port_rule(state, rule));
        Some(PortFilter { rules: rules.collect(), pods: vec![] })
    };
    state.servers.values().map(|record| (record.server.id.clone(), of(&record.ports))).collect()
}

fn port_rule(state: &State, rule: &SecurityGroupRule) -> Option<PortRule> {
    if rule.ethertype != "IPv4" {
        return None;
    }
    let remotes = match (&rule.remote_group_id, &rule.remote_ip_prefix) {
        (Some(group), _) => {
            let members = state.ports.values().filter(|port| port.security_groups.contains(group));
            let addresses = members.flat_map(|port| &port.fixed_ips).filter_map(|fixed| fixed.ip_address.as_ref());
            addresses.filter_map(|address| Some(Ipv4Net::from(address.parse::<Ipv4Addr>().ok()?))).collect()
        }
        (None, Some(prefix)) => vec![prefix.parse().ok()?],
        (None, None) => vec![EVERYBODY],
    };
    let number = |value: Option<i32>| value.and_then(|value| u16::try_from(value).ok());
    let from = number(rule.port_range_min);
    let ports = from.map(|from| (from, number(rule.port_range_max).unwrap_or(from).max(from)));
    Some(PortRule { ingress: rule.direction == "ingress", protocol: rule.protocol.clone(), ports, remotes })
}
