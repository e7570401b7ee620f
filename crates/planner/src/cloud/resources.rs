//! Resources of the cloud, by type and id.
//!
//! Holds: a resource of ours says so itself, by the owner's key that its create call wrote; of several with one key the oldest counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hangar_openstack_types::{Port, SecurityGroup, Server};

use crate::owner_key::OwnerKey;

/// The metadata entry of a server that holds the owner's key.
pub const KEY_METADATA: &str = "hangar-key";

/// The sorts of resources that we make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceType {
    Server,
    Port,
    SecurityGroup,
}

/// One resource, as the cloud describes it.
#[derive(Debug, Clone, PartialEq)]
pub enum Resource {
    Server(Arc<Server>),
    Port(Arc<Port>),
    SecurityGroup(Arc<SecurityGroup>),
}

/// What every resource of ours has.
pub trait Owned {
    const TYPE: ResourceType;
    fn id(&self) -> &str;
    fn owner_key(&self) -> Option<OwnerKey>;
    /// Creation time; ids tell apart what came in the same second.
    fn age(&self) -> (&str, &str);
}

impl Owned for Server {
    const TYPE: ResourceType = ResourceType::Server;
    fn id(&self) -> &str {
        &self.id
    }
    fn owner_key(&self) -> Option<OwnerKey> {
        OwnerKey::find_in(self.metadata.get(KEY_METADATA)?)
    }
    fn age(&self) -> (&str, &str) {
        (&self.created, &self.id)
    }
}

impl Owned for Port {
    const TYPE: ResourceType = ResourceType::Port;
    fn id(&self) -> &str {
        &self.id
    }
    fn owner_key(&self) -> Option<OwnerKey> {
        OwnerKey::find_in(&self.description)
    }
    fn age(&self) -> (&str, &str) {
        (self.created_at.as_deref().unwrap_or_default(), &self.id)
    }
}

impl Owned for SecurityGroup {
    const TYPE: ResourceType = ResourceType::SecurityGroup;
    fn id(&self) -> &str {
        &self.id
    }
    fn owner_key(&self) -> Option<OwnerKey> {
        OwnerKey::find_in(&self.description)
    }
    fn age(&self) -> (&str, &str) {
        (self.created_at.as_deref().unwrap_or_default(), &self.id)
    }
}

/// Everything that carries one object's key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resources {
    pub servers: BTreeMap<String, Arc<Server>>,
    pub ports: BTreeMap<String, Arc<Port>>,
    pub security_groups: BTreeMap<String, Arc<SecurityGroup>>,
}

impl Resources {
    pub fn insert(&mut self, resource: Resource) {
        match resource {
            Resource::Server(server) => drop(self.servers.insert(server.id.clone(), server)),
            Resource::Port(port) => drop(self.ports.insert(port.id.clone(), port)),
            Resource::SecurityGroup(group) => drop(self.security_groups.insert(group.id.clone(), group)),
        }
    }

    pub fn remove(&mut self, of: ResourceType, id: &str) {
        match of {
            ResourceType::Server => drop(self.servers.remove(id)),
            ResourceType::Port => drop(self.ports.remove(id)),
            ResourceType::SecurityGroup => drop(self.security_groups.remove(id)),
        }
    }
}

/// Of several resources with one role the oldest counts; the others came from an answer that was lost.
pub fn oldest<'a, T: Owned>(items: &'a BTreeMap<String, Arc<T>>, role: &str) -> Option<&'a T> {
    first(items, role, T::age)
}

/// The same, by another order.
pub(super) fn first<'a, T: Owned, O: Ord>(
    items: &'a BTreeMap<String, Arc<T>>,
    role: &str,
    order: impl Fn(&'a T) -> O,
) -> Option<&'a T> {
    let of_role = items.values().filter(|item| item.owner_key().is_some_and(|key| key.role == role));
    of_role.map(Arc::as_ref).min_by_key(|item| order(item))
}

/// Whether there are several with one role.
pub fn has_twins<T: Owned>(items: &BTreeMap<String, Arc<T>>) -> bool {
    let mut roles = BTreeSet::new();
    items.values().filter_map(|item| item.owner_key()).any(|key| !roles.insert(key.role))
}
