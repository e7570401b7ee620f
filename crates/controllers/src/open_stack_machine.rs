//! OpenStackMachine: reads its server and what hangs on it from the project's lists, and what the names in its spec mean.

use hangar_api::{Kind, Object, ObjectKey, kinds};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Hop, Read, cluster, named, owner, read, reference};
use hangar_openstack::{Error, FloatingIp};
use hangar_planner::cloud::quota::Quota;
use hangar_planner::cloud::{Cloud, CloudIdentity, Lookup, server};
use hangar_planner::open_stack_machine::{
    Facts, OpenStackMachines, UserData, floating_ip, needs, ready_to_start, user_data_secret,
};
use hangar_planner::{Reason, World, image};
use jiff::Timestamp;

use crate::Context;
use crate::clouds::{self, Project, Session, instance};

fn user_data(machine: &Object) -> Option<ObjectKey> {
    let name = machine.text("/spec/bootstrap/dataSecretName");
    (!name.is_empty()).then(|| ObjectKey::new("", "Secret", machine.namespace(), name))
}

/// The Image that a machine names instead of one in Glance.
fn image_ref(machine: &Object) -> Option<ObjectKey> {
    let name = machine.text("/spec/image/imageRef/name");
    (!name.is_empty()).then(|| ObjectKey::of::<kinds::Image>(machine.namespace(), name))
}

const CLAIM: Hop = named(kinds::IPAddressClaim::GROUP, kinds::IPAddressClaim::KIND, floating_ip::claim);

impl Controller<Context> for OpenStackMachines {
    const READS: &'static [Read] = &[
        read(&[owner::<kinds::Machine>()], &["/spec/bootstrap", "/spec/failureDomain"]),
        read(&[owner::<kinds::Machine>(), named("", "Secret", user_data)], &["/data"]),
        read(&[cluster()], &[]),
        read(&[named(kinds::Image::GROUP, kinds::Image::KIND, image_ref)], &["/status"]),
        read(&[CLAIM], &["/status/addressRef"]),
        read(
            &[CLAIM, named(kinds::IPAddress::GROUP, kinds::IPAddress::KIND, floating_ip::address_of)],
            &["/spec/address"],
        ),
        read(
            &[cluster(), reference("/spec/infrastructureRef")],
            &[
                "/spec/identityRef",
                "/spec/subnets",
                "/spec/tags",
                "/status/initialization",
                "/status/network",
                "/status/workerSecurityGroup",
                "/status/controlPlaneSecurityGroup",
            ],
        ),
    ];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Facts, Reason> {
        if !world.object().is_deleting() && !ready_to_start(world).is_done() {
            return Ok(Facts::default());
        }
        let identity = identity(world);
        let session = clouds::session(context, &identity).await?;
        let image = image_ref(world.object()).map(|key| image::lookup(&key.name, world.objects.get(&key)));
        let facts = read_facts(context, &session, world, identity, image).await;
        facts.map_err(|error| clouds::refusal(context, &error))
    }

    async fn further(context: &Context, world: &mut World<Self>, _now: Timestamp) -> Result<(), Reason> {
        // A machine that runs needs nothing, and has said so before.
        if world.object().get("/status/ready") != true && !world.facts.cloud.project.is_empty() {
            let (identity, needs) = (identity(world), needs(world));
            world.facts.quota = clouds::quota(context, &identity, world.object().uid(), &needs).await?;
        }
        Ok(())
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
    image: Option<Result<Lookup, Reason>>,
) -> Result<Facts, Error> {
    let project = context.clouds.project(session).await?;
    let resources = instance::resources(session, &project, world.object(), &world.typed().spec).await?;
    let cloud = Cloud { identity, project: project.name.clone(), resources, ..Cloud::default() };
    if world.object().is_deleting() {
        return Ok(Facts { cloud, ..Facts::default() });
    }
    // Once there is a server, its names have served their purpose.
    if server::of(&cloud).is_some() {
        let floating_ip = floating_ip_of(session, &project, world).await?;
        return Ok(Facts { cloud, floating_ip, ..Facts::default() });
    }
    Ok(Facts {
        floating_ip: None,
        quota: Quota::default(),
        user_data: user_data_secret(world).and_then(|secret| secret.secret_text("value")).map(UserData),
        resolved: instance::resolve(session, &world.typed().spec, image).await?,
        cloud,
    })
}

/// The pool may be another provider's: it is found by its address alone.
async fn floating_ip_of(
    session: &Session,
    project: &Project,
    world: &World<OpenStackMachines>,
) -> Result<Option<FloatingIp>, Error> {
    let Some(address) = floating_ip::address(world) else { return Ok(None) };
    let is_ready = world.object().get("/status/ready") == true;
    let age = if is_ready { instance::SERVER_DRIFT } else { instance::FRESH };
    let find = |all: &[FloatingIp]| all.iter().find(|ip| ip.floating_ip_address == address).cloned();
    project.floating_ips(&session.cloud, age, find).await
}
