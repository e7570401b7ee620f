//! A thin OpenStack client: one [`Cloud`] per credential, typed calls, errors in the cloud's own words.
//!
//! Flows: clouds.yaml -> [`CloudConfig`] -> [`Cloud`] -> (token, catalog) -> request -> wire type or [`Error`].
//! Holds: building a `Cloud` does no I/O; one token is asked for at a time; a refused token is renewed once and the call
//! repeated once; nothing in here sleeps or retries otherwise, because when to try again is the caller's decision.
//! The types in [`wire`] are shared with the simulator, so the two cannot drift apart.

mod budget;
mod cinder;
mod cloud;
mod config;
mod counts;
mod endpoint;
mod error;
mod fuzzing;
mod glance;
mod hosts;
mod keystone;
mod metrics;
mod neutron;
mod nova;
mod octavia;
mod query;
mod routers;
mod session;
mod transport;

pub use budget::{Allowance, Limits};
pub use cloud::Cloud;
pub use config::{CloudConfig, ConfigError};
pub use counts::CallCounts;
pub use error::{Error, ErrorKind, Service};
#[doc(hidden)]
pub use fuzzing::{fuzz_answer, fuzz_clouds_yaml, fuzz_exchange};
pub use hangar_openstack_types as wire;
pub use hangar_openstack_types::*;
pub use hosts::{HostPolicy, HostRefused};
pub use query::{
    FloatingIpQuery, ImageQuery, NetworkQuery, PortQuery, RouterQuery, SecurityGroupQuery, ServerQuery, SubnetQuery,
    TagFilter, TrunkQuery,
};
pub use transport::{BoxError, Transport, http_transport, transport_for};
