//! What a controller reads, declared once: watches, wakes, the reverse index and the gathering of a World follow from it.
//!
//! Flows: own object -> hops, forwards -> objects of its World; a changed object -> the same hops, backwards -> whom it concerns. Holds: kinds are always group
//! and kind; a change of a field that no read declares wakes nobody. An object that comes, begins to go or is gone always counts.

use std::sync::Arc;

use hangar_api::{Kind, Object, ObjectKey, references, registry};
use serde_json::Value;

use crate::cache::{Cache, Change};

/// Group and kind.
pub type GroupKind = (&'static str, &'static str);

/// One thing that a controller reads: the way to it from the own object, and the fields that it looks at.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    pub path: &'static [Hop],
    /// JSON pointers; `/status/conditions[Ready]` is the status of a condition. Nothing: only whether it is there.
    pub fields: &'static [&'static str],
}

pub const fn read(path: &'static [Hop], fields: &'static [&'static str]) -> Read {
    Read { path, fields }
}

/// From one object to others.
#[derive(Debug, Clone, Copy)]
pub struct Hop {
    /// What it leads to; nothing if a reference may name any kind.
    pub kind: Option<GroupKind>,
    way: Way,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Owner,
    Owned,
    Cluster,
    Members,
    Neighbours,
    WatchedNeighbours,
    Link(Link),
    LinkedBy,
    /// With the field selector of its watch.
    Noticed(Names, &'static str),
}

/// The keys of objects that an object names.
pub type Names = fn(&Object) -> Vec<ObjectKey>;

/// How an object names another one.
#[derive(Debug, Clone, Copy)]
pub enum Link {
    /// The reference at this place.
    Reference(&'static str),
    Named(fn(&Object) -> Option<ObjectKey>),
    Several(Names),
}

impl Link {
    pub fn targets(&self, object: &Object) -> Vec<ObjectKey> {
        match self {
            Self::Several(names) => names(object),
            one => one.target(object).into_iter().collect(),
        }
    }

    fn target(&self, object: &Object) -> Option<ObjectKey> {
        match self {
            Self::Reference(pointer) => references::target(object, pointer),
            Self::Named(name) => name(object),
            Self::Several(_) => None,
        }
    }
}

const fn of<K: Kind>() -> Option<GroupKind> {
    Some((K::GROUP, K::KIND))
}

/// The object of this kind that owns it.
pub const fn owner<K: Kind>() -> Hop {
    Hop { kind: of::<K>(), way: Way::Owner }
}

/// Objects of this kind that it owns.
pub const fn owned<K: Kind>() -> Hop {
    Hop { kind: of::<K>(), way: Way::Owned }
}

/// The same for a kind of Kubernetes itself.
pub const fn owned_built_in(group: &'static str, kind: &'static str) -> Hop {
    Hop { kind: Some((group, kind)), way: Way::Owned }
}

/// Its Cluster.
pub const fn cluster() -> Hop {
    Hop { kind: of::<hangar_api::kinds::Cluster>(), way: Way::Cluster }
}

/// Objects of this kind in the same cluster.
pub const fn members<K: Kind>() -> Hop {
    Hop { kind: of::<K>(), way: Way::Members }
}

/// Objects of this kind in the same namespace, of which there are few.
pub const fn neighbours<K: Kind>() -> Hop {
    Hop { kind: of::<K>(), way: Way::Neighbours }
}

/// The same, and a change of one wakes whoever is in its namespace.
pub const fn watched_neighbours<K: Kind>() -> Hop {
    Hop { kind: of::<K>(), way: Way::WatchedNeighbours }
}

/// Objects of a kind of Kubernetes itself that users made and that it names, only to hear of their changes: they are not kept ([`crate::notices`]).
/// The field selector leaves out what nobody names.
pub const fn noticed(group: &'static str, kind: &'static str, names: Names, fields: &'static str) -> Hop {
    Hop { kind: Some((group, kind)), way: Way::Noticed(names, fields) }
}

/// What the reference at this place points at.
pub const fn reference(pointer: &'static str) -> Hop {
    Hop { kind: None, way: Way::Link(Link::Reference(pointer)) }
}

/// An object whose name follows from it.
pub const fn named(group: &'static str, kind: &'static str, name: fn(&Object) -> Option<ObjectKey>) -> Hop {
    Hop { kind: Some((group, kind)), way: Way::Link(Link::Named(name)) }
}

/// The same for an object of any kind.
pub const fn linked(name: fn(&Object) -> Option<ObjectKey>) -> Hop {
    Hop { kind: None, way: Way::Link(Link::Named(name)) }
}

/// Objects of this kind that name it; they declare how.
pub const fn linked_by<K: Kind>() -> Hop {
    Hop { kind: of::<K>(), way: Way::LinkedBy }
}

/// A kind that is referred to and has not been listed yet: what is not in the cache may be there all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotListed(pub ObjectKey);

impl Read {
    /// The objects at the end of the way.
    pub fn gather(&self, own: &Arc<Object>, cache: &Cache) -> Result<Vec<Arc<Object>>, NotListed> {
        let mut here = vec![own.clone()];
        for hop in self.path {
            let mut next = vec![];
            for object in &here {
                next.extend(hop.forward(object, cache)?);
            }
            here = next;
        }
        Ok(here)
    }

    /// Objects of the own kind that look at the changed one.
    pub fn concerned(&self, own: GroupKind, change: &Change, cache: &Cache) -> Vec<ObjectKey> {
        let Some((last, before)) = self.path.split_last() else { return vec![] };
        if last.kind.is_some_and(|(group, kind)| (group, kind) != (change.key.group.as_str(), change.key.kind.as_str()))
            || !self.is_news(change)
        {
            return vec![];
        }
        // What it was and what it is: whoever it belonged to must hear of it, too.
        let mut here: Vec<Arc<Object>> = [&change.old, &change.new].into_iter().flatten().cloned().collect();
        let mut hop = last;
        for previous in before.iter().rev() {
            let Some(kind) = previous.kind else { return vec![] };
            here = here
                .iter()
                .flat_map(|object| hop.backward(kind, object, cache))
                .filter_map(|key| cache.get(&key))
                .collect();
            hop = previous;
        }
        let mut keys: Vec<ObjectKey> = here.iter().flat_map(|object| hop.backward(own, object, cache)).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    fn is_news(&self, change: &Change) -> bool {
        let (Some(old), Some(new)) = (change.old.as_deref(), change.new.as_deref()) else { return true };
        old.uid() != new.uid()
            || old.is_deleting() != new.is_deleting()
            || self.fields.iter().any(|path| field(old, path) != field(new, path))
    }

    /// The ways by which an object of a kind names others, as far as this read takes them.
    pub fn links(&self, own: GroupKind) -> Vec<(GroupKind, Link)> {
        let from = std::iter::once(Some(own)).chain(self.path.iter().map(|hop| hop.kind));
        let home = Link::Named(|object| Some(namespace(object)));
        let links = from.zip(self.path).flat_map(|(from, hop)| match hop.way {
            Way::Link(link) => [from.map(|from| (from, link)), None],
            Way::Noticed(names, _) => [from.map(|from| (from, Link::Several(names))), None],
            Way::Neighbours => [hop.kind.map(|kind| (kind, home)), None],
            Way::WatchedNeighbours => [hop.kind.map(|kind| (kind, home)), from.map(|from| (from, home))],
            _ => [None, None],
        });
        links.flatten().collect()
    }

    /// Kinds whose changes are noticed: by the kind that names them, with the field selector.
    pub fn noticed(&self, own: GroupKind) -> Option<(GroupKind, GroupKind, &'static str)> {
        let (last, before) = self.path.split_last()?;
        let Way::Noticed(_, fields) = last.way else { return None };
        Some((before.last().map_or(Some(own), |hop| hop.kind)?, last.kind?, fields))
    }
}

impl Hop {
    /// Whether what it leads to is kept in the cache.
    pub fn is_kept(&self) -> bool {
        !matches!(self.way, Way::Noticed(..))
    }

    fn fits(&self, key: &ObjectKey) -> bool {
        self.kind.is_none_or(|(group, kind)| (group, kind) == (key.group.as_str(), key.kind.as_str()))
    }

    fn forward(&self, from: &Object, cache: &Cache) -> Result<Vec<Arc<Object>>, NotListed> {
        let (group, kind) = self.kind.unwrap_or_default();
        Ok(match self.way {
            Way::Owner => {
                let owners =
                    from.owners().into_iter().filter(|owner| (owner.group(), owner.kind.as_str()) == (group, kind));
                let keys = owners.map(|owner| ObjectKey::new(group, kind, from.namespace(), &owner.name));
                keys.filter_map(|key| cache.get(&key)).collect()
            }
            Way::Owned => cache.owned_by(from.uid(), group, kind),
            Way::Cluster => references::cluster(from).and_then(|key| cache.get(&key)).into_iter().collect(),
            Way::Members => match references::cluster(from) {
                Some(cluster) => cache.of_cluster(&cluster.namespace, &cluster.name, group, kind),
                None => vec![],
            },
            Way::Link(link) => match link.target(from) {
                // A kind that neither we nor a provider has is not watched, and will not be listed.
                Some(key)
                    if cache.get(&key).is_none()
                        && !cache.is_listed(&key.group, &key.kind)
                        && (registry::kind(&key.group, &key.kind).is_some()
                            || cache.providers().may_be_listed(&key.group, &key.kind)) =>
                {
                    return Err(NotListed(key));
                }
                Some(key) => cache.get(&key).into_iter().collect(),
                None => vec![],
            },
            Way::LinkedBy => self.linking_to(&from.key(), cache),
            Way::Noticed(..) => vec![],
            Way::Neighbours | Way::WatchedNeighbours => self.linking_to(&namespace(from), cache),
        })
    }

    fn linking_to(&self, key: &ObjectKey, cache: &Cache) -> Vec<Arc<Object>> {
        let keys = cache.linking_to(key).into_iter().filter(|key| self.fits(key));
        keys.filter_map(|key| cache.get(&key)).collect()
    }

    /// Objects of a kind from which this hop leads to the object.
    fn backward(&self, from: GroupKind, to: &Object, cache: &Cache) -> Vec<ObjectKey> {
        let of_kind = |key: &ObjectKey| (key.group.as_str(), key.kind.as_str()) == from;
        let keys = |objects: Vec<Arc<Object>>| objects.iter().map(|object| object.key()).collect::<Vec<_>>();
        match self.way {
            Way::Owner => keys(cache.owned_by(to.uid(), from.0, from.1)),
            Way::Owned => {
                let owners = to.owners().into_iter().filter(|owner| (owner.group(), owner.kind.as_str()) == from);
                owners.map(|owner| ObjectKey::new(from.0, from.1, to.namespace(), &owner.name)).collect()
            }
            Way::Cluster => keys(cache.of_cluster(to.namespace(), to.name(), from.0, from.1)),
            Way::Members => match references::cluster(to) {
                Some(cluster) if of_kind(&cluster) => vec![cluster],
                Some(cluster) => keys(cache.of_cluster(&cluster.namespace, &cluster.name, from.0, from.1)),
                None => vec![],
            },
            // They are read when they are needed: a change of one wakes nobody.
            Way::Neighbours => vec![],
            Way::WatchedNeighbours => cache.linking_to(&namespace(to)).into_iter().filter(of_kind).collect(),
            Way::Link(_) | Way::Noticed(..) => cache.linking_to(&to.key()).into_iter().filter(of_kind).collect(),
            Way::LinkedBy => cache.links_of(to).into_iter().filter(of_kind).collect(),
        }
    }
}

/// Where an object is, as a key by which its neighbours are found.
fn namespace(object: &Object) -> ObjectKey {
    ObjectKey::new("", "Namespace", "", object.namespace())
}

/// A declared field of an object.
pub fn field<'a>(object: &'a Object, path: &str) -> &'a Value {
    value_at(&object.0, path)
}

/// The same within a part of an object.
pub fn value_at<'a>(value: &'a Value, path: &str) -> &'a Value {
    let get = |pointer: &str| hangar_api::value_at(value, pointer);
    let Some((list, kind)) = path.strip_suffix(']').and_then(|path| path.split_once('[')) else { return get(path) };
    let mut conditions = get(list).as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind).map_or(&Value::Null, |condition| &condition["status"])
}

#[cfg(test)]
mod tests;
