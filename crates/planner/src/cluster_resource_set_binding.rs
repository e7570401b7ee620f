//! ClusterResourceSetBinding: applies the manifests of all sets that select its Cluster, and remembers what was applied.
//! Flows: sets of the namespace -> what is due -> the control plane answers -> applied, one resource after the other -> recorded in one write. Holds: nothing is
//! deleted in clusters; what one resource lacks does not stop the others; with ApplyOnce what is there stays as it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hangar_api::Object;
use hangar_api::kinds::{ClusterResourceSet, ClusterResourceSetBinding};
use hangar_api::names::PAUSED_ANNOTATION;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster_resource_set::binding;
use crate::cluster_resource_set::manifest::Manifest;
use crate::cluster_resource_set::{resources, selects};
use crate::step::{ClusterName, Effect, Installation, TenantAnswer, TenantCall};
use crate::{Absorb, Phase, Phases, Planner, Progress, Reason, Report, Step};

pub struct ClusterResourceSetBindings;

type World = crate::World<ClusterResourceSetBindings>;

/// R8: how often what Reconcile has applied is put right, on a set.
pub const REPAIR_ANNOTATION: &str = "hangar.dev/repair-drift";
const MOST_OFTEN: Duration = Duration::from_secs(60);
const LEAST_OFTEN: Duration = Duration::from_secs(12 * 3600);
/// Objects of one call: it must end long before a pass is given up.
const AT_ONCE: usize = 20;
/// Of what went wrong with one resource.
const MOST_WORDS: usize = 3;

/// A resource of a set: set, kind and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    pub set: String,
    pub kind: String,
    pub name: String,
}

/// Whether the tenant's API can be asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Tenant {
    Answers,
    #[default]
    Silent,
    /// Its kubeconfig cannot be used.
    Refused(String),
}

#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub tenant: Tenant,
    /// By kind and name; what is not there is why it could not be read.
    pub manifests: BTreeMap<(String, String), Result<Arc<Manifest>, String>>,
    /// When a resource was last put right.
    pub repaired: BTreeMap<Resource, Timestamp>,
    /// Of this pass.
    pub installed: BTreeMap<Resource, Installed>,
}

/// What the tenant answered so far.
#[derive(Debug, Clone, Default)]
pub struct Installed {
    pub problems: Vec<String>,
    pub is_complete: bool,
}

impl Absorb for Facts {
    fn absorb(&mut self, effect: &Effect) {
        if let Effect::Tenant(TenantAnswer::Installed { resource, problems, is_last }) = effect {
            let installed = self.installed.entry(resource.clone()).or_default();
            installed.problems.extend(problems.iter().cloned());
            installed.is_complete |= *is_last;
        }
    }
}

impl Planner for ClusterResourceSetBindings {
    type Kind = ClusterResourceSetBinding;
    type Facts = Facts;
    const READY: bool = false;
    const REPORTS: bool = false;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases
            .then(cluster)
            .then(forgotten)
            .then(control_plane)
            .facts()
            .then_at(tenant)
            .then_at(installed)
            .then_at(recorded)
            .then_at(refused)
    }

    fn status(_world: &World, _progress: &Progress, _report: &mut Report<ClusterResourceSetBinding>) {}

    fn recheck(world: &World, now: Timestamp) -> Option<Duration> {
        let sets = sets(world).filter_map(|set| Some((set, repair_every(set)?)));
        let left = sets.flat_map(|(set, every)| {
            of_set(set).map(move |resource| {
                let since = world.facts.repaired.get(&resource).map_or(Duration::ZERO, |at| elapsed(*at, now));
                every.saturating_sub(since)
            })
        });
        left.min().map(|left| left + Duration::from_secs(1))
    }
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

fn is_reconciled(set: &Object) -> bool {
    set.text("/spec/strategy") == "Reconcile"
}

fn repair_every(set: &Object) -> Option<Duration> {
    let every = set.annotation(REPAIR_ANNOTATION).filter(|_| is_reconciled(set))?;
    let every = every.parse::<SignedDuration>().ok().and_then(|every| Duration::try_from(every).ok())?;
    Some(every.clamp(MOST_OFTEN, LEAST_OFTEN))
}

/// Of this namespace, as far as they select the Cluster, by name.
pub fn sets(world: &World) -> impl Iterator<Item = &Object> {
    let cluster = world.cluster();
    let all = world.all::<ClusterResourceSet>().filter(|set| set.annotation(PAUSED_ANNOTATION).is_none());
    all.filter(move |set| cluster.is_some_and(|cluster| selects(set, cluster)))
}

