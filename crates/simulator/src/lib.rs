//! OpenStack in memory over real HTTP: Keystone, Nova, Neutron, Glance, Cinder and Octavia as far as clusters and the tools
//! of their people need them.
//!
//! Flows: request -> [`front`] (fault rules, token, journal) -> one of the services -> state -> answer; servers change
//! state later by [`lifecycle`] and then boot a guest. Holds: one lock around all state, never held across an await; time
//! is tokio's, so a paused clock works; error bodies and words are those of the real services.

mod access;
mod accounts;
mod admin;
mod ask;
pub mod cloud_controller;
mod compute;
mod faults;
mod forward;
mod front;
pub mod guests;
mod identity;
mod image;
mod inventory;
mod lifecycle;
mod listing;
mod load_balancer;
mod network;
mod observers;
mod reply;
mod save;
mod simulator;
pub mod starter;
mod state;
mod table;
mod tls;
mod volume;

pub use access::Access;
pub use faults::{Call, CallInfo, Fault, FaultAction, FaultRule};
pub use forward::Forward;
pub use guests::{Console, Guest, GuestDriver};
pub use inventory::{Inventory, Item};
pub use observers::{CloudObserver, CloudWrite, Stopwatch};
pub use simulator::{Options, Simulator, SimulatorError};
pub use tls::{Tls, TlsError};
