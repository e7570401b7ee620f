//! DataStore: reads who uses it.

use std::sync::Arc;

use async_trait::async_trait;
use hangar_api::{Object, ObjectKey};
use hangar_engine::pass::{Controller, PassError, act_on_management};
use hangar_planner::data_store::{self as planner, World};
use hangar_planner::{Effect, Plan, Reason, Step};
use jiff::Timestamp;

use crate::{Context, owned, typed};

pub struct DataStores(pub Arc<Context>);

#[async_trait]
impl Controller for DataStores {
    type World = World;

    async fn observe(&self, key: &ObjectKey, _now: Timestamp) -> Result<Option<World>, PassError> {
        let cache = self.0.cache();
        let Some(object) = cache.get(key) else { return Ok(None) };
        let users = cache.referring_to(key);
        let used_by = users.iter().map(|plane| format!("{}/{}", plane.namespace(), plane.name())).collect();
        Ok(Some(World { store: typed(&object)?, used_by, missing_secret: None, object: owned(&object), refusal: None }))
    }

    fn plan(&self, world: &World, now: Timestamp) -> Plan {
        planner::plan(world, now)
    }

    async fn act(&self, _world: &World, step: Step) -> Result<Effect, Reason> {
        act_on_management(self.0.management(), step).await
    }

    fn absorb(&self, world: &mut World, effect: Effect) {
        if let Effect::Applied(object) = effect {
            world.object = object;
        }
    }

    fn refuse(&self, world: &mut World, reason: Reason) {
        world.refusal = Some(reason);
    }

    fn object<'a>(&self, world: &'a World) -> &'a Object {
        &world.object
    }
}
