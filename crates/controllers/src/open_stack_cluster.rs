//! OpenStackCluster: reads network, subnets, groups and zones from the cloud.

use std::time::Duration;

use hangar_api::kinds;
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, members, read};
use hangar_openstack::Error;
use hangar_planner::cloud::{Cloud, CloudIdentity, PROJECT_ANNOTATION, Parameter, Resources};
use hangar_planner::open_stack_cluster::{Facts, OpenStackClusters, not_built_yet};
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;
use crate::clouds::{self, Age, ClusterNetwork, Session, instance};

impl Controller<Context> for OpenStackClusters {
    const READS: &'static [Read] =
        &[read(&[cluster()], &["/spec/controlPlaneRef"]), read(&[members::<kinds::OpenStackMachine>()], &[])];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Facts, Reason> {
        let object = world.object();
        // Before it has an owner and where nothing is built there is nothing to ask the cloud for.
        let builds = world.cluster().is_some() && not_built_yet(world).is_done();
        let deletes = object.is_deleting() && world.all::<kinds::OpenStackMachine>().next().is_none();
        if if object.is_deleting() { !deletes } else { !builds } {
            return Ok(Facts::default());
        }
        let identity = CloudIdentity::of(object.namespace(), object.get("/spec/identityRef"));
        let session = clouds::session(context, &identity).await?;
        let facts = read_facts(context, &session, world, identity).await;
        facts.map_err(|error| clouds::refusal(context, &error))
    }
}

async fn read_facts(
    context: &Context,
    session: &Session,
    world: &World<OpenStackClusters>,
    identity: CloudIdentity,
) -> Result<Facts, Error> {
    let object = world.object();
    let project = context.clouds.project(session).await?;
    let mut resources = Resources::default();
    // What never tried a create has nothing to be found.
    if object.annotation(PROJECT_ANNOTATION).is_some() || object.is_deleting() {
        let age = if object.is_deleting() { instance::FRESH } else { freshness(world) };
        resources.security_groups = project.resources(&session.cloud, object.uid(), Age::Paced(age)).await?;
    }
    let cloud = Cloud { identity, project: project.name.clone(), resources };
    if object.is_deleting() {
        return Ok(Facts { cloud, ..Facts::default() });
    }
    let wanted = serde_json::json!([object.get("/spec/network"), object.get("/spec/subnets")]).to_string();
    let found =
        project.cluster_network((object.uid(), &wanted), freshness(world), find_network(session, world)).await?;
    let ClusterNetwork { lookup, network, subnets, zones } = found;
    Ok(Facts { cloud, lookup, network, subnets, zones })
}

async fn find_network(session: &Session, world: &World<OpenStackClusters>) -> Result<ClusterNetwork, Error> {
    let object = world.object();
    let parameter = Parameter::of(object.get("/spec/network"));
    let (lookup, network) = clouds::network(session, &parameter, false).await?;
    let mut subnets = vec![];
    if let Some(network) = &network {
        let wanted: Vec<&str> =
            object.get("/spec/subnets").as_array().into_iter().flatten().filter_map(|it| it["id"].as_str()).collect();
        subnets = clouds::subnets(session, Some(&network.id), &Parameter::None).await?;
        subnets.retain(|subnet| wanted.is_empty() || wanted.contains(&subnet.id.as_str()));
    }
    let zones = session.cloud.availability_zones().await?;
    let zones = zones.into_iter().filter(|zone| zone.state.available).map(|zone| zone.name).collect();
    Ok(ClusterNetwork { lookup, network, subnets, zones })
}

/// Once it was ready, what somebody else changed is seen when it is looked at again after a while.
fn freshness(world: &World<OpenStackClusters>) -> Duration {
    match world.object().get("/status/ready") == true {
        true => instance::DRIFT,
        false => instance::FRESH,
    }
}
