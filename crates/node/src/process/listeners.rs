//! Listeners that are open, brought to those that are wanted.
//!
//! Holds: an address that cannot be listened on is kept with the reason, and tried again by the next pass.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use super::proxy::{Proxy, Rules};

const BIND_AGAIN: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Listeners {
    open: HashMap<SocketAddr, Proxy>,
    refused: HashMap<SocketAddr, String>,
}

impl Listeners {
    /// Returns the addresses that are refused since now.
    pub async fn follow(&mut self, wanted: BTreeMap<SocketAddr, Rules>) -> Vec<SocketAddr> {
        self.open.retain(|address, _| wanted.contains_key(address));
        self.refused.retain(|address, _| wanted.contains_key(address));
        let mut new = vec![];
        for (address, rules) in wanted {
            if let Some(proxy) = self.open.get(&address) {
                proxy.set(rules);
                continue;
            }
            match Proxy::listen(address, rules).await {
                Ok(proxy) => {
                    self.refused.remove(&address);
                    self.open.insert(address, proxy);
                }
                Err(error) => {
                    let why = format!("cannot listen on {address}: {error}{}", advice(&error));
                    if self.refused.insert(address, why).is_none() {
                        new.push(address);
                    }
                }
            }
        }
        new
    }

    /// Why nobody listens there, although somebody should.
    pub fn refusal(&self, address: &SocketAddr) -> Option<&str> {
        self.refused.get(address).map(String::as_str)
    }

    /// Passes when it is time to try what was refused; never, if nothing was.
    pub async fn again(&self) {
        match self.refused.is_empty() {
            true => std::future::pending().await,
            false => tokio::time::sleep(BIND_AGAIN).await,
        }
    }
}

fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "; choose a port above 1023, or lower net.ipv4.ip_unprivileged_port_start (pods find the API server without it)"
        }
        std::io::ErrorKind::AddrInUse => "; another program listens on the port, perhaps on all addresses",
        _ => "",
    }
}
