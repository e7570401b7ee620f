//! MachineHealthCheck: reads the Machines of its cluster.

use hangar_api::kinds;
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, members, read};
use hangar_planner::machine_health_check::{Facts, MachineHealthChecks};
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;

impl Controller<Context> for MachineHealthChecks {
    const READS: &'static [Read] = &[
        read(&[cluster()], &[]),
        read(
            &[members::<kinds::Machine>()],
            &[
                "/metadata/labels",
                "/metadata/annotations",
                "/status/nodeRef",
                "/status/conditions[NodeReady]",
                "/status/conditions[Ready]",
            ],
        ),
    ];

    async fn facts(_context: &Context, _world: &World<Self>, now: Timestamp) -> Result<Facts, Reason> {
        Ok(Facts { now })
    }
}
