//! What each kind's controller reads, and the one executor that carries out what planners decide.
//!
//! Flows: a key from the queue -> the engine's pass -> reads and facts (one module per kind) -> the planner -> [`executor`]. Holds: controllers read and carry
//! out; every decision is the planner's; a kind is its two modules and a line in [`CONTROLLERS`].

pub mod access;
pub mod clouds;
mod cluster;
mod cluster_resource_set;
mod cluster_resource_set_binding;
mod data_store;
pub mod data_store_usage;
pub mod data_stores;
mod etcd;
mod executor;
mod image;
mod ip_address_claim;
mod issue;
mod kamaji_control_plane;
mod kubeadm_config;
mod machine;
mod machine_deployment;
mod machine_health_check;
mod machine_pool;
mod machine_set;
mod manifests;
mod node_calls;
mod node_load;
mod open_stack_cluster;
mod open_stack_floating_ip_pool;
mod open_stack_machine;
mod open_stack_machine_template;
mod open_stack_server;
mod provided;
mod tenant_calls;
mod tenant_secrets;
mod unwatched;

use std::sync::Arc;

use hangar_engine::cache::Cache;
use hangar_engine::management::Management;
use hangar_engine::metrics::Metrics;
use hangar_engine::notices::Notices;
use hangar_engine::pass::{Controller, Passes, Registration};
use hangar_engine::queue::Queue;
use hangar_engine::runtime::{self, Engine};
use hangar_engine::tenants::Tenants;
use hangar_pki::Keys;
use hangar_planner::cluster::Clusters;
use hangar_planner::cluster_resource_set::ClusterResourceSets;
use hangar_planner::cluster_resource_set_binding::ClusterResourceSetBindings;
use hangar_planner::data_store::DataStores;
use hangar_planner::image::Images;
use hangar_planner::ip_address_claim::IPAddressClaims;
use hangar_planner::kamaji_control_plane::KamajiControlPlanes;
use hangar_planner::kubeadm_config::KubeadmConfigs;
use hangar_planner::machine::Machines;
use hangar_planner::machine_deployment::MachineDeployments;
use hangar_planner::machine_health_check::MachineHealthChecks;
use hangar_planner::machine_pool::MachinePools;
use hangar_planner::machine_set::MachineSets;
use hangar_planner::open_stack_cluster::OpenStackClusters;
use hangar_planner::open_stack_floating_ip_pool::OpenStackFloatingIPPools;
use hangar_planner::open_stack_machine::OpenStackMachines;
use hangar_planner::open_stack_machine_template::OpenStackMachineTemplates;
use hangar_planner::open_stack_server::OpenStackServers;

pub use etcd::{Etcd, EtcdError};
pub use tenant_calls::decide as decide_request;
pub use tenant_secrets::rewrite as rewrite_secrets;
pub use unwatched::Unwatched;

/// All controllers that there are; a program may run any subset of them.
pub const CONTROLLERS: &[Registration<Context>] = &[
    of::<Clusters>(),
    of::<MachineDeployments>(),
    of::<MachineSets>(),
    of::<Machines>(),
    of::<MachineHealthChecks>(),
    of::<MachinePools>(),
    of::<KubeadmConfigs>(),
    of::<OpenStackClusters>(),
    of::<OpenStackMachines>(),
    of::<OpenStackMachineTemplates>(),
    of::<OpenStackServers>(),
    of::<OpenStackFloatingIPPools>(),
    of::<IPAddressClaims>(),
    of::<Images>(),
    of::<KamajiControlPlanes>(),
    of::<DataStores>(),
    of::<ClusterResourceSets>(),
    of::<ClusterResourceSetBindings>(),
];

const fn of<C: Controller<Context>>() -> Registration<Context> {
    hangar_engine::pass::of::<C, Context>()
}

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
    pub data_stores: Arc<dyn data_stores::DataStores>,
    pub keys: Arc<dyn Keys>,
    /// What tenants of data stores use.
    pub usage: data_store_usage::Usage,
    /// Objects that are not watched.
    pub unwatched: Unwatched,
    /// What ClusterResourceSets name.
    pub manifests: manifests::Manifests,
}

impl Context {
    fn management(&self) -> &Management {
        &self.passes.management
    }

    fn cache(&self) -> &Cache {
        self.passes.management.cache()
    }
}

/// How the outside is reached; a simulation has its own.
pub struct Surroundings {
    pub client: kube::Client,
    pub clock: hangar_engine::Clock,
    pub site: Site,
    pub connector: Arc<dyn hangar_engine::tenants::Connector>,
    /// [`clouds::over_network`] with the hosts that clouds may be on.
    pub transports: clouds::Transports,
    pub data_stores: Arc<dyn data_stores::DataStores>,
    pub keys: Arc<dyn Keys>,
    pub hook: Option<hangar_engine::pass::StepHook>,
    pub workers: usize,
    pub controllers: Vec<&'static Registration<Context>>,
}

impl Context {
    /// What Prometheus is told.
    pub fn metrics(&self) -> Result<String, std::fmt::Error> {
        let mut others = self.management().counts().collectors();
        others.extend(clouds::collectors(&self.clouds.calls()));
        self.passes.metrics.text(others)
    }
}

/// Every controller.
pub fn all() -> Vec<&'static Registration<Context>> {
    CONTROLLERS.iter().collect()
}

/// An engine with these controllers, ready to run.
pub fn engine(surroundings: Surroundings) -> Engine<Context> {
    let Surroundings { client, clock, site, connector, transports, data_stores, keys, hook, workers, controllers } =
        surroundings;
    let cache = Cache::new(runtime::links(&controllers));
    // Unbounded, because whoever sends must not wait: the engine takes every key at once and puts it into a queue in which each key is once, so
    // that what is under way is bounded by the number of objects.
    let (changed, changes) = tokio::sync::mpsc::unbounded_channel();
    let (wake, wakes) = tokio::sync::mpsc::unbounded_channel();
    let management = Management::new(client.clone(), cache.clone(), changed.clone());
    let queue = Arc::new(Queue::default());
    let metrics = Metrics::new(queue.clone());
    let notices = Notices::default();
    let unwritten = hangar_engine::report::Unwritten::new(runtime::status_fields(&controllers));
    let context = Context {
        site,
        passes: Passes { hook, unwritten, ..Passes::new(management, clock, metrics) },
        tenants: Tenants::new(connector, cache.clone(), wake),
        clouds: clouds::Clouds::new(transports),
        data_stores,
        keys,
        usage: data_store_usage::Usage::default(),
        unwatched: Unwatched::default(),
        manifests: manifests::Manifests::new(notices.clone()),
    };
    Engine { client, cache, changes, changed, wakes, queue, notices, controllers, context: Arc::new(context), workers }
}