fn of_set(set: &Object) -> impl Iterator<Item = Resource> {
    let named = |(kind, name)| Resource { set: set.name().to_owned(), kind, name };
    resources(set).into_iter().map(named).collect::<Vec<_>>().into_iter()
}

fn cluster(world: &World) -> Phase {
    match world.cluster() {
        None => Phase::wait("WaitingForCluster", "its Cluster is not there"),
        Some(cluster) if cluster.is_deleting() => Phase::wait("ClusterDeleting", "its Cluster is being deleted"),
        Some(cluster) if !world.object().is_owned_by(cluster.uid()) => {
            Phase::wait("NotOurs", "it was not made for the Cluster of this name")
        }
        Some(_) => Phase::Done,
    }
}

/// Entries of sets that are gone; a set that goes takes out its own.
fn forgotten(world: &World) -> Phase {
    let is_there = |name: &str| world.all::<ClusterResourceSet>().any(|set| set.name() == name);
    let is_gone = |entry: &Value| !is_there(entry["clusterResourceSetName"].as_str().unwrap_or_default());
    let entries = binding::entries(world.object());
    let is_spare = entries.is_empty() && sets(world).next().is_none();
    if is_spare || entries.iter().any(is_gone) {
        return Phase::steps(binding::without(world.object(), is_there));
    }
    Phase::Done
}

/// R5.
fn control_plane(world: &World) -> Phase {
    let initialized = "/status/initialization/controlPlaneInitialized";
    match world.cluster() {
        Some(cluster) if cluster.get(initialized) != true => {
            Phase::wait("WaitingForControlPlane", "the control plane is not initialized yet")
        }
        _ => Phase::Done,
    }
}

/// What is to be read, and perhaps applied: ApplyOnce looks no more at what it has applied.
pub fn may_be_due(world: &World) -> Vec<Resource> {
    let all = sets(world).flat_map(|set| of_set(set).map(move |resource| (set, resource)));
    let open = all.filter(|(set, resource)| is_reconciled(set) || stands(world, resource)["applied"] != true);
    open.map(|(_, resource)| resource).collect()
}

fn stands<'a>(world: &'a World, resource: &Resource) -> &'a Value {
    let entry = binding::entry(world.object(), &resource.set);
    binding::resource(entry, &resource.kind, &resource.name)
}

fn manifest<'a>(world: &'a World, resource: &Resource) -> Result<&'a Manifest, &'a str> {
    match world.facts.manifests.get(&(resource.kind.clone(), resource.name.clone())) {
        Some(Ok(manifest)) => Ok(manifest),
        Some(Err(why)) => Err(why),
        None => Err("it was not read yet"),
    }
}

/// What is to be applied now, with what is in it.
fn due(world: &World, now: Timestamp) -> Vec<(Resource, &Manifest, &[Object])> {
    let set = |name: &str| sets(world).find(|set| set.name() == name);
    let drifts = |resource: &Resource| {
        let every = set(&resource.set).and_then(repair_every)?;
        Some(world.facts.repaired.get(resource).is_none_or(|at| elapsed(*at, now) >= every))
    };
    let all = may_be_due(world).into_iter().filter(|resource| !world.facts.installed.contains_key(resource));
    let readable = all.filter_map(|resource| {
        let manifest = manifest(world, &resource).ok()?;
        Some((resource, manifest, manifest.objects.as_ref().ok()?.as_slice()))
    });
    let differs = |resource: &Resource, manifest: &Manifest| {
        let stands = stands(world, resource);
        stands["applied"] != true || stands["hash"] != *manifest.hash || drifts(resource) == Some(true)
    };
    readable.filter(|(resource, manifest, _)| differs(resource, manifest)).collect()
}

fn tenant(world: &World, now: Timestamp) -> Phase {
    match &world.facts.tenant {
        _ if due(world, now).is_empty() => Phase::Done,
        Tenant::Answers => Phase::Done,
        Tenant::Silent => Phase::wait("WaitingForControlPlane", "the control plane does not answer"),
        Tenant::Refused(why) => Phase::blocked("InvalidKubeconfig", why.clone()),
    }
}

