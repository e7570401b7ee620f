//! MachinePool: reads its bootstrap config, its infrastructure, and the Nodes of its cluster.

use hangar_api::Object;
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, named, read, reference};
use hangar_planner::machine_pool::{Facts, MachinePools};
use hangar_planner::step::ClusterName;
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;
use crate::machine::{BOOTSTRAP_CONFIG, kubeconfig};

impl Controller<Context> for MachinePools {
    const READS: &'static [Read] = &[
        read(&[cluster()], &["/status/initialization"]),
        read(&[cluster(), named("", "Secret", kubeconfig)], &["/data"]),
        read(&[reference("/spec/template/spec/bootstrap/configRef")], BOOTSTRAP_CONFIG),
        read(
            &[reference("/spec/template/spec/infrastructureRef")],
            &[
                "/metadata/labels",
                "/metadata/ownerReferences",
                "/spec/providerIDList",
                "/status/initialization",
                "/status/ready",
                "/status/replicas",
                "/status/conditions[Ready]",
            ],
        ),
    ];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Facts, Reason> {
        let initialized = |cluster: &Object| cluster.get("/status/initialization/controlPlaneInitialized") == true;
        if !world.cluster().is_some_and(initialized) {
            return Ok(Facts::default());
        }
        let cluster = ClusterName { namespace: world.object().namespace().to_owned(), name: world.cluster_name() };
        let nodes = context.tenants.nodes(&cluster).await.map(|nodes| {
            let with_id = nodes.into_iter().filter(|node| !node.text("/spec/providerID").is_empty());
            with_id.map(|node| (node.text("/spec/providerID").to_owned(), node)).collect()
        });
        Ok(Facts { nodes })
    }
}
