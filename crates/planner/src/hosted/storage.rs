//! The place of a control plane in a shared data store: made, recorded, and taken away again.
//!
//! Flows: the record on the owner, before anything is made -> user and role -> Secret for people; and back. Holds: only what was recorded is removed,
//! from the store that was recorded; without a record nothing was ever made; what cannot be removed blocks, and says why.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::{Object, ObjectKey, kinds};
use serde_json::{Value, json};

use super::{ControlPlane, Hosting, Tenancy};
use crate::step::{DataStoreCall, Signer};
use crate::{Phase, Step, intent};

/// The store, user and schema that were chosen when the tenant was made.
const RECORD_ANNOTATION: &str = "hangar.dev/data-store-tenant";
/// Lets a control plane go although its data cannot be removed; only a person sets it.
pub const SKIP_CLEANUP_ANNOTATION: &str = "hangar.dev/skip-data-store-cleanup";

/// The DataStore that a control plane names.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum DataStoreView {
    #[default]
    Unknown,
    Missing(String),
    /// Something in it cannot be used.
    Unusable(String),
    Ready {
        endpoints: Vec<String>,
        authority: Signer,
    },
}

/// What is written on the owner.
pub fn record(tenancy: &Tenancy) -> Value {
    let text = json!({ "store": tenancy.store, "user": tenancy.user, "schema": tenancy.schema }).to_string();
    json!({ RECORD_ANNOTATION: text })
}

/// Below which its data is, as it was recorded on it.
pub fn prefix_of(plane: &Object) -> Option<String> {
    let value: Value = serde_json::from_str(plane.annotation(RECORD_ANNOTATION)?).ok()?;
    Some(format!("/{}/", value["schema"].as_str().filter(|schema| !schema.is_empty())?))
}

/// What was recorded; older control planes have it in their Secret.
fn recorded(hosting: &Hosting<'_>) -> Option<Tenancy> {
    let tenancy = |store: &str, user: &str, schema: &str| Tenancy {
        store: store.to_owned(),
        endpoints: vec![],
        schema: schema.to_owned(),
        user: user.to_owned(),
    };
    if let Some(text) = hosting.owner.annotation(RECORD_ANNOTATION) {
        let value: Value = serde_json::from_str(text).ok()?;
        return Some(tenancy(value["store"].as_str()?, value["user"].as_str()?, value["schema"].as_str()?));
    }
    let secret = hosting.own("", "Secret", &format!("{}-datastore-config", hosting.owner.name()))?;
    let store = hangar_api::references::data_store(hosting.owner).name;
    Some(tenancy(&store, &secret.secret_text("DB_USER")?, &secret.secret_text("DB_SCHEMA")?))
}

/// Its store and its place there do not change: that would be a migration.
pub fn unchanged(hosting: &Hosting<'_>, plane: &ControlPlane) -> Phase {
    let (Some(before), Some(now)) = (recorded(hosting), plane.tenancy()) else { return Phase::Done };
    if (&before.store, &before.user, &before.schema) == (&now.store, &now.user, &now.schema) {
        return Phase::Done;
    }
    Phase::blocked(
        "DataStoreChanged",
        format!(
            "its data is in DataStore {} under /{}/; moving it to DataStore {} under /{}/ is not built yet: restore the former values",
            before.store, before.schema, now.store, now.schema
        ),
    )
}

pub fn ready(view: &DataStoreView) -> Phase {
    match view {
        DataStoreView::Ready { .. } => Phase::Done,
        DataStoreView::Unknown => Phase::wait("WaitingForDataStore", "its DataStore has not been read yet"),
        DataStoreView::Missing(name) => Phase::wait("WaitingForDataStore", format!("there is no DataStore {name} yet")),
        DataStoreView::Unusable(why) => Phase::blocked("DataStoreUnusable", why.clone()),
    }
}

fn step(tenancy: &Tenancy, call: DataStoreCall) -> Step {
    Step::DataStore { store: ObjectKey::of::<kinds::DataStore>("", &tenancy.store), call }
}

/// The tenant's user and role in etcd; that they exist is said in a Secret, as Kamaji does.
pub fn create_tenant(hosting: &Hosting<'_>, plane: &ControlPlane) -> Phase {
    let Some(tenancy) = plane.tenancy() else { return Phase::Done };
    let name = plane.object("-datastore-config");
    let wanted = config_secret(plane, tenancy, &name);
    match intent::ensure(hosting.owner, hosting.named("", "Secret", &name), wanted) {
        Err(reason) => Phase::Blocked(reason),
        Ok(None) => Phase::Done,
        Ok(Some(apply)) if hosting.facts.tenant_created => Phase::Steps(vec![apply]),
        Ok(Some(_)) => {
            let owner = hosting.owner.uid().to_owned();
            let (user, role, prefix) = (tenancy.user.clone(), tenancy.schema.clone(), tenancy.prefix());
            Phase::Steps(vec![step(tenancy, DataStoreCall::CreateTenant { owner, user, role, prefix })])
        }
    }
}

fn config_secret(plane: &ControlPlane, tenancy: &Tenancy, name: &str) -> Object {
    let mut secret = Object::named("v1", "Secret", &plane.namespace, name);
    secret.0["metadata"]["labels"] = plane.own_labels();
    secret.0["data"] = json!({
        "DB_CONNECTION_STRING": STANDARD.encode(tenancy.endpoints.join(",")),
        "DB_SCHEMA": STANDARD.encode(&tenancy.schema),
        "DB_USER": STANDARD.encode(&tenancy.user),
    });
    secret
}

/// User, role and keys go. A store that cannot be read is no reason to forget them.
pub fn delete_tenant(hosting: &Hosting<'_>) -> Phase {
    let skip = hosting.owner.annotation(SKIP_CLEANUP_ANNOTATION) == Some("true");
    let Some(tenancy) = recorded(hosting).filter(|_| !skip && !hosting.facts.tenant_deleted) else {
        return Phase::Done;
    };
    let problem = match &hosting.facts.data_store {
        DataStoreView::Ready { .. } => {
            let owner = hosting.owner.uid().to_owned();
            let (user, role, prefix) = (tenancy.user.clone(), tenancy.schema.clone(), tenancy.prefix());
            return Phase::Steps(vec![step(&tenancy, DataStoreCall::DeleteTenant { owner, user, role, prefix })]);
        }
        DataStoreView::Unknown => format!("DataStore {} has not been read yet", tenancy.store),
        DataStoreView::Missing(name) => format!("there is no DataStore {name}"),
        DataStoreView::Unusable(why) => why.clone(),
    };
    Phase::blocked(
        "DataStoreCleanupBlocked",
        format!(
            "user {} and the keys below {} cannot be removed: {problem}; restore it, or give them up with the annotation {SKIP_CLEANUP_ANNOTATION}=true",
            tenancy.user,
            tenancy.prefix()
        ),
    )
}
