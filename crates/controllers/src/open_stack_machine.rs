//! OpenStackMachine: reads its server and what hangs on it from the project's lists, and what the names in its spec mean.

use hangar_api::{Object, ObjectKey, kinds};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, named, owner, read, reference};
use hangar_openstack::Error;
use hangar_planner::cloud::{Cloud, CloudIdentity, server};
use hangar_planner::open_stack_machine::{Facts, OpenStackMachines, UserData, ready_to_start, user_data_secret};
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;
use crate::clouds::{self, Session, instance};

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
            &[
                "/spec/identityRef",
                "/spec/subnets",
                "/spec/tags",
                "/status/initialization",
                "/status/network",
                "/status/workerSecurityGroup",
            ],
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
    let resources = instance::resources(session, &project, world.object(), &world.typed().spec).await?;
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
        resolved: instance::resolve(session, &world.typed().spec, None).await?,
        cloud,
    })
}
