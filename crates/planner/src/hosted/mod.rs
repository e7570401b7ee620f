//! A control plane that runs as pods of the management cluster: one model, one rendering, one list of phases, whatever kind asked for it.
//!
//! Flows: a front end's spec -> [`ControlPlane`] (parsed once, cannot fail later) -> [`Hosting`]: Service, certificates, data store, pods, tenant
//! objects; and back. Holds: what is rendered binds the pod's own address and calls Services by their ClusterIP, never localhost and never a name, so
//! that it runs the same on any node; a front end is its translation, its status and its names.

pub mod access;
pub mod addons;
pub mod certificates;
pub mod encryption;
mod endpoint;
pub mod konnectivity;
mod phases;
pub mod pods;
pub mod read_only;
pub mod roots;
pub mod rotation;
mod rotation_condition;
mod storage;
pub mod tenant;

use hangar_api::{Kind, KubeVersion, kinds};
use serde_json::Value;

pub use certificates::Renewal;
pub use endpoint::addresses;
pub use phases::{Facts, Hosting, is_available, replicas};
pub use storage::{DataStoreView, SKIP_CLEANUP_ANNOTATION, prefix_of};

/// The kinds whose control planes are hosted: infrastructure allocates no endpoint for them.
pub const KINDS: [(&str, &str); 3] = [
    (kinds::KamajiControlPlane::GROUP, kinds::KamajiControlPlane::KIND),
    (kinds::K0smotronControlPlane::GROUP, kinds::K0smotronControlPlane::KIND),
    (kinds::HostedControlPlane::GROUP, kinds::HostedControlPlane::KIND),
];

/// Everything that the rendering needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlPlane {
    pub namespace: String,
    /// The prefix of all object names.
    pub name: String,
    pub cluster_name: String,
    pub profile: Profile,
    pub runtime: Runtime,
    pub version: KubeVersion,
    pub replicas: i32,
    pub registry: String,
    pub api_server: Component,
    pub controller_manager: Component,
    pub scheduler: Component,
    pub network: Network,
    pub exposure: Exposure,
    pub storage: Storage,
    pub kubelet: Kubelet,
    pub addons: Addons,
    pub placement: Value,
    /// Whether the API server writes an audit log.
    pub audit: bool,
    /// Whether it takes so much of its data store that nothing more may be written.
    pub read_only: bool,
    /// The Secret with the cluster's authority.
    pub authority_secret: String,
}

/// Whose names and labels the objects have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Kamaji,
}

impl Profile {
    /// The label that says which control plane an object belongs to.
    pub fn name_label(self) -> &'static str {
        match self {
            Self::Kamaji => "kamaji.clastix.io/name",
        }
    }

    pub fn component_label(self) -> &'static str {
        match self {
            Self::Kamaji => "kamaji.clastix.io/component",
        }
    }
}

/// What the pods run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// kube-apiserver, kube-controller-manager, kube-scheduler.
    Upstream,
    /// One k0s process.
    K0s,
}

/// Where the data is.
#[derive(Debug, Clone, PartialEq)]
pub enum Storage {
    /// A DataStore that many share.
    SharedEtcd(Tenancy),
    /// An etcd of its own, with so many members.
    OwnEtcd { members: i32 },
    /// An SQL database behind kine.
    Kine,
}

/// The place of one control plane in a shared store.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenancy {
    /// Name of the DataStore.
    pub store: String,
    pub endpoints: Vec<String>,
    /// Without slashes; every key of this tenant is below `/<schema>/`.
    pub schema: String,
    pub user: String,
}

impl Tenancy {
    pub fn prefix(&self) -> String {
        format!("/{}/", self.schema)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Component {
    pub image: Option<String>,
    pub extra_args: Vec<String>,
    pub resources: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    pub service_cidr: ipnet::IpNet,
    pub pod_cidr: String,
    pub domain: String,
    pub dns_ip: String,
    pub certificate_names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Exposure {
    pub service_type: String,
    pub port: i64,
    /// The address that the user asks for.
    pub address: Option<String>,
    pub labels: Value,
    pub annotations: Value,
    pub source_ranges: Vec<String>,
    pub class: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Kubelet {
    pub preferred_address_types: Vec<String>,
    pub cgroup_driver: String,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Addons {
    pub core_dns: Option<AddonImage>,
    pub kube_proxy: Option<AddonImage>,
    pub konnectivity: Option<konnectivity::Konnectivity>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct AddonImage {
    pub repository: Option<String>,
    pub tag: Option<String>,
}

/// Addresses under which the control plane answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// Inside the management cluster.
    pub cluster_ip: String,
    /// For workers and people.
    pub endpoint: String,
}

impl ControlPlane {
    /// Names an object of this control plane.
    pub fn object(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.name)
    }

    pub fn image(&self, component: &Component, name: &str) -> String {
        let name = component.image.as_deref().unwrap_or(name);
        format!("{}/{name}:{}", self.registry, self.version)
    }

    /// Labels of a component's pods and of everything that selects them.
    pub fn labels(&self, component: &str) -> Value {
        let mut labels = self.own_labels();
        labels[self.profile.component_label()] = component.into();
        labels
    }

    /// Labels of everything that belongs to this control plane.
    pub fn own_labels(&self) -> Value {
        serde_json::json!({
            self.profile.name_label(): self.name,
            hangar_api::names::CLUSTER_NAME_LABEL: self.cluster_name,
        })
    }

    /// Its place in a shared store, if that is where its data is.
    pub fn tenancy(&self) -> Option<&Tenancy> {
        match &self.storage {
            Storage::SharedEtcd(tenancy) => Some(tenancy),
            Storage::OwnEtcd { .. } | Storage::Kine => None,
        }
    }

    /// The address of the tenant's own `kubernetes` Service: the first of the range.
    pub fn kubernetes_service_ip(&self) -> String {
        nth_address(&self.network.service_cidr, 1)
    }
}

/// The n-th address of a range; kubeadm puts the API at the first and DNS at the tenth.
pub fn nth_address(range: &ipnet::IpNet, n: u32) -> String {
    match range {
        ipnet::IpNet::V4(range) => std::net::Ipv4Addr::from(u32::from(range.network()).wrapping_add(n)).to_string(),
        ipnet::IpNet::V6(range) => {
            std::net::Ipv6Addr::from(u128::from(range.network()).wrapping_add(n.into())).to_string()
        }
    }
}

#[cfg(test)]
mod benchmark_tests;
#[cfg(test)]
mod encryption_tests;
#[cfg(test)]
mod roots_tests;
#[cfg(test)]
mod rotation_tests;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
pub(crate) mod tests;
