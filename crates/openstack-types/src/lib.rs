//! The JSON of OpenStack's services, both ways: the client reads what the simulator writes, and planners decide on the same types.
//!
//! Holds: every field may be missing, unknown fields are ignored, what is not set is not sent.

mod compute;
mod identity;
mod image;
mod load_balancer;
mod network;
mod router;
mod security_group;
mod volume;

pub use compute::*;
pub use identity::*;
pub use image::*;
pub use load_balancer::*;
pub use network::*;
pub use router::*;
pub use security_group::*;
pub use volume::*;

use serde::{Deserialize, Deserializer};

/// Some services say `null` where others say `""` or `[]`.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A `null` that is there is not the same as a field that is not there.
pub(crate) fn null_is_some<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Some(Option::deserialize(deserializer)?))
}
