//! What must hold at every moment: checked after each committed write to the management cluster and to the cloud, not at the end.
//!
//! Flows: a write -> [`Laws`], which keeps a view of its own -> one module per law -> violations, which [`Laws::check`] turns into a panic.
//! Holds: the laws know nothing of the controllers' caches or plans; they see what users and the cloud would see. A user's own write is never
//! a violation: Hangar's requests are known by the user [`HANGAR`].

mod deleting;
mod drain;
mod foreign;
mod identity;
mod paused;
mod rollout;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hangar_api::ObjectKey;
use hangar_kubesim::{Clock, KubeApi, Write};
use hangar_planner::OwnerKey;
use hangar_simulator::{CloudWrite, Simulator};
use serde_json::Value;
use tokio::time::Instant;

use crate::tenants::Tenants;

/// The user that the engine's requests to the management cluster are known by.
pub const HANGAR: &str = "hangar";

/// Until the event of a watch has reached everybody.
const NEWS_TAKE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// `rollout`, `paused`, `deleting`, `foreign`, `key`, `name` or `drain`.
    pub law: &'static str,
    /// In simulated time.
    pub at: String,
    pub what: String,
}

/// Clones are the same.
#[derive(Clone)]
pub struct Laws(Arc<Mutex<Book>>);

/// A resource of the cloud: table and id.
pub type ResourceId = (String, String);

/// What the laws know.
struct Book {
    seed: u64,
    clock: Clock,
    violations: Vec<Violation>,
    /// Every object as it stands.
    objects: BTreeMap<ObjectKey, Value>,
    /// When what a user wants of an object last changed, and what it was before.
    earlier: BTreeMap<ObjectKey, (Instant, Value)>,
    /// Every resource that carries a key, and the foreign ones.
    cloud: BTreeMap<ResourceId, Resource>,
    /// Living resources by table and key.
    keys: BTreeMap<(String, String), BTreeSet<String>>,
    /// Whoever had a name first, by uid.
    names: BTreeMap<ObjectKey, String>,
    /// Since when an object that is still there is being deleted.
    going: BTreeMap<ObjectKey, Instant>,
    foreign_objects: BTreeSet<ObjectKey>,
    foreign_resources: BTreeSet<ResourceId>,
    duplicates_excused: bool,
    two_act_at_once: bool,
    /// What a controller may still do because it cannot know better yet: watches take a while, and a pass that has begun goes on.
    news_take: Duration,
    /// How long a call may be on its way to the cloud.
    calls_take: Duration,
    /// Where pods run.
    tenants: Option<Tenants>,
}

/// What the laws remember of a resource.
#[derive(Clone)]
struct Resource {
    key: Option<OwnerKey>,
    /// Nova was told to delete it.
    deleting: bool,
}

impl Laws {
    /// Of a world that nobody looks at yet.
    pub fn new(clock: Clock, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Book {
            seed,
            clock,
            violations: vec![],
            objects: BTreeMap::new(),
            earlier: BTreeMap::new(),
            cloud: BTreeMap::new(),
            keys: BTreeMap::new(),
            names: BTreeMap::new(),
            going: BTreeMap::new(),
            foreign_objects: BTreeSet::new(),
            foreign_resources: BTreeSet::new(),
            duplicates_excused: false,
            two_act_at_once: false,
            news_take: NEWS_TAKE,
            calls_take: Duration::ZERO,
            tenants: None,
        })))
    }

    /// Looks on from now on.
    pub fn watch(&self, management: &KubeApi, cloud: &Simulator, tenants: &Tenants) {
        self.book().tenants = Some(tenants.clone());
        let (objects, resources) = (self.clone(), self.clone());
        management.observe(Arc::new(move |write| objects.book().written(write)));
        cloud.observe(Arc::new(move |write| resources.book().changed(write)));
    }

    /// Looks on no more: it holds worlds that hold it.
    pub(crate) fn let_go(&self) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).tenants = None;
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap()
    }

    /// Everything that went wrong so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.book().violations.clone()
    }

    /// Panics if anything went wrong so far.
    pub fn check(&self) {
        let book = self.book();
        let lines: Vec<String> =
            book.violations.iter().map(|broken| format!("{} {}: {}", broken.at, broken.law, broken.what)).collect();
        assert!(lines.is_empty(), "seed {}: {} violations\n{}", book.seed, lines.len(), lines.join("\n"));
    }

    /// At the end of a simulation: what was excused for a while must be over.
    pub fn check_at_the_end(&self) {
        self.book().no_key_twice();
        self.check();
    }

    /// For simulations in which answers of creates get lost or lists are stale: two resources with one key may be there for a while.
    pub fn excuse_duplicates(&self) {
        self.book().duplicates_excused = true;
    }

    /// For simulations in which two processes act at once without a Lease: each makes what it does not see yet of the other's, and they write over each
    /// other's statuses, so that one deletes what is spare by a status that the other one has just changed. And one completes a Machine that the other one
    /// has just deleted, under the same names (see `identity`).
    pub fn excuse_two_at_once(&self) {
        self.book().two_act_at_once = true;
    }

    /// For simulations in which watches break: until they are back, nobody hears of anything.
    pub fn excuse_broken_watches(&self, time: Duration) {
        self.book().news_take = time;
    }

    /// For simulations in which calls take so long to arrive at the cloud: what was asked for before a deletion is made after it.
    pub fn excuse_late_calls(&self, time: Duration) {
        self.book().calls_take = time;
    }

    pub fn are_duplicates_excused(&self) -> bool {
        self.book().duplicates_excused
    }

    /// This object is somebody else's.
    pub fn is_foreign_object(&self, key: ObjectKey) {
        self.book().foreign_objects.insert(key);
    }

    /// This resource of the cloud is somebody else's.
    pub fn is_foreign_resource(&self, table: &str, id: &str) {
        self.book().foreign_resources.insert((table.to_owned(), id.to_owned()));
    }

    /// Whether a resource of the cloud was declared foreign.
    pub fn knows_foreign(&self, id: &str) -> bool {
        self.book().foreign_resources.iter().any(|(_, known)| known == id)
    }
}

