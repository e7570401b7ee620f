//! DataStore: reads who uses it, and asks its members how they are.

use hangar_api::{Object, kinds};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, linked_by, read};
use hangar_planner::data_store::{DataStores, StoreFacts};
use hangar_planner::hosted::prefix_of;
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::data_store_usage::Tenant;
use crate::{Context, data_stores};

impl Controller<Context> for DataStores {
    const READS: &'static [Read] = &[read(&[linked_by::<kinds::KamajiControlPlane>()], &["/spec/dataStoreName"])];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<StoreFacts, Reason> {
        let is_used = world.all::<kinds::KamajiControlPlane>().next().is_some();
        if !is_used || world.object().is_deleting() {
            return Ok(StoreFacts::default());
        }
        Ok(data_stores::facts(context, world.object(), tenants(world)).await)
    }

    fn forget(context: &Context, object: &Object) {
        context.usage.forget(&object.key());
    }
}

/// Those that have a place in it.
fn tenants(world: &World<DataStores>) -> Vec<Tenant> {
    let planes = world.all::<kinds::KamajiControlPlane>();
    planes.filter_map(|plane| Some((format!("{}/{}", plane.namespace(), plane.name()), prefix_of(plane)?))).collect()
}
