//! The ports of a plane, on its own loopback address.
//!
//! Pods are processes that share the machine's network, and most programs bind a port of all addresses (`0.0.0.0`): the kernel refuses that while
//! anybody listens on the same port of any single address. Holds: no port here is one that pods commonly bind, a NodePort (30000-32767) or an
//! ephemeral port (32768-60999). They are defaults: a port that is taken is replaced by any free one, and a home keeps what it has.

/// Where a new plane serves its API.
pub const API_SERVER: u16 = 26443;
/// Where planes served their API before; homes that have it keep it.
pub(crate) const FORMER_API_SERVER: u16 = 6443;
pub(crate) const ETCD: u16 = 26379;
pub(crate) const ETCD_PEER: u16 = 26380;
pub(crate) const CONTROLLER_MANAGER: u16 = 26257;
pub(crate) const SCHEDULER: u16 = 26259;
pub const KUBELET: u16 = 26250;
/// Conversion and admission.
pub const WEBHOOK: u16 = 26444;
/// The simulated OpenStack.
pub const CLOUD: u16 = 26500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_leaves_the_ports_that_pods_bind_alone() {
        let all = [API_SERVER, ETCD, ETCD_PEER, CONTROLLER_MANAGER, SCHEDULER, KUBELET, WEBHOOK, CLOUD];
        let distinct: std::collections::BTreeSet<u16> = all.into();
        assert_eq!(distinct.len(), all.len());
        for port in all {
            assert!((26000..27000).contains(&port), "{port} may be a port of a pod, a NodePort or an ephemeral one");
        }
    }
}
