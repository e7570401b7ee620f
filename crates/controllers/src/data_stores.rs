//! Data stores of control planes: how they are reached, and who has a place in them.
//!
//! Holds: the credentials of a store are read when they are needed, and read again after a refusal; a connection that nobody uses is dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::{Object, ObjectKey};
use hangar_planner::Reason;
use hangar_planner::data_store::{Member, StoreFacts};
use hangar_planner::hosted::DataStoreView;
use hangar_planner::step::{DataStoreCall, Signer};
use serde_json::Value;
use tokio::time::Instant;

use crate::Context;
use crate::data_store_usage::{Tenant, UsagePage};
use crate::etcd::{Etcd, EtcdError};

/// A store that was not used for so long is reached by a new connection.
const IDLE: Duration = Duration::from_secs(3600);

/// How to reach a data store, with the right to make tenants.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DataStoreAccess {
    pub endpoints: Vec<String>,
    pub ca_pem: String,
    pub certificate_pem: String,
    pub key_pem: String,
}

/// Carries out calls to data stores; a simulation has its own.
#[async_trait]
pub trait DataStores: Send + Sync {
    async fn call(&self, access: &DataStoreAccess, call: &DataStoreCall) -> Result<(), String>;

    /// What each member says of itself.
    async fn members(&self, access: &DataStoreAccess) -> Vec<Member>;

    /// How much is below a prefix, from a key on.
    async fn usage(&self, access: &DataStoreAccess, prefix: &str, from: &[u8]) -> Result<UsagePage, String>;
}

/// Real etcd clusters: one connection for each.
#[derive(Default)]
pub struct EtcdDataStores(Mutex<BTreeMap<DataStoreAccess, (Instant, Arc<Etcd>)>>);

impl EtcdDataStores {
    fn etcd(&self, access: &DataStoreAccess) -> Result<Arc<Etcd>, EtcdError> {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (used, _)| now.duration_since(*used) < IDLE);
        if let Some((used, etcd)) = known.get_mut(access) {
            *used = now;
            return Ok(etcd.clone());
        }
        let etcd = Arc::new(Etcd::new(&access.endpoints, &access.ca_pem, &access.certificate_pem, &access.key_pem)?);
        known.insert(access.clone(), (now, etcd.clone()));
        Ok(etcd)
    }

    async fn carry_out(&self, access: &DataStoreAccess, call: &DataStoreCall) -> Result<(), EtcdError> {
        let etcd = self.etcd(access)?;
        match call {
            DataStoreCall::CreateTenant { owner, user, role, prefix } => {
                etcd.create_tenant(owner, user, role, prefix).await
            }
            DataStoreCall::DeleteTenant { owner, user, role, prefix } => {
                etcd.delete_tenant(owner, user, role, prefix).await
            }
            DataStoreCall::Defragment { endpoint } => etcd.defragment(endpoint).await,
        }
    }
}

#[async_trait]
impl DataStores for EtcdDataStores {
    async fn call(&self, access: &DataStoreAccess, call: &DataStoreCall) -> Result<(), String> {
        self.carry_out(access, call).await.map_err(|error| error.to_string())
    }

    async fn members(&self, access: &DataStoreAccess) -> Vec<Member> {
        match self.etcd(access) {
            Ok(etcd) => etcd.members().await,
            Err(_) => vec![],
        }
    }

    async fn usage(&self, access: &DataStoreAccess, prefix: &str, from: &[u8]) -> Result<UsagePage, String> {
        let etcd = self.etcd(access).map_err(|error| error.to_string())?;
        etcd.usage(prefix, from).await.map_err(|error| error.to_string())
    }
}

/// What a planner needs to know of a DataStore.
pub async fn view(context: &Context, store: &ObjectKey) -> DataStoreView {
    match resolve(context, store).await {
        Ok((access, authority)) => DataStoreView::Ready { endpoints: access.endpoints, authority },
        Err(view) => view,
    }
}

/// What a store says of its members and tenants; nothing if it cannot be used, which others report.
pub async fn facts(context: &Context, store: &Object, tenants: Vec<Tenant>) -> StoreFacts {
    let Ok((access, _)) = resolve(context, &store.key()).await else { return StoreFacts::default() };
    let members = context.data_stores.members(&access).await;
    let in_use = members.iter().map(|member| member.in_use).max().unwrap_or_default();
    let (usage, measuring) = context.usage.look(&*context.data_stores, &access, store, in_use, tenants).await;
    StoreFacts { members, usage, measuring }
}

/// Makes one call.
pub async fn call(context: &Context, store: &ObjectKey, call: &DataStoreCall) -> Result<(), Reason> {
    let (access, _) = resolve(context, store).await.map_err(|view| {
        let why = match view {
            DataStoreView::Unusable(why) => why,
            _ => format!("there is no DataStore {}", store.name),
        };
        Reason::retry("DataStoreUnusable", why)
    })?;
    context.data_stores.call(&access, call).await.map_err(|message| {
        context.unwatched.forget();
        Reason::retry("DataStoreRefused", message)
    })
}

/// The DataStore with everything that it refers to.
async fn resolve(context: &Context, key: &ObjectKey) -> Result<(DataStoreAccess, Signer), DataStoreView> {
    let store = context.cache().get(key).ok_or_else(|| DataStoreView::Missing(key.name.clone()))?;
    let unusable = |why: String| DataStoreView::Unusable(format!("DataStore {}: {why}", key.name));
    if store.text("/spec/driver") != "etcd" {
        return Err(unusable("only the driver etcd is built yet".into()));
    }
    let tls = store.get("/spec/tlsConfig");
    let (authority, client) = (&tls["certificateAuthority"], &tls["clientCertificate"]);
    let ca_pem = content(context, &authority["certificate"]).await.map_err(unusable)?;
    let ca_key = content(context, &authority["privateKey"]).await.map_err(unusable)?;
    let certificate_pem = content(context, &client["certificate"]).await.map_err(unusable)?;
    let key_pem = content(context, &client["privateKey"]).await.map_err(unusable)?;
    let endpoints = store.get("/spec/endpoints").as_array().into_iter().flatten();
    let endpoints = endpoints.filter_map(Value::as_str).map(str::to_owned).collect();
    let access = DataStoreAccess { endpoints, ca_pem: ca_pem.clone(), certificate_pem, key_pem };
    Ok((access, Signer { certificate_pem: ca_pem, key_pem: ca_key, trust_pem: None }))
}

/// Inline, or from a Secret.
async fn content(context: &Context, reference: &Value) -> Result<String, String> {
    if let Some(inline) = reference["content"].as_str() {
        let bytes = STANDARD.decode(inline).map_err(|error| error.to_string())?;
        return String::from_utf8(bytes).map_err(|error| error.to_string());
    }
    let secret = &reference["secretReference"];
    let text = |field: &str| secret[field].as_str().unwrap_or_default();
    let key = ObjectKey::new("", "Secret", text("namespace"), text("name"));
    let found = context
        .unwatched
        .get(context.management(), &key, crate::unwatched::AGE)
        .await
        .map_err(|error| error.to_string())?;
    let found = found.ok_or_else(|| format!("there is no {key}"))?;
    found.secret_text(text("keyPath")).ok_or_else(|| format!("{key} has no key {}", text("keyPath")))
}
