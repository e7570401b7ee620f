//! One module per kind: observe, then the planner, then the executor, then report.
//!
//! Flows: a key from the queue -> [`Controllers`] -> the controller of its kind -> the engine's pass. Holds: controllers read and carry out;
//! every decision is the planner's.

mod cloud_calls;
pub mod clouds;
mod cluster;
mod data_store;
pub mod datastores;
mod etcd;
mod issue;
mod kamaji_control_plane;
mod kubeadm_config;
mod machine;
mod machine_deployment;
mod machine_set;
mod open_stack_cluster;
mod open_stack_machine;
mod secrets;
mod tenant_calls;
mod wakes;

use std::sync::Arc;

use async_trait::async_trait;
use hangar_api::{Kind, Object, ObjectKey, Owner, kinds, references};
use hangar_engine::cache::{Cache, Change};
use hangar_engine::management::Management;
use hangar_engine::pass::{PassError, Passes};
use hangar_engine::queue::Outcome;
use hangar_engine::runtime::{Dispatch, Watched};
use hangar_engine::tenants::Tenants;
use hangar_pki::Keys;

pub use etcd::{Etcd, EtcdError};

/// What the place where control planes run can offer.
#[derive(Debug, Clone)]
pub struct Site {
    /// Or what to do to get it.
    pub konnectivity: Result<(), String>,
}

/// What controllers share.
pub struct Context {
    pub site: Site,
    pub passes: Passes,
    pub tenants: Tenants,
    pub clouds: clouds::Clouds,
    pub datastores: Arc<dyn datastores::Datastores>,
    pub keys: Arc<dyn Keys>,
}

impl Context {
    fn management(&self) -> &Management {
        &self.passes.management
    }

    fn cache(&self) -> &Cache {
        self.passes.management.cache()
    }
}

/// All controllers.
pub struct Controllers {
    context: Arc<Context>,
    cluster: cluster::Clusters,
    machine_deployment: machine_deployment::MachineDeployments,
    machine_set: machine_set::MachineSets,
    machine: machine::Machines,
    kubeadm_config: kubeadm_config::KubeadmConfigs,
    open_stack_cluster: open_stack_cluster::OpenStackClusters,
    open_stack_machine: open_stack_machine::OpenStackMachines,
    kamaji_control_plane: kamaji_control_plane::KamajiControlPlanes,
    data_store: data_store::DataStores,
}

impl Controllers {
    pub fn new(context: Context) -> Self {
        let context = Arc::new(context);
        Self {
            cluster: cluster::Clusters(context.clone()),
            machine_deployment: machine_deployment::MachineDeployments(context.clone()),
            machine_set: machine_set::MachineSets(context.clone()),
            machine: machine::Machines(context.clone()),
            kubeadm_config: kubeadm_config::KubeadmConfigs(context.clone()),
            open_stack_cluster: open_stack_cluster::OpenStackClusters::new(context.clone()),
            open_stack_machine: open_stack_machine::OpenStackMachines::new(context.clone()),
            kamaji_control_plane: kamaji_control_plane::KamajiControlPlanes::new(context.clone()),
            data_store: data_store::DataStores(context.clone()),
            context,
        }
    }

    pub fn context(&self) -> &Context {
        &self.context
    }
}

#[async_trait]
impl Dispatch for Controllers {
    async fn pass(&self, key: &ObjectKey) -> Result<Outcome, PassError> {
        let passes = &self.context.passes;
        match (key.group.as_str(), key.kind.as_str()) {
            (kinds::Cluster::GROUP, kinds::Cluster::KIND) => passes.run(&self.cluster, key).await,
            (kinds::MachineDeployment::GROUP, kinds::MachineDeployment::KIND) => {
                passes.run(&self.machine_deployment, key).await
            }
            (kinds::MachineSet::GROUP, kinds::MachineSet::KIND) => passes.run(&self.machine_set, key).await,
            (kinds::Machine::GROUP, kinds::Machine::KIND) => passes.run(&self.machine, key).await,
            (kinds::KubeadmConfig::GROUP, kinds::KubeadmConfig::KIND) => passes.run(&self.kubeadm_config, key).await,
            (kinds::OpenStackCluster::GROUP, kinds::OpenStackCluster::KIND) => {
                passes.run(&self.open_stack_cluster, key).await
            }
            (kinds::OpenStackMachine::GROUP, kinds::OpenStackMachine::KIND) => {
                passes.run(&self.open_stack_machine, key).await
            }
            (kinds::KamajiControlPlane::GROUP, kinds::KamajiControlPlane::KIND) => {
                passes.run(&self.kamaji_control_plane, key).await
            }
            (kinds::DataStore::GROUP, kinds::DataStore::KIND) => passes.run(&self.data_store, key).await,
            _ => Ok(Outcome::Settled),
        }
    }

    fn wakes(&self, change: &Change) -> Vec<ObjectKey> {
        wakes::wakes(change, self.context.cache())
    }
}

/// The watches that the controllers need: the kinds that a controller handles or reads, and of the built-in ones what belongs to a cluster.
/// Every other kind is served and stored, and nobody watches it.
pub fn watched() -> Vec<Watched> {
    let ours = [
        hub::<kinds::Cluster>(),
        hub::<kinds::MachineDeployment>(),
        hub::<kinds::MachineSet>(),
        hub::<kinds::Machine>(),
        hub::<kinds::KubeadmConfig>(),
        hub::<kinds::KubeadmConfigTemplate>(),
        hub::<kinds::OpenStackCluster>(),
        hub::<kinds::OpenStackMachine>(),
        hub::<kinds::OpenStackMachineTemplate>(),
        hub::<kinds::KamajiControlPlane>(),
        hub::<kinds::DataStore>(),
    ];
    let of_clusters = |group, kind, label: &str| Watched { group, version: "v1", kind, labels: Some(label.to_owned()) };
    let built_in = [
        of_clusters("", "Secret", "cluster.x-k8s.io/cluster-name"),
        of_clusters("", "ConfigMap", "kamaji.clastix.io/name"),
        of_clusters("", "Service", "kamaji.clastix.io/name"),
        of_clusters("apps", "Deployment", "kamaji.clastix.io/name"),
    ];
    ours.into_iter().chain(built_in).collect()
}

fn hub<K: Kind>() -> Watched {
    Watched { group: K::GROUP, version: K::VERSION, kind: K::KIND, labels: None }
}

/// The typed hub of an object, or an error that names it.
fn typed<K: Kind>(object: &Object) -> Result<K, PassError> {
    object.typed().map_err(|error| PassError::Unreadable { key: object.key().to_string(), message: error.to_string() })
}

/// The Cluster that an object belongs to: by label, else by owner.
fn cluster_of(cache: &Cache, object: &Object) -> Option<Arc<Object>> {
    let named = object.label(hangar_api::names::CLUSTER_NAME_LABEL).map(str::to_owned);
    let owned = || object.owners().into_iter().find(Owner::is::<kinds::Cluster>).map(|owner| owner.name);
    cache.get(&ObjectKey::of::<kinds::Cluster>(object.namespace(), &named.or_else(owned)?))
}

/// What a reference points at; only group and kind count, never the version.
fn referenced(cache: &Cache, object: &Object, pointer: &str) -> Option<Arc<Object>> {
    cache.get(&references::target(object, pointer)?)
}

fn owned(object: &Arc<Object>) -> Object {
    Object::clone(object)
}
