//! MachineDeployment: reads its Cluster, the sets that it controls and its templates.

use hangar_api::kinds;
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, owned, read, reference};
use hangar_planner::machine_deployment::{Facts, MachineDeployments};
use hangar_planner::names::Names;
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;

impl Controller<Context> for MachineDeployments {
    const READS: &'static [Read] = &[
        read(&[cluster()], &[]),
        read(
            &[owned::<kinds::MachineSet>()],
            &[
                "/spec",
                "/status/observedGeneration",
                "/status/replicas",
                "/status/readyReplicas",
                "/status/availableReplicas",
                "/status/conditions[Remediating]",
            ],
        ),
        read(&[reference("/spec/template/spec/bootstrap/configRef")], &["/metadata/ownerReferences"]),
        read(&[reference("/spec/template/spec/infrastructureRef")], &["/metadata/ownerReferences"]),
    ];

    async fn facts(context: &Context, world: &World<Self>, now: Timestamp) -> Result<Facts, Reason> {
        let unanswered = context.management().unanswered(world.object().uid());
        Ok(Facts { names: Names::of(world.object(), unanswered), now })
    }
}
