//! OpenStackCluster: reads what it has in the project, and what the names in its spec mean.

use std::collections::BTreeSet;
use std::time::Duration;

use hangar_api::{Kind as _, Object, kinds};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, members, named, read};
use hangar_openstack::{Error, Port};
use hangar_planner::cloud::{
    Cloud, CloudIdentity, PROJECT_ANNOTATION, Resources, Uses, has_twins, load_balancer, server,
};
use hangar_planner::open_stack_cluster::{
    Facts, Found, OpenStackClusters, bastion_enabled, bastion_needs, is_managed, needs, needs_floating_ips,
    needs_load_balancers, owner, told_to_machines,
};
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;
use crate::clouds::instance::{self, FRESH};
use crate::clouds::{self, Age, OfOwner, Project, Session};

mod leftovers;
mod names;

/// What somebody else did to a resource that was ready is seen after this time: one list for each sort and project, however many clusters are in it.
const DRIFT: Duration = Duration::from_secs(55);
/// What names mean hardly ever changes.
const NAMES: Duration = Duration::from_secs(590);

/// Where control plane machines are, and whether they answer.
const MACHINES: &[&str] = &["/status/addresses", "/status/ready"];

type Clusters = World<OpenStackClusters>;

impl Controller<Context> for OpenStackClusters {
    const READS: &'static [Read] = &[
        read(&[cluster()], &["/spec/controlPlaneRef"]),
        read(&[members::<kinds::OpenStackMachine>()], MACHINES),
        read(&[named(kinds::Image::GROUP, kinds::Image::KIND, names::image_ref)], &["/status"]),
    ];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Facts, Reason> {
        let object = world.object();
        // Before it has an owner there is nothing to ask the cloud for.
        let builds = owner(world).is_done();
        let deletes = object.is_deleting() && world.all::<kinds::OpenStackMachine>().next().is_none();
        if if object.is_deleting() { !deletes } else { !builds } {
            return Ok(Facts::default());
        }
        let identity = CloudIdentity::of(object.namespace(), object.get("/spec/identityRef"));
        let session = clouds::session(context, &identity).await?;
        let facts = read_facts(context, &session, world, identity).await;
        facts.map_err(|error| clouds::refusal(context, &error))
    }

    async fn further(context: &Context, world: &mut World<Self>, _now: Timestamp) -> Result<(), Reason> {
        if world.facts.cloud.project.is_empty() {
            return Ok(());
        }
        let object = world.object();
        let identity = CloudIdentity::of(object.namespace(), object.get("/spec/identityRef"));
        let (uid, needs, of_bastion) = (object.uid().to_owned(), needs(world), bastion_needs(world));
        let mut quota = clouds::quota(context, &identity, &uid, &needs).await?;
        // It may come in the same pass, when the rest is there; the rest does not wait for it.
        match clouds::quota(context, &identity, &format!("{uid}/bastion"), &of_bastion).await {
            Ok(later) if needs.is_empty() => quota = later,
            Ok(later) => quota.limits.extend(later.limits),
            Err(reason) if needs.is_empty() => return Err(reason),
            Err(_) => {}
        }
        world.facts.quota = quota;
        Ok(())
    }
}

async fn read_facts(
    context: &Context,
    session: &Session,
    world: &Clusters,
    identity: CloudIdentity,
) -> Result<Facts, Error> {
    let object = world.object();
    let project = context.clouds.project(session).await?;
    let mut resources = Resources::default();
    // What never tried a create has nothing to be found.
    if object.annotation(PROJECT_ANNOTATION).is_some() || object.is_deleting() {
        resources = read_resources(session, &project, world).await?;
    }
    if object.is_deleting()
        && let Some(cluster) = world.cluster()
    {
        let orphans = project.orphans(cluster.uid(), &owners(context, cluster, object)).await;
        orphans.into_iter().for_each(|orphan| resources.insert(orphan));
    }
    let uses = uses(session, &project, world, &resources).await?;
    let cloud = Cloud { identity, project: project.name.clone(), resources, uses };
    if object.is_deleting() && is_at_work(&cloud.resources, true) {
        return Ok(Facts { cloud, ..Facts::default() });
    }
    if object.is_deleting() {
        return leftovers::with_leftovers(session, &project, world, Facts { cloud, ..Facts::default() }).await;
    }
    let mut found: Found = project
        .remembered((object.uid(), "names"), &names::wanted(world), names_age(world), names::find(session, world))
        .await?;
    // An address of the user's is looked at like a resource of ours: whether it leads anywhere may change.
    names::addresses(session, world, &mut found, freshness(world), &project).await?;
    let bastion = names::bastion(session, world, &cloud).await?;
    let zones = session.zones().await?;
    Ok(Facts { cloud, found, bastion, zones: zones.to_vec(), ..Facts::default() })
}

