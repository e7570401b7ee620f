//! DataStore: reads who uses it.

use hangar_api::kinds;
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, linked_by, read};
use hangar_planner::data_store::DataStores;

use crate::Context;

impl Controller<Context> for DataStores {
    const READS: &'static [Read] = &[read(&[linked_by::<kinds::KamajiControlPlane>()], &["/spec/dataStoreName"])];
}
