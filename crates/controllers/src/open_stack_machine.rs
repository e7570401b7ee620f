//! OpenStackMachine: reads its server and its ports from the project's lists, and what the names in its spec mean.

use std::time::Duration;

use hangar_api::kinds::OpenStackMachineSpec;
use hangar_api::{Object, ObjectKey, kinds};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, named, owner, read, reference};
use hangar_openstack::{Error, ImageQuery};
use hangar_planner::cloud::{
    Cloud, CloudIdentity, Lookup, PROJECT_ANNOTATION, Parameter, Resources, has_twins, server,
};
use hangar_planner::open_stack_machine::{Facts, OpenStackMachines, UserData, ready_to_start, user_data_secret};
use hangar_planner::{Reason, World};
use jiff::Timestamp;
use serde_json::Value;

use crate::Context;
use crate::clouds::{self, Age, Project, Session};

/// Before something is made or let go, and while Nova works, a list may be this old.
pub const FRESH: Duration = Duration::from_millis(700);
/// What somebody else did to a resource that was ready is seen after this time.
pub const DRIFT: Duration = Duration::from_secs(590);

fn user_data(machine: &Object) -> Option<ObjectKey> {
    let name = machine.text("/spec/bootstrap/dataSecretName");
    (!name.is_empty()).then(|| ObjectKey::new("", "Secret", machine.namespace(), name))
}

impl Controller<Context> for OpenStackMachines {
    const READS: &'static [Read] = &[
        read(&[owner::<kinds::Machine>()], &["/spec/bootstrap", "/spec/failureDomain"]),
        read(&[owner::<kinds::Machine>(), named("", "Secret", user_data)], &["/data"]),
        read(&[cluster()], &[]),
        read(
            &[cluster(), reference("/spec/infrastructureRef")],
            &["/spec/identityRef", "/status/initialization", "/status/network", "/status/workerSecurityGroup"],
        ),
    ];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Facts, Reason> {
        if !world.object().is_deleting() && !ready_to_start(world).is_done() {
            return Ok(Facts::default());
        }
        let identity = identity(world);
        let session = clouds::session(context, &identity).await?;
        let facts = read_facts(context, &session, world, identity).await;
        facts.map_err(|error| clouds::refusal(context, &error))
    }
}

/// Its own, or that of the cluster.
fn identity(world: &World<OpenStackMachines>) -> CloudIdentity {
    let own = world.object().get("/spec/identityRef");
    let of_cluster =
        world.cluster_referenced("/spec/infrastructureRef").map(|cluster| cluster.get("/spec/identityRef"));
    let reference = if own.is_object() { own } else { of_cluster.unwrap_or(own) };
    CloudIdentity::of(world.object().namespace(), reference)
}

async fn read_facts(
    context: &Context,
    session: &Session,
    world: &World<OpenStackMachines>,
    identity: CloudIdentity,
) -> Result<Facts, Error> {
    let project = context.clouds.project(session).await?;
    let resources = resources(session, &project, world).await?;
    let cloud = Cloud { identity, project: project.name.clone(), resources };
    if world.object().is_deleting() {
        return Ok(Facts { cloud, ..Facts::default() });
    }
    // Once there is a server, its names have served their purpose.
    if server::of(&cloud).is_some() {
        return Ok(Facts { cloud, ..Facts::default() });
    }
    Ok(Facts {
        user_data: user_data_secret(world).and_then(|secret| secret.secret_text("value")).map(UserData),
        flavor: flavor(session, &world.typed().spec).await?,
        image: image(session, &world.typed().spec).await?,
        port_networks: port_networks(session, world.object().get("/spec")).await?,
        cloud,
    })
}

/// What carries this machine's key. One that never tried a create has nothing to be found.
async fn resources(session: &Session, project: &Project, world: &World<OpenStackMachines>) -> Result<Resources, Error> {
    let object = world.object();
    if object.annotation(PROJECT_ANNOTATION).is_none() && !object.is_deleting() {
        return Ok(Resources::default());
    }
    let is_settled = object.get("/status/ready") == true && !object.is_deleting();
    let age = if is_settled { DRIFT } else { FRESH };
    let mut servers = project.servers(&session.cloud, object.uid(), Age::Paced(age)).await?;
    let fresh = match object.is_deleting() {
        true => Age::Strict(FRESH.min(project.deleting_for(object.uid()))),
        false => Age::Paced(FRESH),
    };
    if object.is_deleting() && servers.is_empty() {
        servers = project.servers(&session.cloud, object.uid(), fresh).await?;
    }
    // A server that was just built has the ports that were just made for it.
    let new = project.new_ports(object.uid(), DRIFT).await;
    let recorded = object.get("/status/resources/ports").as_array().into_iter().flatten();
    let all_new = recorded.filter_map(|port| port["id"].as_str()).all(|id| new.contains_key(id));
    if all_new && !object.is_deleting() && !servers.is_empty() && !new.is_empty() && !has_twins(&new) {
        return Ok(Resources { servers, ports: new, ..Resources::default() });
    }
    // While there is a server, its ports are neither made nor let go.
    let age = if servers.is_empty() { fresh } else { Age::Paced(DRIFT) };
    let mut ports = project.ports(&session.cloud, object.uid(), age).await?;
    // But for those that another process has made: which one the server has is only said by a list that began when it ran already.
    if has_twins(&ports) && servers.values().any(|server| server::is_active(server)) {
        ports = project.ports(&session.cloud, object.uid(), Age::Strict(Duration::ZERO)).await?;
    }
    Ok(Resources { servers, ports, ..Resources::default() })
}

/// A flavor by id, or by its exact name.
pub async fn flavor(session: &Session, spec: &OpenStackMachineSpec) -> Result<Lookup, Error> {
    if let Some(id) = &spec.flavor_id {
        return Ok(Lookup::Found(id.clone()));
    }
    let wanted = spec.flavor.clone().unwrap_or_default();
    let flavors = session.flavors().await?;
    Ok(match flavors.iter().find(|flavor| flavor.name == wanted) {
        Some(flavor) => Lookup::Found(flavor.id.clone()),
        None => Lookup::Missing { wanted, known: flavors.iter().map(|flavor| flavor.name.clone()).collect() },
    })
}

pub async fn image(session: &Session, spec: &OpenStackMachineSpec) -> Result<Lookup, Error> {
    let image = &spec.image;
    if let Some(id) = &image.id {
        return Ok(Lookup::Found(id.clone()));
    }
    let Some(filter) = &image.filter else { return Ok(Lookup::NotAsked) };
    let tags = filter.tags.clone().unwrap_or_default();
    let query = ImageQuery { name: filter.name.clone(), tags: tags.clone(), ..ImageQuery::default() };
    let found = session.cloud.images(&query).await?;
    let wanted = filter.name.clone().unwrap_or_else(|| format!("with tags {}", tags.join(", ")));
    Ok(Lookup::one(wanted, found.into_iter().map(|image| image.id).collect()))
}

/// The networks of a machine's ports, from its spec.
pub async fn port_networks(session: &Session, spec: &Value) -> Result<Vec<Lookup>, Error> {
    let mut networks = vec![];
    for port in spec["ports"].as_array().into_iter().flatten() {
        networks.push(match Parameter::of(&port["network"]) {
            Parameter::Id(id) => Lookup::Found(id),
            // On the cluster's network.
            Parameter::None => Lookup::NotAsked,
            parameter => clouds::network(session, &parameter, false).await?.0,
        });
    }
    Ok(networks)
}
