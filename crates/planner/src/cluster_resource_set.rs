//! ClusterResourceSet: which Clusters get its manifests, and whether they have them.
//! Flows: selected Clusters -> a ClusterResourceSetBinding each, whose own planner applies -> what the bindings say -> one condition. Holds: Clusters of the same
//! namespace only; an empty selector selects none; a set that goes takes its entries out of bindings, and nothing out of clusters.

pub mod binding;
pub mod manifest;

use hangar_api::conditions::{Condition, Status};
use hangar_api::kinds::{Cluster, ClusterResourceSet, ClusterResourceSetBinding};
use hangar_api::names::PAUSED_ANNOTATION;
use hangar_api::{Kind as _, Object, ObjectKey, selector};
use serde_json::json;

use crate::{Phase, Phases, Planner, Progress, Report, Step, intent};

pub struct ClusterResourceSets;

type World = crate::World<ClusterResourceSets>;

pub const FINALIZER: &str = "addons.cluster.x-k8s.io";
pub const APPLIED: &str = "ResourcesApplied";
/// A condition must stay readable.
const MOST_LINES: usize = 3;

impl Planner for ClusterResourceSets {
    type Kind = ClusterResourceSet;
    type Facts = ();
    const FINALIZER: Option<&'static str> = Some(FINALIZER);
    const READY: bool = false;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(bindings)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(entries_gone)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<ClusterResourceSet>) {
        report.condition(applied(world, progress));
    }
}

/// R1.
pub(crate) fn selects(set: &Object, cluster: &Object) -> bool {
    let wanted = set.get("/spec/clusterSelector");
    !set.is_deleting()
        && set.namespace() == cluster.namespace()
        && !selector::is_empty(wanted)
        && selector::matches(wanted, &cluster.labels())
}

/// What a set has: kind and name.
pub fn resources(set: &Object) -> Vec<(String, String)> {
    let all = set.get("/spec/resources").as_array().into_iter().flatten();
    let named = |one: &serde_json::Value| Some((one["kind"].as_str()?.to_owned(), one["name"].as_str()?.to_owned()));
    all.filter_map(named).collect()
}

/// Where they are: in its namespace and nowhere else.
pub fn resource_keys(set: &Object) -> Vec<ObjectKey> {
    resources(set).iter().map(|(kind, name)| ObjectKey::new("", kind, set.namespace(), name)).collect()
}

fn selected(world: &World) -> impl Iterator<Item = &Object> {
    world.all::<Cluster>().filter(|cluster| selects(world.object(), cluster) && !cluster.is_deleting())
}

fn binding_of<'a>(world: &'a World, cluster: &str) -> Option<&'a Object> {
    world.named(ClusterResourceSetBinding::GROUP, ClusterResourceSetBinding::KIND, cluster)
}

/// R3: one for each Cluster, with its name, for all sets.
fn bindings(world: &World) -> Phase {
    let missing = selected(world).filter(|cluster| !is_paused(cluster) && binding_of(world, cluster.name()).is_none());
    Phase::steps(missing.map(|cluster| {
        let version = format!("{}/{}", ClusterResourceSetBinding::GROUP, ClusterResourceSetBinding::VERSION);
        let kind = ClusterResourceSetBinding::KIND;
        let mut binding = Object::named(&version, kind, cluster.namespace(), cluster.name());
        binding.0["spec"] = json!({ "clusterName": cluster.name() });
        Step::Create(intent::owned(binding, &cluster.as_owner(true)))
    }))
}

fn is_paused(cluster: &Object) -> bool {
    cluster.get("/spec/paused") == true
}

/// R6: in one step for each binding; one that is left with nothing goes.
fn entries_gone(world: &World) -> Phase {
    let (own, mut steps, mut held) = (world.object().name(), vec![], vec![]);
    for binding in world.all::<ClusterResourceSetBinding>().filter(|one| binding::entry(one, own).is_some()) {
        let cluster = world.named(Cluster::GROUP, Cluster::KIND, binding.text("/spec/clusterName"));
        if cluster.is_some_and(is_paused) || binding.annotation(PAUSED_ANNOTATION).is_some() {
            held.push(binding.name());
            continue;
        }
        steps.extend(binding::without(binding, |set| set != own));
    }
    if steps.is_empty() && !held.is_empty() {
        let text = format!("waiting for bindings of paused Clusters: {}", held.join(", "));
        return Phase::wait("WaitingForPausedClusters", text);
    }
    Phase::steps(steps)
}

fn applied(world: &World, progress: &Progress) -> Condition {
    if let Some(reason) = progress.reason() {
        return Condition::new(APPLIED, Status::False, reason.code, reason.message.clone());
    }
    if selector::is_empty(world.object().get("/spec/clusterSelector")) {
        let text = "spec.clusterSelector is empty, which selects no Cluster";
        return Condition::new(APPLIED, Status::False, "NoClusterSelected", text);
    }
    let (mut waiting, mut problems) = (vec![], vec![]);
    for cluster in selected(world) {
        match standing(world, cluster) {
            Standing::Applied => {}
            Standing::Waiting => waiting.push(format!("Cluster {}: waiting for its control plane", cluster.name())),
            Standing::Problems(lines) => {
                problems.extend(lines.into_iter().map(|line| format!("Cluster {}: {line}", cluster.name())));
            }
        }
    }
    match (problems.is_empty(), waiting.is_empty()) {
        (false, _) => Condition::new(APPLIED, Status::False, "NotApplied", listed(problems)),
        (true, false) => Condition::new(APPLIED, Status::False, "WaitingForControlPlane", listed(waiting)),
        (true, true) => Condition::new(APPLIED, Status::True, "Applied", ""),
    }
}

/// How far a Cluster is.
enum Standing {
    Applied,
    Waiting,
    Problems(Vec<String>),
}

fn standing(world: &World, cluster: &Object) -> Standing {
    let Some(binding) = binding_of(world, cluster.name()) else { return Standing::Waiting };
    if !binding.is_owned_by(cluster.uid()) {
        return Standing::Problems(vec![intent::not_ours(&binding.key()).message]);
    }
    let problems = binding::problems(binding, world.object().name());
    if !problems.is_empty() {
        return Standing::Problems(problems.into_values().collect());
    }
    let entry = binding::entry(binding, world.object().name());
    let has = |(kind, name): &(String, String)| binding::resource(entry, kind, name)["applied"] == true;
    if resources(world.object()).iter().all(has) { Standing::Applied } else { Standing::Waiting }
}

fn listed(mut lines: Vec<String>) -> String {
    let more = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("; ")
}

#[cfg(test)]
mod tests;
