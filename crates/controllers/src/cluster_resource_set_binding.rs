//! ClusterResourceSetBinding: reads its Cluster, the sets of the namespace, and the ConfigMaps and Secrets that these name.

use hangar_api::{ObjectKey, kinds};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, named, noticed, read, watched_neighbours};
use hangar_engine::tenants::NodeView;
use hangar_planner::cluster_resource_set::resource_keys;
use hangar_planner::cluster_resource_set_binding::{ClusterResourceSetBindings, Facts, Tenant, may_be_due};
use hangar_planner::step::ClusterName;
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;
use crate::machine::kubeconfig;

impl Controller<Context> for ClusterResourceSetBindings {
    const READS: &'static [Read] = &[
        read(&[cluster()], &["/metadata/labels", "/status/initialization"]),
        read(&[cluster(), named("", "Secret", kubeconfig)], &["/data"]),
        read(
            &[watched_neighbours::<kinds::ClusterResourceSet>()],
            &[
                "/spec",
                "/metadata/annotations/hangar.dev~1repair-drift",
                "/metadata/annotations/cluster.x-k8s.io~1paused",
            ],
        ),
        read(
            &[
                watched_neighbours::<kinds::ClusterResourceSet>(),
                // Each namespace has one, and nobody wants it in a cluster.
                noticed("", "ConfigMap", resource_keys, "metadata.name!=kube-root-ca.crt"),
            ],
            &[],
        ),
        read(
            &[
                watched_neighbours::<kinds::ClusterResourceSet>(),
                noticed("", "Secret", resource_keys, "type=addons.cluster.x-k8s.io/resource-set"),
            ],
            &[],
        ),
    ];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Facts, Reason> {
        let initialized = "/status/initialization/controlPlaneInitialized";
        let due = may_be_due(world);
        if due.is_empty() || !world.cluster().is_some_and(|cluster| cluster.get(initialized) == true) {
            return Ok(Facts::default());
        }
        let cluster = ClusterName { namespace: world.object().namespace().to_owned(), name: world.cluster_name() };
        let tenant = match context.tenants.node(&cluster, "").await {
            NodeView::Connecting | NodeView::Unreachable => Tenant::Silent,
            NodeView::Refused(why) => Tenant::Refused(why),
            NodeView::None | NodeView::Node(_) => Tenant::Answers,
        };
        let mut facts = Facts { tenant, ..Facts::default() };
        for resource in due {
            let key = ObjectKey::new("", &resource.kind, world.object().namespace(), &resource.name);
            let manifest = context.manifests.read(context, &key).await?;
            facts.repaired.extend(context.manifests.repaired(&cluster, &resource).map(|at| (resource.clone(), at)));
            facts.manifests.insert((resource.kind, resource.name), manifest);
        }
        Ok(facts)
    }
}
