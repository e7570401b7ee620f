//! MachineSet: reads its Machines with what belongs to them, its templates and the control plane's version.

use hangar_api::kinds;
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, owned, owner, read, reference};
use hangar_planner::machine_set::MachineSets;
use hangar_planner::names::Names;
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;

impl Controller<Context> for MachineSets {
    const READS: &'static [Read] = &[
        read(&[cluster()], &[]),
        read(
            &[cluster(), reference("/spec/controlPlaneRef")],
            &["/spec/version", "/status/version", "/status/versions"],
        ),
        read(
            &[owned::<kinds::Machine>()],
            &[
                "/status/conditions[Ready]",
                "/status/conditions[Available]",
                "/status/conditions[OwnerRemediated]",
                "/metadata/annotations",
            ],
        ),
        read(&[owner::<kinds::MachineDeployment>()], &["/spec/remediation", "/status/observedGeneration"]),
        read(&[owned::<kinds::Machine>(), reference("/spec/bootstrap/configRef")], &[]),
        read(&[owned::<kinds::Machine>(), reference("/spec/infrastructureRef")], &[]),
        read(&[reference("/spec/template/spec/bootstrap/configRef")], &[]),
        read(&[reference("/spec/template/spec/infrastructureRef")], &[]),
    ];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Names, Reason> {
        Ok(Names::of(world.object(), context.management().unanswered(world.object().uid())))
    }
}
