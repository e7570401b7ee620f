//! One view of the cloud, and the parts that are built on it.
//!
//! Flows: facts ([`Cloud`]: resources by type and id, what the names of a spec mean) -> parts ([`ports`], [`server`], [`security_groups`]) -> calls.
//! Holds: planners see the cloud's own types; only what carries the owner's key is in the view; an answer is "this is it" or "it is gone".

pub mod call;
pub mod cluster_owner;
pub mod filter;
pub mod floating_ip;
pub mod identity;
pub mod instance;
pub mod load_balancer;
pub mod network;
pub mod ports;
pub mod quota;
pub mod resources;
pub mod router;
pub mod rules;
pub mod security_groups;
pub mod server;
pub mod trunks;
pub mod volumes;

pub use call::{CloudAnswer, CloudCall, CloudIdentity, LoadBalancerChange};
pub use filter::Parameter;
pub use resources::{KEY_METADATA, LoadBalancerTree, Owned, Resource, ResourceType, Resources, has_twins, oldest};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::plan::{Phase, Reason};
use crate::step::{Effect, Step};
use crate::world::Absorb;

/// What an object knows of its cloud.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cloud {
    /// Where its calls go.
    pub identity: CloudIdentity,
    /// The project that the credential belongs to: `PROJECT-ID@AUTH-URL REGION`.
    pub project: String,
    /// What carries the object's key.
    pub resources: Resources,
    /// Which of its resources others use: of several with one role these count.
    pub uses: Uses,
}

/// Ids of resources that may be there twice, because an answer was lost or two processes acted at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uses {
    /// Machines have ports there: they can be deleted only when those are gone.
    pub by_machines: BTreeSet<String>,
    /// The status has named them to machines.
    pub named: BTreeSet<String>,
}

impl Cloud {
    pub fn step(&self, call: CloudCall) -> Step {
        Step::Cloud { identity: self.identity.clone(), call }
    }

    pub fn delete(&self, of: ResourceType, id: &str) -> Step {
        self.step(CloudCall::Delete(of, id.to_owned()))
    }

    /// Of several resources with one role: what machines use, then what they were told of, then the oldest.
    pub fn counting<'a, T: Owned>(&self, items: &'a BTreeMap<String, Arc<T>>, role: &str) -> Option<&'a T> {
        resources::first(items, role, |item| self.rank(item))
    }

    fn rank<'a, T: Owned>(&self, item: &'a T) -> (bool, bool, (&'a str, &'a str)) {
        let is_new_to = |ids: &BTreeSet<String>| !ids.contains(item.id());
        (is_new_to(&self.uses.by_machines), is_new_to(&self.uses.named), item.age())
    }

    /// Those with a role that another one counts for; not those which machines still use.
    fn twins<T: Owned>(&self, items: &BTreeMap<String, Arc<T>>) -> Vec<Step> {
        let is_twin = |item: &&Arc<T>| {
            let counts = item.owner_key().and_then(|key| self.counting(items, &key.role));
            counts.is_some_and(|counts| counts.id() != item.id()) && !self.uses.by_machines.contains(item.id())
        };
        items.values().filter(is_twin).map(|item| self.delete(T::TYPE, item.id())).collect()
    }

    /// The same cloud, with only those resources whose role fits.
    #[must_use]
    pub fn of_roles(&self, fits: impl Fn(&str) -> bool) -> Self {
        Self { resources: self.resources.of_roles(fits), ..self.clone() }
    }
}

impl Absorb for Cloud {
    fn absorb(&mut self, effect: &Effect) {
        match effect {
            Effect::Cloud(CloudAnswer::Is(resource)) => self.resources.insert(resource.clone()),
            Effect::Cloud(CloudAnswer::Gone(of, id)) => {
                self.resources.remove(*of, id);
                // Neutron takes them away with their network.
                if *of == ResourceType::Network {
                    self.resources.subnets.retain(|_, subnet| subnet.network_id != *id);
                }
            }
            _ => {}
        }
    }
}

/// In which project an object's resources are: written before the first create, so that an object without it never needs its cloud to go.
pub const PROJECT_ANNOTATION: &str = "hangar.dev/cloud-project";

/// Remembers the project before anything is made in it, and refuses to go on in another one: its resources would be made anew there, and
/// those in the first one would be lost.
pub fn project(object: &hangar_api::Object, cloud: &Cloud) -> Phase {
    match object.annotation(PROJECT_ANNOTATION) {
        Some(before) if before == cloud.project => Phase::Done,
        Some(before) => Phase::Blocked(Reason::retry(
            "CloudProjectChanged",
            format!(
                "its resources are in project {before}, spec.identityRef now leads to project {}: name a credential of the former project",
                cloud.project
            ),
        )),
        None => Phase::Steps(vec![Step::Patch {
            key: object.key(),
            uid: object.uid().to_owned(),
            // Nobody else has begun: with this, nothing can be there yet, and nothing has to be looked for.
            resource_version: Some(object.resource_version().to_owned()),
            fields: serde_json::json!({ "metadata": { "annotations": { PROJECT_ANNOTATION: cloud.project } } }),
        }]),
    }
}

/// The same when the object goes: in another project nothing would be found, and everything in the first one would be lost.
pub fn same_project(object: &hangar_api::Object, cloud: &Cloud) -> Phase {
    match object.annotation(PROJECT_ANNOTATION) {
        Some(_) => project(object, cloud),
        None => Phase::Done,
    }
}

/// What a name or a filter in a spec means in the cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Lookup {
    #[default]
    NotAsked,
    Found(String),
    /// With what there is instead.
    Missing {
        wanted: String,
        known: Vec<String>,
    },
    /// More than one fits.
    Ambiguous {
        wanted: String,
        candidates: Vec<String>,
    },
}

impl Lookup {
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Found(id) => Some(id),
            _ => None,
        }
    }

    /// Exactly one must fit.
    pub fn one(wanted: String, mut found: Vec<String>) -> Self {
        match found.len() {
            0 => Self::Missing { wanted, known: vec![] },
            1 => Self::Found(found.swap_remove(0)),
            _ => Self::Ambiguous { wanted, candidates: found },
        }
    }

    /// Why it cannot be used; `field` is where it is in the spec, `what` the sort of resource.
    pub fn problem(&self, field: &str, what: &str) -> Option<String> {
        let list = |names: &[String]| {
            let shown = names.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
            if names.len() > 8 { format!("{shown}, ...") } else { shown }
        };
        match self {
            Self::NotAsked | Self::Found(_) => None,
            Self::Missing { wanted, known } if known.is_empty() => {
                Some(format!("{field} {wanted} matches no {what}; it must match exactly one"))
            }
            Self::Missing { wanted, known } => {
                Some(format!("{field} {wanted} matches no {what}; the cloud has {}", list(known)))
            }
            Self::Ambiguous { wanted, candidates } => Some(format!(
                "{field} {wanted} matches {} {what}s ({}); it must match exactly one",
                candidates.len(),
                list(candidates)
            )),
        }
    }
}

#[cfg(test)]
mod infrastructure_tests;
#[cfg(test)]
pub(crate) mod tests;
