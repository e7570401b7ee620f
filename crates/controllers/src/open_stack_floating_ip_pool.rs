//! OpenStackFloatingIPPool: reads who claims its addresses, and which floating IPs the project has.

use std::collections::BTreeSet;
use std::time::Duration;

use hangar_api::kinds;
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, linked_by, owned, read};
use hangar_openstack::{Error, FloatingIp, Network};
use hangar_planner::cloud::{Cloud, CloudIdentity, Lookup, Parameter, Resources};
use hangar_planner::open_stack_floating_ip_pool::{Facts, OpenStackFloatingIPPools};
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;
use crate::clouds::{self, Age, Project, Session, instance};

/// What names mean hardly ever changes.
const NAMES: Duration = Duration::from_secs(590);

impl Controller<Context> for OpenStackFloatingIPPools {
    const READS: &'static [Read] = &[
        read(&[linked_by::<kinds::IPAddressClaim>()], &["/spec/poolRef"]),
        read(&[owned::<kinds::IPAddress>()], &["/spec"]),
    ];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Facts, Reason> {
        let object = world.object();
        let identity = CloudIdentity::of(object.namespace(), object.get("/spec/identityRef"));
        let session = clouds::session(context, &identity).await?;
        let facts = read_facts(context, &session, world, identity).await;
        facts.map_err(|error| clouds::refusal(context, &error))
    }
}

async fn read_facts(
    context: &Context,
    session: &Session,
    world: &World<OpenStackFloatingIPPools>,
    identity: CloudIdentity,
) -> Result<Facts, Error> {
    let object = world.object();
    let project = context.clouds.project(session).await?;
    let age = match object.is_deleting() {
        true => Age::Strict(Duration::ZERO),
        false => Age::Paced(instance::FRESH),
    };
    let floating_ips = project.resources(&session.cloud, object.uid(), age).await?;
    let cloud = Cloud {
        identity,
        project: project.name.clone(),
        resources: Resources { floating_ips, ..Resources::default() },
        ..Cloud::default()
    };
    if object.is_deleting() {
        return Ok(Facts { cloud, ..Facts::default() });
    }
    let (lookup, network) = network(session, &project, world).await?;
    Ok(Facts { cloud, lookup, network, brought: brought(session, &project, world).await? })
}

/// Where its addresses come from, which hardly ever changes; as long as it is not found, it is looked for.
async fn network(
    session: &Session,
    project: &Project,
    world: &World<OpenStackFloatingIPPools>,
) -> Result<(Lookup, Option<Network>), Error> {
    let (spec, uid) = (world.object().get("/spec/floatingIPNetwork"), world.object().uid());
    let parameter = Parameter::of(spec);
    let ask = async |age: Duration| {
        let find = clouds::network(session, &parameter, true);
        project.remembered((uid, "network"), &spec.to_string(), age, find).await
    };
    match ask(NAMES).await? {
        (lookup, None) if lookup.id().is_none() => ask(instance::FRESH).await,
        found => Ok(found),
    }
}

/// Which of the addresses that the user brought the project has.
async fn brought(
    session: &Session,
    project: &Project,
    world: &World<OpenStackFloatingIPPools>,
) -> Result<BTreeSet<String>, Error> {
    let written = world.typed().spec.pre_allocated_floating_ips.as_deref().unwrap_or_default();
    if written.is_empty() {
        return Ok(BTreeSet::new());
    }
    let there = |all: &[FloatingIp]| {
        let addresses = all.iter().map(|ip| ip.floating_ip_address.clone());
        addresses.filter(|address| written.contains(address)).collect()
    };
    project.floating_ips(&session.cloud, instance::FRESH, there).await
}
