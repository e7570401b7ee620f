//! How much the tenants of each store use: measured in pieces, and kept.
//!
//! Flows: is it due ([`quota::is_due`]) -> every tenant's keys in pages, for at most [`AT_A_TIME`] in one pass -> when all are through, what the planner sees. Holds: a
//! measurement that is not complete changes nothing; one that fails begins anew when it is due; nothing is measured where nobody can be above the quota.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hangar_api::{Object, ObjectKey};
use hangar_planner::data_store::quota::{self, Measured, TenantUsage};
use tokio::time::Instant;

use crate::data_stores::{DataStoreAccess, DataStores};

/// A pass has a deadline, and other stores wait.
const AT_A_TIME: Duration = Duration::from_secs(10);

/// A part of a tenant's keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsagePage {
    pub bytes: u64,
    /// Where to go on; nothing at the end.
    pub next: Option<Vec<u8>>,
}

/// A tenant to be measured: its control plane and its prefix.
pub type Tenant = (String, String);

#[derive(Default)]
struct Store {
    measured: Option<Measured>,
    under_way: Option<UnderWay>,
}

/// A measurement that is not complete.
struct UnderWay {
    in_use: u64,
    left: Vec<Tenant>,
    done: Vec<TenantUsage>,
    /// Of the last in `left`: where to go on, and what there was before.
    at: Option<(Vec<u8>, u64)>,
}

/// What is known of each store.
#[derive(Default)]
pub struct Usage(Mutex<BTreeMap<ObjectKey, Store>>);

impl Usage {
    fn stores(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Store>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn forget(&self, store: &ObjectKey) {
        self.stores().remove(store);
    }

    /// What the tenants use as far as it is known, and whether there is more to measure.
    pub async fn look(
        &self,
        stores: &dyn DataStores,
        access: &DataStoreAccess,
        object: &Object,
        in_use: u64,
        tenants: Vec<Tenant>,
    ) -> (Vec<TenantUsage>, bool) {
        let (key, quota) = (object.key(), quota::effective(object));
        let mut store = self.stores().remove(&key).unwrap_or_default();
        if store.under_way.is_none() && quota::is_due(in_use, quota, store.measured.as_ref()) {
            store.under_way = Some(UnderWay { in_use, left: tenants, done: vec![], at: None });
        }
        if let Some(under_way) = store.under_way.take() {
            match measure(stores, access, under_way).await {
                Ok(Progress::Done(measured)) => store.measured = Some(measured),
                Ok(Progress::More(under_way)) => store.under_way = Some(under_way),
                // A store that does not answer says so elsewhere; it is due again when it does.
                Err(_) => {}
            }
        }
        // Where all together are below the quota, each is, and what was measured before is of no interest.
        let usage = store.measured.as_ref().filter(|_| in_use >= quota).map(|measured| measured.tenants.clone());
        let more = store.under_way.is_some();
        self.stores().insert(key, store);
        (usage.unwrap_or_default(), more)
    }
}

enum Progress {
    Done(Measured),
    More(UnderWay),
}

async fn measure(
    stores: &dyn DataStores,
    access: &DataStoreAccess,
    mut under_way: UnderWay,
) -> Result<Progress, String> {
    let began = Instant::now();
    while let Some((plane, prefix)) = under_way.left.last() {
        if began.elapsed() > AT_A_TIME {
            return Ok(Progress::More(under_way));
        }
        let (from, before) = under_way.at.take().unwrap_or_else(|| (prefix.clone().into_bytes(), 0));
        let page = stores.usage(access, prefix, &from).await?;
        let bytes = before.saturating_add(page.bytes);
        match page.next {
            Some(next) => under_way.at = Some((next, bytes)),
            None => {
                under_way.done.push(TenantUsage { plane: plane.clone(), bytes });
                under_way.left.pop();
            }
        }
    }
    Ok(Progress::Done(Measured { in_use: under_way.in_use, tenants: under_way.done }))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use hangar_planner::data_store::Member;
    use hangar_planner::step::DataStoreCall;
    use serde_json::json;

    use super::*;

    /// Each tenant has two pages; slow ones take longer than a pass has.
    struct Pages {
        bytes: Mutex<u64>,
        slow: bool,
        asked: Mutex<Vec<String>>,
    }

    #[async_trait]
    impl DataStores for Pages {
        async fn call(&self, _access: &DataStoreAccess, _call: &DataStoreCall) -> Result<(), String> {
            Err("not here".to_owned())
        }

        async fn members(&self, _access: &DataStoreAccess) -> Vec<Member> {
            vec![]
        }

        async fn usage(&self, _access: &DataStoreAccess, prefix: &str, from: &[u8]) -> Result<UsagePage, String> {
            if self.slow {
                tokio::time::advance(AT_A_TIME * 2).await;
            }
            self.asked.lock().unwrap().push(String::from_utf8_lossy(from).into_owned());
            let next = (from == prefix.as_bytes()).then(|| format!("{prefix}second").into_bytes());
            Ok(UsagePage { bytes: *self.bytes.lock().unwrap() / 2, next })
        }
    }

    fn store() -> Object {
        Object(json!({
            "apiVersion": "kamaji.clastix.io/v1alpha1", "kind": "DataStore",
            "metadata": { "name": "d", "annotations": { quota::QUOTA_ANNOTATION: "1000" } },
        }))
    }

    fn access() -> DataStoreAccess {
        let none = String::new;
        DataStoreAccess { endpoints: vec![], ca_pem: none(), certificate_pem: none(), key_pem: none() }
    }

    fn tenants() -> Vec<Tenant> {
        vec![("n/a".into(), "/a/".into()), ("n/b".into(), "/b/".into())]
    }

    fn pages(bytes: u64, slow: bool) -> Pages {
        Pages { bytes: Mutex::new(bytes), slow, asked: Mutex::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn tenants_are_measured_page_by_page_when_it_is_due_and_again_until_they_are_back() {
        let (usage, stores) = (Usage::default(), pages(1200, false));
        let look = async |in_use: u64| usage.look(&stores, &access(), &store(), in_use, tenants()).await;
        assert_eq!(look(999).await, (vec![], false));
        assert!(stores.asked.lock().unwrap().is_empty(), "a small store is not read");
        let (found, more) = look(2400).await;
        assert_eq!((found.iter().map(|one| one.bytes).collect::<Vec<_>>(), more), (vec![1200, 1200], false));
        assert_eq!(*stores.asked.lock().unwrap(), ["/b/", "/b/second", "/a/", "/a/second"]);
        *stores.bytes.lock().unwrap() = 600;
        assert_eq!(look(2400).await.0[0].bytes, 600, "somebody was above the quota, so it is looked at again");
        let asked = stores.asked.lock().unwrap().len();
        look(2400).await;
        assert_eq!(stores.asked.lock().unwrap().len(), asked, "all are below it, and nothing grew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_measurement_goes_on_in_the_next_pass() {
        let (usage, stores) = (Usage::default(), pages(1200, true));
        let mut rounds = 0;
        let found = loop {
            let (found, more) = usage.look(&stores, &access(), &store(), 2400, tenants()).await;
            rounds += 1;
            if !more {
                break found;
            }
            assert!(found.is_empty(), "half of a measurement says nothing");
        };
        assert_eq!((rounds, found.len()), (4, 2));
        assert_eq!(stores.asked.lock().unwrap().len(), 4, "no page is read twice");
    }
}
