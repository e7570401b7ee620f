//! One request: session, URL, headers, budget, deadline, answer.
//!
//! Holds: what [`Limits`] says is kept, a refused token is renewed once and the request repeated once, and every call that
//! was made is counted.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::budget::{Allowance, Limits};
use crate::counts::Counter;
use crate::error::{ErrorKind, Target};
use crate::query::{Pairs, encode, next_query};
use crate::session::{Session, SessionCache, target, unusable};
use crate::{CallCounts, CloudConfig, Error, Service, Transport};

/// Server tags and metadata in lists, tags at creation.
const MICROVERSION: &str = "2.53";

/// A server that always names a next page must not keep us reading, or fill the memory.
const MOST_PAGES: usize = 1_000;
const MOST_ITEMS: usize = 100_000;
const LARGEST_LIST: usize = 128 << 20;

/// One authenticated session per credential; clones share it.
#[derive(Clone)]
pub struct Cloud(Arc<Inner>);

struct Inner {
    config: CloudConfig,
    transport: Transport,
    keeper: SessionCache,
    allowance: std::sync::Mutex<Allowance>,
    counter: Counter,
}

/// What a request has besides its target.
#[derive(Default, Clone, Copy)]
pub(crate) struct Extra<'a> {
    pub query: &'a str,
    pub body: Option<&'a Value>,
    /// Instead of a JSON body.
    pub file: Option<&'a Bytes>,
    /// Instead of the usual one.
    pub microversion: Option<&'a str>,
    /// Only while this is the revision (Neutron).
    pub revision: Option<u64>,
    pub content_type: Option<&'a str>,
}

