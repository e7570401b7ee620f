//! What every request goes through: which service, fault rules, token, journal.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tokio::time::Instant;

use crate::faults::{Call, CallInfo, Fault, FaultAction};
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::World;
use crate::{Simulator, admin, compute, identity, image, network};

const LARGEST_REQUEST: usize = 8 << 20;
const LONGEST_JOURNAL: usize = 200_000;

/// One request, taken apart.
pub(crate) struct Ask {
    pub service: &'static str,
    pub method: Method,
    /// Below the service's prefix and version.
    pub path: String,
    pub query: Query,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// `http://host:port`, as the client sees us.
    pub base: String,
    /// The service's own URL up to and with its version.
    pub root: String,
    /// Whether the path had a version in it.
    pub versioned: bool,
    /// Whom the token belongs to.
    pub project_id: String,
    pub user_id: String,
    /// The fault a server made by this request will end in.
    pub doom: Option<String>,
}

impl Ask {
    pub(crate) fn segments(&self) -> Vec<&str> {
        self.path.split('/').filter(|segment| !segment.is_empty()).collect()
    }

    pub(crate) fn json(&self) -> Result<Value, String> {
        serde_json::from_slice(&self.body).map_err(|error| format!("Malformed request body: {error}"))
    }

    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.root, self.path)
    }
}

