//! Whether a client of the kubelet API may do what it asks for: the API server decides, as it does for a real kubelet.
//!
//! Flows: client certificate -> user and groups -> SubjectAccessReview on `nodes/proxy` -> yes or no, remembered for a while. Holds: a certificate of
//! the plane's authority alone opens nothing; if the API server cannot be asked, the answer is no.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hangar_pki::Subject;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::Instant;

/// A right that was taken away is gone after this time.
const REMEMBERED: Duration = Duration::from_secs(30);
/// More users than a plane has at once.
const MOST: usize = 1_000;

#[derive(Clone)]
pub(super) struct Authorizer(Arc<Inner>);

/// Who may do what, and since when that is known.
type Decisions = BTreeMap<(Subject, &'static str), (Instant, bool)>;

struct Inner {
    client: Client,
    node: String,
    known: Mutex<Decisions>,
}

impl Authorizer {
    pub(super) fn new(client: Client, node: &str) -> Self {
        Self(Arc::new(Inner { client, node: node.to_owned(), known: Mutex::default() }))
    }

    /// The verb is that of the request's method, as a kubelet has it.
    pub(super) async fn allows(&self, who: &Subject, method: &http::Method) -> bool {
        let verb = match *method {
            http::Method::GET | http::Method::HEAD => "get",
            _ => "create",
        };
        let key = (who.clone(), verb);
        let known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        if let Some((_, allowed)) = known.filter(|(at, _)| at.elapsed() < REMEMBERED) {
            return allowed;
        }
        let Some(allowed) = self.ask(who, verb).await else { return false };
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (at, _)| at.elapsed() < REMEMBERED);
        if known.len() < MOST {
            known.insert(key, (Instant::now(), allowed));
        }
        allowed
    }

    async fn ask(&self, who: &Subject, verb: &str) -> Option<bool> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(who.common_name.clone()),
                // Whoever has a certificate is authenticated.
                groups: Some(who.organizations.iter().cloned().chain(["system:authenticated".to_owned()]).collect()),
                resource_attributes: Some(ResourceAttributes {
                    resource: Some("nodes".into()),
                    subresource: Some("proxy".into()),
                    name: Some(self.0.node.clone()),
                    verb: Some(verb.to_owned()),
                    version: Some("v1".into()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.0.client.clone());
        match api.create(&PostParams::default(), &review).await {
            Ok(answer) => Some(answer.status.is_some_and(|status| status.allowed)),
            Err(error) => {
                tracing::warn!(%error, user = who.common_name, "the API server could not be asked about a client of the kubelet API");
                None
            }
        }
    }
}
