//! What is filled in and what is refused before an object is stored, where neither a schema nor a rule in it can say so.
//!
//! Flows: object of a hub version (and the old one on update) -> defaulted object, or every reason against it. Holds: pure, one function
//! per kind, and no input makes it panic, for this runs before the schema is checked. A value that did not change is not judged again, so
//! that an object which was once taken can always be released. Messages name the field, what is wrong, and what to do.

mod check;
mod cluster;
mod hosted;
mod kubeadm;
mod machines;
mod metal3;
mod openstack;

use crate::object::Object;
use crate::registry;

/// Why an object is refused: where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub field: String,
    pub message: String,
}

impl Refusal {
    fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Fills in what is missing and returns every reason against the object; the second argument is the stored one on update.
type Judge = fn(&mut Object, Option<&Object>) -> Vec<Refusal>;

/// Kinds with something to fill in or to check.
const JUDGES: &[(&str, &str, Judge)] = &[
    ("cluster.x-k8s.io", "Cluster", cluster::cluster),
    ("cluster.x-k8s.io", "ClusterClass", cluster::cluster_class),
    ("cluster.x-k8s.io", "Machine", machines::machine),
    ("cluster.x-k8s.io", "MachineSet", machines::machine_set),
    ("cluster.x-k8s.io", "MachineDeployment", machines::machine_deployment),
    ("cluster.x-k8s.io", "MachinePool", machines::machine_pool),
    ("cluster.x-k8s.io", "MachineHealthCheck", machines::machine_health_check),
    ("controlplane.cluster.x-k8s.io", "KubeadmControlPlane", kubeadm::control_plane),
    ("controlplane.cluster.x-k8s.io", "KamajiControlPlane", hosted::kamaji_control_plane),
    ("controlplane.cluster.x-k8s.io", "HostedControlPlane", hosted::hosted_control_plane),
    ("controlplane.cluster.x-k8s.io", "K0smotronControlPlane", hosted::k0smotron_control_plane),
    ("kamaji.clastix.io", "TenantControlPlane", hosted::tenant_control_plane),
    ("infrastructure.cluster.x-k8s.io", "OpenStackCluster", openstack::cluster),
    ("infrastructure.cluster.x-k8s.io", "OpenStackClusterTemplate", check::template),
    ("infrastructure.cluster.x-k8s.io", "OpenStackMachine", openstack::machine),
    ("infrastructure.cluster.x-k8s.io", "OpenStackMachineTemplate", openstack::machine_template),
    ("infrastructure.cluster.x-k8s.io", "OpenStackServer", openstack::server),
    ("infrastructure.cluster.x-k8s.io", "Metal3Cluster", metal3::cluster),
    ("infrastructure.cluster.x-k8s.io", "Metal3Machine", metal3::machine),
    ("infrastructure.cluster.x-k8s.io", "Metal3MachineTemplate", metal3::machine_template),
    ("infrastructure.cluster.x-k8s.io", "Metal3DataTemplate", metal3::data_template),
    ("ipam.metal3.io", "IPPool", metal3::ip_pool),
];

/// The object as it should be stored.
pub fn admit(object: &Object, old: Option<&Object>) -> Result<Object, Vec<Refusal>> {
    let judge = JUDGES.iter().find(|(group, kind, _)| *group == object.group() && *kind == object.kind());
    let Some((_, _, judge)) = judge else { return Ok(object.clone()) };
    let mut admitted = object.clone();
    let refusals = judge(&mut admitted, old);
    if refusals.is_empty() { Ok(admitted) } else { Err(refusals) }
}

/// What the API server must ask about, as group, plural name and hub version.
pub fn admitted() -> Vec<(&'static str, &'static str, &'static str)> {
    let facts = JUDGES.iter().filter_map(|(group, kind, _)| registry::kind(group, kind));
    facts.map(|facts| (facts.group, facts.plural(), facts.hub().name)).collect()
}

#[cfg(test)]
mod tests;