/// Decoded parameters in the order they came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(name), decode(value))
        };
        Self(text.split('&').filter(|part| !part.is_empty()).map(pair).collect())
    }

    pub(crate) fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The same query with some parameters replaced, encoded.
    pub(crate) fn with(&self, replaced: &[(&str, &str)]) -> String {
        let kept = self.0.iter().filter(|(name, _)| replaced.iter().all(|(other, _)| other != name));
        let kept = kept.map(|(name, value)| (name.as_str(), value.as_str()));
        let part = |(name, value): (&str, &str)| format!("{}={}", encode(name), encode(value));
        kept.chain(replaced.iter().copied()).map(part).collect::<Vec<_>>().join("&")
    }
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (bytes[at], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                at += 3;
                continue;
            }
            (b'+', _) => decoded.push(b' '),
            (byte, _) => decoded.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn encode(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:,".contains(&byte);
    text.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

impl Simulator {
    pub(crate) async fn answer_http(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let answer = match Limited::new(body, LARGEST_REQUEST).collect().await {
            Ok(body) => self.answer(Request::from_parts(head, body.to_bytes())).await,
            Err(_) => Some(render(Reply::empty(413))),
        };
        answer.map_or_else(broken_off, |answer| answer.map(Body::from))
    }

    /// `None` when the answer got lost.
    pub(crate) async fn answer(&self, request: Request<Bytes>) -> Option<Response<Bytes>> {
        self.resume();
        let mut ask = take_apart(request);
        let info = CallInfo {
            service: ask.service.to_owned(),
            method: ask.method.to_string(),
            path: ask.path.clone(),
            query: ask.query.with(&[]),
            number: 0,
        };
        let (fault, action) = if ask.service == "admin" { (Fault::None, None) } else { self.trouble(info.clone()) };
        let mut lose = fault == Fault::After;
        let outcome = match action {
            _ if fault == Fault::Before => {
                self.write_down(info, 0);
                return None;
            }
            Some(FaultAction::Fail { status, body }) => Ok(failed(status, body)),
            Some(FaultAction::Unauthorized) => Err(Refusal::unauthorized()),
            Some(FaultAction::Delay(millis)) => {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                self.carry_out(&mut ask)
            }
            other => {
                lose = lose || other == Some(FaultAction::LoseReply);
                if let Some(FaultAction::ServerError(message)) = other {
                    ask.doom = Some(message);
                }
                self.carry_out(&mut ask)
            }
        };
        let reply = outcome.unwrap_or_else(|Refusal(reply)| reply);
        if ask.service != "admin" {
            self.write_down(info, reply.status);
        }
        (!lose).then(|| render(reply))
    }

    fn trouble(&self, mut info: CallInfo) -> (Fault, Option<FaultAction>) {
        let (hook, action) = {
            let faults = &mut self.world().faults;
            info.number = faults.calls;
            faults.calls += 1;
            (faults.hook.clone(), faults.take(&info))
        };
        // Outside the lock, because a hook may look at the cloud.
        (hook.map_or(Fault::None, |hook| hook(&info)), action)
    }

    fn carry_out(&self, ask: &mut Ask) -> Outcome {
        let outcome = {
            let mut world = self.world();
            let needs_token = ask.versioned && !matches!(ask.service, "identity" | "admin");
            if needs_token {
                check_token(&mut world, ask)?;
            }
            match ask.service {
                "identity" => identity::answer(self, &mut world, ask),
                "compute" => compute::answer(self, &mut world, ask),
                "network" => network::answer(self, &mut world, ask),
                "image" => image::answer(&world, ask),
                _ => Err(Refusal::keystone(404, "Not Found", "No such service here")),
            }
        };
        let outcome = if ask.service == "admin" { admin::answer(self, ask) } else { outcome };
        if outcome.is_ok() && ask.method != Method::GET && ask.service != "identity" {
            self.start_effects();
            self.save_soon();
        }
        outcome
    }

    fn write_down(&self, info: CallInfo, status: u16) {
        let at = self.millis();
        let CallInfo { service, method, path, query, .. } = info;
        let journal = &mut self.world().journal;
        if journal.len() == LONGEST_JOURNAL {
            journal.pop_front();
        }
        journal.push_back(Call { service, method, path, query, status, at });
    }
}

fn check_token(world: &mut World, ask: &mut Ask) -> Result<(), Refusal> {
    let given = ask.headers.get("x-auth-token").and_then(|token| token.to_str().ok()).unwrap_or_default();
    match world.tokens.get(given) {
        Some(token) if Instant::now() < token.expires => {
            ask.project_id.clone_from(&token.project_id);
            ask.user_id.clone_from(&token.user_id);
            Ok(())
        }
        _ => Err(Refusal::unauthorized()),
    }
}

fn take_apart(request: Request<Bytes>) -> Ask {
    let (head, body) = request.into_parts();
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let scheme = header("x-forwarded-proto").or(head.uri.scheme_str()).unwrap_or("http").to_owned();
    let host = head.uri.authority().map(|authority| authority.as_str()).or(header("host")).unwrap_or("localhost");
    let base = format!("{scheme}://{host}");
    let path = head.uri.path();
    let services: [(&'static str, &str); 5] =
        [("identity", "v3"), ("compute", "v2.1"), ("network", "v2.0"), ("image", "v2"), ("admin", "")];
    let found = services.iter().find_map(|(service, version)| {
        let rest = path.strip_prefix('/')?.strip_prefix(service)?;
        (rest.is_empty() || rest.starts_with('/')).then_some((*service, *version, rest))
    });
    let (service, version, rest) = found.unwrap_or(("", "", path));
    let below = rest.strip_prefix('/').and_then(|rest| rest.strip_prefix(version));
    let below = below.filter(|below| !version.is_empty() && (below.is_empty() || below.starts_with('/')));
    Ask {
        service,
        versioned: below.is_some(),
        path: below.unwrap_or(rest).trim_end_matches('/').to_owned(),
        root: if version.is_empty() { format!("{base}/{service}") } else { format!("{base}/{service}/{version}") },
        query: Query::parse(head.uri.query().unwrap_or_default()),
        method: head.method,
        headers: head.headers,
        body,
        base,
        project_id: String::new(),
        user_id: String::new(),
        doom: None,
    }
}

fn failed(status: u16, body: Value) -> Reply {
    let retry = body.get("retry_after").and_then(Value::as_u64);
    let mut reply = Reply::new(status, body);
    reply.headers.extend(retry.map(|seconds| ("retry-after", seconds.to_string())));
    reply
}

/// A body that fails makes the server close the connection in the middle of the answer.
fn broken_off() -> Response<Body> {
    let lost = std::io::Error::other("the answer is lost on purpose");
    Response::new(Body::from_stream(futures::stream::iter([Err::<Bytes, _>(lost)])))
}

fn render(reply: Reply) -> Response<Bytes> {
    let body = reply.body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let mut response = Response::builder()
        .status(reply.status)
        .header("x-openstack-request-id", format!("req-{}", uuid::Uuid::new_v4()));
    if !body.is_empty() {
        response = response.header("content-type", "application/json");
    }
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(body.clone()).unwrap_or_else(|_| Response::new(body))
}
