//! No owner's key is there twice, and no name of a Machine or of what belongs to it is ever used again.
//! Holds: a Machine's own name has no excuse; a name of what belongs to it has one only if the Machine is gone, or if a second process made it too late.

use hangar_api::ObjectKey;
use hangar_kubesim::Write;
use hangar_simulator::CloudWrite;
use serde_json::Value;

use super::{Book, Resource};

/// Kinds whose objects are replaced: a new one with the name of an old one would be taken for it.
const NAMED_ONCE: [&str; 3] = ["Machine", "OpenStackMachine", "KubeadmConfig"];

impl Book {
    pub(super) fn name_used_once(&mut self, write: &Write<'_>) {
        let Some(new) = write.after.filter(|_| write.before.is_none()) else { return };
        // What belongs to a Machine that is gone is collected at once: it comes from a cache whose watch is down, and stands for nothing.
        if !NAMED_ONCE.contains(&write.key.kind.as_str()) || !self.is_owner_there(new) {
            return;
        }
        let uid = new["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let first = self.names.entry(write.key.clone()).or_insert_with(|| uid.clone()).clone();
        if first != uid && !self.is_made_too_late(new) {
            let what = format!("{} was created with uid {uid}; the same name had uid {first} before", write.key);
            self.violation("name", what);
        }
    }

    fn is_owner_there(&self, object: &Value) -> bool {
        let Some((key, uid)) = controller_of(object) else { return true };
        self.objects.get(&key).is_some_and(|there| there["metadata"]["uid"] == *uid)
    }

    /// Of two processes without a Lease, one deletes a Machine and what belongs to it while the other one, who has not heard of it yet, still completes that
    /// Machine: no create can be made to depend on the state of another object. What it makes goes with the Machine that is being deleted, and what it
    /// has in the cloud has a key of its own, by its own uid. A process that acts alone knows what it has deleted: it has no excuse, and neither
    /// have two when the news has had its time, nor for a Machine that stays.
    fn is_made_too_late(&self, new: &Value) -> bool {
        let owner = controller_of(new).filter(|(key, _)| self.two_act_at_once && key.kind == "Machine");
        owner.and_then(|(key, _)| self.going.get(&key)).is_some_and(|since| since.elapsed() <= self.news_take)
    }

    pub(super) fn key_used_once(
        &mut self,
        write: &CloudWrite<'_>,
        before: Option<&Resource>,
        after: Option<&Resource>,
    ) {
        let living = |resource: Option<&Resource>| resource.filter(|now| !now.deleting).and_then(|now| now.key.clone());
        let (was, is) = (living(before), living(after));
        if was == is {
            return;
        }
        if let Some(key) = was {
            let entry = self.keys.entry((write.table.to_owned(), key.to_string())).or_default();
            entry.remove(write.id);
        }
        if let Some(key) = is {
            let entry = self.keys.entry((write.table.to_owned(), key.to_string())).or_default();
            entry.insert(write.id.to_owned());
            if entry.len() > 1 && !self.duplicates_excused {
                let ids = entry.iter().cloned().collect::<Vec<_>>().join(", ");
                self.violation("key", format!("{} {ids} have the same key {key}", write.table));
            }
        }
    }

    pub(super) fn no_key_twice(&mut self) {
        let twice: Vec<String> = self
            .keys
            .iter()
            .filter(|(_, ids)| ids.len() > 1)
            .map(|((table, key), ids)| format!("{table} {ids:?} have the same key {key} at the end"))
            .collect();
        twice.into_iter().for_each(|what| self.violation("key", what));
    }
}

/// Key and uid of the owner that controls an object.
fn controller_of(object: &Value) -> Option<(ObjectKey, &Value)> {
    let owner = object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)?;
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    Some((ObjectKey::new(group, text("kind"), namespace, text("name")), &owner["uid"]))
}
