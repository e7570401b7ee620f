//! DataStore: reads who uses it, and asks its members how they are.

use hangar_api::kinds;
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, linked_by, read};
use hangar_planner::data_store::{DataStores, StoreFacts};
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::{Context, data_stores};

impl Controller<Context> for DataStores {
    const READS: &'static [Read] = &[read(&[linked_by::<kinds::KamajiControlPlane>()], &["/spec/dataStoreName"])];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<StoreFacts, Reason> {
        let is_used = world.all::<kinds::KamajiControlPlane>().next().is_some();
        if !is_used || world.object().is_deleting() {
            return Ok(StoreFacts::default());
        }
        Ok(StoreFacts { members: data_stores::members(context, &world.object().key()).await })
    }
}
