//! Nodes without a data centre: `process` runs pods as local processes, `hollow` pretends.

pub mod hollow;
pub mod process;
