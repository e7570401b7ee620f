//! MachineSet: so many Machines, each with its bootstrap config and its infrastructure machine.
//! Flows: preflight -> machines -> what each machine needs -> surplus goes. Holds: the Machine comes first and owns the other two, so
//! nothing can be orphaned; names are derived from the set's UID, so a repeated create meets itself.

use hangar_api::conditions::{Condition, Status, aggregate, find, settle};
use hangar_api::kinds::{Machine, MachineSet};
use hangar_api::names::{
    CLONED_FROM_GROUP_KIND, CLONED_FROM_NAME, CLUSTER_NAME_LABEL, DELETE_MACHINE_ANNOTATION, MACHINE_FINALIZER,
    MACHINE_SET_FINALIZER, OPENSTACK_MACHINE_FINALIZER, SET_NAME_LABEL,
};
use hangar_api::{Kind, KubeVersion, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::intent::{self, name_suffix};
use crate::machine_deployment::selector_text;
use crate::{Phase, Phases, Plan, Progress, Reason, Step};

#[derive(Debug, Clone)]
pub struct World {
    pub object: Object,
    pub set: MachineSet,
    pub cluster: Option<Object>,
    /// What the Cluster's controlPlaneRef points at.
    pub control_plane: Option<Object>,
    pub bootstrap_template: Option<Object>,
    pub infrastructure_template: Option<Object>,
    /// Machines that this set controls.
    pub machines: Vec<Member>,
    pub refusal: Option<Reason>,
}

/// A Machine and what belongs to it, by name.
#[derive(Debug, Clone)]
pub struct Member {
    pub object: Object,
    pub machine: Machine,
    pub bootstrap: Option<Object>,
    pub infrastructure: Option<Object>,
}

impl Member {
    fn conditions(&self) -> &[Condition] {
        self.machine.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
    }

    fn is(&self, condition: &str) -> bool {
        find(self.conditions(), condition).is_some_and(Condition::is_true)
    }
}

pub fn plan(world: &World, now: Timestamp) -> Plan {
    if world.object.is_deleting() {
        return Phases::of(world, now)
            .unless_refused(world.refusal.as_ref())
            .then(delete_all)
            .then(release)
            .report(status);
    }
    Phases::of(world, now)
        .unless_refused(world.refusal.as_ref())
        .then(owner)
        .then(complete)
        .then(surplus)
        .then(templates)
        .then(preflight)
        .then(missing)
        .report(status)
}

fn delete_all(world: &World, _now: Timestamp) -> Phase {
    let steps: Vec<Step> = world.machines.iter().filter_map(|member| intent::delete(&member.object)).collect();
    if steps.is_empty() && !world.machines.is_empty() {
        return Phase::wait("WaitingForMachines", format!("{} Machines are still going", world.machines.len()));
    }
    Phase::steps(steps)
}

fn release(world: &World, _now: Timestamp) -> Phase {
    Phase::steps(intent::release(&world.object, MACHINE_SET_FINALIZER))
}

fn owner(world: &World, _now: Timestamp) -> Phase {
    if world.cluster.is_none() {
        return Phase::wait("WaitingForCluster", format!("there is no Cluster {} yet", world.set.spec.cluster_name));
    }
    let labels = [(CLUSTER_NAME_LABEL, world.set.spec.cluster_name.as_str())];
    Phase::steps(intent::adopt(&world.object, Some(MACHINE_SET_FINALIZER), None, &labels))
}

/// Every living Machine has its bootstrap config and its infrastructure machine.
fn complete(world: &World, _now: Timestamp) -> Phase {
    let living = world.machines.iter().filter(|member| !member.object.is_deleting());
    let mut steps = vec![];
    for member in living {
        let owner = member.object.as_owner(true);
        if member.bootstrap.is_none()
            && let Some(template) = &world.bootstrap_template
        {
            steps.extend(intent::apply(None, intent::owned(clone_of(world, template, &member.object, &[]), &owner)));
        }
        if member.infrastructure.is_none()
            && let Some(template) = &world.infrastructure_template
        {
            let finalizers = [OPENSTACK_MACHINE_FINALIZER];
            steps.extend(intent::apply(
                None,
                intent::owned(clone_of(world, template, &member.object, &finalizers), &owner),
            ));
        }
    }
    Phase::steps(steps)
}

fn templates(world: &World, _now: Timestamp) -> Phase {
    let spec = &world.set.spec.template.spec;
    if missing_count(world) == 0 {
        return Phase::Done;
    }
    if let (Some(reference), None) = (&spec.bootstrap.config_ref, &world.bootstrap_template) {
        let text = format!("there is no {} {} yet", reference.kind, reference.name);
        return Phase::wait("WaitingForBootstrapTemplate", text);
    }
    if world.infrastructure_template.is_none() {
        let reference = &spec.infrastructure_ref;
        let text = format!("there is no {} {} yet", reference.kind, reference.name);
        return Phase::wait("WaitingForInfrastructureTemplate", text);
    }
    Phase::Done
}

/// New workers are not made while the control plane is being made or upgraded to a version below theirs.
fn preflight(world: &World, _now: Timestamp) -> Phase {
    let Some(control_plane) = &world.control_plane else { return Phase::Done };
    let wanted = KubeVersion::parse(world.set.spec.template.spec.version.as_deref().unwrap_or_default());
    let declared = KubeVersion::parse(control_plane.text("/spec/version"));
    match (missing_count(world) > 0, wanted, declared) {
        (true, Some(worker), Some(plane)) if worker.minor > plane.minor => Phase::blocked(
            "PreflightCheckFailed",
            format!("workers ask for {worker}, the control plane for {plane}; upgrade {} first", control_plane.key()),
        ),
        _ => Phase::Done,
    }
}

fn missing(world: &World, _now: Timestamp) -> Phase {
    let mut taken: Vec<String> = world.machines.iter().map(|member| member.object.name().to_owned()).collect();
    let mut steps = vec![];
    let mut index = 0;
    while steps.len() < missing_count(world) {
        let name = format!("{}-{}", world.object.name(), name_suffix(&format!("{}/{index}", world.object.uid())));
        index += 1;
        if !taken.contains(&name) {
            steps.extend(intent::apply(None, machine(world, &name)));
            taken.push(name);
        }
    }
    Phase::steps(steps)
}

fn surplus(world: &World, _now: Timestamp) -> Phase {
    let mut living: Vec<&Member> = world.machines.iter().filter(|member| !member.object.is_deleting()).collect();
    let excess = living.len().saturating_sub(desired(world));
    if excess == 0 {
        return Phase::Done;
    }
    let order = world.set.spec.deletion.as_ref().and_then(|deletion| deletion.order.as_deref()).unwrap_or("Random");
    living.sort_by_key(|member| {
        let created = member.object.text("/metadata/creationTimestamp").to_owned();
        let marked = member.object.annotation(DELETE_MACHINE_ANNOTATION).is_some();
        (
            !marked,
            member.is("Ready"),
            if order == "Oldest" { created } else { inverted(&created) },
            member.object.name().to_owned(),
        )
    });
    Phase::steps(living.into_iter().take(excess).filter_map(|member| intent::delete(&member.object)))
}

/// Turns the order of texts round, so that the newest time comes first.
fn inverted(text: &str) -> String {
    text.bytes().map(|byte| char::from(127 - byte.min(127))).collect()
}

fn desired(world: &World) -> usize {
    usize::try_from(world.set.spec.replicas.unwrap_or(1)).unwrap_or(0)
}

fn missing_count(world: &World) -> usize {
    let living = world.machines.iter().filter(|member| !member.object.is_deleting()).count();
    desired(world).saturating_sub(living)
}

fn machine(world: &World, name: &str) -> Object {
    let template = world.object.get("/spec/template");
    let mut object = Object::named(
        &format!("{}/{}", Machine::GROUP, Machine::VERSION),
        Machine::KIND,
        world.object.namespace(),
        name,
    );
    object.0["metadata"]["labels"] = template["metadata"]["labels"].clone();
    object.0["metadata"]["labels"][CLUSTER_NAME_LABEL] = world.set.spec.cluster_name.clone().into();
    object.0["metadata"]["labels"][SET_NAME_LABEL] = world.object.name().into();
    if template["metadata"]["annotations"].is_object() {
        object.0["metadata"]["annotations"] = template["metadata"]["annotations"].clone();
    }
    object.0["metadata"]["finalizers"] = json!([MACHINE_FINALIZER]);
    let mut spec = template["spec"].clone();
    if let Some(reference) = spec["bootstrap"].get_mut("configRef") {
        *reference = child_reference(reference, name);
    }
    spec["infrastructureRef"] = child_reference(&spec["infrastructureRef"], name);
    object.0["spec"] = spec;
    intent::owned(object, &world.object.as_owner(true))
}

/// From a reference to a template to one to what is made from it.
fn child_reference(template: &Value, name: &str) -> Value {
    let kind = template["kind"].as_str().unwrap_or_default().trim_end_matches("Template");
    json!({ "apiGroup": template["apiGroup"], "kind": kind, "name": name })
}

fn clone_of(world: &World, template: &Object, machine: &Object, finalizers: &[&str]) -> Object {
    let kind = template.kind().trim_end_matches("Template");
    let mut object = Object::named(template.api_version(), kind, world.object.namespace(), machine.name());
    let inner = template.get("/spec/template");
    object.0["spec"] = if inner["spec"].is_object() { inner["spec"].clone() } else { json!({}) };
    object.0["metadata"]["labels"] = json!(machine.labels());
    object.0["metadata"]["annotations"] = json!({
        CLONED_FROM_NAME: template.name(),
        CLONED_FROM_GROUP_KIND: format!("{}.{}", template.kind(), template.group()),
    });
    if !finalizers.is_empty() {
        object.0["metadata"]["finalizers"] = json!(finalizers);
    }
    object
}

fn status(world: &World, progress: &Progress, now: Timestamp) -> Option<Value> {
    if world.object.is_deleting() && world.machines.is_empty() {
        return None;
    }
    let count = |condition: &str| world.machines.iter().filter(|member| member.is(condition)).count();
    let (ready, available) = (count("Ready"), count("Available"));
    let parts: Vec<(String, Option<&Condition>)> = world
        .machines
        .iter()
        .map(|member| (member.object.name().to_owned(), find(member.conditions(), "Ready")))
        .collect();
    let mut machines_ready = aggregate("MachinesReady", &parts);
    if let Progress::Blocked(reason) = progress {
        machines_ready = Condition::new("MachinesReady", Status::False, reason.code, reason.message.clone());
    }
    let scaling = |kind: &str, on: bool| Condition::new(kind, on.into(), if on { kind } else { "NotScaling" }, "");
    let wanted = vec![
        machines_ready,
        scaling("ScalingUp", missing_count(world) > 0),
        scaling("ScalingDown", world.machines.len() > desired(world)),
    ];
    let present = world.set.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    Some(json!({
        "observedGeneration": world.object.generation(),
        "selector": selector_text(world.object.get("/spec/selector/matchLabels")),
        "replicas": world.machines.len(),
        "readyReplicas": ready, "availableReplicas": available, "upToDateReplicas": world.machines.len(),
        "deprecated": {"v1beta1": {
            "readyReplicas": ready, "availableReplicas": available, "fullyLabeledReplicas": world.machines.len(),
        }},
        "conditions": settle(wanted, &present, now),
    }))
}
