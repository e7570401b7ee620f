//! ClusterResourceSet: reads the Clusters of its namespace and what their bindings say.

use hangar_api::kinds::{Cluster, ClusterResourceSetBinding};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, read, watched_neighbours};
use hangar_planner::cluster_resource_set::ClusterResourceSets;

use crate::Context;

impl Controller<Context> for ClusterResourceSets {
    const READS: &'static [Read] = &[
        read(&[watched_neighbours::<Cluster>()], &["/metadata/labels", "/spec/paused"]),
        read(
            &[watched_neighbours::<ClusterResourceSetBinding>()],
            &["/metadata/ownerReferences", "/metadata/annotations/hangar.dev~1not-applied", "/spec/bindings"],
        ),
    ];
}
