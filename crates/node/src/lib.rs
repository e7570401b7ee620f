//! Nodes without a data centre: `process` runs pods as local processes, `hollow` pretends. `small_file` is for everybody who keeps something.

pub mod hollow;
pub mod process;
pub mod small_file;
