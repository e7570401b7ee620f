//! Machine: reads its bootstrap config, its infrastructure and its Node.

use hangar_api::contract::Foreign;
use hangar_api::{Object, ObjectKey};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, named, read, reference};
use hangar_engine::tenants::NodeView;
use hangar_planner::machine::{Machines, Tenant};
use hangar_planner::step::ClusterName;
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;

/// How the tenant's API is reached.
pub fn kubeconfig(cluster: &Object) -> Option<ObjectKey> {
    Some(ObjectKey::new("", "Secret", cluster.namespace(), &format!("{}-kubeconfig", cluster.name())))
}

impl Controller<Context> for Machines {
    const READS: &'static [Read] = &[
        read(&[cluster()], &["/status/initialization"]),
        read(&[cluster(), named("", "Secret", kubeconfig)], &["/data"]),
        read(
            &[reference("/spec/bootstrap/configRef")],
            &["/status/dataSecretName", "/status/initialization", "/status/conditions[Ready]"],
        ),
        read(
            &[reference("/spec/infrastructureRef")],
            &[
                "/spec/providerID",
                "/status/initialization",
                "/status/ready",
                "/status/addresses",
                "/status/conditions[Ready]",
            ],
        ),
    ];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Tenant, Reason> {
        let initialized = |cluster: &Object| cluster.get("/status/initialization/controlPlaneInitialized") == true;
        if !world.cluster().is_some_and(initialized) {
            return Ok(Tenant::Unreachable);
        }
        let known = world.object().text("/spec/providerID");
        let infrastructure =
            || world.referenced("/spec/infrastructureRef").and_then(|it| Foreign::new(it).provider_id());
        let id = if known.is_empty() { infrastructure().unwrap_or_default() } else { known };
        let cluster = ClusterName { namespace: world.object().namespace().to_owned(), name: world.cluster_name() };
        Ok(match context.tenants.node(&cluster, id).await {
            NodeView::Connecting => Tenant::Connecting,
            NodeView::Unreachable => Tenant::Unreachable,
            // What is to go needs no Node.
            NodeView::Refused(_) if world.object().is_deleting() => Tenant::Unreachable,
            NodeView::Refused(why) => return Err(Reason::retry("InvalidKubeconfig", why)),
            NodeView::None => Tenant::NoNode,
            NodeView::Node(node) => Tenant::Node(node),
        })
    }
}
