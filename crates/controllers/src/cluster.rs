//! Cluster: reads what it refers to and everything that carries its name.

use hangar_api::{Object, ObjectKey, kinds};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, members, named, read, reference};
use hangar_planner::cluster::{Clusters, Facts, is_initialized};
use hangar_planner::step::ClusterName;
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;
use crate::machine::kubeconfig;

/// What the contract has to say, and the counts.
const PROVIDER: &[&str] = &[
    "/metadata/ownerReferences",
    "/metadata/labels",
    "/spec/controlPlaneEndpoint",
    "/status/initialization",
    "/status/ready",
    "/status/initialized",
    "/status/failureDomains",
    "/status/conditions[Ready]",
    "/status/conditions[Available]",
    "/status/replicas",
    "/status/readyReplicas",
    "/status/availableReplicas",
    "/status/upToDateReplicas",
    "/status/conditions[RollingOut]",
    "/status/conditions[ScalingUp]",
    "/status/conditions[ScalingDown]",
    "/status/conditions[Remediating]",
];

/// What counts workers.
const WORKERS: &[&str] = &[
    "/spec/replicas",
    "/status/replicas",
    "/status/readyReplicas",
    "/status/availableReplicas",
    "/status/upToDateReplicas",
    "/status/conditions[Available]",
    "/status/conditions[Remediating]",
];

/// Where nobody else makes a kubeconfig.
fn authority(cluster: &Object) -> Option<ObjectKey> {
    let has_control_plane = cluster.get("/spec/controlPlaneRef").is_object();
    let name = format!("{}-ca", cluster.name());
    (!has_control_plane).then(|| ObjectKey::new("", "Secret", cluster.namespace(), &name))
}

impl Controller<Context> for Clusters {
    const READS: &'static [Read] = &[
        read(&[reference("/spec/infrastructureRef")], PROVIDER),
        read(&[reference("/spec/controlPlaneRef")], PROVIDER),
        read(&[members::<kinds::MachineDeployment>()], WORKERS),
        read(&[members::<kinds::MachinePool>()], WORKERS),
        read(&[members::<kinds::MachineSet>()], &[]),
        read(&[members::<kinds::Machine>()], &["/status/nodeRef"]),
        read(&[named("", "Secret", authority)], &["/data"]),
        read(&[named("", "Secret", kubeconfig)], &["/data"]),
    ];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Facts, Reason> {
        // Whoever goes is not asked any more.
        if world.object().is_deleting() || !is_initialized(world) {
            return Ok(Facts::default());
        }
        let cluster =
            ClusterName { namespace: world.object().namespace().to_owned(), name: world.object().name().to_owned() };
        Ok(Facts { connection: context.tenants.connection(&cluster).await })
    }

    fn forget(context: &Context, cluster: &Object) {
        let name = ClusterName { namespace: cluster.namespace().to_owned(), name: cluster.name().to_owned() };
        context.tenants.forget(&name);
    }
}
