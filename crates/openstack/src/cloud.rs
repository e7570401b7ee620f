//! One request: session, URL, headers, deadline, answer.
//!
//! Holds: at most [`AT_ONCE`] requests of one credential are under way, each ends within [`DEADLINE`], a refused token is
//! renewed once and the request repeated once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::counts::Counter;
use crate::error::{ErrorKind, Target};
use crate::query::{Pairs, encode};
use crate::session::{Keeper, Session, target, unusable};
use crate::{CallCounts, CloudConfig, Error, Service, Transport};

const AT_ONCE: usize = 8;
const DEADLINE: Duration = Duration::from_secs(30);
/// Server tags and metadata in lists, tags at creation.
const MICROVERSION: &str = "2.53";

/// One authenticated session per credential; clones share it.
#[derive(Clone)]
pub struct Cloud(Arc<Inner>);

struct Inner {
    config: CloudConfig,
    transport: Transport,
    keeper: Keeper,
    places: Semaphore,
    counter: Counter,
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
        let keeper = Keeper::default();
        Self(Arc::new(Inner {
            config,
            transport,
            keeper,
            places: Semaphore::new(AT_ONCE),
            counter: Counter::default(),
        }))
    }

    pub fn config(&self) -> &CloudConfig {
        &self.0.config
    }

    pub fn calls(&self) -> CallCounts {
        self.0.counter.snapshot()
    }

    pub async fn project_id(&self) -> Result<String, Error> {
        Ok(self.session(None).await?.project_id.clone())
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
        loop {
            let target = Target { service, method: Method::GET, path: path.to_owned() };
            let answer = self.send(&target, &query, None).await?;
            let bad = |why: String| target.malformed(answer.status, &answer.headers, why);
            let mut page: Value = serde_json::from_slice(&answer.body).map_err(|error| bad(error.to_string()))?;
            let next = next_query(&page, collection);
            let part =
                page.get_mut(collection).map(Value::take).ok_or_else(|| bad(format!("no {collection} in it")))?;
            items.extend(serde_json::from_value::<Vec<T>>(part).map_err(|error| bad(error.to_string()))?);
            match next {
                Some(next) if next == query => return Err(bad("the next page is the same page".to_owned())),
                Some(next) => query = next,
                None => return Ok(items),
            }
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, service: Service, path: &str) -> Result<T, Error> {
        self.read(Target { service, method: Method::GET, path: path.to_owned() }, None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        service: Service,
        path: &str,
        body: &Value,
    ) -> Result<T, Error> {
        self.read(Target { service, method: Method::POST, path: path.to_owned() }, Some(body)).await
    }

    pub(crate) async fn put<T: DeserializeOwned>(
        &self,
        service: Service,
        path: &str,
        body: &Value,
    ) -> Result<T, Error> {
        self.read(Target { service, method: Method::PUT, path: path.to_owned() }, Some(body)).await
    }

    pub(crate) async fn delete(&self, service: Service, path: &str) -> Result<(), Error> {
        let target = Target { service, method: Method::DELETE, path: path.to_owned() };
        self.send(&target, "", None).await.map(drop)
    }

    async fn read<T: DeserializeOwned>(&self, target: Target, body: Option<&Value>) -> Result<T, Error> {
        let answer = self.send(&target, "", body).await?;
        serde_json::from_slice(&answer.body).map_err(|error| target.malformed(answer.status, &answer.headers, error))
    }

    async fn send(&self, target: &Target, query: &str, body: Option<&Value>) -> Result<Answer, Error> {
        let session = self.session(None).await?;
        match self.send_as(&session, target, query, body).await {
            Err(error) if error.kind == ErrorKind::Unauthorized => {
                let session = self.session(Some(&session)).await?;
                self.send_as(&session, target, query, body).await
            }
            other => other,
        }
    }

    async fn send_as(
        &self,
        session: &Session,
        target: &Target,
        query: &str,
        body: Option<&Value>,
    ) -> Result<Answer, Error> {
        // Not `NotFound`: that word is about what was asked for.
        let missing = |why: String| target.error(ErrorKind::Malformed, why);
        let base = session.endpoint(target.service, &self.0.config).map_err(missing)?;
        let mark = if query.is_empty() { "" } else { "?" };
        let mut request = Request::builder()
            .method(target.method.clone())
            .uri(format!("{base}{}{mark}{query}", target.path))
            .header("x-auth-token", &session.token);
        if target.service == Service::Nova {
            request = request
                .header("x-openstack-nova-api-version", MICROVERSION)
                .header("openstack-api-version", format!("compute {MICROVERSION}"));
        }
        let answer = self.exchange(target, request, body).await;
        self.0.counter.count(target.service, &target.method, &target.path, answer.is_ok());
        answer
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
        let answer = self.exchange(&target, request, Some(&config.auth_request)).await?;
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
        body: Option<&Value>,
    ) -> Result<Answer, Error> {
        let (kind, bytes) = match body {
            Some(body) => (Some("application/json"), Bytes::from(body.to_string())),
            None => (None, Bytes::new()),
        };
        let mut request = request.header("accept", "application/json").header("user-agent", "hangar");
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let request = request.body(bytes).map_err(|error| target.error(ErrorKind::BadRequest, error.to_string()))?;
        let unreachable = |why: String| target.error(ErrorKind::Unreachable, why);
        let _place = self.0.places.acquire().await.map_err(|error| unreachable(error.to_string()))?;
        let reply = tokio::time::timeout(DEADLINE, self.0.transport.clone().oneshot(request))
            .await
            .map_err(|_| unreachable(format!("no answer within {} s", DEADLINE.as_secs())))?
            .map_err(|error| unreachable(chain(error.as_ref())))?;
        let (head, body) = reply.into_parts();
        if !head.status.is_success() {
            return Err(target.refused(head.status, &head.headers, &body));
        }
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}

/// The query of the next page. Only the query counts: behind a proxy the link's host is often one nobody can reach.
fn next_query(page: &Value, collection: &str) -> Option<String> {
    let links = page.get(format!("{collection}_links")).and_then(Value::as_array);
    let linked = links.and_then(|links| links.iter().find(|link| link["rel"] == "next")?["href"].as_str());
    let href = linked.or_else(|| page.get("next")?.as_str())?;
    Some(href.split_once('?')?.1.to_owned())
}

/// A connection error says little without its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
