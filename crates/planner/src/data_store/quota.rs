//! How much of a shared store one tenant may use: when tenants are measured, and what is said about those above the quota; [`super::read_only`] is what is done.
//!
//! Flows: the store's size -> whether it is worth to measure -> bytes of each tenant -> condition. Holds: measuring reads every key of a tenant, so a store that as
//! a whole holds less than one tenant may use is never measured, and others only when they grew or somebody was above the quota.

use hangar_api::Object;
use hangar_api::conditions::{Condition, Status};

/// On a DataStore: how much each of its tenants may use, such as `2Gi`.
pub const QUOTA_ANNOTATION: &str = "hangar.dev/tenant-quota";
const DEFAULT: u64 = 2 << 30;
/// A store that grew by this share of the quota since the last time is measured again.
const GROWTH: u64 = 8;

/// What one tenant uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantUsage {
    /// `namespace/name` of its control plane.
    pub plane: String,
    /// Keys and values in their newest version.
    pub bytes: u64,
}

/// What came out when all tenants of a store were measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measured {
    /// What the store held then.
    pub in_use: u64,
    pub tenants: Vec<TenantUsage>,
}

/// What the annotation says; one that cannot be read is an error, and the default counts.
pub fn quota(store: &Object) -> Result<u64, String> {
    let Some(text) = store.annotation(QUOTA_ANNOTATION) else { return Ok(DEFAULT) };
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor: Option<u64> = match &text[digits.len()..] {
        "" => Some(1),
        "Ki" => Some(1 << 10),
        "Mi" => Some(1 << 20),
        "Gi" => Some(1 << 30),
        _ => None,
    };
    let bytes = factor.and_then(|factor| digits.parse::<u64>().ok()?.checked_mul(factor)).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("annotation {QUOTA_ANNOTATION}: {text:?} is not a size such as 512Mi or 2Gi"))
}

/// The quota that counts.
pub fn effective(store: &Object) -> u64 {
    quota(store).unwrap_or(DEFAULT)
}

/// Whether tenants are to be measured now.
pub fn is_due(in_use: u64, quota: u64, last: Option<&Measured>) -> bool {
    if in_use < quota {
        return false;
    }
    let Some(last) = last else { return true };
    in_use.abs_diff(last.in_use) >= quota / GROWTH || last.tenants.iter().any(|tenant| tenant.bytes > quota)
}

/// Above this, a tenant takes so much that others may soon have no room.
pub(super) fn hard(quota: u64) -> u64 {
    quota.saturating_add(quota / 4)
}

/// Said only while a tenant is above the quota, or the quota cannot be read.
pub fn condition(store: &Object, usage: &[TenantUsage]) -> Option<Condition> {
    let said = |reason: &str, text: String| Some(Condition::new("TenantsWithinQuota", Status::False, reason, text));
    let quota = match quota(store) {
        Ok(quota) => quota,
        Err(error) => return said("QuotaUnreadable", format!("{error}; {} counts", size(DEFAULT))),
    };
    let mut above: Vec<&TenantUsage> = usage.iter().filter(|tenant| tenant.bytes > quota).collect();
    above.sort_by_key(|tenant| std::cmp::Reverse(tenant.bytes));
    let worst = above.first()?.bytes;
    let list: Vec<String> =
        above.iter().map(|tenant| format!("{} uses {}", tenant.plane, size(tenant.bytes))).collect();
    let reason = if worst > hard(quota) { "TenantFarAboveQuota" } else { "TenantAboveQuota" };
    let advice = "delete objects in that cluster, or raise the annotation hangar.dev/tenant-quota of this DataStore";
    let limit = format!("from {} on, a tenant is read-only until it is below the quota", size(hard(quota)));
    said(reason, format!("the quota of each tenant is {}, and {}: {advice}; {limit}", size(quota), list.join(", ")))
}

/// In mebibytes, so that a message changes seldom.
fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{bytes} bytes"),
        mebibytes => format!("{mebibytes} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GI: u64 = 1 << 30;

    fn store(annotation: Option<&str>) -> Object {
        Object(json!({ "metadata": { "annotations": annotation.map(|text| json!({ QUOTA_ANNOTATION: text })) } }))
    }

    fn measured(in_use: u64, bytes: u64) -> Measured {
        Measured { in_use, tenants: vec![TenantUsage { plane: "n/a".into(), bytes }] }
    }

    #[test]
    fn a_quota_is_a_size() {
        let rows = [
            (None, Some(2 * GI)),
            (Some("1Gi"), Some(GI)),
            (Some("512Mi"), Some(GI / 2)),
            (Some("100"), Some(100)),
            (Some("0"), None),
            (Some("2G"), None),
            (Some("-1Gi"), None),
            (Some("99999999999Gi"), None),
            (Some(""), None),
            (Some("2Gié"), None),
        ];
        for (text, expected) in rows {
            assert_eq!(quota(&store(text)).ok(), expected, "{text:?}");
            assert_eq!(effective(&store(text)), expected.unwrap_or(2 * GI));
        }
    }

    #[test]
    fn a_store_is_measured_only_when_somebody_may_be_above_the_quota() {
        let rows = [
            ("less in all than one tenant may use", GI, None, false),
            ("never measured", 3 * GI, None, true),
            ("measured, and hardly grown", 3 * GI, Some(measured(3 * GI - 1000, GI)), false),
            ("grown by an eighth of the quota", 3 * GI, Some(measured(3 * GI - GI / 4, GI)), true),
            ("shrunk as much", 3 * GI, Some(measured(3 * GI + GI / 4, GI)), true),
            ("somebody was above it, and may be back", 3 * GI, Some(measured(3 * GI, 2 * GI + 1)), true),
            ("everybody is below it, since the store is", GI, Some(measured(3 * GI, 2 * GI + 1)), false),
        ];
        for (what, in_use, last, expected) in rows {
            assert_eq!(is_due(in_use, 2 * GI, last.as_ref()), expected, "{what}");
        }
    }

    #[test]
    fn tenants_above_the_quota_are_named_the_largest_first() {
        let usage = |plane: &str, bytes: u64| TenantUsage { plane: plane.into(), bytes };
        let all = [usage("n/small", GI), usage("n/large", 2 * GI + GI / 10), usage("n/huge", 3 * GI)];
        assert_eq!(condition(&store(None), &all[..1]), None);
        let said = condition(&store(None), &all[..2]).unwrap();
        assert_eq!(said.reason, "TenantAboveQuota");
        let said = condition(&store(None), &all).unwrap();
        assert_eq!(said.reason, "TenantFarAboveQuota");
        let list = "the quota of each tenant is 2048 MiB, and n/huge uses 3072 MiB, n/large uses 2150 MiB: ";
        assert!(said.message.starts_with(list), "{}", said.message);
        assert_eq!(condition(&store(Some("4Gi")), &all), None);
        assert_eq!(condition(&store(Some("much")), &all).unwrap().reason, "QuotaUnreadable");
    }
}