/// R4.
fn installed(world: &World, now: Timestamp) -> Phase {
    let Some((resource, _, objects)) = due(world, now).into_iter().next() else { return Phase::Done };
    let once = !sets(world).any(|set| set.name() == resource.set && is_reconciled(set));
    let cluster = ClusterName { namespace: world.object().namespace().to_owned(), name: world.cluster_name() };
    // One without objects is applied as well.
    let parts: Vec<&[Object]> = if objects.is_empty() { vec![&[]] } else { objects.chunks(AT_ONCE).collect() };
    let last = parts.len() - 1;
    let steps = parts.into_iter().enumerate().map(|(number, part)| {
        let is_last = number == last;
        let installation = Installation { resource: resource.clone(), objects: part.to_vec(), once, is_last };
        Step::Tenant { cluster: cluster.clone(), call: TenantCall::Install(installation) }
    });
    Phase::steps(steps)
}

/// R3.
fn recorded(world: &World, now: Timestamp) -> Phase {
    let mut entries = binding::entries(world.object()).to_vec();
    let mut problems = binding::all_problems(world.object());
    problems.retain(|set, _| sets(world).any(|other| other.name() == set));
    for set in sets(world) {
        let mut lacks = BTreeMap::new();
        for resource in of_set(set) {
            if let Some(why) = note(world, &mut entries, &resource, now) {
                lacks.insert(format!("{}/{}", resource.kind, resource.name), why);
            }
        }
        problems.remove(set.name());
        if !lacks.is_empty() {
            problems.insert(set.name().to_owned(), lacks);
        }
    }
    Phase::steps(binding::write(world.object(), &entries, &problems))
}

/// Writes down what became of a resource; why it was not applied, if it was not.
fn note(world: &World, entries: &mut Vec<Value>, resource: &Resource, now: Timestamp) -> Option<String> {
    let (hash, outcome) = outcome(world, resource)?;
    let position = entries.iter().position(|entry| entry["clusterResourceSetName"] == *resource.set);
    let at = position.unwrap_or_else(|| {
        entries.push(json!({ "clusterResourceSetName": resource.set }));
        entries.len() - 1
    });
    let mut list = entries[at]["resources"].as_array().cloned().unwrap_or_default();
    let position = list.iter().position(|one| one["kind"] == *resource.kind && one["name"] == *resource.name);
    let place = position.unwrap_or_else(|| {
        list.push(json!({ "kind": resource.kind, "name": resource.name, "applied": false }));
        list.len() - 1
    });
    let found = &mut list[place];
    match (hash, &outcome) {
        (Some(hash), Ok(())) if found["applied"] != true || found["hash"] != *hash => {
            found["applied"] = true.into();
            found["hash"] = hash.into();
            found["lastAppliedTime"] = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        }
        // It is tried again.
        (Some(hash), Err(_)) if found["applied"] != true || found["hash"] != *hash => {
            found["applied"] = false.into();
            found["hash"] = hash.into();
        }
        _ => {}
    }
    entries[at]["resources"] = list.into();
    outcome.err()
}

/// What is new of a resource: its hash, if it was read, and whether it is there now.
fn outcome<'a>(world: &'a World, resource: &Resource) -> Option<(Option<&'a str>, Result<(), String>)> {
    if let Some(installed) = world.facts.installed.get(resource).filter(|installed| installed.is_complete) {
        let hash = manifest(world, resource).ok().map(|manifest| manifest.hash.as_str());
        let result = if installed.problems.is_empty() { Ok(()) } else { Err(words(&installed.problems)) };
        return Some((hash, result));
    }
    if !may_be_due(world).contains(resource) {
        return None;
    }
    match manifest(world, resource).map(|manifest| (manifest, &manifest.objects)) {
        Err(why) => Some((None, Err(why.to_owned()))),
        Ok((manifest, Err(why))) => Some((Some(&manifest.hash), Err(why.clone()))),
        Ok(_) => None,
    }
}

fn words(problems: &[String]) -> String {
    let more = problems.len().saturating_sub(MOST_WORDS);
    let first = problems.iter().take(MOST_WORDS).cloned().collect::<Vec<_>>().join("; ");
    if more > 0 { format!("{first}; and {more} more") } else { first }
}

/// What the tenant refused is tried again; whoever mends a ConfigMap or Secret is noticed.
fn refused(world: &World, _now: Timestamp) -> Phase {
    let mut refused = world.facts.installed.values().filter(|installed| !installed.problems.is_empty());
    let reason = refused.next().map(|installed| Reason::retry("NotApplied", words(&installed.problems)));
    reason.map_or(Phase::Done, Phase::Blocked)
}

#[cfg(test)]
pub(crate) mod tests;
