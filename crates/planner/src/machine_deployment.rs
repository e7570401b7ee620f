//! MachineDeployment: one MachineSet per revision of the template.
//! Flows: owner -> set of the current revision -> its size -> old sets shrink. Holds: never more than surge allows, never fewer
//! available than maxUnavailable allows; a revision's set has a derived name, so a repeated create meets itself.

use hangar_api::conditions::{Condition, Status, settle};
use hangar_api::kinds::{MachineDeployment, MachineSet};
use hangar_api::names::{
    CLUSTER_NAME_LABEL, DEPLOYMENT_NAME_LABEL, MACHINE_DEPLOYMENT_FINALIZER, MACHINE_SET_FINALIZER, TEMPLATE_HASH_LABEL,
};
use hangar_api::{Kind, Object};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use crate::intent::{self, name_suffix};
use crate::{Phase, Phases, Plan, Progress, Reason};

#[derive(Debug, Clone)]
pub struct World {
    pub object: Object,
    pub deployment: MachineDeployment,
    pub cluster: Option<Object>,
    /// Sets that this deployment controls.
    pub sets: Vec<Set>,
    /// The templates that its machines are made from, as far as they are there.
    pub templates: Vec<Object>,
    pub refusal: Option<Reason>,
}

#[derive(Debug, Clone)]
pub struct Set {
    pub object: Object,
    pub set: MachineSet,
}

impl Set {
    fn wanted(&self) -> i32 {
        self.set.spec.replicas.unwrap_or(0)
    }

    fn present(&self) -> i32 {
        self.set.status.as_ref().and_then(|status| status.replicas).unwrap_or(0)
    }

    fn available(&self) -> i32 {
        self.set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
    }
}

pub fn plan(world: &World, now: Timestamp) -> Plan {
    if world.object.is_deleting() {
        return Phases::of(world, now)
            .unless_refused(world.refusal.as_ref())
            .then(delete_sets)
            .then(release)
            .report(status);
    }
    Phases::of(world, now)
        .unless_refused(world.refusal.as_ref())
        .then(cluster)
        .then(owner)
        .then(scale)
        .then(remove_empty)
        .report(status)
}

fn delete_sets(world: &World, _now: Timestamp) -> Phase {
    let steps: Vec<_> = world.sets.iter().filter_map(|set| intent::delete(&set.object)).collect();
    if steps.is_empty() && !world.sets.is_empty() {
        return Phase::wait("WaitingForMachineSets", format!("{} MachineSets are still going", world.sets.len()));
    }
    Phase::steps(steps)
}

fn release(world: &World, _now: Timestamp) -> Phase {
    Phase::steps(intent::release(&world.object, MACHINE_DEPLOYMENT_FINALIZER))
}

fn cluster(world: &World, _now: Timestamp) -> Phase {
    match &world.cluster {
        Some(_) => Phase::Done,
        None => {
            Phase::wait("WaitingForCluster", format!("there is no Cluster {} yet", world.deployment.spec.cluster_name))
        }
    }
}

fn owner(world: &World, _now: Timestamp) -> Phase {
    let owner = world.cluster.as_ref().map(|cluster| cluster.as_owner(false));
    let labels = [(CLUSTER_NAME_LABEL, world.deployment.spec.cluster_name.as_str())];
    let own = intent::adopt(&world.object, Some(MACHINE_DEPLOYMENT_FINALIZER), owner.as_ref(), &labels);
    // Templates go with the cluster, as upstream has it.
    let templates = world.templates.iter().filter(|template| !template.is_deleting());
    Phase::steps(
        own.into_iter().chain(templates.filter_map(|template| intent::adopt(template, None, owner.as_ref(), &[]))),
    )
}

