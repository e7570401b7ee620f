//! Links, addresses and routes of one namespace.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

use futures::TryStreamExt as _;
use ipnet::Ipv4Net;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::packet_route::route::{RouteScope, RouteType};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth, RouteMessageBuilder};

use super::NetNamespace;

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("the network could not be reached")]
    Socket(#[from] std::io::Error),
    #[error("{what}")]
    Netlink { what: String, source: Box<rtnetlink::Error> },
    #[error("there is no link {0}")]
    NoLink(String),
}

/// The links of the namespace in which it was made.
pub struct Links(Handle);

/// What a name or an address that is there already answers.
const EXISTS: i32 = -17;
/// Loopback addresses that stay a machine's own. All others of 127/8 may be those of somebody outside, and are routed like any address.
const OWN_LOOPBACK: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::LOCALHOST, 16);
const TABLE_LOCAL: u32 = 255;

impl Links {
    /// Does the work in a small runtime of the calling thread.
    pub(super) fn run<T>(work: impl AsyncFnOnce(&Self) -> Result<T, NetworkError>) -> Result<T, NetworkError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection()?;
            tokio::spawn(connection);
            work(&Self(handle)).await
        })
    }

    pub async fn add_bridge(&self, name: &str) -> Result<(), NetworkError> {
        let made = self.0.link().add(LinkBridge::new(name).up().build()).execute().await;
        unless_there(made).map_err(|source| netlink(format!("could not make the bridge {name}"), source))
    }

    /// A pair of links; what goes into one comes out of the other.
    pub async fn add_pair(&self, name: &str, peer: &str) -> Result<(), NetworkError> {
        let made = self.0.link().add(LinkVeth::new(name, peer).build()).execute().await;
        made.map_err(|source| netlink(format!("could not make the link {name}"), source))
    }

    pub async fn exists(&self, name: &str) -> bool {
        self.index(name).await.is_ok()
    }

    pub async fn remove(&self, name: &str) -> Result<(), NetworkError> {
        let index = self.index(name).await?;
        let removed = self.0.link().del(index).execute().await;
        removed.map_err(|source| netlink(format!("could not remove the link {name}"), source))
    }

    pub async fn up(&self, name: &str) -> Result<(), NetworkError> {
        let index = self.index(name).await?;
        self.set(name, LinkUnspec::new_with_index(index).up().build()).await
    }

    /// Connects a link to a bridge, and switches it on.
    pub async fn plug(&self, name: &str, bridge: &str, mtu: u32) -> Result<(), NetworkError> {
        let (index, bridge) = (self.index(name).await?, self.index(bridge).await?);
        self.set(name, LinkUnspec::new_with_index(index).mtu(mtu).controller(bridge).up().build()).await
    }

    /// Moves a link to another namespace, under another name.
    pub async fn hand_over(&self, name: &str, to: &NetNamespace, new_name: &str) -> Result<(), NetworkError> {
        let index = self.index(name).await?;
        let to: RawFd = to.raw();
        self.set(name, LinkUnspec::new_with_index(index).name(new_name.to_owned()).setns_by_fd(to).build()).await
    }

    /// Its hardware address and its largest packet; then it is switched on.
    pub async fn identify(&self, name: &str, mac: Option<[u8; 6]>, mtu: u32) -> Result<(), NetworkError> {
        let index = self.index(name).await?;
        let mut message = LinkUnspec::new_with_index(index).mtu(mtu);
        if let Some(mac) = mac {
            message = message.address(mac.to_vec());
        }
        self.set(name, message.up().build()).await
    }

    pub async fn add_address(&self, name: &str, address: Ipv4Net) -> Result<(), NetworkError> {
        let index = self.index(name).await?;
        let added = self.0.address().add(index, IpAddr::V4(address.addr()), address.prefix_len()).execute().await;
        unless_there(added).map_err(|source| netlink(format!("could not give {name} the address {address}"), source))
    }

    /// Switches `lo` on, with fewer addresses than usual.
    pub async fn loopback(&self) -> Result<(), NetworkError> {
        self.up("lo").await?;
        let index = self.index("lo").await?;
        self.add_address("lo", OWN_LOOPBACK).await?;
        let all = self.0.address().get().set_link_index_filter(index).execute();
        let failed = |source| netlink("could not read the addresses of lo".to_owned(), source);
        for address in all.try_collect::<Vec<_>>().await.map_err(failed)? {
            if address.header.prefix_len == 8 {
                let removed = self.0.address().del(address).execute().await;
                removed.map_err(|source| netlink("could not narrow the addresses of lo".to_owned(), source))?;
            }
        }
        Ok(())
    }

    pub async fn route(&self, to: Ipv4Net, via: Ipv4Addr) -> Result<(), NetworkError> {
        let route = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(to.addr(), to.prefix_len()).gateway(via);
        let added = self.0.route().add(route.build()).replace().execute().await;
        unless_there(added).map_err(|source| netlink(format!("could not add the route to {to} by {via}"), source))
    }

    /// A route to all of loopback that is not this machine's own, from an address which is loopback's, too: kubelets and kube-proxies drop what comes to loopback
    /// from elsewhere.
    pub async fn route_loopback(&self, via: Ipv4Addr, from: Ipv4Addr) -> Result<(), NetworkError> {
        self.add_address("lo", Ipv4Net::from(from)).await?;
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(Ipv4Addr::new(127, 0, 0, 0), 8)
            .gateway(via)
            .pref_source(from);
        let added = self.0.route().add(route.build()).replace().execute().await;
        unless_there(added).map_err(|source| netlink(format!("could not route loopback by {via}"), source))
    }

    pub async fn route_to_link(&self, to: Ipv4Net, link: &str) -> Result<(), NetworkError> {
        let index = self.index(link).await?;
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(to.addr(), to.prefix_len())
            .output_interface(index)
            .scope(RouteScope::Link);
        let added = self.0.route().add(route.build()).replace().execute().await;
        unless_there(added).map_err(|source| netlink(format!("could not add the route to {to} by {link}"), source))
    }

    /// Every address of a range answers here, although no link has it.
    pub async fn answer_for(&self, range: Ipv4Net) -> Result<(), NetworkError> {
        let index = self.index("lo").await?;
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(range.addr(), range.prefix_len())
            .output_interface(index)
            .kind(RouteType::Local)
            .scope(RouteScope::Host)
            .table_id(TABLE_LOCAL);
        let added = self.0.route().add(route.build()).execute().await;
        unless_there(added).map_err(|source| netlink(format!("could not answer for {range}"), source))
    }

    async fn set(&self, name: &str, message: LinkMessage) -> Result<(), NetworkError> {
        let set = self.0.link().set(message).execute().await;
        set.map_err(|source| netlink(format!("could not change the link {name}"), source))
    }

    async fn index(&self, name: &str) -> Result<u32, NetworkError> {
        let mut found = self.0.link().get().match_name(name.to_owned()).execute();
        match found.try_next().await {
            Ok(Some(link)) if named(&link, name) => Ok(link.header.index),
            _ => Err(NetworkError::NoLink(name.to_owned())),
        }
    }
}

fn named(link: &LinkMessage, name: &str) -> bool {
    link.attributes.iter().any(|attribute| matches!(attribute, LinkAttribute::IfName(found) if found == name))
}

fn netlink(what: String, source: rtnetlink::Error) -> NetworkError {
    NetworkError::Netlink { what, source: Box::new(source) }
}

/// What is there already is as it should be: names and addresses are ours alone in here.
fn unless_there(done: Result<(), rtnetlink::Error>) -> Result<(), rtnetlink::Error> {
    match done {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == EXISTS => Ok(()),
        done => done,
    }
}
