//! What people see: the tree of a cluster, why it is not ready, and tables.
//!
//! Flows: objects as the API server knows them -> [`Snapshot`] -> [`tree`] -> [`Row`]s, which become text ([`render`]), reasons
//! ([`why`]) or JSON (serde). Holds: nothing is read or written here, and time is an argument.

mod age;
mod group;
mod render;
mod row;
mod table;
mod tree;

pub use age::age;
pub use render::{RenderOptions, render};
pub use row::{Row, is_ready, why};
pub use table::table;
pub use tree::{Snapshot, tree};