/// The current revision's set, with its wanted size, and all others with theirs.
fn scale(world: &World, _now: Timestamp) -> Phase {
    let (revision, old) = revisions(world);
    let name = set_name(world);
    let mut steps = vec![];
    let current = revision.map(|set| &set.object);
    if !current.is_some_and(Object::is_deleting) {
        steps.extend(intent::apply(current, set_object(world, &name, new_size(world, revision, &old))));
    }
    let mut removable = removable(world, revision, &old);
    for set in &old {
        let shrink = removable.min(set.wanted());
        removable -= shrink;
        if shrink > 0 {
            steps.extend(intent::touch(&set.object, json!({ "spec": { "replicas": set.wanted() - shrink } })));
        }
    }
    Phase::steps(steps)
}

fn remove_empty(world: &World, _now: Timestamp) -> Phase {
    let (_, old) = revisions(world);
    Phase::steps(
        old.into_iter()
            .filter(|set| set.wanted() == 0 && set.present() == 0)
            .filter_map(|set| intent::delete(&set.object)),
    )
}

fn revisions(world: &World) -> (Option<&Set>, Vec<&Set>) {
    let name = set_name(world);
    let (current, old): (Vec<&Set>, Vec<&Set>) = world.sets.iter().partition(|set| set.object.name() == name);
    (current.into_iter().next(), old.into_iter().filter(|set| !set.object.is_deleting()).collect())
}

fn desired(world: &World) -> i32 {
    world.deployment.spec.replicas.unwrap_or(1)
}

fn new_size(world: &World, revision: Option<&Set>, old: &[&Set]) -> i32 {
    let desired = desired(world);
    let size = revision.map_or(0, Set::wanted);
    if old.is_empty() || size > desired {
        return desired;
    }
    let elsewhere: i32 = old.iter().map(|set| set.wanted().max(set.present())).sum();
    let room = (desired + surge(world) - elsewhere - size).max(0);
    (size + room).min(desired)
}

fn removable(world: &World, revision: Option<&Set>, old: &[&Set]) -> i32 {
    let lowest = desired(world) - unavailable(world);
    let available = revision.map_or(0, Set::available) + old.iter().map(|set| set.available()).sum::<i32>();
    // What is not available in an old set can go at once; it is no loss.
    let broken: i32 = old.iter().map(|set| (set.wanted() - set.available()).max(0)).sum();
    (available - lowest).max(0) + broken
}

fn surge(world: &World) -> i32 {
    amount(world, |rolling| rolling.max_surge.as_ref(), 1, true)
}

fn unavailable(world: &World) -> i32 {
    let unavailable = amount(world, |rolling| rolling.max_unavailable.as_ref(), 0, false);
    // Both zero would never get anywhere.
    if unavailable == 0 && surge(world) == 0 { 1 } else { unavailable }
}

type Rolling = hangar_api::kinds::MachineDeploymentSpecRolloutStrategyRollingUpdate;

fn amount(world: &World, field: fn(&Rolling) -> Option<&IntOrString>, default: i32, round_up: bool) -> i32 {
    let strategy = world.deployment.spec.rollout.as_ref().and_then(|rollout| rollout.strategy.as_ref());
    match strategy.and_then(|strategy| strategy.rolling_update.as_ref()).and_then(field) {
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(0);
            let share = percent * desired(world);
            if round_up { (share + 99) / 100 } else { share / 100 }
        }
        None => default,
    }
}

/// What makes a machine another machine; labels, timeouts and the like are changed in place.
fn revision_hash(world: &World) -> String {
    let spec = world.object.get("/spec/template/spec");
    let parts = json!([
        spec["version"],
        spec["bootstrap"],
        spec["infrastructureRef"],
        spec["failureDomain"],
        world.object.get("/spec/rollout/after")
    ]);
    name_suffix(&parts.to_string())
}

fn set_name(world: &World) -> String {
    format!("{}-{}", world.object.name(), revision_hash(world))
}

