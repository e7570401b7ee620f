//! A control plane that runs as pods of the management cluster: one model, one rendering, whatever kind asked for it.
//!
//! Flows: a front end's spec -> [`ControlPlane`] (parsed once, cannot fail later) -> objects of the management cluster, certificates to be
//! issued, objects of the tenant cluster. Holds: what is rendered binds the pod's own address and calls Services by their ClusterIP,
//! never localhost and never a name, so that it runs the same on any node.

pub mod addons;
pub mod certificates;
pub mod konnectivity;
pub mod pods;
pub mod tenant;

use hangar_api::KubeVersion;
use serde_json::Value;

/// Everything that the rendering needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlPlane {
    pub namespace: String,
    /// The prefix of all object names.
    pub name: String,
    pub cluster_name: String,
    pub version: KubeVersion,
    pub replicas: i32,
    pub registry: String,
    pub api_server: Component,
    pub controller_manager: Component,
    pub scheduler: Component,
    pub network: Network,
    pub exposure: Exposure,
    pub datastore: Datastore,
    pub kubelet: Kubelet,
    pub addons: Addons,
    pub placement: Value,
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
pub struct Datastore {
    pub endpoints: Vec<String>,
    /// Without slashes; every key of this tenant lies below `/<schema>/`.
    pub schema: String,
    pub user: String,
}

impl Datastore {
    pub fn prefix(&self) -> String {
        format!("/{}/", self.schema)
    }
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
        serde_json::json!({
            "kamaji.clastix.io/name": self.name,
            "kamaji.clastix.io/component": component,
            "cluster.x-k8s.io/cluster-name": self.cluster_name,
        })
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
