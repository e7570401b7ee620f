//! Which changes of an object its own controller looks at.
//!
//! Holds: its own status is no news to it; what others say in that status is.

use hangar_api::Object;

use crate::cache::Change;

/// A status is written by the object's own controller, which need not look at it again: else a message that is never twice the same would
/// keep it busy for ever.
pub(crate) fn concerns_itself(change: &Change) -> bool {
    let (Some(old), Some(new)) = (change.old.as_deref(), change.new.as_deref()) else { return true };
    const SERVER_FIELDS: [&str; 4] = ["resourceVersion", "managedFields", "generation", "creationTimestamp"];
    let same = |one: &serde_json::Value, other: &serde_json::Value, skipped: &[&str]| {
        let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
        let all = one.keys().chain(other.keys()).filter(|name| !skipped.contains(&name.as_str()));
        all.into_iter().all(|name| one.get(name) == other.get(name))
    };
    old.uid() != new.uid()
        || !same(&old.0, &new.0, &["status", "metadata"])
        || !same(old.get("/metadata"), new.get("/metadata"), &SERVER_FIELDS)
}

/// Others write conditions into statuses of ours, such as gates of a Machine.
pub(crate) fn is_said_by_others(change: &Change, own: &[&str]) -> bool {
    let (Some(old), Some(new)) = (change.old.as_deref(), change.new.as_deref()) else { return true };
    let theirs = |object: &Object| -> Vec<serde_json::Value> {
        let all = object.get("/status/conditions").as_array().into_iter().flatten();
        all.filter(|condition| !condition["type"].as_str().is_some_and(|kind| own.contains(&kind))).cloned().collect()
    };
    !own.is_empty() && theirs(old) != theirs(new)
}
