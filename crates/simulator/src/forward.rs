//! What a cloud does for its guests: floating IPs and virtual IPs answer on this machine and lead to what stands behind.
//!
//! Flows: a change of addresses, load balancers or backends -> [`plan`] (which address and port leads where) -> listeners
//! are opened and closed until they agree -> connections are copied both ways. Holds: an address in 127/8 answers as
//! itself; any other is not this machine's, so it answers on 127.0.0.1 at a port that `/admin/forwards` names.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::Simulator;
use crate::load_balancer::targets;
use crate::state::World;

/// One address and port of the simulated networks that answers here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    pub address: String,
    pub port: u16,
    /// Where on this machine; empty if it could not be opened.
    pub local: String,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// An address and a port.
pub(crate) type Place = (String, u16);

/// Which place leads to which places.
pub(crate) fn plan(world: &World) -> BTreeMap<Place, Vec<Place>> {
    let state = &world.state;
    let mut plan: BTreeMap<Place, Vec<Place>> = BTreeMap::new();
    let mut behind_port: BTreeMap<&str, Vec<(u16, Vec<Place>)>> = BTreeMap::new();
    for balancer in state.load_balancers.values() {
        let listeners = balancer.listeners.iter().filter_map(|reference| state.listeners.get(&reference.id));
        for listener in listeners {
            let Some(pool) = &listener.default_pool_id else { continue };
            let places = targets(state, pool);
            if let Some(address) = &balancer.vip_address {
                plan.insert((address.clone(), listener.protocol_port), places.clone());
            }
            if let Some(port) = &balancer.vip_port_id {
                behind_port.entry(port).or_default().push((listener.protocol_port, places));
            }
        }
    }
    for ip in state.floating_ips.values() {
        let (Some(port), Some(fixed)) = (&ip.port_id, &ip.fixed_ip_address) else { continue };
        for (number, places) in behind_port.get(port.as_str()).into_iter().flatten() {
            plan.insert((ip.floating_ip_address.clone(), *number), places.clone());
        }
        for (address, number) in world.backends.keys().filter(|(address, _)| address == fixed) {
            plan.insert((ip.floating_ip_address.clone(), *number), vec![(address.clone(), *number)]);
        }
    }
    plan
}

/// What stands behind a place.
enum Target {
    Here(String),
    Guest(BoxFuture<'static, std::io::Result<TcpStream>>),
}

struct Open {
    forward: Forward,
    task: Option<AbortHandle>,
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Simulator {
    /// What answers now.
    pub fn forwards(&self) -> Vec<Forward> {
        self.0.forwards.borrow().clone()
    }

    /// Changes whenever that does.
    pub fn forwards_watch(&self) -> tokio::sync::watch::Receiver<Vec<Forward>> {
        self.0.forwards.subscribe()
    }

    pub(crate) fn start_forwarding(&self) {
        if !self.0.options.forward {
            return;
        }
        let simulator = self.clone();
        tokio::spawn(async move {
            let mut changes = simulator.0.plumbing.subscribe();
            let mut open: BTreeMap<Place, Open> = BTreeMap::new();
            loop {
                let wanted = plan(&simulator.world());
                open.retain(|place, _| wanted.contains_key(place));
                for place in wanted.into_keys() {
                    if open.get(&place).is_none_or(|open| open.task.is_none()) {
                        let opened = simulator.open(&place).await;
                        open.insert(place, opened);
                    }
                }
                simulator.0.forwards.send_replace(open.values().map(|open| open.forward.clone()).collect());
                tokio::select! {
                    () = simulator.0.closed.cancelled() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                }
            }
        });
    }

    async fn open(&self, place: &Place) -> Open {
        let (address, port) = place.clone();
        let own = address.parse::<IpAddr>().ok().filter(IpAddr::is_loopback);
        let at = own.map_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)), |own| SocketAddr::new(own, port));
        let bound = match TcpListener::bind(at).await {
            Ok(listener) => listener.local_addr().map(|local| (listener, local)),
            Err(error) => Err(error),
        };
        match bound {
            Ok((listener, local)) => {
                let task = tokio::spawn(serve(self.clone(), listener, place.clone())).abort_handle();
                Open { forward: Forward { address, port, local: local.to_string(), error: None }, task: Some(task) }
            }
            Err(error) => {
                tracing::warn!(%error, %at, "an address of the simulated cloud cannot answer on this machine");
                let forward = Forward { address, port, local: String::new(), error: Some(error.to_string()) };
                Open { forward, task: None }
            }
        }
    }

    /// The next of the places behind: an address of this machine, or of a guest that can be reached.
    fn behind(&self, place: &Place, turn: usize) -> Option<Target> {
        let driver = self.guest_driver();
        let world = self.world();
        let places = plan(&world).remove(place)?;
        let mut real: Vec<Target> = places
            .into_iter()
            .filter_map(|(address, port)| {
                let backend = world.backends.get(&(address.clone(), port)).cloned().map(Target::Here);
                let to = address.parse().ok().map(|ip| SocketAddrV4::new(ip, port));
                let guest = || driver.as_ref()?.connect(to?).map(Target::Guest);
                // What is already an address of this machine needs nobody to say where it is.
                let local = || {
                    address
                        .parse::<IpAddr>()
                        .ok()
                        .filter(IpAddr::is_loopback)
                        .map(|ip| Target::Here(SocketAddr::new(ip, port).to_string()))
                };
                backend.or_else(local).or_else(guest)
            })
            .collect();
        (!real.is_empty()).then(|| real.swap_remove(turn % real.len()))
    }
}

async fn serve(simulator: Simulator, listener: TcpListener, place: Place) {
    let turn = AtomicUsize::new(0);
    loop {
        let Ok((mut client, _)) = listener.accept().await else {
            // Out of files, most likely: the address must answer again when there are some.
            tokio::time::sleep(crate::tls::PAUSE).await;
            continue;
        };
        // Round robin; nothing behind is a connection that closes at once, as with a load balancer without members.
        let Some(target) = simulator.behind(&place, turn.fetch_add(1, Ordering::Relaxed)) else { continue };
        let closed = simulator.0.closed.clone();
        tokio::spawn(async move {
            let connected = match target {
                Target::Here(address) => TcpStream::connect(address).await,
                Target::Guest(connecting) => connecting.await,
            };
            let Ok(mut server) = connected else { return };
            tokio::select! {
                () = closed.cancelled() => {}
                // Either side may break off at any time.
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
            }
        });
    }
}
