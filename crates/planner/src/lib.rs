//! The pure core: worlds, plans, steps and reasons; one module per kind.
//!
//! Flows: a [`World`] (everything that was read) and the time -> [`plan()`] -> a [`Plan`]. Holds: no I/O, no clock, no randomness, no async: the
//! same World always gives the same Plan; a converged World gives no step.

pub mod cloud;
pub mod cluster;
pub mod cluster_resource_set;
pub mod cluster_resource_set_binding;
pub mod data_store;
pub mod events;
pub mod hosted;
pub mod image;
pub mod intent;
pub mod ip_address_claim;
pub mod kamaji_control_plane;
pub mod kubeadm_config;
pub mod machine;
pub mod machine_deployment;
pub mod machine_health_check;
pub mod machine_pool;
pub mod machine_set;
pub mod names;
pub mod open_stack_cluster;
pub mod open_stack_floating_ip_pool;
pub mod open_stack_machine;
pub mod open_stack_machine_template;
pub mod open_stack_server;
pub mod owner_key;
mod plan;
mod planner;
pub mod report;
pub mod step;
#[cfg(test)]
mod testing;
mod world;

pub use owner_key::OwnerKey;
pub use plan::{Phase, Plan, Progress, Reason, Wake};
pub use planner::{Gauge, Part, Phases, Planner, plan, refused};
pub use report::{Report, Shared};
pub use step::{Effect, Step};
pub use world::{Absorb, Objects, Unreadable, World};
