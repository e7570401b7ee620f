//! What moved between neighbouring versions of each kind, as tables.
//!
//! Flows: a version and the next newer one make a step, with rules of its own; from the oldest to the hub all steps run in order, and
//! back in reverse. Holds: within a step rules run in order on the way up and in reverse on the way down, so that a place can be emptied
//! before it is filled; a field without a rule is not lost, it only has no meaning in the other version.

mod carry;
mod core;
mod duration;
mod hosted;
mod how;
mod kubeadm;
mod metal3;
mod openstack;
mod topology;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;

use crate::registry::{self, KindFacts};
use carry::Path;
use how::How;

/// One thing that differs between a version and the next newer one.
#[derive(Clone)]
pub enum Rule {
    /// A value that stands elsewhere, in another form.
    Carried { old: Path, new: Path, how: How },
    /// More than one value at once: what stands at the place is handed to a function each way.
    Rebuilt { at: Path, up: fn(&mut Value), down: fn(&mut Value) },
}

impl Rule {
    pub fn up(&self, body: &mut Value) {
        match self {
            Self::Carried { old, new, how } => carry::carry(body, old, new, &|value| how.up(value)),
            Self::Rebuilt { at, up, .. } => at.each(body, *up),
        }
    }

    pub fn down(&self, body: &mut Value) {
        match self {
            Self::Carried { how, .. } if how.is_upward_only() => {}
            Self::Carried { old, new, how } => carry::carry(body, new, old, &|value| how.down(value)),
            Self::Rebuilt { at, down, .. } => at.each(body, *down),
        }
    }
}

/// All steps of a kind, the oldest first: the first one leads from the oldest version to the next.
type Steps = Vec<Vec<Rule>>;

/// The steps of a kind; made once, immutable data like the registry itself.
pub fn of(facts: &KindFacts) -> &'static [Vec<Rule>] {
    static ALL: OnceLock<BTreeMap<(&str, &str), Steps>> = OnceLock::new();
    let every = || registry::kinds().iter().map(|facts| ((facts.group, facts.kind), steps(facts))).collect();
    ALL.get_or_init(every).get(&(facts.group, facts.kind)).map_or(&[], Vec::as_slice)
}

fn steps(facts: &KindFacts) -> Steps {
    let older = facts.versions.iter().take(facts.versions.len() - 1);
    older.map(|version| step(facts.group, facts.kind, version.name)).collect()
}

/// The rules between a version and the next newer one.
fn step(group: &str, kind: &str, older: &str) -> Vec<Rule> {
    match (group, older) {
        ("cluster.x-k8s.io", _) => core::rules(kind, older),
        ("addons.cluster.x-k8s.io" | "ipam.cluster.x-k8s.io", "v1beta1") | ("runtime.cluster.x-k8s.io", _) => {
            core::condition_status()
        }
        ("bootstrap.cluster.x-k8s.io" | "controlplane.cluster.x-k8s.io", _) if kind.starts_with("Kubeadm") => {
            kubeadm::rules(kind, older)
        }
        ("bootstrap.cluster.x-k8s.io" | "controlplane.cluster.x-k8s.io" | "k0smotron.io", _) => hosted::rules(kind),
        ("infrastructure.cluster.x-k8s.io", "v1alpha3") => openstack::rules(kind),
        ("infrastructure.cluster.x-k8s.io", "v1beta1") if kind.starts_with("OpenStack") => {
            openstack::newest::rules(kind)
        }
        ("infrastructure.cluster.x-k8s.io", _) => metal3::rules(kind),
        _ => vec![],
    }
}

fn rule(how: How, old: &str, new: &str) -> Rule {
    Rule::Carried { old: Path::of(old), new: Path::of(new), how }
}

fn moved(pairs: &[(&str, &str)]) -> Vec<Rule> {
    pairs.iter().map(|(old, new)| rule(How::Move, old, new)).collect()
}

fn below(prefix: &str, how: How, old: &str, new: &str) -> Rule {
    rule(how, &format!("{prefix}.{old}"), &format!("{prefix}.{new}"))
}

fn moved_below(prefix: &str, pairs: &[(&str, &str)]) -> Vec<Rule> {
    pairs.iter().map(|(old, new)| below(prefix, How::Move, old, new)).collect()
}

fn rebuilt(at: &str, up: fn(&mut Value), down: fn(&mut Value)) -> Rule {
    Rule::Rebuilt { at: Path::of(at), up, down }
}