/// Whose resources are not orphans: the cluster's own, and those of servers that stand alone.
fn owners(context: &Context, cluster: &Object, own: &Object) -> BTreeSet<String> {
    let (group, kind) = (kinds::OpenStackServer::GROUP, kinds::OpenStackServer::KIND);
    let servers = context.cache().of_cluster(cluster.namespace(), cluster.name(), group, kind);
    servers.iter().map(|server| server.uid().to_owned()).chain([own.uid().to_owned()]).collect()
}

/// Which of twins count. Machines are asked about only if there are any: an answer was lost, or two processes acted at once.
async fn uses(session: &Session, project: &Project, world: &Clusters, resources: &Resources) -> Result<Uses, Error> {
    let mut uses = Uses { named: told_to_machines(world.object()), ..Uses::default() };
    if has_twins(&resources.networks) || has_twins(&resources.security_groups) {
        let _own: OfOwner<Port> = project.resources(&session.cloud, world.object().uid(), Age::Strict(FRESH)).await?;
        let cluster = world.cluster().map_or("", Object::uid);
        uses.by_machines = project.used_by_machines(cluster, world.object().uid()).await;
    }
    Ok(uses)
}

/// Only the sorts that this cluster has; all of them when it goes, whatever became of its spec since.
async fn read_resources(session: &Session, project: &Project, world: &Clusters) -> Result<Resources, Error> {
    let (object, cloud, owner) = (world.object(), &session.cloud, world.object().uid());
    let going = object.is_deleting();
    let mut age = match going {
        // Another process may have made something until it knew.
        true => Age::Strict(FRESH.min(project.deleting_for(owner))),
        false => Age::Paced(freshness(world)),
    };
    let mut resources = Resources::default();
    if needs_load_balancers(world) || (going && session.cloud.has_load_balancers().await?) {
        resources.load_balancers = project.resources(cloud, owner, age).await?;
    }
    let bastion = bastion_enabled(world) || object.get("/status/bastion").is_object() || going;
    if bastion {
        let coming = if bastion_is_coming(world) && !going { Age::Paced(FRESH) } else { age };
        resources.servers = project.resources(cloud, owner, coming).await?;
    }
    // Nova or Octavia is at work, and nothing will be made or let go until they are done: the rest need not be looked at each time.
    if is_at_work(&resources, going) {
        age = Age::Paced(DRIFT);
    }
    if going || is_managed(world) {
        resources.networks = project.resources(cloud, owner, age).await?;
        resources.subnets = project.resources(cloud, owner, age).await?;
        resources.routers = project.resources(cloud, owner, age).await?;
    }
    if going || is_managed(world) || bastion {
        // A bastion is made on them.
        let coming = bastion_is_coming(world) && resources.servers.is_empty() && !going;
        resources.ports = project.resources(cloud, owner, if coming { Age::Paced(FRESH) } else { age }).await?;
    }
    if going || object.get("/spec/managedSecurityGroups").is_object() {
        resources.security_groups = project.resources(cloud, owner, age).await?;
    }
    if going || needs_floating_ips(world) {
        resources.floating_ips = project.resources(cloud, owner, age).await?;
    }
    if bastion {
        // Also those of a spec that it had before.
        let changes = going || bastion_is_coming(world);
        let age = if changes && resources.servers.is_empty() && !going { Age::Paced(FRESH) } else { age };
        let spec = world.typed().spec.bastion.as_ref().and_then(|bastion| bastion.spec.as_ref());
        if changes || spec.is_some_and(instance::wants_trunks) {
            resources.trunks = project.resources(cloud, owner, age).await?;
        }
        if spec.is_some_and(instance::wants_volumes) || (changes && cloud.has_volumes().await?) {
            resources.volumes = project.resources(cloud, owner, age).await?;
        }
    }
    Ok(resources)
}

fn is_at_work(resources: &Resources, going: bool) -> bool {
    let mut servers = resources.servers.values();
    resources.load_balancers.values().any(|tree| load_balancer::is_pending(tree))
        || (going && servers.any(|server| server::is_deleting(server)))
}

/// Once it was ready, what somebody else changed is seen when it is looked at again after a while.
fn freshness(world: &Clusters) -> Duration {
    match world.object().get("/status/ready") == true {
        true => DRIFT,
        false => FRESH,
    }
}

/// Nova does not call back: until it runs, or is gone, it is looked at often.
fn bastion_is_coming(world: &Clusters) -> bool {
    let state = world.object().text("/status/bastion/state");
    if bastion_enabled(world) { state != "ACTIVE" } else { !state.is_empty() }
}

fn names_age(world: &Clusters) -> Duration {
    match world.object().get("/status/ready") == true {
        true => NAMES,
        false => FRESH,
    }
}
