//! MachineHealthCheck: reads the Machines of its cluster, and its Nodes as their watch has them.

use std::sync::Arc;

use hangar_api::{Object, kinds};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, linked, members, read};
use hangar_planner::machine_health_check::external::{self, Requests};
use hangar_planner::machine_health_check::{Facts, MachineHealthChecks};
use hangar_planner::step::ClusterName;
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;

impl Controller<Context> for MachineHealthChecks {
    const READS: &'static [Read] = &[
        read(&[cluster()], &[]),
        read(&[linked(external::template)], &[]),
        read(
            &[members::<kinds::Machine>()],
            &[
                "/metadata/labels",
                "/metadata/annotations",
                "/metadata/ownerReferences",
                "/status/nodeRef",
                "/status/conditions[NodeReady]",
                "/status/conditions[Ready]",
                // Its own word: what was announced is looked for next.
                "/status/conditions[ExternallyRemediated]",
            ],
        ),
    ];

    async fn facts(context: &Context, world: &World<Self>, now: Timestamp) -> Result<Facts, Reason> {
        let cluster = ClusterName { namespace: world.object().namespace().to_owned(), name: world.cluster_name() };
        // Before there is a kubeconfig, nobody can be asked.
        let nodes = context.tenants.nodes(&cluster).await;
        let names = |node: &Object| [node.text("/spec/providerID"), node.name()].map(str::to_owned);
        let nodes = nodes.map(|all| {
            let named = all.into_iter().flat_map(|node| names(&node).map(|name| (name, node.clone())));
            named.filter(|(name, _)| !name.is_empty()).collect()
        });
        Ok(Facts { now, nodes, requests: requests(context, world).await? })
    }
}

/// Of the few Machines that somebody else is to mend: a watch for them all would cost more.
async fn requests(context: &Context, world: &World<MachineHealthChecks>) -> Result<Requests, Reason> {
    let mut requests = Requests::default();
    for machine in world.all::<kinds::Machine>().filter(|machine| external::is_asked_for(machine)) {
        let Some(key) = external::request(world.object(), machine) else { continue };
        let found = context.management().get(&key).await;
        let found = found.map_err(|error| Reason::retry("RemediationUnknown", error.to_string()))?;
        requests.0.insert(key, found.map(Arc::new));
    }
    Ok(requests)
}