impl Book {
    fn violation(&mut self, law: &'static str, what: String) {
        let at = (self.clock)().to_string();
        self.violations.push(Violation { law, at, what });
    }

    fn written(&mut self, write: &Write<'_>) {
        if write.user == HANGAR {
            self.foreign_object(write);
            self.paused_object(write);
        }
        self.name_used_once(write);
        self.rollout(write);
        let wanted = |object: &Value| (object["spec"].clone(), object["metadata"]["annotations"].clone());
        if let (Some(before), Some(after)) = (write.before, write.after)
            && wanted(before) != wanted(after)
        {
            self.earlier.insert(write.key.clone(), (Instant::now(), before.clone()));
        }
        if write.after.is_some_and(is_object_deleting) {
            self.going.entry(write.key.clone()).or_insert_with(Instant::now);
        } else {
            self.going.remove(write.key);
        }
        match write.after {
            Some(object) => drop(self.objects.insert(write.key.clone(), object.clone())),
            None => drop(self.objects.remove(write.key)),
        }
    }

    fn changed(&mut self, write: &CloudWrite<'_>) {
        const TABLES: [&str; 10] = [
            "servers",
            "ports",
            "security_groups",
            "networks",
            "subnets",
            "routers",
            "volumes",
            "floating_ips",
            "trunks",
            "load_balancers",
        ];
        if !TABLES.contains(&write.table) {
            return;
        }
        self.foreign_resource(write);
        let id: ResourceId = (write.table.to_owned(), write.id.to_owned());
        let before = self.cloud.get(&id).cloned();
        let after = write.row.map(|row| Resource { key: key_of(row), deleting: is_deleting(row) });
        self.paused_resource(write, before.as_ref(), after.as_ref());
        self.made_while_deleting(write, before.as_ref(), after.as_ref());
        self.key_used_once(write, before.as_ref(), after.as_ref());
        if write.table == "servers" && before.as_ref().is_some_and(|before| !before.deleting) {
            self.emptied_before(write.id, after.as_ref().is_none_or(|after| after.deleting));
        }
        match after {
            Some(resource) => drop(self.cloud.insert(id, resource)),
            None => drop(self.cloud.remove(&id)),
        }
    }
}

/// The owner's key, wherever a resource of its kind has it.
fn key_of(row: &Value) -> Option<OwnerKey> {
    // A server's row is a record with the server inside.
    let resource = row.get("server").unwrap_or(row);
    let metadata = resource["metadata"].as_object().into_iter().flatten().map(|(_, value)| value);
    let texts = metadata.chain([&resource["description"]]).filter_map(Value::as_str);
    texts.filter_map(OwnerKey::find_in).next()
}

fn is_deleting(row: &Value) -> bool {
    row["server"]["OS-EXT-STS:task_state"] == "deleting"
}

fn is_object_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}
