//! Tokens of service accounts for one pod: asked for once, and again when most of their time is over.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};

struct Token {
    text: String,
    renew_at: Instant,
}

/// By audience and lifetime: volumes that ask for the same share one.
#[derive(Default)]
pub(super) struct Tokens(Mutex<HashMap<(Option<String>, i64), Token>>);

impl Tokens {
    /// A token, and how soon it has to be made anew.
    pub async fn get(
        &self,
        client: &kube::Client,
        pod: &Pod,
        from: &ServiceAccountTokenProjection,
    ) -> Result<(String, Duration), kube::Error> {
        let seconds = from.expiration_seconds.unwrap_or(3600);
        let key = (from.audience.clone(), seconds);
        let now = Instant::now();
        {
            let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(token) = kept.get(&key).filter(|token| token.renew_at > now) {
                return Ok((token.text.clone(), token.renew_at - now));
            }
        }
        let text = request(client, pod, from, seconds).await?;
        let renew_in = Duration::from_secs(u64::try_from(seconds).unwrap_or(3600)).mul_f32(0.8);
        let token = Token { text: text.clone(), renew_at: now + renew_in };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, token);
        Ok((text, renew_in))
    }
}

async fn request(
    client: &kube::Client,
    pod: &Pod,
    from: &ServiceAccountTokenProjection,
    seconds: i64,
) -> Result<String, kube::Error> {
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    let bound = BoundObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: Some(pod.name_any()),
        uid: pod.uid(),
    };
    let spec = TokenRequestSpec {
        audiences: from.audience.iter().cloned().collect(),
        bound_object_ref: Some(bound),
        expiration_seconds: Some(seconds),
    };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let name = account.unwrap_or_else(|| "default".to_owned());
    let answer: TokenRequest = accounts.create_subresource("token", &name, &PostParams::default(), &request).await?;
    Ok(answer.status.map(|status| status.token).unwrap_or_default())
}
