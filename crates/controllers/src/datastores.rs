//! Tenants of a datastore come and go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use hangar_planner::step::DatastoreCall;

use crate::etcd::{Etcd, EtcdError};

/// How to reach a datastore, with the right to admit tenants.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatastoreAccess {
    pub endpoints: Vec<String>,
    pub ca_pem: String,
    pub certificate_pem: String,
    pub key_pem: String,
}

/// Carries out calls to datastores; a simulation has its own.
#[async_trait]
pub trait Datastores: Send + Sync {
    async fn call(&self, access: &DatastoreAccess, call: &DatastoreCall) -> Result<(), String>;
}

/// Real etcd clusters: one connection for each.
#[derive(Default)]
pub struct EtcdDatastores(Mutex<BTreeMap<DatastoreAccess, Arc<Etcd>>>);

impl EtcdDatastores {
    fn etcd(&self, access: &DatastoreAccess) -> Result<Arc<Etcd>, EtcdError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(etcd) = known.get(access) {
            return Ok(etcd.clone());
        }
        let endpoint = access.endpoints.first().map(String::as_str).unwrap_or_default();
        let etcd = Arc::new(Etcd::new(endpoint, &access.ca_pem, &access.certificate_pem, &access.key_pem)?);
        known.insert(access.clone(), etcd.clone());
        Ok(etcd)
    }

    async fn carry_out(&self, access: &DatastoreAccess, call: &DatastoreCall) -> Result<(), EtcdError> {
        let etcd = self.etcd(access)?;
        match call {
            DatastoreCall::Admit { user, role, prefix } => {
                etcd.enable_auth().await?;
                tokio::try_join!(etcd.add_role(role), etcd.add_user(user))?;
                tokio::try_join!(etcd.grant_prefix(role, prefix), etcd.grant_role(user, role)).map(drop)
            }
            DatastoreCall::Evict { user, role, prefix } => {
                etcd.delete_user(user).await?;
                etcd.delete_role(role).await?;
                etcd.delete_prefix(prefix).await
            }
        }
    }
}

#[async_trait]
impl Datastores for EtcdDatastores {
    async fn call(&self, access: &DatastoreAccess, call: &DatastoreCall) -> Result<(), String> {
        self.carry_out(access, call).await.map_err(|error| error.to_string())
    }
}
