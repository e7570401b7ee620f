//! The pure core: worlds, plans, steps and reasons; one module per kind.
//!
//! Flows: a World (everything that was read) and the time -> a [`Plan`]. Holds: no I/O, no clock, no randomness, no async: the same
//! World always gives the same Plan; a converged World gives no step.

pub mod cloud;
pub mod cluster;
pub mod data_store;
pub mod hosted;
pub mod intent;
pub mod kamaji_control_plane;
pub mod kubeadm_config;
pub mod machine;
pub mod machine_deployment;
pub mod machine_set;
pub mod open_stack_cluster;
pub mod open_stack_machine;
pub mod owner_key;
mod plan;
pub mod step;

pub use owner_key::OwnerKey;
pub use plan::{Phase, Phases, Plan, Progress, Reason, Wake};
pub use step::{Effect, Step};
