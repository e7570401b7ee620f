//! Where pods of machines find the API server of their cluster: the endpoint of the Service `kubernetes`.
//!
//! An API server that listens on loopback cannot publish itself, since endpoints must not be loopback addresses. Its address has another name in the
//! networks of guests ([`alias_of`]), and that is published. Holds: it is written once for each start of the plane; a tenant without machines loses nothing.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

/// Addresses that nobody has: they are reserved for measurements of networks.
pub const ALIASES: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 16);
const MANAGER: &str = "hangar";
const PAUSE: Duration = Duration::from_secs(2);

/// Publishes it, as soon as the API server lets us.
pub async fn publish(tenant: kube::Client, server: String) {
    let Some((address, port)) = address_of(&server) else { return };
    let slices: Api<EndpointSlice> = Api::namespaced(tenant, "default");
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": "kubernetes", "labels": { "kubernetes.io/service-name": "kubernetes" } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [alias_of(address)], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": port, "protocol": "TCP" }],
    });
    while let Err(error) = slices.patch("kubernetes", &PatchParams::apply(MANAGER).force(), &Patch::Apply(&slice)).await
    {
        tracing::debug!(server, %error, "the endpoint of a tenant's API server could not be published yet");
        tokio::time::sleep(PAUSE).await;
    }
}

/// None for what can publish itself.
fn address_of(server: &str) -> Option<(Ipv4Addr, u16)> {
    let (host, port) = server.trim_end_matches('/').rsplit_once(':')?;
    let address: Ipv4Addr = host.rsplit('/').next()?.parse().ok()?;
    Some((address, port.parse().ok()?)).filter(|(address, _)| address.is_loopback())
}

/// The low half of the address says which one of the home's it is.
fn alias_of(address: Ipv4Addr) -> Ipv4Addr {
    let ([high, low, ..], [.., third, fourth]) = (ALIASES.addr().octets(), address.octets());
    Ipv4Addr::new(high, low, third, fourth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_no_loopback_address() {
        let (address, port) = address_of("https://127.207.64.1:6443").unwrap();
        assert_eq!((alias_of(address), port), (Ipv4Addr::new(198, 18, 64, 1), 6443));
        assert!(address_of("https://172.18.0.9:6443").is_none() && address_of("https://api.example:6443").is_none());
    }
}
