//! OpenStackCluster: reads network, subnets, groups and zones from the cloud.

use std::time::Duration;

use hangar_api::kinds;
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, members, read};
use hangar_openstack::{Error, NetworkQuery, SubnetQuery, TagFilter};
use hangar_planner::cloud::{Cloud, CloudIdentity, Lookup, PROJECT_ANNOTATION, Resources};
use hangar_planner::open_stack_cluster::{Facts, OpenStackClusters, not_built_yet};
use hangar_planner::{Reason, World};
use jiff::Timestamp;
use serde_json::Value;

use crate::clouds::{self, Age, ClusterNetwork, Session};
use crate::{Context, open_stack_machine};

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
        let age = if object.is_deleting() { open_stack_machine::FRESH } else { freshness(world) };
        resources.security_groups = project.security_groups(&session.cloud, object.uid(), Age::Paced(age)).await?;
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
    let parameter = object.get("/spec/network");
    let mut networks = session.cloud.networks(&network_query(parameter)).await?;
    let lookup = Lookup::one(described(parameter), networks.iter().map(|network| network.id.clone()).collect());
    let network = (networks.len() == 1).then(|| networks.swap_remove(0));
    let mut subnets = vec![];
    if let Some(network) = &network {
        let query = SubnetQuery { network_id: Some(network.id.clone()), ..SubnetQuery::default() };
        let wanted: Vec<&str> =
            object.get("/spec/subnets").as_array().into_iter().flatten().filter_map(|it| it["id"].as_str()).collect();
        subnets = session.cloud.subnets(&query).await?;
        subnets.retain(|subnet| wanted.is_empty() || wanted.contains(&subnet.id.as_str()));
    }
    let zones = session.cloud.availability_zones().await?;
    let zones = zones.into_iter().filter(|zone| zone.state.available).map(|zone| zone.name).collect();
    Ok(ClusterNetwork { lookup, network, subnets, zones })
}

/// Once it was ready, what somebody else changed is seen when it is looked at again after a while.
fn freshness(world: &World<OpenStackClusters>) -> Duration {
    match world.object().get("/status/ready") == true {
        true => open_stack_machine::DRIFT,
        false => open_stack_machine::FRESH,
    }
}

/// A network by id or by every field of a filter.
pub fn network_query(parameter: &Value) -> NetworkQuery {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let filter = &parameter["filter"];
    let tags = |field: &str| -> Vec<String> {
        filter[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    NetworkQuery {
        id: text(&parameter["id"]),
        name: text(&filter["name"]),
        description: text(&filter["description"]),
        project_id: text(&filter["projectID"]),
        tags: TagFilter {
            all: tags("tags"),
            any: tags("tagsAny"),
            not_all: tags("notTags"),
            not_any: tags("notTagsAny"),
        },
        ..NetworkQuery::default()
    }
}

/// A network as the spec names it, for people.
pub fn described(parameter: &Value) -> String {
    parameter["id"].as_str().map_or_else(|| parameter["filter"].to_string(), str::to_owned)
}
