//! The definitions of our kinds and the registration of the webhook, applied at each start: the webhook's certificate is new each time.

use anyhow::{Context as _, Result};
use hangar_api::Object;
use hangar_api::crds::{WebhookAddress, definitions};
use hangar_engine::management::api_of;
use hangar_engine::webhook::admission_configuration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};

pub async fn install(client: &Client, webhook: &WebhookAddress) -> Result<()> {
    let params = PatchParams::apply("hangar").force();
    let all: Vec<Object> = definitions(Some(webhook)).into_iter().map(Object).collect();
    let applied = all.iter().map(|definition| {
        let (api, params) = (api_of(client, definition), &params);
        async move {
            let answer = api.patch(definition.name(), params, &Patch::Apply(&definition.0)).await;
            answer.with_context(|| format!("the API server refused the definition {}", definition.name()))
        }
    });
    futures::future::try_join_all(applied).await?;
    let established = all.iter().map(|definition| {
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        async move { await_condition(api, definition.name(), conditions::is_crd_established()).await }
    });
    futures::future::try_join_all(established).await.context("a definition was not established")?;
    let admission = admission_configuration(&webhook.url, &webhook.ca_bundle);
    api_of(client, &admission).patch(admission.name(), &params, &Patch::Apply(&admission.0)).await?;
    Ok(())
}
