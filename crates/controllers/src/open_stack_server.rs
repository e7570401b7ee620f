//! OpenStackServer: reads its server and what hangs on it from the project's lists, and what the names in its spec mean.

use hangar_api::{Kind, Object, ObjectKey, kinds};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, named, read};
use hangar_openstack::Error;
use hangar_planner::cloud::quota::Quota;
use hangar_planner::cloud::{Cloud, CloudIdentity, server};
use hangar_planner::open_stack_machine::UserData;
use hangar_planner::open_stack_server::{Facts, OpenStackServers, needs, shared_spec, user_data};
use hangar_planner::{Reason, World, image};
use jiff::Timestamp;

use crate::Context;
use crate::clouds::{self, Session, instance};

/// The Image that it names instead of one in Glance.
fn image_ref(server: &Object) -> Option<ObjectKey> {
    let name = server.text("/spec/image/imageRef/name");
    (!name.is_empty()).then(|| ObjectKey::of::<kinds::Image>(server.namespace(), name))
}

impl Controller<Context> for OpenStackServers {
    const READS: &'static [Read] =
        &[read(&[cluster()], &[]), read(&[named(kinds::Image::GROUP, kinds::Image::KIND, image_ref)], &["/status"])];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Facts, Reason> {
        let object = world.object();
        let identity = CloudIdentity::of(object.namespace(), object.get("/spec/identityRef"));
        let session = clouds::session(context, &identity).await?;
        let facts = read_facts(context, &session, world, identity).await;
        let mut facts = facts.map_err(|error| clouds::refusal(context, &error))?;
        if server::of(&facts.cloud).is_none() && !object.is_deleting() {
            facts.user_data = self::user_data_of(context, object).await?;
        }
        Ok(facts)
    }

    async fn further(context: &Context, world: &mut World<Self>, _now: Timestamp) -> Result<(), Reason> {
        let object = world.object();
        // A server that runs needs nothing, and has said so before.
        if object.get("/status/ready") != true {
            let identity = CloudIdentity::of(object.namespace(), object.get("/spec/identityRef"));
            let needs = needs(world);
            world.facts.quota = clouds::quota(context, &identity, world.object().uid(), &needs).await?;
        }
        Ok(())
    }
}

async fn read_facts(
    context: &Context,
    session: &Session,
    world: &World<OpenStackServers>,
    identity: CloudIdentity,
) -> Result<Facts, Error> {
    let spec = shared_spec(world.object());
    let project = context.clouds.project(session).await?;
    let resources = instance::resources(session, &project, world.object(), &spec).await?;
    let cloud = Cloud { identity, project: project.name.clone(), resources, ..Cloud::default() };
    // Once there is a server, its names have served their purpose.
    if world.object().is_deleting() || server::of(&cloud).is_some() {
        return Ok(Facts { cloud, spec, ..Facts::default() });
    }
    let image = image_ref(world.object()).map(|key| image::lookup(&key.name, world.objects.get(&key)));
    let resolved = instance::resolve(session, &spec, image).await?;
    Ok(Facts { cloud, spec, resolved, user_data: None, quota: Quota::default() })
}

/// Anybody may have made the Secret: it is not watched.
async fn user_data_of(context: &Context, server: &Object) -> Result<Option<UserData>, Reason> {
    let Some(key) = user_data(server) else { return Ok(None) };
    let found = context.unwatched.get(context.management(), &key, crate::unwatched::AGE).await;
    let secret = found.map_err(|error| Reason::retry("APIServerUnreachable", error.to_string()))?;
    Ok(secret.and_then(|secret| secret.secret_text("value")).map(UserData))
}
