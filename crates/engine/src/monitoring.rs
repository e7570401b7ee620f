//! `/healthz`, `/readyz` and `/metrics`, for probes and for Prometheus.
//!
//! Flows: bearer token -> TokenReview -> SubjectAccessReview on the path -> text. Holds: whoever may not `get` `/metrics` reads no number, as kube-rbac-proxy has it; health
//! says nothing that a stranger could use, and needs no token. If the API server cannot be asked, the answer is no.

use std::fmt;
use std::sync::{Arc, OnceLock};

use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::Semaphore;

use crate::metrics;

const METRICS: &str = "/metrics";
/// Strangers must not make us flood the API server with questions.
const MOST_REVIEWS: usize = 4;
/// Tokens of service accounts are about 1 KiB.
const LONGEST_TOKEN: usize = 16 << 10;

/// What is monitored.
pub struct Monitored {
    /// To ask about callers.
    pub client: Client,
    pub is_ready: Box<dyn Fn() -> bool + Send + Sync>,
    pub metrics: Box<dyn Fn() -> Result<String, fmt::Error> + Send + Sync>,
}

#[derive(Clone)]
struct Shared(Arc<(Slot, Semaphore)>);

/// What is monitored is there later than the port.
pub type Slot = Arc<OnceLock<Monitored>>;

pub fn router(monitored: Slot) -> axum::Router {
    axum::Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readiness))
        .route(METRICS, get(numbers))
        .with_state(Shared(Arc::new((monitored, Semaphore::new(MOST_REVIEWS)))))
}

async fn readiness(State(Shared(shared)): State<Shared>) -> Response {
    if shared.0.get().is_some_and(|monitored| (monitored.is_ready)()) {
        "ok".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the objects of the management cluster are being listed\n").into_response()
    }
}

async fn numbers(State(Shared(shared)): State<Shared>, headers: HeaderMap) -> Response {
    let (slot, places) = &*shared;
    let Some(monitored) = slot.get() else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    let Ok(_place) = places.try_acquire() else { return StatusCode::TOO_MANY_REQUESTS.into_response() };
    let Some(token) = bearer(&headers) else {
        return (StatusCode::UNAUTHORIZED, "a bearer token is needed\n").into_response();
    };
    match allowed(&monitored.client, token).await {
        Ok(Verdict::Allowed) => {}
        Ok(Verdict::Unknown) => return (StatusCode::UNAUTHORIZED, "the token is not valid\n").into_response(),
        Ok(Verdict::Forbidden(user)) => {
            let text = format!(
                "{user} may not get {METRICS}: bind a ClusterRole that allows it, such as hangar-metrics-reader\n"
            );
            return (StatusCode::FORBIDDEN, text).into_response();
        }
        Err(error) => {
            tracing::warn!(%error, "the API server could not be asked who wants metrics");
            return (StatusCode::SERVICE_UNAVAILABLE, "the API server cannot be asked\n").into_response();
        }
    }
    match (monitored.metrics)() {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let token = headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")?.trim();
    (!token.is_empty() && token.len() <= LONGEST_TOKEN).then_some(token)
}

enum Verdict {
    Allowed,
    /// Whose token it is, nobody knows.
    Unknown,
    Forbidden(String),
}

async fn allowed(client: &Client, token: &str) -> Result<Verdict, kube::Error> {
    let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let answer = Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    let status = answer.status.unwrap_or_default();
    let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else { return Ok(Verdict::Unknown) };
    let name = user.username.clone().unwrap_or_default();
    let review = SubjectAccessReview { spec: access(user), ..SubjectAccessReview::default() };
    let answer = Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    let allowed = answer.status.is_some_and(|status| status.allowed);
    Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden(name) })
}

fn access(user: UserInfo) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(NonResourceAttributes {
            path: Some(METRICS.to_owned()),
            verb: Some("get".to_owned()),
        }),
        ..SubjectAccessReviewSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::body::Body;
    use axum::http::Request;
    use serde_json::{Value, json};
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    /// An API server that knows two tokens, of which one may read metrics.
    fn client() -> Client {
        let service = service_fn(|request: Request<kube::client::Body>| async move {
            let asked_who = request.uri().path().ends_with("tokenreviews");
            let body: Value = serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap();
            let status = if asked_who {
                let token = body["spec"]["token"].as_str().unwrap().to_owned();
                let known = ["prometheus", "somebody"].contains(&token.as_str());
                json!({ "authenticated": known, "user": { "username": token, "groups": ["g"] } })
            } else {
                let spec = &body["spec"];
                assert_eq!(spec["nonResourceAttributes"], json!({ "path": "/metrics", "verb": "get" }));
                json!({ "allowed": spec["user"] == "prometheus" && spec["groups"] == json!(["g"]) })
            };
            let answer = json!({ "metadata": {}, "spec": body["spec"], "status": status });
            let answer = axum::http::Response::builder().status(201).body(Body::from(answer.to_string())).unwrap();
            Ok::<_, Infallible>(answer)
        });
        Client::new(service, "default")
    }

    async fn got(router: &axum::Router, path: &str, token: Option<&str>) -> (u16, String) {
        let mut request = Request::get(path);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn numbers_are_for_those_who_may_read_them_and_health_for_everybody() {
        let ready = Arc::new(AtomicBool::new(false));
        let is_ready = ready.clone();
        let slot = Slot::default();
        let router = router(slot.clone());
        assert_eq!(got(&router, "/healthz", None).await, (200, "ok".into()));
        assert_eq!(got(&router, METRICS, Some("prometheus")).await.0, 503, "there is nothing to monitor yet");
        let monitored = Monitored {
            client: client(),
            is_ready: Box::new(move || is_ready.load(Ordering::Relaxed)),
            metrics: Box::new(|| Ok("x_total 1\n# EOF\n".to_owned())),
        };
        assert!(slot.set(monitored).is_ok());
        assert_eq!(got(&router, "/readyz", None).await.0, 503);
        ready.store(true, Ordering::Relaxed);
        assert_eq!(got(&router, "/readyz", None).await.0, 200);
        let rows =
            [(None, 401), (Some(""), 401), (Some("forged"), 401), (Some("somebody"), 403), (Some("prometheus"), 200)];
        for (token, expected) in rows {
            let (status, text) = got(&router, METRICS, token).await;
            assert_eq!(status, expected, "{token:?}: {text}");
            assert_eq!(text.contains("x_total"), expected == 200, "{token:?}: {text}");
        }
        assert!(got(&router, METRICS, Some("somebody")).await.1.contains("somebody may not get /metrics"));
        assert_eq!(got(&router, METRICS, Some(&"x".repeat(LONGEST_TOKEN + 1))).await.0, 401);
    }
}
