//! OpenStackMachineTemplate: how large the machines are that it makes, for an autoscaler that has none to look at.
//! Flows: a MachineDeployment that an autoscaler scales -> the flavor -> capacity. Holds: templates that no autoscaler asks about cost nothing; nothing is made and nothing held.

use std::collections::BTreeMap;
use std::time::Duration;

use hangar_api::Object;
use hangar_api::kinds::{
    MachineDeployment, OpenStackMachineTemplate, OpenStackMachineTemplateStatus, OpenStackMachineTemplateStatusNodeInfo,
};
use hangar_openstack_types::Flavor;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::machine_deployment::is_autoscaled;
use crate::{Absorb, Effect, Phase, Phases, Planner, Progress, Report, Shared};

pub struct OpenStackMachineTemplates;

type World = crate::World<OpenStackMachineTemplates>;

/// Flavors hardly ever change.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// The flavor, if the cloud has it.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub flavor: Option<Flavor>,
}

impl Absorb for Facts {
    fn absorb(&mut self, _effect: &Effect) {}
}

impl Planner for OpenStackMachineTemplates {
    type Kind = OpenStackMachineTemplate;
    type Facts = Facts;
    const SHARED: Shared = Shared::Never;
    const READY: bool = false;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(asked).facts()
    }

    fn status(world: &World, _progress: &Progress, report: &mut Report<OpenStackMachineTemplate>) {
        let before = world.typed().status.clone().unwrap_or_default();
        let size = world.facts.flavor.as_ref().filter(|_| is_asked_about(world));
        // What was said before the cloud went silent stays.
        report.status = size.map_or(before, |flavor| OpenStackMachineTemplateStatus {
            capacity: Some(capacity(world, flavor)),
            node_info: Some(OpenStackMachineTemplateStatusNodeInfo { operating_system: Some("linux".into()) }),
        });
    }

    fn recheck(world: &World, _now: Timestamp) -> Option<Duration> {
        is_asked_about(world).then_some(LOOK_AGAIN)
    }
}

/// Whether an autoscaler may have to start from nothing with it.
pub fn is_asked_about(world: &World) -> bool {
    world.all::<MachineDeployment>().any(is_autoscaled)
}

fn asked(world: &World) -> Phase {
    match is_asked_about(world) {
        true => Phase::Done,
        false => Phase::wait("NotAutoscaled", "no MachineDeployment that an autoscaler scales uses it"),
    }
}

/// As upstream writes it: processors, memory, and the disk of the flavor or of the root volume.
fn capacity(world: &World, flavor: &Flavor) -> BTreeMap<String, IntOrString> {
    let text = |text: String| IntOrString::String(text);
    let spec = &world.typed().spec.template.spec;
    let disk = spec.root_volume.as_ref().map_or(flavor.disk, |root| u64::try_from(root.size_gib).unwrap_or_default());
    let mut capacity = BTreeMap::from([
        ("cpu".to_owned(), text(flavor.vcpus.to_string())),
        ("memory".to_owned(), text(format!("{}Mi", flavor.ram))),
    ]);
    if disk > 0 {
        capacity.insert("ephemeral-storage".to_owned(), text(format!("{disk}Gi")));
    }
    capacity
}

/// Whose credential is used, if the template names none.
pub fn infrastructure(world: &World) -> Option<&Object> {
    world.cluster_referenced("/spec/infrastructureRef")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{CORE, object, planned, world};

    const INFRA: &str = "infrastructure.cluster.x-k8s.io/v1beta1";

    fn template(spec: Value) -> Value {
        object(INFRA, "OpenStackMachineTemplate", "t", json!({ "spec": { "template": { "spec": spec } } }))
    }

    fn deployment(annotations: Value) -> Value {
        object(CORE, "MachineDeployment", "md", json!({ "metadata": { "annotations": annotations } }))
    }

    fn world_of(spec: Value, annotations: Value) -> World {
        let mut world: World = world(template(spec), vec![deployment(annotations)]);
        world.facts.flavor = Some(Flavor { vcpus: 4, ram: 8192, disk: 80, ..Flavor::default() });
        world
    }

    fn autoscaled() -> Value {
        json!({
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "5",
        })
    }

    #[test]
    fn om11_an_autoscaler_learns_how_large_the_first_machine_will_be() {
        for (what, spec, annotations, expected) in [
            (
                "disk of the flavor",
                json!({ "flavor": "m1.large" }),
                autoscaled(),
                json!({ "cpu": "4", "memory": "8192Mi", "ephemeral-storage": "80Gi" }),
            ),
            (
                "disk of its own",
                json!({ "flavor": "m1.large", "rootVolume": { "sizeGiB": 20 } }),
                autoscaled(),
                json!({ "cpu": "4", "memory": "8192Mi", "ephemeral-storage": "20Gi" }),
            ),
            ("nobody asks", json!({ "flavor": "m1.large" }), json!({}), Value::Null),
        ] {
            let status = planned(&world_of(spec, annotations)).status.unwrap_or_default();
            assert_eq!(status["capacity"], expected, "{what}");
            assert_eq!(status["conditions"], Value::Null, "{what}: the kind has none");
        }
    }

    #[test]
    fn what_was_said_stays_while_the_cloud_is_silent() {
        let mut own = template(json!({ "flavor": "m1.large" }));
        own["status"] = json!({ "capacity": { "cpu": "4" } });
        let mut world: World = world(own, vec![deployment(autoscaled())]);
        world.facts_error = Some(crate::Reason::retry("CloudUnreachable", "connection refused"));
        assert_eq!(planned(&world).status.unwrap()["capacity"]["cpu"], "4");
    }
}
