//! The local management plane: the component store, and the real control plane run from it as processes of a plain user.
//!
//! Flows: [`Home`] (where state lies) and [`Store`] (where programs come from) -> [`Plane`] (etcd, kube-apiserver,
//! kube-controller-manager, kube-scheduler, supervised). Pods on it are run by `hangar_node::process`, which asks the store for
//! programs by image name.

pub mod datastore;
pub mod disk_space;
mod home;
pub mod identities;
mod net;
mod orphan_processes;
mod plane;
pub mod ports;
mod store;
mod supervise;

pub use home::{Home, HomeError, HomeLock};
pub use net::{LoopbackNet, NetError};
pub use orphan_processes::{end_machines, end_orphans};
pub use plane::version::{VersionError, choose as choose_version};
pub use plane::{
    InitialObject, Plane, PlaneError, PlaneOptions, PlaneProgress, PlaneStage, Prepared, Quiet, RenewableClient,
    encrypt_existing, first_to_expire,
};
pub use store::{
    ArchiveError, BuildError, Component, Damage, DownloadError, ETCD, KUBERNETES, NAMES, Progress, Silent, Stage,
    Store, StoreError, StoreOptions, StoredComponent, Substitution, default_directory, default_version,
};
pub use supervise::ProcessStatus;

/// What may be lost lies under the user's cache directory.
fn cache_directory() -> std::path::PathBuf {
    let home = || std::path::PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| ".".into()));
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    cache.map_or_else(|| home().join(".cache"), Into::into).join("hangar")
}
