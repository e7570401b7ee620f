//! Machine: reads its bootstrap config, its infrastructure and its Node.

use hangar_api::contract::Foreign;
use hangar_api::kinds::{Machine, MachineDrainRule, MachineSet};
use hangar_api::names::CONTROL_PLANE_LABEL;
use hangar_api::{Kind as _, Object, ObjectKey};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, named, neighbours, owner, read, reference};
use hangar_engine::tenants::NodeView;
use hangar_planner::machine::{Facts, Machines, Tenant};
use hangar_planner::step::ClusterName;
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::{Context, node_load};

/// How the tenant's API is reached.
pub fn kubeconfig(cluster: &Object) -> Option<ObjectKey> {
    Some(ObjectKey::new("", "Secret", cluster.namespace(), &format!("{}-kubeconfig", cluster.name())))
}

/// What the contract has to say of a bootstrap config.
pub const BOOTSTRAP_CONFIG: &[&str] = &[
    "/metadata/labels",
    "/metadata/ownerReferences",
    "/status/dataSecretName",
    "/status/initialization",
    "/status/conditions[Ready]",
];

impl Controller<Context> for Machines {
    const READS: &'static [Read] = &[
        read(&[cluster()], &["/status/initialization"]),
        read(&[cluster(), named("", "Secret", kubeconfig)], &["/data"]),
        read(&[cluster(), reference("/spec/controlPlaneRef")], &["/status/externalManagedControlPlane"]),
        read(&[owner::<MachineSet>()], &["/metadata/annotations/hangar.dev~1outdated-revision"]),
        // Whoever is being drained looks again by itself.
        read(&[neighbours::<MachineDrainRule>()], &[]),
        read(&[reference("/spec/bootstrap/configRef")], BOOTSTRAP_CONFIG),
        read(
            &[reference("/spec/infrastructureRef")],
            &[
                "/metadata/labels",
                "/metadata/ownerReferences",
                "/spec/providerID",
                "/status/initialization",
                "/status/ready",
                "/status/addresses",
                "/status/conditions[Ready]",
            ],
        ),
    ];

    async fn facts(context: &Context, world: &World<Self>, now: Timestamp) -> Result<Facts, Reason> {
        let tenant = tenant(context, world).await?;
        let silent_for = context.tenants.silent_for(&cluster_name(world));
        let mut facts = Facts { tenant, silent_for, ..Facts::default() };
        if world.object().is_deleting() {
            facts.control_plane_machines = control_plane_machines(context, world);
            if matches!(facts.tenant, Tenant::Node(_)) {
                let client = context.tenants.client(&cluster_name(world)).await;
                node_load::read(client, world, &mut facts, now).await;
            }
        }
        Ok(facts)
    }
}

fn cluster_name(world: &World<Machines>) -> ClusterName {
    ClusterName { namespace: world.object().namespace().to_owned(), name: world.cluster_name() }
}

async fn tenant(context: &Context, world: &World<Machines>) -> Result<Tenant, Reason> {
    let initialized = |cluster: &Object| cluster.get("/status/initialization/controlPlaneInitialized") == true;
    if !world.cluster().is_some_and(initialized) {
        return Ok(Tenant::Unreachable);
    }
    let known = world.object().text("/spec/providerID");
    let infrastructure = || world.referenced("/spec/infrastructureRef").and_then(|it| Foreign::new(it).provider_id());
    let id = if known.is_empty() { infrastructure().unwrap_or_default() } else { known };
    Ok(match context.tenants.node(&cluster_name(world), id).await {
        NodeView::Connecting => Tenant::Connecting,
        NodeView::Unreachable => Tenant::Unreachable,
        // What is to go says of itself why it cannot.
        NodeView::Refused(_) if world.object().is_deleting() => Tenant::Unreachable,
        NodeView::Refused(why) => return Err(Reason::retry("InvalidKubeconfig", why)),
        NodeView::None => Tenant::NoNode,
        NodeView::Node(node) => Tenant::Node(node),
    })
}

/// Of the same cluster, and there to stay.
fn control_plane_machines(context: &Context, world: &World<Machines>) -> usize {
    let (namespace, name) = (world.object().namespace(), world.cluster_name());
    let all = context.cache().of_cluster(namespace, &name, Machine::GROUP, Machine::KIND);
    all.iter().filter(|machine| machine.label(CONTROL_PLANE_LABEL).is_some() && !machine.is_deleting()).count()
}
