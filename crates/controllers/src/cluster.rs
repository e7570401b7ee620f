//! Cluster: reads what it refers to and everything that carries its name.

use std::sync::Arc;

use async_trait::async_trait;
use hangar_api::{Kind as _, Object, ObjectKey, kinds};
use hangar_engine::pass::{Controller, PassError, act_on_management};
use hangar_planner::cluster::{self as planner, World};
use hangar_planner::{Effect, Plan, Progress, Reason, Step};
use jiff::Timestamp;

use crate::{Context, owned, referenced, typed};

pub struct Clusters(pub Arc<Context>);

#[async_trait]
impl Controller for Clusters {
    type World = World;

    async fn observe(&self, key: &ObjectKey, _now: Timestamp) -> Result<Option<World>, PassError> {
        let cache = self.0.cache();
        let Some(object) = cache.get(key) else { return Ok(None) };
        let members = |kind: &str| cache.of_cluster(&key.namespace, &key.name, kind).iter().map(owned).collect();
        // By their own word: those that have not got their label yet count as well.
        let deployments = cache.referring_to(key).iter().map(owned).collect();
        Ok(Some(World {
            cluster: typed(&object)?,
            infrastructure: referenced(cache, &object, "/spec/infrastructureRef").as_ref().map(owned),
            control_plane: referenced(cache, &object, "/spec/controlPlaneRef").as_ref().map(owned),
            deployments,
            sets: members(kinds::MachineSet::KIND),
            machines: members(kinds::Machine::KIND),
            object: owned(&object),
            refusal: None,
        }))
    }

    fn plan(&self, world: &World, now: Timestamp) -> Plan {
        planner::plan(world, now)
    }

    async fn act(&self, _world: &World, step: Step) -> Result<Effect, Reason> {
        act_on_management(self.0.management(), step).await
    }

    fn absorb(&self, world: &mut World, effect: Effect) {
        match effect {
            Effect::Applied(object) => {
                let places = [Some(&mut world.object), world.infrastructure.as_mut(), world.control_plane.as_mut()];
                replace(places.into_iter().flatten(), &object);
                replace(world.deployments.iter_mut(), &object);
            }
            Effect::Deleted(key) => {
                let all = world.deployments.iter_mut().chain(&mut world.sets).chain(&mut world.machines);
                mark_deleting(all.chain(&mut world.control_plane).chain(&mut world.infrastructure), &key);
            }
            _ => {}
        }
    }

    fn refuse(&self, world: &mut World, reason: Reason) {
        world.refusal = Some(reason);
    }

    fn object<'a>(&self, world: &'a World) -> &'a Object {
        &world.object
    }

    fn settle(&self, world: &World, _progress: &Progress) {
        if world.object.is_deleting() && world.object.finalizers().is_empty() {
            self.0.tenants.forget(&(world.object.namespace().to_owned(), world.object.name().to_owned()));
        }
    }
}

/// The newer form of an object takes the place of the older.
pub fn replace<'a>(places: impl Iterator<Item = &'a mut Object>, newer: &Object) {
    for place in places.filter(|place| place.uid() == newer.uid() && place.kind() == newer.kind()) {
        *place = newer.clone();
    }
}

/// A deletion was accepted; the object is still there until its finalizers are gone.
pub fn mark_deleting<'a>(places: impl Iterator<Item = &'a mut Object>, key: &ObjectKey) {
    for place in places.filter(|place| place.key() == *key && !place.is_deleting()) {
        place.0["metadata"]["deletionTimestamp"] = Timestamp::UNIX_EPOCH.to_string().into();
    }
}
