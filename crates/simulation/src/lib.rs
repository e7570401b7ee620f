//! The real controllers in a world of their own, on one thread with paused time: what they do is checked at every write.
//!
//! Flows: [`Simulation`] has a management cluster and tenants in memory (`kubesim`), a simulated cloud (`simulator`), data stores, and the
//! rest of Kubernetes; [`wiring`] runs the real engine in it, which may be killed and started again. Holds: everything that outlives
//! a process is in the world and not in the engine; the same seed is the same run.

#![allow(clippy::unwrap_used, reason = "a test's world: whatever fails in here fails the test")]

pub mod chance;
pub mod cloud_transport;
pub mod datastores;
pub mod either_cloud;
pub mod fleet;
mod foreign;
mod kubernetes;
pub mod laws;
pub mod manifests;
pub mod meter;
mod tenants;
mod wiring;
mod world;

pub use kubernetes::LoadBalancers;
pub use tenants::Tenants;
pub use world::{CAPI, CLUSTER, NAMESPACE, Options, Simulation, condition};
