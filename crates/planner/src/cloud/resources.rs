//! Resources of the cloud, by type and id.
//!
//! Holds: a resource of ours says so itself, by the owner's key that its create call wrote; of several with one key the oldest counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hangar_openstack_types::{
    FloatingIp, HealthMonitor, Image, Listener, LoadBalancer, Member, Network, Pool, Port, Router, SecurityGroup,
    Server, Subnet, Trunk, Volume,
};

use crate::owner_key::OwnerKey;

/// The metadata entry of a server or volume that holds the owner's key.
pub const KEY_METADATA: &str = "hangar-key";

/// What every resource of ours has.
pub trait Owned {
    const TYPE: ResourceType;
    fn id(&self) -> &str;
    fn owner_key(&self) -> Option<OwnerKey>;
    /// Creation time; ids tell apart what came in the same second.
    fn age(&self) -> (&str, &str);
}

/// A load balancer and what hangs below it. While anything in it is pending, Octavia takes no other change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadBalancerTree {
    pub balancer: LoadBalancer,
    /// What hangs below it is read only when it is not pending.
    pub listeners: Vec<Listener>,
    pub pools: Vec<Pool>,
    pub monitors: Vec<HealthMonitor>,
    /// By pool.
    pub members: BTreeMap<String, Vec<Member>>,
    /// Its provider has no health monitors.
    pub no_monitors: bool,
}

/// One sort of resource after the other: its type, its map, where its key is, and when it was made.
macro_rules! sorts {
    ($($variant:ident($type:ty) in $map:ident, $id:expr, $key:expr, $created:expr;)*) => {
        /// The sorts of resources that we make.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ResourceType { $($variant),* }

        /// One resource, as the cloud describes it.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Resource { $($variant(Arc<$type>)),* }

        impl Resource {
            /// Its sort and its id.
            pub fn place(&self) -> (ResourceType, &str) {
                match self {
                    $(Self::$variant(it) => (ResourceType::$variant, it.id()),)*
                }
            }
        }

        /// Everything that carries one object's key.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct Resources { $(pub $map: BTreeMap<String, Arc<$type>>),* }

        impl Resources {
            pub fn insert(&mut self, resource: Resource) {
                match resource {
                    $(Resource::$variant(it) => drop(self.$map.insert(it.id().to_owned(), it)),)*
                }
            }

            pub fn remove(&mut self, of: ResourceType, id: &str) {
                match of {
                    $(ResourceType::$variant => drop(self.$map.remove(id)),)*
                }
            }

            /// Only those whose role fits: the parts of one object do not see each other's resources.
            #[must_use]
            pub fn of_roles(&self, fits: impl Fn(&str) -> bool) -> Self {
                let fits = |key: Option<OwnerKey>| key.is_some_and(|key| fits(&key.role));
                Self {
                    $($map: self.$map.iter().filter(|(_, it)| fits(it.owner_key())).map(|(id, it)| (id.clone(), it.clone())).collect()),*
                }
            }
        }

        $(impl From<$type> for Resource {
            fn from(resource: $type) -> Self {
                Self::$variant(Arc::new(resource))
            }
        }

        impl Owned for $type {
            const TYPE: ResourceType = ResourceType::$variant;
            fn id(&self) -> &str {
                let id: fn(&Self) -> &str = $id;
                id(self)
            }
            fn owner_key(&self) -> Option<OwnerKey> {
                let key: fn(&Self) -> Option<&str> = $key;
                OwnerKey::find_in(key(self)?)
            }
            fn age(&self) -> (&str, &str) {
                let created: fn(&Self) -> &str = $created;
                (created(self), self.id())
            }
        })*
    };
}

fn made(created_at: Option<&String>) -> &str {
    created_at.map_or("", String::as_str)
}

sorts! {
    Server(Server) in servers, |it| &it.id, |it| it.metadata.get(KEY_METADATA).map(String::as_str), |it| &it.created;
    Port(Port) in ports, |it| &it.id, |it| Some(&it.description), |it| made(it.created_at.as_ref());
    SecurityGroup(SecurityGroup) in security_groups, |it| &it.id, |it| Some(&it.description), |it| made(it.created_at.as_ref());
    Network(Network) in networks, |it| &it.id, |it| Some(&it.description), |it| made(it.created_at.as_ref());
    Subnet(Subnet) in subnets, |it| &it.id, |it| Some(&it.description), |it| made(it.created_at.as_ref());
    Router(Router) in routers, |it| &it.id, |it| Some(&it.description), |it| made(it.created_at.as_ref());
    FloatingIp(FloatingIp) in floating_ips, |it| &it.id, |it| Some(&it.description), |it| made(it.created_at.as_ref());
    LoadBalancer(LoadBalancerTree) in load_balancers, |it| &it.balancer.id, |it| Some(&it.balancer.description), |it| &it.balancer.created_at;
    Volume(Volume) in volumes, |it| &it.id, |it| it.metadata.get(KEY_METADATA).map(String::as_str), |it| &it.created_at;
    Image(Image) in images, |it| &it.id, |it| it.property(crate::image::KEY_PROPERTY), |it| &it.created_at;
    Trunk(Trunk) in trunks, |it| &it.id, |it| Some(&it.description), |it| made(it.created_at.as_ref());
}

impl ResourceType {
    /// As the service calls all of them; only those of Neutron can be tagged afterwards.
    pub fn collection(self) -> &'static str {
        match self {
            Self::Port => "ports",
            Self::SecurityGroup => "security-groups",
            Self::Network => "networks",
            Self::Subnet => "subnets",
            Self::Router => "routers",
            Self::FloatingIp => "floatingips",
            Self::Trunk => "trunks",
            Self::Server => "servers",
            Self::LoadBalancer => "loadbalancers",
            Self::Volume => "volumes",
            Self::Image => "images",
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