fn set_object(world: &World, name: &str, replicas: i32) -> Object {
    let hash = revision_hash(world);
    let spec = world.object.get("/spec");
    let mut template = spec["template"].clone();
    template["metadata"]["labels"][TEMPLATE_HASH_LABEL] = hash.clone().into();
    template["metadata"]["labels"][DEPLOYMENT_NAME_LABEL] = world.object.name().into();
    let mut selector = spec["selector"].clone();
    selector["matchLabels"][TEMPLATE_HASH_LABEL] = hash.into();
    let api_version = format!("{}/{}", MachineSet::GROUP, MachineSet::VERSION);
    let mut object = Object::named(&api_version, MachineSet::KIND, world.object.namespace(), name);
    object.0["metadata"]["labels"] = template["metadata"]["labels"].clone();
    object.0["metadata"]["finalizers"] = json!([MACHINE_SET_FINALIZER]);
    object.0["spec"] = json!({
        "clusterName": spec["clusterName"], "replicas": replicas, "selector": selector, "template": template,
    });
    for field in ["deletion", "machineNaming"] {
        if !spec[field].is_null() {
            object.0["spec"][field] = spec[field].clone();
        }
    }
    intent::owned(object, &world.object.as_owner(true))
}

fn status(world: &World, progress: &Progress, now: Timestamp) -> Option<Value> {
    if world.object.is_deleting() && world.sets.is_empty() {
        return None;
    }
    let sum = |count: fn(&Set) -> i32| world.sets.iter().map(count).sum::<i32>();
    let (revision, _) = revisions(world);
    let (replicas, available) = (sum(Set::present), sum(Set::available));
    let ready = sum(|set| set.set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0));
    let up_to_date = revision.map_or(0, Set::present);
    let enough = available >= desired(world) - unavailable(world);
    let message = progress.reason().map_or(String::new(), |reason| reason.message.clone());
    let available_condition = if enough {
        Condition::new("Available", Status::True, "Available", "")
    } else {
        let text = format!("{available} of {} machines are available", desired(world));
        Condition::new("Available", Status::False, "NotAvailable", if message.is_empty() { text } else { message })
    };
    let phase = match (world.object.is_deleting(), replicas.cmp(&desired(world))) {
        // This kind has no phase of its own for going.
        (true, _) | (_, std::cmp::Ordering::Greater) => "ScalingDown",
        (_, std::cmp::Ordering::Less) => "ScalingUp",
        _ => "Running",
    };
    let scaling = |kind: &str, on: bool| Condition::new(kind, on.into(), if on { kind } else { "NotScaling" }, "");
    let wanted = vec![
        available_condition,
        scaling("ScalingUp", phase == "ScalingUp"),
        scaling("ScalingDown", phase == "ScalingDown"),
    ];
    let present: Vec<Condition> =
        world.deployment.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    Some(json!({
        "observedGeneration": world.object.generation(),
        "selector": selector_text(world.object.get("/spec/selector/matchLabels")),
        "replicas": replicas, "readyReplicas": ready, "availableReplicas": available, "upToDateReplicas": up_to_date,
        "phase": phase,
        "deprecated": {"v1beta1": {
            "readyReplicas": ready, "availableReplicas": available, "updatedReplicas": up_to_date,
            "unavailableReplicas": (desired(world) - available).max(0),
        }},
        "conditions": settle(wanted, &present, now),
    }))
}

