//! Bridges, one for each network, and places: namespaces with an address in one or more networks.
//!
//! Holds: bridges lie in the fabric's own namespace and have no addresses, so networks may overlap; a place that is asked for again gets what it
//! lacks.

use std::collections::BTreeMap;
use std::io::{Error, Result};
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use super::{LOOPBACK_GUESTS, Leg, METADATA, Place, link_name};
use crate::network::{NetNamespace, NetworkError};

/// Connections that wait until somebody takes them.
const BACKLOG: i32 = 256;

#[derive(Default)]
pub struct Places {
    known: BTreeMap<String, (NetNamespace, Vec<Leg>)>,
}

impl Places {
    pub fn ensure(&mut self, own: &NetNamespace, place: &Place) -> std::result::Result<(), NetworkError> {
        if !self.known.contains_key(&place.name) {
            let namespace = NetNamespace::create()?;
            namespace.configure(async |links| links.loopback().await)?;
            namespace.inside(|| {
                sysctl("ip_forward", "1")?;
                accept_loopback("all")
            })?;
            self.known.insert(place.name.clone(), (namespace, vec![]));
        }
        let Some((namespace, legs)) = self.known.get_mut(&place.name) else { return Ok(()) };
        for leg in &place.legs {
            if legs.contains(leg) {
                continue;
            }
            let key = format!("{}/{}/{}", place.name, leg.network, leg.address);
            let inner = link_name('n', &key);
            plug(own, namespace, &leg.network, &link_name('l', &key), &inner, leg.mtu)?;
            let address = leg.address;
            namespace.configure(async |links| {
                links.identify(&inner, None, leg.mtu).await?;
                links.add_address(&inner, address).await?;
                links.route_to_link(LOOPBACK_GUESTS, &inner).await
            })?;
            namespace.inside(|| accept_loopback(&inner))?;
            legs.push(leg.clone());
        }
        let ranges = place.answers_for.iter().copied().chain([METADATA]);
        namespace.configure(async |links| {
            for range in ranges {
                links.answer_for(range).await?;
            }
            Ok(())
        })
    }

    /// A socket in a place. With an address it listens there.
    pub fn socket(&self, place: &str, listen_at: Option<SocketAddrV4>) -> Result<OwnedFd> {
        let (namespace, _) = self.known.get(place).ok_or_else(|| Error::other(format!("there is no place {place}")))?;
        namespace.inside(|| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            if let Some(at) = listen_at {
                sockopt::set_socket_reuseaddr(&socket, true)?;
                bind(&socket, &at)?;
                listen(&socket, BACKLOG)?;
            }
            Ok(socket)
        })
    }
}

/// Connects a namespace to a network, by a link that gets the name `inner` there.
pub fn plug(
    own: &NetNamespace,
    to: &NetNamespace,
    network: &str,
    outer: &str,
    inner: &str,
    mtu: u32,
) -> std::result::Result<(), NetworkError> {
    let (bridge, peer) = (link_name('b', network), link_name('t', outer));
    own.configure(async |links| {
        links.add_bridge(&bridge).await?;
        if links.exists(outer).await {
            // Of one that ended a moment ago.
            links.remove(outer).await?;
        }
        links.add_pair(outer, &peer).await?;
        links.plug(outer, &bridge, mtu).await?;
        links.hand_over(&peer, to, inner).await
    })
}

/// Addresses of loopback may come and go by this link: they are those of somebody outside.
pub fn accept_loopback(link: &str) -> Result<()> {
    std::fs::write(format!("/proc/sys/net/ipv4/conf/{link}/route_localnet"), "1")
}

pub fn sysctl(name: &str, value: &str) -> Result<()> {
    std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value)
}
