//! What a server with its ports, trunks and volumes is in its cloud, and what the names in its spec mean there.
//!
//! Flows: owner -> the project's lists, no more of them than its state needs -> [`Resources`]; spec -> one list for each sort that it names -> [`Resolved`].
//! Holds: before something is made or let go, lists are read anew; an owner that never tried a create has nothing to be found.

use std::time::Duration;

use hangar_api::Object;
use hangar_api::kinds::{OpenStackClusterSpecRouter, OpenStackMachineSpec};
use hangar_openstack::{Error, Flavor, ImageQuery};
use hangar_planner::Reason;
use hangar_planner::cloud::instance::{Resolved, ResolvedPort, Size};
use hangar_planner::cloud::{Lookup, PROJECT_ANNOTATION, Parameter, Resources, has_twins, server};
use serde_json::json;

use super::{Age, Project, Session, lookup};

/// Before something is made or let go, and while Nova works, a list may be this old.
pub const FRESH: Duration = Duration::from_millis(700);
/// A server that was lost, stopped or changed by somebody else is seen after this time.
pub const SERVER_DRIFT: Duration = Duration::from_secs(55);
/// The same for what hangs on a server that is ready.
pub const DRIFT: Duration = Duration::from_secs(590);

/// What carries an owner's key.
pub async fn resources(
    session: &Session,
    project: &Project,
    object: &Object,
    spec: &OpenStackMachineSpec,
) -> Result<Resources, Error> {
    if object.annotation(PROJECT_ANNOTATION).is_none() && !object.is_deleting() {
        return Ok(Resources::default());
    }
    let is_settled = object.get("/status/ready") == true && !object.is_deleting();
    let age = if is_settled { SERVER_DRIFT } else { FRESH };
    let mut servers = project.servers(&session.cloud, object.uid(), Age::Paced(age)).await?;
    let fresh = match object.is_deleting() {
        true => Age::Strict(FRESH.min(project.deleting_for(object.uid()))),
        false => Age::Paced(FRESH),
    };
    if object.is_deleting() && servers.is_empty() {
        servers = project.servers(&session.cloud, object.uid(), fresh).await?;
    }
    let mut found = Resources { servers, ..Resources::default() };
    // While there is a server, what hangs on it is neither made nor let go; but it may turn out to be gone when it is told to go.
    let has_server = !found.servers.is_empty();
    let age = if has_server { Age::Paced(DRIFT) } else { fresh };
    if wants_trunks(spec) {
        found.trunks = project.resources(&session.cloud, object.uid(), age).await?;
    }
    if wants_volumes(spec) && (!has_server || object.is_deleting()) {
        found.volumes = project.resources(&session.cloud, object.uid(), age).await?;
    }
    // A server that was just built has the ports that were just made for it.
    let new = project.new_ports(object.uid(), DRIFT).await;
    let recorded = object.get("/status/resources/ports").as_array().into_iter().flatten();
    let all_new = recorded.filter_map(|port| port["id"].as_str()).all(|id| new.contains_key(id));
    if all_new && !object.is_deleting() && has_server && !new.is_empty() && !has_twins(&new) {
        return Ok(Resources { ports: new, ..found });
    }
    found.ports = project.ports(&session.cloud, object.uid(), age).await?;
    // But for those that another process has made: which one the server has is only said by a list that began when it ran already.
    if has_twins(&found.ports) && found.servers.values().any(|server| server::is_active(server)) {
        found.ports = project.ports(&session.cloud, object.uid(), Age::Strict(Duration::ZERO)).await?;
    }
    Ok(found)
}

pub fn wants_trunks(spec: &OpenStackMachineSpec) -> bool {
    spec.trunk == Some(true) || spec.ports.iter().flatten().any(|port| port.trunk == Some(true))
}

