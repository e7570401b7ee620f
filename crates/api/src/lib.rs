//! Kinds, versions, conversion, conditions and admission: what the API is, without any I/O.
//!
//! Flows: `schemas/*.json` (one description of every version) -> typed hubs in [`kinds`] and the CustomResourceDefinitions in
//! [`crds`]; objects of any version -> [`conversion`] -> the hub. Holds: no clock, no randomness, no client; time is an argument.

pub mod admission;
pub mod conditions;
pub mod contract;
pub mod control_plane_arguments;
pub mod conversion;
pub mod crds;
pub mod data_store_names;
pub mod kinds;
pub mod kubeconfig;
pub mod object;
pub mod references;
pub mod registry;
pub mod review;
pub mod selector;
pub mod version;
pub mod yaml;

pub use object::{Object, ObjectKey, Owner, value_at};
pub use version::KubeVersion;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A typed hub kind.
pub trait Kind: serde::de::DeserializeOwned + Send + Sync + 'static {
    /// What its controller writes.
    type Status: serde::Serialize + serde::de::DeserializeOwned + Clone + Default + Send + Sync;

    const GROUP: &'static str;
    const VERSION: &'static str;
    const KIND: &'static str;
    const PLURAL: &'static str;
    /// Whether the status has a place for the generation that was looked at.
    const OBSERVES_GENERATION: bool;
    /// Whether a condition may have an empty message; else it is left out.
    const EMPTY_MESSAGES: bool;

    fn metadata(&self) -> &ObjectMeta;
}

/// Labels, annotations and finalizers that Cluster API fixes.
pub mod names {
    pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
    pub const DEPLOYMENT_NAME_LABEL: &str = "cluster.x-k8s.io/deployment-name";
    pub const SET_NAME_LABEL: &str = "cluster.x-k8s.io/set-name";
    pub const TEMPLATE_HASH_LABEL: &str = "machine-template-hash";
    pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
    pub const DELETE_MACHINE_ANNOTATION: &str = "cluster.x-k8s.io/delete-machine";
    pub const CLONED_FROM_NAME: &str = "cluster.x-k8s.io/cloned-from-name";
    pub const CLONED_FROM_GROUP_KIND: &str = "cluster.x-k8s.io/cloned-from-groupkind";
    pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";
    pub const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";
    /// On Nodes whose Machines are about to be replaced: pods rather go elsewhere.
    pub const NODE_OUTDATED_TAINT: &str = "node.cluster.x-k8s.io/outdated-revision";
    /// On MachineSets that are not the current revision.
    pub const OUTDATED_ANNOTATION: &str = "hangar.dev/outdated-revision";
    /// On MachineSets that make no more Machines.
    pub const DISABLE_CREATE_ANNOTATION: &str = "cluster.x-k8s.io/disable-machine-create";
    /// On pods: `skip` or `wait-completed`.
    pub const DRAIN_LABEL: &str = "cluster.x-k8s.io/drain";
    pub const EXCLUDE_DRAIN_ANNOTATION: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
    pub const EXCLUDE_DETACH_ANNOTATION: &str = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach";
    /// Annotations that begin so hold up a deletion: whoever set one takes it off.
    pub const PRE_DRAIN_HOOK: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
    pub const PRE_TERMINATE_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";
    pub const NODE_UNINITIALIZED_TAINT: &str = "node.cluster.x-k8s.io/uninitialized";

    pub const CLUSTER_FINALIZER: &str = "cluster.cluster.x-k8s.io";
    pub const MACHINE_FINALIZER: &str = "machine.cluster.x-k8s.io";
    pub const MACHINE_SET_FINALIZER: &str = "cluster.x-k8s.io/machineset";
    pub const MACHINE_POOL_FINALIZER: &str = "machinepool.cluster.x-k8s.io";
    pub const MACHINE_DEPLOYMENT_FINALIZER: &str = "cluster.x-k8s.io/machinedeployment";
    pub const OPENSTACK_CLUSTER_FINALIZER: &str = "openstackcluster.infrastructure.cluster.x-k8s.io";
    pub const OPENSTACK_MACHINE_FINALIZER: &str = "openstackmachine.infrastructure.cluster.x-k8s.io";
    pub const KAMAJI_FINALIZER: &str = "kamajicontrolplane.controlplane.cluster.x-k8s.io";
}
