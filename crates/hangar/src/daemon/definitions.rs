//! The definitions of our kinds and the registration of the webhook, written at a start where they are not what they should be.
//!
//! Holds: what was written is kept in a file of the home (digest of the definition, UID and generation that the API server gave it); a definition
//! that somebody else changed or removed has another generation or UID, and is written again. A plane that has nothing yet gets all of them
//! before it runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use hangar_api::Object;
use hangar_api::crds::{WebhookAddress, definitions};
use hangar_embedded::{Home, InitialObject};
use hangar_engine::management::api_of;
use hangar_engine::webhook::admission_configuration;
use hangar_planner::intent::fingerprint;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::stored_definitions::{default_account, key, stored};

/// One definition as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    digest: String,
    uid: String,
    generation: i64,
}

/// What the API server has from us.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    definitions: BTreeMap<String, Written>,
    /// The digest of the webhook's registration.
    #[serde(default)]
    registration: String,
}

/// All of them for a plane that has nothing yet, and what is to be remembered of them.
///
/// The account that pods need is among them: the controller manager makes it when its caches are filled, which is seconds after the API
/// server is ready.
pub fn initial_objects(webhook: &WebhookAddress) -> (Vec<InitialObject>, Record) {
    let now = jiff::Timestamp::now();
    let each = definitions(Some(webhook)).map(|definition| {
        let (digest, uid) = (fingerprint(&definition), Uuid::new_v4());
        let object = Object(stored(definition, uid, now));
        let (name, value) = (object.name().to_owned(), object.0.to_string().into_bytes());
        (InitialObject { key: key(&name), value }, (name, Written { digest, uid: uid.to_string(), generation: 1 }))
    });
    let (mut initial_objects, definitions): (Vec<InitialObject>, BTreeMap<String, Written>) = each.unzip();
    let (key, account) = default_account(Uuid::new_v4(), now);
    initial_objects.push(InitialObject { key, value: account.to_string().into_bytes() });
    initial_objects.extend(super::access::initial_objects(now));
    (initial_objects, Record { definitions, registration: String::new() })
}

/// Whether the API server has all of them from an earlier start of this very program, unless somebody else changed them since.
pub fn unchanged(home: &Home, webhook: &WebhookAddress) -> bool {
    let record = recorded(home);
    let is_known = |definition: Value| {
        let object = Object(definition);
        record.definitions.get(object.name()).is_some_and(|known| known.digest == fingerprint(&object.0))
    };
    record.registration == fingerprint(&registration(webhook).0) && definitions(Some(webhook)).all(is_known)
}

/// Writes those that the API server does not have as they should be, waits until they are served, and remembers them.
pub async fn install(home: &Home, client: &Client, webhook: &WebhookAddress) -> Result<()> {
    let mut known = recorded(home);
    let there = existing(client).await.context("could not list the CustomResourceDefinitions")?;
    let is_current = |definition: &Object| {
        known.definitions.get(definition.name()).is_some_and(|known| {
            known.digest == fingerprint(&definition.0)
                && there.get(definition.name()) == Some(&(known.uid.clone(), known.generation))
        })
    };
    let outdated: Vec<Object> =
        definitions(Some(webhook)).map(Object).filter(|definition| !is_current(definition)).collect();
    if outdated.is_empty() {
        return Ok(());
    }
    known.definitions.extend(write(client, &outdated).await?);
    record(home, &known)
}

/// Remembers what the API server has from us.
pub fn record(home: &Home, record: &Record) -> Result<()> {
    let text = serde_json::to_vec(record)?;
    hangar_node::small_file::keep(&path(home), &text).with_context(|| format!("cannot write {}", path(home).display()))
}

/// Registers the admission webhook, and remembers it.
pub async fn register(home: &Home, client: &Client, webhook: &WebhookAddress) -> Result<()> {
    let admission = registration(webhook);
    let params = PatchParams::apply("hangar").force();
    api_of(client, &admission).patch(admission.name(), &params, &Patch::Apply(&admission.0)).await?;
    let mut known = recorded(home);
    let digest = fingerprint(&admission.0);
    if known.registration == digest {
        return Ok(());
    }
    known.registration = digest;
    record(home, &known)
}

fn registration(webhook: &WebhookAddress) -> Object {
    admission_configuration(&webhook.url, &webhook.ca_bundle)
}

fn path(home: &Home) -> PathBuf {
    home.path().join("definitions.json")
}

/// A file that cannot be read is as good as none: everything is written.
fn recorded(home: &Home) -> Record {
    std::fs::read(path(home)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// UID and generation by name; the definitions themselves are large and not needed.
async fn existing(client: &Client) -> kube::Result<BTreeMap<String, (String, i64)>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let listed = api.list_metadata(&ListParams::default()).await?;
    let facts = listed.into_iter().filter_map(|one| {
        Some((one.name_any(), (one.metadata.uid.clone()?, one.metadata.generation.unwrap_or_default())))
    });
    Ok(facts.collect())
}

/// Writes definitions and waits until the API server serves them.
async fn write(client: &Client, outdated: &[Object]) -> Result<BTreeMap<String, Written>> {
    let params = PatchParams::apply("hangar").force();
    let applied = outdated.iter().map(|definition| {
        let (api, params) = (api_of(client, definition), &params);
        async move {
            let answer = api.patch(definition.name(), params, &Patch::Apply(&definition.0)).await;
            let answer =
                answer.with_context(|| format!("the API server refused the definition {}", definition.name()))?;
            let answer = answer.into_object();
            let (digest, uid) = (fingerprint(&definition.0), answer.uid().to_owned());
            anyhow::Ok((definition.name().to_owned(), Written { digest, uid, generation: answer.generation() }))
        }
    });
    let written = futures::future::try_join_all(applied).await?;
    let established = outdated.iter().map(|definition| {
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        async move { await_condition(api, definition.name(), conditions::is_crd_established()).await }
    });
    futures::future::try_join_all(established).await.context("a definition was not established")?;
    Ok(written.into_iter().collect())
}