/// `a=b,c=d`, as the scale subresource wants it.
pub(crate) fn selector_text(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten();
    pairs.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Step;

    fn deployment(replicas: i32, version: &str) -> Object {
        Object(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
            "metadata": {"name": "md", "namespace": "default", "uid": "u", "resourceVersion": "1",
                "finalizers": [MACHINE_DEPLOYMENT_FINALIZER], "labels": {CLUSTER_NAME_LABEL: "c"},
                "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c", "uid": "c"}]},
            "spec": {"clusterName": "c", "replicas": replicas, "selector": {"matchLabels": {"x": "y"}},
                "template": {"metadata": {"labels": {"x": "y"}}, "spec": {"clusterName": "c", "version": version}}},
        }))
    }

    fn world(object: Object, sets: Vec<Object>) -> World {
        let mut cluster = Object::named("cluster.x-k8s.io/v1beta2", "Cluster", "default", "c");
        cluster.0["metadata"]["uid"] = "c".into();
        let set = |object: Object| Set { set: object.typed().unwrap(), object };
        World {
            deployment: object.typed().unwrap(),
            object,
            cluster: Some(cluster),
            sets: sets.into_iter().map(set).collect(),
            templates: vec![],
            refusal: None,
        }
    }

    /// Lets the sets do what their spec says, all machines available at once, until nothing is planned any more.
    fn run(object: &Object, mut sets: Vec<Object>) -> (Vec<(String, i64)>, i64, i64) {
        let (mut most, mut fewest) = (0, i64::MAX);
        for _ in 0..100 {
            let plan = plan(&world(object.clone(), sets.clone()), Timestamp::UNIX_EPOCH);
            if plan.steps.is_empty() {
                let sizes = sets.iter().map(|set| (set.name().to_owned(), set.get("/spec/replicas").as_i64().unwrap()));
                return (sizes.collect(), most, fewest);
            }
            for step in plan.steps {
                match step {
                    Step::Apply(object) => match sets.iter_mut().find(|set| set.name() == object.name()) {
                        Some(set) => {
                            let status = set.0["status"].take();
                            *set = object;
                            set.0["status"] = status;
                        }
                        None => sets.push(object),
                    },
                    Step::Patch { key, fields, .. } => {
                        let set = sets.iter_mut().find(|set| set.name() == key.name).unwrap();
                        set.0["spec"]["replicas"] = fields["spec"]["replicas"].clone();
                    }
                    Step::Delete { key, .. } => sets.retain(|set| set.name() != key.name),
                    other => panic!("{other:?}"),
                }
            }
            for set in &mut sets {
                let size = set.0["spec"]["replicas"].clone();
                set.0["status"] = json!({"replicas": size, "availableReplicas": size, "readyReplicas": size});
            }
            let total: i64 = sets.iter().map(|set| set.get("/spec/replicas").as_i64().unwrap()).sum();
            most = most.max(total);
            fewest = fewest.min(total);
        }
        panic!("did not converge")
    }

    #[test]
    fn a_new_deployment_gets_one_set_of_its_size() {
        let (sizes, ..) = run(&deployment(3, "v1.28.10"), vec![]);
        assert_eq!(sizes.len(), 1);
        assert_eq!(sizes[0].1, 3);
    }

    #[test]
    fn a_new_version_replaces_machines_one_by_one() {
        let old = deployment(3, "v1.28.10");
        let set = set_object(&world(old.clone(), vec![]), &set_name(&world(old, vec![])), 3);
        let mut set = set;
        set.0["status"] = json!({"replicas": 3, "availableReplicas": 3, "readyReplicas": 3});
        let (sizes, most, fewest) = run(&deployment(3, "v1.29.0"), vec![set.clone()]);
        assert_eq!((sizes.len(), sizes[0].1, most, fewest), (1, 3, 4, 3));
        assert_ne!(sizes[0].0, set.name());
    }

    #[test]
    fn scaling_changes_the_set_alone() {
        for size in [0, 1, 5] {
            let start = deployment(3, "v1.28.10");
            let set = set_object(&world(start.clone(), vec![]), &set_name(&world(start, vec![])), 3);
            let (sizes, ..) = run(&deployment(size, "v1.28.10"), vec![set.clone()]);
            assert_eq!(sizes, vec![(set.name().to_owned(), i64::from(size))]);
        }
    }

    #[test]
    fn labels_and_timeouts_do_not_make_a_new_revision() {
        let mut changed = deployment(1, "v1.28.10");
        changed.0["spec"]["template"]["metadata"]["labels"]["new"] = "label".into();
        changed.0["spec"]["template"]["spec"]["deletion"] = json!({"nodeDrainTimeoutSeconds": 5});
        assert_eq!(set_name(&world(changed, vec![])), set_name(&world(deployment(1, "v1.28.10"), vec![])));
    }
}
