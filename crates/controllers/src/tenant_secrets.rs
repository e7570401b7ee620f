//! Has every Secret of a tenant written again, as it is: its API server encrypts it with the key that writes now.
//!
//! Holds: no content of a Secret leaves the tenant; only names are read, and what is sent changes nothing. One that was written with that key is not written again.

use std::time::Duration;

use futures::StreamExt as _;
use hangar_planner::step::TenantAnswer;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use tokio::time::Instant;

use crate::tenant_calls::{Failure, words};

/// A step has a deadline; more of them follow in the same pass.
const AT_A_TIME: Duration = Duration::from_secs(15);
const PAGE: u32 = 100;
const AT_ONCE: usize = 8;

/// From a page on; what fails is said and not refused, because the tenant works without it.
pub async fn rewrite(client: &Client, from: Option<&str>) -> TenantAnswer {
    match pages(client, from).await {
        Ok(next) => TenantAnswer::SecretsRewritten { next, left: None },
        Err(why) => TenantAnswer::SecretsRewritten { next: None, left: Some(why) },
    }
}

async fn pages(client: &Client, from: Option<&str>) -> Result<Option<String>, Failure> {
    let (all, began): (Api<Secret>, _) = (Api::all(client.clone()), Instant::now());
    let mut from = from.map(str::to_owned);
    loop {
        let page = ListParams { continue_token: from, ..ListParams::default().limit(PAGE) };
        let listed = all.list_metadata(&page).await.map_err(|error| words(&error))?;
        let mut written =
            futures::stream::iter(listed.items).map(|secret| write(client.clone(), secret)).buffer_unordered(AT_ONCE);
        while let Some(outcome) = written.next().await {
            outcome?;
        }
        from = listed.metadata.continue_.filter(|next| !next.is_empty());
        if from.is_none() || began.elapsed() > AT_A_TIME {
            return Ok(from);
        }
    }
}

async fn write(client: Client, secret: PartialObjectMeta<Secret>) -> Result<(), Failure> {
    let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
    let nothing = Patch::Merge(serde_json::json!({}));
    match Api::<Secret>::namespaced(client, &namespace).patch_metadata(&name, &PatchParams::default(), &nothing).await {
        Ok(_) => Ok(()),
        // Gone, or written by somebody else just now.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(error) => Err(format!("Secret {namespace}/{name}: {}", words(&error))),
    }
}
