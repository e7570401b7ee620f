//! Which tenants of a store are read-only: from far above the quota until below it.
//!
//! Flows: bytes of each tenant -> the mark on the DataStore -> control planes read it there. Holds: the mark is where only administrators of the management cluster
//! write, and names UIDs, so that whoever comes by the same name is not meant; what was not measured changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use hangar_api::Object;
use serde_json::json;

use super::quota::{self, TenantUsage};
use super::{Member, StoreFacts};
use crate::{Phase, intent};

/// On a DataStore, by Hangar: UIDs of control planes.
pub const READ_ONLY_ANNOTATION: &str = "hangar.dev/read-only-tenants";

fn marked(store: &Object) -> BTreeSet<String> {
    let text = store.annotation(READ_ONLY_ANNOTATION).unwrap_or_default();
    text.split(' ').filter(|uid| !uid.is_empty()).map(str::to_owned).collect()
}

/// Whether a store says so of a control plane.
pub fn is_marked(store: &Object, uid: &str) -> bool {
    marked(store).contains(uid)
}

/// As it should be; `planes` are the UIDs of those that there are, by namespace and name.
pub(super) fn ensure(store: &Object, planes: &BTreeMap<String, String>, facts: &StoreFacts) -> Phase {
    let quota = quota::effective(store);
    let next = next(&marked(store), planes, &facts.usage, is_below(&facts.members, quota), quota);
    if next == marked(store) {
        return Phase::Done;
    }
    let text: Vec<String> = next.into_iter().collect();
    let mark = json!({ "metadata": { "annotations": { READ_ONLY_ANNOTATION: text.join(" ") } } });
    Phase::steps(intent::touch(store, mark))
}

/// A store that holds less than the quota has no tenant above it.
fn is_below(members: &[Member], quota: u64) -> bool {
    let in_use = members.iter().filter(|member| member.answers).map(|member| member.in_use).max();
    in_use.is_some_and(|in_use| in_use < quota)
}

fn next(
    marked: &BTreeSet<String>,
    planes: &BTreeMap<String, String>,
    usage: &[TenantUsage],
    all_are_below: bool,
    quota: u64,
) -> BTreeSet<String> {
    let bytes = |plane: &String| usage.iter().find(|tenant| tenant.plane == *plane).map(|tenant| tenant.bytes);
    let stays = |plane: &String, uid: &String| match bytes(plane) {
        _ if all_are_below => false,
        Some(bytes) if bytes > quota::hard(quota) => true,
        Some(bytes) if bytes <= quota => false,
        _ => marked.contains(uid),
    };
    planes.iter().filter(|(plane, uid)| stays(plane, uid)).map(|(_, uid)| uid.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: u64 = 1000;

    fn set(uids: &[&str]) -> BTreeSet<String> {
        uids.iter().map(|uid| (*uid).to_owned()).collect()
    }

    #[test]
    fn a_tenant_is_read_only_from_far_above_the_quota_until_below_it() {
        let planes = BTreeMap::from([("n/a".to_owned(), "a-uid".to_owned()), ("n/b".to_owned(), "b-uid".to_owned())]);
        let rows = [
            ("at the quota and a quarter", &[][..], Some(1250), false, &[][..]),
            ("above it", &[], Some(1251), false, &["a-uid"]),
            ("still above the quota", &["a-uid"], Some(1001), false, &["a-uid"]),
            ("at the quota", &["a-uid"], Some(1000), false, &[]),
            ("not measured, as after a restart", &["a-uid"], None, false, &["a-uid"]),
            ("the whole store is below it", &["a-uid"], None, true, &[]),
            ("another one of the same name", &["before-uid"], Some(1100), false, &[]),
            ("one that is gone", &["gone-uid", "b-uid"], None, false, &["b-uid"]),
        ];
        for (what, marked, bytes, all_are_below, expected) in rows {
            let usage: Vec<TenantUsage> =
                bytes.into_iter().map(|bytes| TenantUsage { plane: "n/a".into(), bytes }).collect();
            assert_eq!(next(&set(marked), &planes, &usage, all_are_below, QUOTA), set(expected), "{what}");
        }
    }

    #[test]
    fn only_members_that_answer_count() {
        let member = |answers: bool, in_use: u64| Member { answers, in_use, ..Member::default() };
        for (members, expected) in [
            (vec![], false),
            (vec![member(false, 1)], false),
            (vec![member(true, 999), member(false, 0)], true),
            (vec![member(true, 999), member(true, 1000)], false),
        ] {
            assert_eq!(is_below(&members, QUOTA), expected, "{members:?}");
        }
    }
}
