//! The definitions of our kinds and the registration of the webhook, applied at each start where they differ.
//!
//! Flows: definitions -> those that the server has already are left out -> the others are applied together, then waited for. Holds: kinds
//! with a controller come first, since nothing starts without them; the rest is installed meanwhile. What was applied is told by a hash in an
//! annotation, for a definition that comes back from the server is full of its defaults.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::{Context as _, Result};
use hangar_api::Object;
use hangar_api::crds::{WebhookAddress, definitions};
use hangar_controllers::watched;
use hangar_engine::management::api_of;
use hangar_engine::webhook::admission_configuration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt as _};

/// A hash of the definition as it was applied.
const APPLIED: &str = "hangar.dev/definition";

/// Definitions that the server does not have yet, the ones with controllers apart.
pub struct Missing {
    pub controlled: Vec<Object>,
    pub others: Vec<Object>,
}

/// What is to be installed.
pub async fn missing(client: &Client, webhook: &WebhookAddress) -> Result<Missing> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let present = api.list_metadata(&ListParams::default()).await.context("the definitions could not be listed")?;
    let present: BTreeMap<String, Option<String>> =
        present.items.iter().map(|item| (item.name_any(), item.annotations().get(APPLIED).cloned())).collect();
    let watched = watched();
    let mut missing = Missing { controlled: vec![], others: vec![] };
    for definition in definitions(Some(webhook)).into_iter().map(with_hash) {
        let hash = definition.annotation(APPLIED).map(str::to_owned);
        if present.get(definition.name()).is_some_and(|applied| *applied == hash) {
            continue;
        }
        let (group, kind) = (definition.text("/spec/group"), definition.text("/spec/names/kind"));
        let controlled = watched.iter().any(|one| one.group == group && one.kind == kind);
        if controlled { missing.controlled.push(definition) } else { missing.others.push(definition) }
    }
    Ok(missing)
}

/// Another compiler may hash differently: that costs one more apply.
fn with_hash(definition: serde_json::Value) -> Object {
    let mut hasher = DefaultHasher::new();
    definition.to_string().hash(&mut hasher);
    let mut definition = Object(definition);
    definition.0["metadata"]["annotations"] = serde_json::json!({ APPLIED: format!("{:016x}", hasher.finish()) });
    definition
}

pub async fn install(client: &Client, missing: &[Object]) -> Result<()> {
    let params = PatchParams::apply("hangar").force();
    let applied = missing.iter().map(|definition| {
        let (api, params) = (api_of(client, definition), &params);
        async move {
            let answer = api.patch(definition.name(), params, &Patch::Apply(&definition.0)).await;
            answer.with_context(|| format!("the API server refused the definition {}", definition.name()))
        }
    });
    futures::future::try_join_all(applied).await?;
    let established = missing.iter().map(|definition| {
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        async move { await_condition(api, definition.name(), conditions::is_crd_established()).await }
    });
    futures::future::try_join_all(established).await.context("a definition was not established")?;
    Ok(())
}

/// The registration of the admission webhook.
pub async fn register(client: &Client, webhook: &WebhookAddress) -> Result<()> {
    let admission = admission_configuration(&webhook.url, &webhook.ca_bundle);
    let params = PatchParams::apply("hangar").force();
    api_of(client, &admission).patch(admission.name(), &params, &Patch::Apply(&admission.0)).await?;
    Ok(())
}
