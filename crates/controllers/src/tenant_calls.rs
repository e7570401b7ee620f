//! Carries out calls to a tenant cluster.

use hangar_api::{Object, ObjectKey};
use hangar_engine::management::{api_for, api_of};
use hangar_engine::tenants::Tenants;
use hangar_pki::{BootstrapToken, Keys};
use hangar_planner::hosted::tenant::{BOOTSTRAPPERS, KUBEADM_BOOTSTRAPPERS};
use hangar_planner::step::{ClusterName, TenantAnswer, TenantCall};
use jiff::{Timestamp, ToSpan};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::manifests;
use crate::node_calls;
use crate::tenant_secrets;

const MANAGER: &str = "hangar";

/// What went wrong, in words for a condition.
pub type Failure = String;

pub async fn carry_out(
    tenants: &Tenants,
    keys: &dyn Keys,
    cluster: &ClusterName,
    call: &TenantCall,
    now: Timestamp,
) -> Result<TenantAnswer, Failure> {
    let client = tenants.client(cluster).await?;
    match call {
        TenantCall::Apply { objects, remove } => {
            apply(&client, objects).await?;
            delete(&client, remove).await.map(|()| TenantAnswer::Applied)
        }
        TenantCall::Install(installation) => manifests::install(&client, installation).await,
        TenantCall::CreateToken { seconds, node } => create_token(&client, keys, *seconds, node.as_deref(), now).await,
        TenantCall::ExtendToken { id, seconds } => extend_token(&client, id, *seconds, now).await,
        TenantCall::DeleteToken { id } => {
            let key = ObjectKey::new("", "Secret", "kube-system", &token_secret(id));
            delete(&client, &[key]).await.map(|()| TenantAnswer::TokenDeleted)
        }
        TenantCall::DecideRequest { name, resource_version, refusal } => {
            decide(&client, name, resource_version, refusal.as_deref()).await?;
            tenants.decided(cluster, name);
            Ok(TenantAnswer::RequestDecided { name: name.clone() })
        }
        TenantCall::DeleteNode { name, last_try } => node_calls::delete(&client, name, *last_try).await,
        TenantCall::CordonNode { name } => node_calls::cordon(tenants, &client, cluster, name).await,
        TenantCall::EvictPod(eviction) => node_calls::evict(&client, eviction).await,
        TenantCall::AdoptNode(change) => node_calls::adopt(tenants, &client, cluster, change).await,
        TenantCall::RewriteSecrets { from } => Ok(tenant_secrets::rewrite(&client, from.as_deref()).await),
    }
}

async fn apply(client: &Client, objects: &[Object]) -> Result<(), Failure> {
    for object in objects {
        let params = PatchParams::apply(MANAGER).force();
        let answer = api_of(client, object).patch(object.name(), &params, &Patch::Apply(&object.0)).await;
        answer.map_err(|error| format!("the tenant refused {}: {}", object.key(), words(&error)))?;
    }
    Ok(())
}

async fn delete(client: &Client, keys: &[ObjectKey]) -> Result<(), Failure> {
    for key in keys {
        match api_for(client, key).delete(&key.name, &DeleteParams::default()).await {
            Err(error) if !is_not_found(&error) => {
                return Err(format!("the tenant refused to delete {key}: {}", words(&error)));
            }
            _ => {}
        }
    }
    Ok(())
}

async fn create_token(
    client: &Client,
    keys: &dyn Keys,
    seconds: i64,
    node: Option<&str>,
    now: Timestamp,
) -> Result<TenantAnswer, Failure> {
    let token = BootstrapToken::generate(keys).map_err(|error| error.to_string())?;
    let expires = whole_seconds(now + seconds.seconds());
    let name = token_secret(&token.id);
    let mut secret = Object::named("v1", "Secret", "kube-system", &name);
    secret.0["type"] = "bootstrap.kubernetes.io/token".into();
    secret.0["stringData"] = json!({
        "token-id": token.id,
        "token-secret": token.secret,
        "expiration": expires.to_string(),
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": if node.is_some() { BOOTSTRAPPERS } else { KUBEADM_BOOTSTRAPPERS },
        "description": format!("token for {} of this cluster, made by Hangar", node.unwrap_or("a machine")),
    });
    let params = PatchParams::apply(MANAGER).force();
    api_of(client, &secret).patch(&name, &params, &Patch::Apply(&secret.0)).await.map_err(|error| words(&error))?;
    Ok(TenantAnswer::Token { id: token.id, secret: token.secret, expires })
}

async fn extend_token(client: &Client, id: &str, seconds: i64, now: Timestamp) -> Result<TenantAnswer, Failure> {
    let expires = whole_seconds(now + seconds.seconds());
    let body = json!({ "stringData": { "expiration": expires.to_string() } });
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    secrets
        .patch(&token_secret(id), &PatchParams::default(), &Patch::Merge(&body))
        .await
        .map_err(|error| words(&error))?;
    Ok(TenantAnswer::TokenExtended { expires })
}

/// When a token ends; `None` if it is gone.
pub async fn token_expiry(client: &Client, id: &str) -> Result<Option<Timestamp>, Failure> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let secret = secrets.get_opt(&token_secret(id)).await.map_err(|error| words(&error))?;
    let data = secret.and_then(|secret| secret.data).unwrap_or_default();
    Ok(data.get("expiration").and_then(|bytes| std::str::from_utf8(&bytes.0).ok()?.parse().ok()))
}

/// One that is gone, or that somebody else has decided on, needs no answer any more.
pub async fn decide(client: &Client, name: &str, resource_version: &str, refusal: Option<&str>) -> Result<(), Failure> {
    let (kind, reason) = if refusal.is_some() { ("Denied", "NotForThisNode") } else { ("Approved", "TokenOfThisNode") };
    let message = refusal.unwrap_or("the bootstrap token was made for this Node");
    let body = json!({
        "metadata": { "resourceVersion": resource_version },
        "status": { "conditions": [{ "type": kind, "status": "True", "reason": reason, "message": message }] },
    });
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    match requests.patch_subresource("approval", name, &PatchParams::default(), &Patch::Merge(&body)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(error) => Err(words(&error)),
    }
}

fn token_secret(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

pub(crate) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => hangar_engine::runtime::chain(other),
    }
}
