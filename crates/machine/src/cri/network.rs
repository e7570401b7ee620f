//! Networks of pods: a bridge in the guest, one link and one address for each pod.
//!
//! Flows: the node's range, from the kubelet -> a bridge with its first address -> addresses for pods. Holds: an address is given out once until
//! it comes back; what leaves the node has the node's address.

use std::collections::BTreeSet;
use std::io::{Error, Result};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ipnet::Ipv4Net;

use crate::agent::console;
use crate::fabric::{accept_loopback, link_name, sysctl};
use crate::network::{NetNamespace, NetworkError, nft};

const BRIDGE: &str = "cni0";
const NAMESPACES: &str = "/run/netns";
const MTU: u32 = 1450;

#[derive(Default)]
pub struct PodNetwork(Mutex<State>);

#[derive(Default)]
struct State {
    range: Option<Ipv4Net>,
    used: BTreeSet<Ipv4Addr>,
    /// Where the search for a free one goes on: an address that came back is not given out at once.
    last: Option<Ipv4Addr>,
}

/// A pod's own network.
#[derive(Debug)]
pub struct PodLink {
    pub address: Ipv4Addr,
    pub namespace: PathBuf,
}

impl PodNetwork {
    pub fn is_ready(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).range.is_some()
    }

    /// Called by the kubelet with what the control plane gave the node.
    pub fn set_range(&self, text: &str) -> Result<()> {
        // Ranges of both families come separated by a comma.
        let Some(range) = text.split(',').find_map(|one| one.trim().parse::<Ipv4Net>().ok()) else { return Ok(()) };
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).range == Some(range) {
            return Ok(());
        }
        let gateway = gateway(range)?;
        let own = NetNamespace::current()?;
        let made = own.configure(async |links| {
            links.add_bridge(BRIDGE).await?;
            links.identify(BRIDGE, None, MTU).await?;
            links.add_address(BRIDGE, gateway).await
        });
        made.map_err(network_error)?;
        accept_loopback(BRIDGE)?;
        if let Err(error) = nft::run(&nft::masquerade(range)) {
            console(&format!("pods reach nothing outside of their node: {error}; install nftables on this system"));
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).range = Some(range);
        console(&format!("runtime: pods have addresses of {range}"));
        Ok(())
    }

    pub fn connect(&self, sandbox: &str) -> Result<PodLink> {
        let (address, range) = self.take()?;
        let connected = self.plug(sandbox, address, range);
        if connected.is_err() {
            self.give_back(address);
        }
        connected
    }

    pub fn disconnect(&self, link: &PodLink) {
        self.give_back(link.address);
        let _ = rustix::mount::unmount(&link.namespace, rustix::mount::UnmountFlags::DETACH);
        let _ = std::fs::remove_file(&link.namespace);
    }

    fn take(&self) -> Result<(Ipv4Addr, Ipv4Net)> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let range = state.range.ok_or_else(|| Error::other("the node has no range of pod addresses (podCIDR) yet"))?;
        let own = gateway(range)?.addr();
        let free = |address: &Ipv4Addr| *address != own && !state.used.contains(address);
        let after = range.hosts().filter(|address| state.last.is_none_or(|last| *address > last)).find(free);
        let found = after.or_else(|| range.hosts().find(free));
        let found = found.ok_or_else(|| Error::other(format!("all addresses of {range} are in use")))?;
        state.used.insert(found);
        state.last = Some(found);
        Ok((found, range))
    }

    fn give_back(&self, address: Ipv4Addr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).used.remove(&address);
    }

    fn plug(&self, sandbox: &str, address: Ipv4Addr, range: Ipv4Net) -> Result<PodLink> {
        let (own, pod) = (NetNamespace::current()?, NetNamespace::create()?);
        let (outer, inner) = (link_name('p', sandbox), link_name('q', sandbox));
        let plugged = own.configure(async |links| {
            links.add_pair(&outer, &inner).await?;
            links.plug(&outer, BRIDGE, MTU).await?;
            links.hand_over(&inner, &pod, "eth0").await
        });
        plugged.map_err(network_error)?;
        accept_loopback(&outer)?;
        let gateway = gateway(range)?.addr();
        let configured = pod.configure(async |links| {
            links.loopback().await?;
            links.identify("eth0", None, MTU).await?;
            links.add_address("eth0", Ipv4Net::new_assert(address, range.prefix_len())).await?;
            links.route(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0), gateway).await
        });
        configured.map_err(network_error)?;
        let namespace = Path::new(NAMESPACES).join(sandbox);
        std::fs::create_dir_all(NAMESPACES)?;
        std::fs::write(&namespace, "")?;
        pod.inside(|| {
            accept_loopback("all")?;
            sysctl("ip_unprivileged_port_start", "0")?;
            // What is mounted there is the namespace, for as long as it is mounted.
            Ok(rustix::mount::mount_bind("/proc/thread-self/ns/net", &namespace)?)
        })?;
        Ok(PodLink { address, namespace })
    }
}

fn gateway(range: Ipv4Net) -> Result<Ipv4Net> {
    let first = range.hosts().next().ok_or_else(|| Error::other(format!("{range} has no addresses")))?;
    Ok(Ipv4Net::new_assert(first, range.prefix_len()))
}

fn network_error(error: NetworkError) -> Error {
    Error::other(crate::chain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_given_out_in_turn_and_come_back() {
        let network = PodNetwork::default();
        assert!(network.take().unwrap_err().to_string().contains("podCIDR"));
        network.0.lock().unwrap().range = Some("10.0.0.0/29".parse().unwrap());
        let given: Vec<u8> = (0..5).map(|_| network.take().unwrap().0.octets()[3]).collect();
        assert_eq!(given, [2, 3, 4, 5, 6]);
        assert!(network.take().is_err());
        network.give_back("10.0.0.3".parse().unwrap());
        network.give_back("10.0.0.5".parse().unwrap());
        assert_eq!(network.take().unwrap().0, Ipv4Addr::new(10, 0, 0, 3));
    }
}
