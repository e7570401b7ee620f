//! Who the parts of a plane are at its API server: names of users, each with a client certificate of its own.
//!
//! Holds: none is in a group that may do everything; what each may do is said by the ClusterRole that it is bound to.

/// The controllers.
pub const CONTROLLERS: &str = "hangar-controllers";
/// The node that runs pods as processes.
pub const NODE: &str = "hangar-node";
/// The simulated cloud, which looks after the nodes of tenants.
pub const CLOUD: &str = "hangar-cloud";
/// The API server, when it asks the node for logs.
pub const KUBELET_CLIENT: &str = "hangar-kubelet-client";
