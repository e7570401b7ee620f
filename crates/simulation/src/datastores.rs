//! A data store that is not there: users and roles in memory, and calls that fail before or after they did their work.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hangar_controllers::data_store_usage::UsagePage;
use hangar_controllers::data_stores::{DataStoreAccess, DataStores};
use hangar_planner::data_store::Member;
use hangar_planner::step::DataStoreCall;

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Nothing is done, an error is answered.
    Before,
    /// It is done, an error is answered.
    After,
}

type Hook = Arc<dyn Fn() -> Fault + Send + Sync>;

/// Tenants of a shared etcd, by user: who has it, role and prefix.
#[derive(Default)]
pub struct MemoryDatastores {
    tenants: Mutex<BTreeMap<String, (String, String, String)>>,
    faults: Mutex<Option<Hook>>,
    /// Bytes of each tenant.
    used: Mutex<u64>,
}

impl MemoryDatastores {
    /// How many tenants there are.
    pub fn tenants(&self) -> usize {
        self.tenants.lock().unwrap().len()
    }

    pub fn users(&self) -> Vec<String> {
        self.tenants.lock().unwrap().keys().cloned().collect()
    }

    /// How much each tenant uses from now on.
    pub fn set_used(&self, bytes: u64) {
        *self.used.lock().unwrap() = bytes;
    }

    pub fn set_faults(&self, hook: Option<Hook>) {
        *self.faults.lock().unwrap() = hook;
    }
}

#[async_trait]
impl DataStores for MemoryDatastores {
    async fn call(&self, _access: &DataStoreAccess, call: &DataStoreCall) -> Result<(), String> {
        let hook = self.faults.lock().unwrap().clone();
        let fault = hook.map_or(Fault::None, |hook| hook());
        if fault == Fault::Before {
            return Err("etcdserver: request timed out".to_owned());
        }
        {
            let mut tenants = self.tenants.lock().unwrap();
            match call {
                DataStoreCall::CreateTenant { owner, user, role, prefix } => {
                    let others = tenants.iter().filter(|(_, (first, ..))| first != owner);
                    if let Some((name, _)) = others.into_iter().find(|(name, (_, of, _))| *name == user || of == role) {
                        return Err(format!("{name} is the name of another tenant of this data store"));
                    }
                    tenants.insert(user.clone(), (owner.clone(), role.clone(), prefix.clone()));
                }
                DataStoreCall::DeleteTenant { owner, .. } => tenants.retain(|_, (first, ..)| first != owner),
                DataStoreCall::Defragment { .. } => {}
            }
        }
        match fault {
            Fault::After => Err("etcdserver: request timed out, possibly due to connection lost".to_owned()),
            _ => Ok(()),
        }
    }

    async fn members(&self, _access: &DataStoreAccess) -> Vec<Member> {
        let in_use = *self.used.lock().unwrap() * self.tenants() as u64;
        if in_use == 0 {
            return vec![];
        }
        vec![Member { endpoint: "one".into(), answers: true, leads: true, size: in_use, in_use }]
    }

    /// Tenants have no keys in here, only sizes.
    async fn usage(&self, _access: &DataStoreAccess, _prefix: &str, _from: &[u8]) -> Result<UsagePage, String> {
        Ok(UsagePage { bytes: *self.used.lock().unwrap(), next: None })
    }
}
