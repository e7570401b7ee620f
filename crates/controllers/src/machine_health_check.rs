//! MachineHealthCheck: reads the Machines of its cluster, and its Nodes as their watch has them.

use hangar_api::kinds;
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, members, read};
use hangar_planner::machine_health_check::{Facts, MachineHealthChecks};
use hangar_planner::step::ClusterName;
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;

impl Controller<Context> for MachineHealthChecks {
    const READS: &'static [Read] = &[
        read(&[cluster()], &[]),
        read(
            &[members::<kinds::Machine>()],
            &[
                "/metadata/labels",
                "/metadata/annotations",
                "/metadata/ownerReferences",
                "/status/nodeRef",
                "/status/conditions[NodeReady]",
                "/status/conditions[Ready]",
            ],
        ),
    ];

    async fn facts(context: &Context, world: &World<Self>, now: Timestamp) -> Result<Facts, Reason> {
        let cluster = ClusterName { namespace: world.object().namespace().to_owned(), name: world.cluster_name() };
        // Before there is a kubeconfig, nobody can be asked.
        let nodes = context.tenants.nodes(&cluster).await;
        let nodes = nodes.map(|all| all.into_iter().map(|node| (node.name().to_owned(), node)).collect());
        Ok(Facts { now, nodes })
    }
}
