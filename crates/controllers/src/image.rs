//! Image: asks Glance for the image that it names, or for those with its key.

use std::time::Duration;

use hangar_engine::pass::Controller;
use hangar_engine::reads::Read;
use hangar_openstack::{Error, Image, ImageQuery};
use hangar_planner::cloud::{Cloud, CloudIdentity, Lookup, PROJECT_ANNOTATION};
use hangar_planner::image::{Facts, Images, KEY_PROPERTY};
use hangar_planner::{OwnerKey, Reason, World};
use jiff::Timestamp;

use crate::Context;
use crate::clouds::{self, Session, instance};

impl Controller<Context> for Images {
    const READS: &'static [Read] = &[];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Facts, Reason> {
        let object = world.object();
        let identity = CloudIdentity {
            namespace: object.namespace().to_owned(),
            name: object.text("/spec/cloudCredentialsRef/secretName").to_owned(),
            cloud: object.text("/spec/cloudCredentialsRef/cloudName").to_owned(),
            ..CloudIdentity::default()
        };
        let session = clouds::session(context, &identity).await?;
        let facts = read_facts(context, &session, world, identity).await;
        facts.map_err(|error| clouds::refusal(context, &error))
    }
}

async fn read_facts(
    context: &Context,
    session: &Session,
    world: &World<Images>,
    identity: CloudIdentity,
) -> Result<Facts, Error> {
    let project = context.clouds.project(session).await?;
    let cloud = Cloud { identity, project: project.name.clone(), ..Cloud::default() };
    let mut facts = Facts { cloud, ..Facts::default() };
    if let Some(import) = &world.typed().spec.import {
        let filter = import.filter.clone().unwrap_or_default();
        let query = ImageQuery {
            id: import.id.clone(),
            name: filter.name.clone(),
            tags: filter.tags.clone().unwrap_or_default(),
            visibility: filter.visibility.clone(),
            ..ImageQuery::default()
        };
        let wanted = import.id.clone().unwrap_or_else(|| serde_json::json!(filter).to_string());
        let find = session.cloud.images(&query);
        let mut found = project.remembered((world.object().uid(), "import"), &wanted, age(world), find).await?;
        facts.lookup = Lookup::one(wanted, found.iter().map(|image| image.id.clone()).collect());
        facts.found = (found.len() == 1).then(|| found.swap_remove(0));
    }
    // What never tried a create has nothing to be found.
    if world.object().annotation(PROJECT_ANNOTATION).is_some() {
        facts.own = own(session, &project, world).await?;
    }
    Ok(facts)
}

/// Those of the project are looked through.
async fn own(session: &Session, project: &clouds::Project, world: &World<Images>) -> Result<Vec<Image>, Error> {
    let uid = world.object().uid();
    let is_own = |image: &&Image| {
        image.property(KEY_PROPERTY).and_then(OwnerKey::find_in).is_some_and(|key| key.object_uid == uid)
    };
    let mut own: Vec<Image> =
        project.images(&session.cloud, age(world), |all| all.iter().filter(is_own).cloned().collect()).await?;
    own.sort_by(|one, other| (&one.created_at, &one.id).cmp(&(&other.created_at, &other.id)));
    Ok(own)
}

/// One that is available is looked at once a minute.
fn age(world: &World<Images>) -> Duration {
    let conditions = world.object().get("/status/conditions").as_array().into_iter().flatten();
    let mut available = conditions.filter(|it| it["type"] == "Available" && it["status"] == "True");
    match available.next() {
        Some(_) if !world.object().is_deleting() => instance::SERVER_DRIFT,
        _ => instance::FRESH,
    }
}
