//! Connections of guests to addresses of this machine.
//!
//! Flows: a guest connects -> the gateway of its network accepts -> the same address and port on this machine. Holds: only the ranges that were named are
//! reached, by their own names or by others, on the ports that were named; a connection that nobody takes here is closed at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};

use hangar_machine::Fabric;
use ipnet::Ipv4Net;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

#[derive(Clone)]
pub struct Outside {
    fabric: Fabric,
    /// As guests name them, and as they are here.
    ranges: Arc<Vec<(Ipv4Net, Ipv4Net)>>,
    ports: watch::Receiver<Vec<u16>>,
    served: Arc<Mutex<BTreeMap<String, AbortHandle>>>,
}

impl Outside {
    pub fn new(fabric: Fabric, ranges: Vec<(Ipv4Net, Ipv4Net)>, ports: watch::Receiver<Vec<u16>>) -> Self {
        Self { fabric, ranges: Arc::new(ranges), ports, served: Arc::default() }
    }

    /// From now on connections to the outside arrive at this place.
    pub fn serve(&self, place: &str) {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if !served.contains_key(place) {
            served.insert(place.to_owned(), tokio::spawn(self.clone().listen(place.to_owned())).abort_handle());
        }
    }

    /// The places are gone, and with them whatever was listened on.
    pub fn forget(&self) {
        let served = std::mem::take(&mut *self.served.lock().unwrap_or_else(PoisonError::into_inner));
        served.into_values().for_each(|task| task.abort());
    }

    async fn listen(mut self, place: String) {
        let mut open = BTreeSet::new();
        // They end with this task.
        let mut accepting = JoinSet::new();
        loop {
            let wanted: Vec<u16> = self.ports.borrow_and_update().clone();
            for port in wanted {
                if !open.insert(port) {
                    continue;
                }
                let (fabric, name) = (self.fabric.clone(), place.clone());
                let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
                let runtime = tokio::runtime::Handle::current();
                let made = tokio::task::spawn_blocking(move || {
                    let _entered = runtime.enter();
                    fabric.listen(&name, at).map_err(|error| error.to_string())
                });
                match made.await {
                    Ok(Ok(listener)) => drop(accepting.spawn(self.clone().accept(listener))),
                    Ok(Err(error)) => tracing::warn!(port, error, "guests cannot reach this machine on a port"),
                    Err(_) => return,
                }
            }
            if self.ports.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    async fn accept(self, listener: TcpListener) {
        loop {
            let Ok((client, _)) = listener.accept().await else {
                // Out of files, most likely.
                tokio::time::sleep(crate::tls::PAUSE).await;
                continue;
            };
            let Some(target) = client.local_addr().ok().and_then(|at| self.target(at)) else { continue };
            tokio::spawn(copy(client, target));
        }
    }

    /// Where an address leads; None if it is nobody's business.
    fn target(&self, at: SocketAddr) -> Option<SocketAddr> {
        let SocketAddr::V4(at) = at else { return None };
        let (_, real) = self.ranges.iter().find(|(named, _)| named.contains(at.ip()))?;
        let host = u32::from(*at.ip()) & u32::from(real.hostmask());
        Some(SocketAddr::from((Ipv4Addr::from(u32::from(real.network()) | host), at.port())))
    }
}

async fn copy(mut client: TcpStream, target: SocketAddr) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    // Either side may break off at any time.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}