impl std::fmt::Debug for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cloud").field(&self.0.config).finish()
    }
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Cloud {
    /// Does no I/O: the first call gets the token.
    pub fn new(config: CloudConfig, transport: Transport) -> Self {
        Self::with_limits(config, transport, Limits::default())
    }

    pub fn with_limits(config: CloudConfig, transport: Transport, limits: Limits) -> Self {
        let (keeper, allowance, counter) = (SessionCache::default(), Allowance::new(limits).into(), Counter::default());
        Self(Arc::new(Inner { config, transport, keeper, allowance, counter }))
    }

    pub fn config(&self) -> &CloudConfig {
        &self.0.config
    }

    /// How much of the cloud it may use; clones are the same allowance.
    pub fn allowance(&self) -> Allowance {
        self.0.allowance.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on it uses what another one uses: several credentials of one project are one user of the cloud.
    pub fn share(&self, allowance: Allowance) {
        *self.0.allowance.lock().unwrap_or_else(PoisonError::into_inner) = allowance;
    }

    pub fn calls(&self) -> CallCounts {
        self.0.counter.snapshot()
    }

    /// Counters and times of all calls, in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        self.0.counter.1.text()
    }

    pub async fn project_id(&self) -> Result<String, Error> {
        Ok(self.session(None).await?.project_id.clone())
    }

    /// Where a service is, without a slash at the end.
    pub(crate) async fn endpoint(&self, service: Service) -> Result<String, Error> {
        let target = Target { service, method: Method::GET, path: String::new() };
        let session = self.session(None).await?;
        session.endpoint(service, &self.0.config).map_err(|why| target.error(ErrorKind::Malformed, why))
    }

    /// Whether the catalog has a service.
    pub(crate) async fn has(&self, service: Service) -> Result<bool, Error> {
        Ok(self.session(None).await?.endpoint(service, &self.0.config).is_ok())
    }

    /// What Keystone says about our token.
    pub(crate) async fn whoami<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let target = Target { service: Service::Keystone, method: Method::GET, path: "/auth/tokens".to_owned() };
        let session = self.session(None).await?;
        let request = Request::builder()
            .uri(format!("{}{}", self.0.config.auth_url, target.path))
            .header("x-auth-token", &session.token)
            .header("x-subject-token", &session.token);
        let answer = self.exchange(&target, request, Extra::default()).await?;
        serde_json::from_slice(&answer.body).map_err(|error| target.malformed(answer.status, &answer.headers, error))
    }

    /// Every page of a collection.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        service: Service,
        path: &str,
        collection: &str,
        query: &Pairs,
    ) -> Result<Vec<T>, Error> {
        let mut items = Vec::new();
        let mut query = encode(query);
        let (mut pages, mut bytes) = (0, 0);
        loop {
            let target = Target { service, method: Method::GET, path: path.to_owned() };
            let answer = self.send(&target, Extra { query: &query, ..Extra::default() }).await?;
            let bad = |why: String| target.malformed(answer.status, &answer.headers, why);
            (pages, bytes) = (pages + 1, bytes + answer.body.len());
            if pages > MOST_PAGES || bytes > LARGEST_LIST || items.len() > MOST_ITEMS {
                let so_far = format!("{} {collection} on {pages} pages with {bytes} bytes", items.len());
                return Err(bad(format!("the list does not end: {so_far} so far")));
            }
            let mut page: Value = serde_json::from_slice(&answer.body).map_err(|error| bad(error.to_string()))?;
            let next = next_query(&page, collection);
            let part =
                page.get_mut(collection).map(Value::take).ok_or_else(|| bad(format!("no {collection} in it")))?;
            items.extend(serde_json::from_value::<Vec<T>>(part).map_err(|error| bad(error.to_string()))?);
            match next {
                Some(next) if next == query => {
                    return Err(bad("the link to the next page leads to the same page".to_owned()));
                }
                Some(next) => query = next,
                None => return Ok(items),
            }
        }
    }

    /// What stands under `name` in the answer.
    pub(crate) async fn show<T: DeserializeOwned>(&self, service: Service, path: &str, name: &str) -> Result<T, Error> {
        self.read(Target { service, method: Method::GET, path: path.to_owned() }, name, Extra::default()).await
    }

    /// Sends `{name: body}` and reads what stands under `name` in the answer.
    pub(crate) async fn create<T: DeserializeOwned>(
        &self,
        service: Service,
        path: &str,
        name: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let body = json!({name: body});
        self.read(Target { service, method: Method::POST, path: path.to_owned() }, name, with(&body)).await
    }

    pub(crate) async fn update<T: DeserializeOwned>(
        &self,
        service: Service,
        path: &str,
        name: &str,
        body: &impl Serialize,
        revision: Option<u64>,
    ) -> Result<T, Error> {
        let body = json!({name: body});
        let extra = Extra { revision, ..with(&body) };
        self.read(Target { service, method: Method::PUT, path: path.to_owned() }, name, extra).await
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, service: Service, path: &str) -> Result<T, Error> {
        self.read(Target { service, method: Method::GET, path: path.to_owned() }, "", Extra::default()).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        service: Service,
        path: &str,
        body: &Value,
    ) -> Result<T, Error> {
        self.read(Target { service, method: Method::POST, path: path.to_owned() }, "", with(body)).await
    }

    pub(crate) async fn put<T: DeserializeOwned>(
        &self,
        service: Service,
        path: &str,
        body: &Value,
    ) -> Result<T, Error> {
        self.read(Target { service, method: Method::PUT, path: path.to_owned() }, "", with(body)).await
    }

    /// When the answer says nothing worth reading.
    pub(crate) async fn tell(
        &self,
        service: Service,
        method: Method,
        path: &str,
        extra: Extra<'_>,
    ) -> Result<(), Error> {
        self.send(&Target { service, method, path: path.to_owned() }, extra).await.map(drop)
    }

    pub(crate) async fn delete(&self, service: Service, path: &str) -> Result<(), Error> {
        self.tell(service, Method::DELETE, path, Extra::default()).await
    }

    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        target: Target,
        name: &str,
        extra: Extra<'_>,
    ) -> Result<T, Error> {
        let answer = self.send(&target, extra).await?;
        let bad = |why: String| target.malformed(answer.status, &answer.headers, why);
        if name.is_empty() {
            return serde_json::from_slice(&answer.body).map_err(|error| bad(error.to_string()));
        }
        let mut body: Value = serde_json::from_slice(&answer.body).map_err(|error| bad(error.to_string()))?;
        let part = body.get_mut(name).map(Value::take).ok_or_else(|| bad(format!("no {name} in it")))?;
        serde_json::from_value(part).map_err(|error| bad(error.to_string()))
    }

    async fn send(&self, target: &Target, extra: Extra<'_>) -> Result<Answer, Error> {
        let session = self.session(None).await?;
        match self.send_as(&session, target, extra).await {
            Err(error) if error.kind == ErrorKind::Unauthorized => {
                let session = self.session(Some(&session)).await?;
                self.send_as(&session, target, extra).await
            }
            other => other,
        }
    }

    async fn send_as(&self, session: &Session, target: &Target, extra: Extra<'_>) -> Result<Answer, Error> {
        // Not `NotFound`: that word is about what was asked for.
        let missing = |why: String| target.error(ErrorKind::Malformed, why);
        let base = session.endpoint(target.service, &self.0.config).map_err(missing)?;
        let mark = if extra.query.is_empty() { "" } else { "?" };
        let mut request = Request::builder()
            .method(target.method.clone())
            .uri(format!("{base}{}{mark}{}", target.path, extra.query))
            .header("x-auth-token", &session.token);
        match (target.service, extra.microversion) {
            (Service::Nova, wanted) => {
                let version = wanted.unwrap_or(MICROVERSION);
                request = request
                    .header("x-openstack-nova-api-version", version)
                    .header("openstack-api-version", format!("compute {version}"));
            }
            (Service::Cinder, Some(version)) => {
                request = request.header("openstack-api-version", format!("volume {version}"));
            }
            _ => {}
        }
        if let Some(revision) = extra.revision {
            request = request.header("if-match", format!("revision_number={revision}"));
        }
        self.exchange(target, request, extra).await
    }

    async fn session(&self, refused: Option<&Arc<Session>>) -> Result<Arc<Session>, Error> {
        self.0.keeper.session(refused, async || self.open_session().await).await
    }

    async fn open_session(&self) -> Result<Session, Error> {
        let config = &self.0.config;
        let asked_at = Instant::now();
        let target = target();
        let request = Request::builder().method(Method::POST).uri(format!("{}{}", config.auth_url, target.path));
        self.0.counter.token();
        // A credential that was deleted is not found, and one of a disabled project is forbidden: neither works.
        let is_refused = |error: &Error| matches!(error.kind, ErrorKind::NotFound | ErrorKind::Forbidden);
        let answer = self.exchange(&target, request, with(&config.auth_request)).await.map_err(|error| {
            let kind = if is_refused(&error) { ErrorKind::Unauthorized } else { error.kind };
            Error { kind, ..error }
        })?;
        let token = answer.headers.get("x-subject-token").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let token = token.ok_or_else(|| unusable("the answer has no X-Subject-Token header".to_owned()))?;
        let reply = serde_json::from_slice(&answer.body)
            .map_err(|error| target.malformed(answer.status, &answer.headers, error))?;
        Session::read(token, reply, asked_at).map_err(unusable)
    }

    async fn exchange(
        &self,
        target: &Target,
        request: http::request::Builder,
        extra: Extra<'_>,
    ) -> Result<Answer, Error> {
        let allowance = self.allowance();
        if let Some(left) = allowance.paused_for(target.service) {
            let words = format!("rate limited by the cloud: retry in {} s", left.as_secs_f64().ceil());
            return Err(target.error(ErrorKind::TooManyRequests { retry_after: Some(left) }, words));
        }
        let mut request = request.header("accept", "application/json").header("user-agent", "hangar");
        let bytes = match (extra.body, extra.file) {
            (Some(body), _) => {
                request = request.header("content-type", extra.content_type.unwrap_or("application/json"));
                Bytes::from(body.to_string())
            }
            (None, Some(file)) => {
                request = request.header("content-type", "application/octet-stream");
                file.clone()
            }
            (None, None) => Bytes::new(),
        };
        let request = request.body(bytes).map_err(|error| target.error(ErrorKind::BadRequest, error.to_string()))?;
        let deadline = allowance.deadline();
        let answer = tokio::time::timeout(deadline, self.ask(&allowance, target, request)).await;
        let late = || target.error(ErrorKind::Unreachable, format!("timeout after {} s", deadline.as_secs()));
        let answer = answer.unwrap_or_else(|_| Err(late()));
        if let Err(error) = &answer
            && let Some(time) = error.retry_after()
        {
            allowance.pause(target.service, time);
        }
        answer
    }

    async fn ask(&self, allowance: &Allowance, target: &Target, request: Request<Bytes>) -> Result<Answer, Error> {
        let _place = allowance.enter().await;
        let count = Count { cloud: self, target, began: Instant::now(), ok: false };
        let unreachable = |why: String| target.error(ErrorKind::Unreachable, why);
        let reply =
            self.0.transport.clone().oneshot(request).await.map_err(|error| unreachable(chain(error.as_ref())))?;
        let (head, body) = reply.into_parts();
        if !head.status.is_success() {
            return Err(target.refused(head.status, &head.headers, &body));
        }
        count.well();
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}

/// Counts a call when it ends, also if it ends because nobody waits for it any more.
struct Count<'a> {
    cloud: &'a Cloud,
    target: &'a Target,
    began: Instant,
    ok: bool,
}

impl Count<'_> {
    fn well(mut self) {
        self.ok = true;
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        // Tokens have a count of their own.
        if self.target.service == Service::Keystone && self.target.path == "/auth/tokens" {
            return;
        }
        let Target { service, method, path } = self.target;
        self.cloud.0.counter.count(*service, method, path, self.ok, self.began.elapsed());
    }
}

fn with(body: &Value) -> Extra<'_> {
    Extra { body: Some(body), ..Extra::default() }
}

/// A connection error says little without its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
#[path = "cloud_tests.rs"]
mod tests;
