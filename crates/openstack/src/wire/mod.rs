//! The JSON of OpenStack's services, both ways: the client reads what the simulator writes.
//!
//! Holds: every field may be missing, unknown fields are ignored, what is not set is not sent.

mod compute;
mod identity;
mod image;
mod network;
mod security_group;

pub use compute::*;
pub use identity::*;
pub use image::*;
pub use network::*;
pub use security_group::*;

use serde::{Deserialize, Deserializer};

/// Some services say `null` where others say `""` or `[]`.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
