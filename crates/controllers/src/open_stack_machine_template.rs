//! OpenStackMachineTemplate: asks for the flavor where an autoscaler wants to know it.

use hangar_api::kinds;
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, linked_by, read, reference};
use hangar_planner::cloud::CloudIdentity;
use hangar_planner::open_stack_machine_template::{Facts, OpenStackMachineTemplates, infrastructure, is_asked_about};
use hangar_planner::{Reason, World};
use jiff::Timestamp;

use crate::Context;
use crate::clouds;

impl Controller<Context> for OpenStackMachineTemplates {
    const READS: &'static [Read] = &[
        read(&[linked_by::<kinds::MachineDeployment>()], &["/metadata/annotations"]),
        read(&[cluster()], &[]),
        read(&[cluster(), reference("/spec/infrastructureRef")], &["/spec/identityRef"]),
    ];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Facts, Reason> {
        let object = world.object();
        let own = object.get("/spec/template/spec/identityRef");
        let of_cluster = infrastructure(world).map(|cluster| cluster.get("/spec/identityRef"));
        let reference = if own.is_object() { Some(own) } else { of_cluster };
        let Some(reference) = reference.filter(|_| is_asked_about(world) && !object.is_deleting()) else {
            return Ok(Facts::default());
        };
        let session = clouds::session(context, &CloudIdentity::of(object.namespace(), reference)).await?;
        let flavors = session.flavors().await.map_err(|error| clouds::refusal(context, &error))?;
        let spec = &world.typed().spec.template.spec;
        let is_it = |flavor: &&hangar_openstack::Flavor| match &spec.flavor_id {
            Some(id) => flavor.id == *id,
            None => Some(&flavor.name) == spec.flavor.as_ref(),
        };
        Ok(Facts { flavor: flavors.iter().find(is_it).cloned() })
    }
}