pub fn wants_volumes(spec: &OpenStackMachineSpec) -> bool {
    let mut devices = spec.additional_block_devices.iter().flatten();
    spec.root_volume.is_some() || devices.any(|device| device.storage.r#type == "Volume")
}

/// `image` is what the Image object that the spec names says of itself, if it names one.
pub async fn resolve(
    session: &Session,
    spec: &OpenStackMachineSpec,
    image: Option<Result<Lookup, Reason>>,
) -> Result<Resolved, Error> {
    let mut ports = vec![];
    for port in spec.ports.iter().flatten() {
        let network = network(session, &Parameter::of(&json!(port.network))).await?;
        let mut subnets = vec![];
        for ip in port.fixed_ips.iter().flatten() {
            subnets.push(subnet(session, network.id(), &Parameter::of(&json!(ip.subnet))).await?);
        }
        let security_groups = security_groups(session, port.security_groups.as_deref()).await?;
        ports.push(ResolvedPort { network, subnets, security_groups });
    }
    let flavors = session.flavors().await?;
    Ok(Resolved {
        flavor: flavor(&flavors, spec),
        size: size(&flavors, spec),
        image: match &image {
            Some(image) => image.clone().unwrap_or_default(),
            None => self::image(session, spec).await?,
        },
        image_waits: image.and_then(Result::err),
        server_group: server_group(session, &Parameter::of(&json!(spec.server_group))).await?,
        security_groups: security_groups(session, spec.security_groups.as_deref()).await?,
        ports,
    })
}

/// A flavor by id, or by its exact name.
fn flavor(flavors: &[Flavor], spec: &OpenStackMachineSpec) -> Lookup {
    if let Some(id) = &spec.flavor_id {
        return Lookup::Found(id.clone());
    }
    let wanted = spec.flavor.clone().unwrap_or_default();
    match flavors.iter().find(|flavor| flavor.name == wanted) {
        Some(flavor) => Lookup::Found(flavor.id.clone()),
        None => Lookup::Missing { wanted, known: flavors.iter().map(|flavor| flavor.name.clone()).collect() },
    }
}

/// What it takes of the quota.
fn size(flavors: &[Flavor], spec: &OpenStackMachineSpec) -> Option<Size> {
    let id = flavor(flavors, spec);
    let flavor = flavors.iter().find(|flavor| Some(flavor.id.as_str()) == id.id())?;
    Some(Size { cores: flavor.vcpus.into(), memory_mib: flavor.ram })
}

async fn image(session: &Session, spec: &OpenStackMachineSpec) -> Result<Lookup, Error> {
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

/// An id is taken as it is: one call less.
fn known(parameter: &Parameter) -> Option<Lookup> {
    match parameter {
        Parameter::None => Some(Lookup::NotAsked),
        Parameter::Id(id) => Some(Lookup::Found(id.clone())),
        Parameter::Filter(_) => None,
    }
}

async fn network(session: &Session, parameter: &Parameter) -> Result<Lookup, Error> {
    match known(parameter) {
        Some(known) => Ok(known),
        None => Ok(lookup::network(session, parameter, false).await?.0),
    }
}

async fn subnet(session: &Session, network: Option<&str>, parameter: &Parameter) -> Result<Lookup, Error> {
    match known(parameter) {
        Some(known) => Ok(known),
        None => Ok(parameter.choose(lookup::subnets(session, network, parameter).await?).0),
    }
}

async fn server_group(session: &Session, parameter: &Parameter) -> Result<Lookup, Error> {
    match known(parameter) {
        Some(known) => Ok(known),
        None => Ok(lookup::server_group(session, parameter).await?.0),
    }
}

async fn security_groups(
    session: &Session,
    groups: Option<&[OpenStackClusterSpecRouter]>,
) -> Result<Vec<Lookup>, Error> {
    let mut found = vec![];
    for group in groups.unwrap_or_default() {
        let parameter = Parameter::of(&json!(group));
        found.push(match known(&parameter) {
            Some(known) => known,
            None => lookup::security_group(session, &parameter).await?.0,
        });
    }
    Ok(found)
}
