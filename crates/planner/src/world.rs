//! Everything that a decision needs: the own object, the objects that its controller reads, and facts that are not objects.
//!
//! Holds: the own object is raw and typed in one value, replaced together; objects are shared with the cache, not cloned; what a step brought
//! back is absorbed in one place for Kubernetes objects and in one place for each sort of facts.

use std::collections::BTreeMap;
use std::sync::Arc;

use hangar_api::{Kind, Object, ObjectKey, references};

use crate::plan::Reason;
use crate::planner::Planner;
use crate::step::Effect;

/// Facts take in what steps brought back.
pub trait Absorb {
    fn absorb(&mut self, effect: &Effect);
}

impl Absorb for () {
    fn absorb(&mut self, _effect: &Effect) {}
}

/// Objects by key.
#[derive(Debug, Clone, Default)]
pub struct Objects(BTreeMap<ObjectKey, Arc<Object>>);

impl Objects {
    pub fn insert(&mut self, object: Arc<Object>) {
        self.0.insert(object.key(), object);
    }

    pub fn get(&self, key: &ObjectKey) -> Option<&Object> {
        self.0.get(key).map(Arc::as_ref)
    }

    /// All objects of a kind, by namespace and name.
    pub fn of_kind(&self, group: &str, kind: &str) -> impl Iterator<Item = &Object> + use<'_> {
        let first = ObjectKey::new(group, kind, "", "");
        let (group, kind) = (group.to_owned(), kind.to_owned());
        let range = self.0.range(first..).take_while(move |(key, _)| key.group == group && key.kind == kind);
        range.map(|(_, object)| object.as_ref())
    }

    /// What a reference at a place of an object points at.
    pub fn referenced(&self, from: &Object, pointer: &str) -> Option<&Object> {
        self.get(&references::target(from, pointer)?)
    }

    fn absorb(&mut self, effect: &Effect) {
        match effect {
            Effect::Applied(object) => self.insert(object.clone()),
            Effect::Deleted { key, left: Some(left) } if self.0.contains_key(key) => self.insert(left.clone()),
            Effect::Deleted { key, left: None } => drop(self.0.remove(key)),
            _ => {}
        }
    }
}

impl FromIterator<Arc<Object>> for Objects {
    fn from_iter<I: IntoIterator<Item = Arc<Object>>>(objects: I) -> Self {
        Self(objects.into_iter().map(|object| (object.key(), object)).collect())
    }
}

/// An object whose fields do not fit its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable(pub String);

/// What one pass over one object knows.
pub struct World<P: Planner> {
    object: Arc<Object>,
    typed: P::Kind,
    pub objects: Objects,
    pub facts: P::Facts,
    /// Why the facts could not be had.
    pub facts_error: Option<Reason>,
}

impl<P: Planner> World<P> {
    pub fn new(object: Arc<Object>, objects: Objects) -> Result<Self, Unreadable> {
        let typed = object.typed().map_err(|error| Unreadable(error.to_string()))?;
        Ok(Self { object, typed, objects, facts: P::Facts::default(), facts_error: None })
    }

    /// The own object as the API server has it.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The same, typed.
    pub fn typed(&self) -> &P::Kind {
        &self.typed
    }

    /// The Cluster that the object belongs to.
    pub fn cluster(&self) -> Option<&Object> {
        self.objects.get(&references::cluster(&self.object)?)
    }

    pub fn cluster_name(&self) -> String {
        references::cluster(&self.object).map_or_else(String::new, |key| key.name)
    }

    /// What the reference at a place of the own object points at.
    pub fn referenced(&self, pointer: &str) -> Option<&Object> {
        self.objects.referenced(&self.object, pointer)
    }

    /// What the reference at a place of the object's Cluster points at.
    pub fn cluster_referenced(&self, pointer: &str) -> Option<&Object> {
        self.objects.referenced(self.cluster()?, pointer)
    }

    /// The object of a kind that owns this one.
    pub fn owner<K: Kind>(&self) -> Option<&Object> {
        let owner = self.object.owners().into_iter().find(hangar_api::Owner::is::<K>)?;
        let found = self.objects.get(&ObjectKey::of::<K>(self.object.namespace(), &owner.name))?;
        // The name may have been used again since.
        (found.uid() == owner.uid).then_some(found)
    }

    /// Every object of a kind that was read.
    pub fn all<K: Kind>(&self) -> impl Iterator<Item = &Object> {
        self.objects.of_kind(K::GROUP, K::KIND)
    }

    /// An object of this name in the own namespace.
    pub fn named(&self, group: &str, kind: &str, name: &str) -> Option<&Object> {
        self.objects.get(&ObjectKey::new(group, kind, self.object.namespace(), name))
    }

    /// Takes in what a step brought back.
    pub fn absorb(&mut self, effect: &Effect) {
        self.facts.absorb(effect);
        match effect {
            Effect::Applied(object) if object.uid() == self.object.uid() => self.replace(object.clone()),
            other => self.objects.absorb(other),
        }
    }

    fn replace(&mut self, object: Arc<Object>) {
        // An answer of the API server that does not fit its own schema is no reason to forget what was known.
        if let Ok(typed) = object.typed() {
            self.typed = typed;
            self.object = object;
        }
    }
}

#[cfg(test)]
mod tests;
