//! From an HTTP request to its answer: verb and target, faults, the journal, and the form in which objects are sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::resource::Resource;
use super::target::{Query, Target};
use super::verbs::{self, Answer, PatchKind};
use super::watch::{self, Watch};
use super::{ApiCall, Fault, KubeApi};

/// The body of an answer: whole, or a watch's lines as they come.
pub type AnswerBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// A request with its meaning.
struct Asked {
    verb: &'static str,
    target: Target,
    query: Query,
    patch: Option<PatchKind>,
    metadata_only: bool,
    body: Value,
}

impl Asked {
    fn call(&self) -> ApiCall {
        let target = self.target.clone();
        ApiCall {
            verb: self.verb,
            group: target.group,
            resource: target.plural,
            subresource: target.subresource.unwrap_or_default(),
            namespace: target.namespace,
            name: target.name.unwrap_or_default(),
            ..ApiCall::default()
        }
    }
}

impl KubeApi {
    pub(super) async fn answer(&self, user: Arc<str>, request: Request<Body>) -> Response<AnswerBody> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        match self.0.options.latency {
            // Even an API that takes no time gives others a turn.
            Duration::ZERO => tokio::task::yield_now().await,
            latency => tokio::time::sleep(latency).await,
        }
        if let Some(text) = self.plain(parts.uri.path()) {
            let resource = parts.uri.path().to_owned();
            let call = ApiCall { user, verb: "get", resource, ..ApiCall::default() };
            let (call, fault) = self.open(call);
            let response = match fault {
                Fault::Before(code) => refused(&Refusal::plain(code, "the simulation refused the request")),
                _ => whole(200, text),
            };
            self.note(ApiCall { status: response.status().as_u16(), ..call });
            return response;
        }
        let asked = match asked(&parts.method, &parts.uri, &parts.headers, &body) {
            Ok(asked) => asked,
            Err(refusal) => return whole(refusal.code, refusal.body().to_string()),
        };
        let (call, fault) = self.open(ApiCall { user: user.clone(), ..asked.call() });
        if let Fault::Delay(time) = fault {
            tokio::time::sleep(time).await;
        }
        let response = match fault {
            Fault::Before(code) => refused(&Refusal::plain(code, "the simulation refused the request")),
            Fault::After => {
                drop(self.carry_out(&user, asked));
                refused(&Refusal::plain(500, "the simulation lost the answer"))
            }
            Fault::None | Fault::Delay(_) => self.carry_out(&user, asked),
            Fault::DropWatches | Fault::Expire => {
                if fault == Fault::Expire {
                    self.compact();
                }
                self.drop_watches();
                self.carry_out(&user, asked)
            }
        };
        self.note(ApiCall { status: response.status().as_u16(), ..call });
        response
    }

    /// Counts a request, and asks the hook what shall become of it.
    fn open(&self, mut call: ApiCall) -> (ApiCall, Fault) {
        let hook = {
            let mut journal = self.journal();
            call.number = journal.count;
            journal.count += 1;
            journal.hook.clone()
        };
        let fault = hook.map_or(Fault::None, |hook| hook(&call));
        (call, fault)
    }

    fn note(&self, call: ApiCall) {
        if self.0.options.keep_requests {
            self.journal().calls.push(call);
        }
    }

    fn carry_out(&self, user: &str, asked: Asked) -> Response<AnswerBody> {
        if asked.verb == "watch" {
            return match self.watch(&asked) {
                Ok(watch) => {
                    let body = StreamBody::new(watch::stream(self.clone(), watch));
                    response(200, UnsyncBoxBody::new(body))
                }
                Err(refusal) => refused(&refusal),
            };
        }
        let (verb, metadata_only) = (asked.verb, asked.metadata_only);
        let subresource = asked.target.subresource.clone().unwrap_or_default();
        let answer = self.verb(asked);
        self.tell(user, verb, &subresource);
        match answer {
            Ok((code, body)) => whole(code, if metadata_only { metadata(body) } else { body }.to_string()),
            Err(refusal) => refused(&refusal),
        }
    }

    fn verb(&self, asked: Asked) -> Answer {
        let now = self.now();
        let mut store = self.store();
        let Asked { verb, target, query, patch, body, .. } = asked;
        let resource = match (store.resource(&target.group, &target.plural), body["kind"].as_str()) {
            (Some(resource), _) => resource,
            (None, Some(kind)) if ["create", "apply"].contains(&verb) => {
                let resource = Resource::learnt(&target.group, &target.plural, kind);
                store.learn(resource.clone());
                resource
            }
            (None, _) => return Err(unserved()),
        };
        served(&resource, &target)?;
        if !query.text("dryRun").is_empty() {
            return Err(Refusal::plain(400, "dryRun is not simulated: leave it out"));
        }
        let evicts = target.subresource.as_deref() == Some("eviction");
        let mut request = verbs::Request { store: &mut store, resource, target: &target, query: &query, now: &now };
        match (verb, patch) {
            ("create", _) if evicts => request.evict(&body),
            _ if evicts => Err(Refusal::plain(405, "the server does not allow this method on the requested resource")),
            ("get", _) => request.get(),
            ("list", _) => request.list(),
            ("create", _) => request.create(body),
            ("update", _) => request.update(body),
            ("delete", _) => request.delete(&body),
            ("deletecollection", _) => request.delete_all(),
            (_, Some(kind)) => request.patch(body, kind),
            (_, None) => Err(Refusal::plain(405, "the server does not allow this method on the requested resource")),
        }
    }

    /// What is asked before anything else.
    fn plain(&self, path: &str) -> Option<String> {
        match path {
            "/healthz" | "/livez" | "/readyz" => Some("ok".to_owned()),
            "/version" => {
                let version = &self.0.options.version;
                let mut numbers = version.trim_start_matches('v').split('.');
                let body = json!({
                    "major": numbers.next(), "minor": numbers.next(), "gitVersion": version, "gitCommit": "",
                    "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "",
                    "platform": "",
                });
                Some(body.to_string())
            }
            path => super::discovery::resources(&self.store(), path).map(|list| list.to_string()),
        }
    }

    fn watch(&self, asked: &Asked) -> Result<Watch, Refusal> {
        let mut store = self.store();
        let (target, query) = (&asked.target, &asked.query);
        let resource = store.resource(&target.group, &target.plural).ok_or_else(unserved)?;
        served(&resource, target)?;
        let from = query.text("resourceVersion");
        let announce = query.flag("sendInitialEvents");
        let fresh = announce || ["", "0"].contains(&from);
        let after = if fresh { store.version } else { from.parse().map_err(|_| bad_version(from))? };
        let request = verbs::Request { store: &mut store, resource: resource.clone(), target, query, now: "" };
        let selector = request.selector()?;
        let all = request.store.all(&resource.group, &resource.kind).filter(|object| fresh && selector.matches(object));
        let initial = all.map(|object| request.outward(object)).collect();
        let ends = query.text("timeoutSeconds").parse().ok().map(Duration::from_secs);
        let delay = self.0.options.watch_delay;
        let version = target.version.clone();
        Ok(Watch {
            resource,
            version,
            selector,
            after,
            initial,
            announce,
            metadata_only: asked.metadata_only,
            ends,
            delay,
        })
    }
}

fn asked(method: &Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Result<Asked, Refusal> {
    let (target, query) = (Target::parse(uri.path()).ok_or_else(unserved)?, Query::parse(uri));
    let header = |name: http::HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let patch = match header(http::header::CONTENT_TYPE).split(';').next().unwrap_or_default() {
        "application/merge-patch+json" => Some(PatchKind::Merge),
        "application/strategic-merge-patch+json" => Some(PatchKind::Strategic),
        "application/apply-patch+yaml" | "application/apply-patch+json" => Some(PatchKind::Apply),
        _ => None,
    };
    let verb = match (method.as_str(), &target.name) {
        ("GET", _) if query.flag("watch") => "watch",
        ("GET", Some(_)) => "get",
        ("GET", None) => "list",
        ("POST", None) => "create",
        ("POST", Some(_)) if target.subresource.as_deref() == Some("eviction") => "create",
        ("PUT", Some(_)) => "update",
        ("PATCH", Some(_)) if patch == Some(PatchKind::Apply) => "apply",
        ("PATCH", Some(_)) if patch.is_some() => "patch",
        ("PATCH", Some(_)) => {
            return Err(Refusal::plain(415, "this kind of patch is not simulated: use merge or apply"));
        }
        ("DELETE", Some(_)) => "delete",
        ("DELETE", None) => "deletecollection",
        _ => return Err(Refusal::plain(405, "the server does not allow this method on the requested resource")),
    };
    let body = match body {
        [] => Value::Null,
        bytes => serde_json::from_slice(bytes)
            .map_err(|error| Refusal::plain(400, &format!("the body of the request cannot be read: {error}")))?,
    };
    let metadata_only = header(http::header::ACCEPT).contains("as=PartialObjectMetadata");
    Ok(Asked { verb, target, query, patch, metadata_only, body })
}

/// Versions that are not served and subresources that a kind does not have are not there.
fn served(resource: &Resource, target: &Target) -> Result<(), Refusal> {
    let version = resource.facts.is_none_or(|facts| facts.version(&target.version).is_some());
    let door = match target.subresource.as_deref() {
        None => true,
        Some("status") => resource.status,
        Some("approval") => resource.plural == "certificatesigningrequests",
        Some("eviction") => (resource.group.as_str(), resource.kind.as_str()) == ("", "Pod"),
        Some(_) => false,
    };
    if version && door { Ok(()) } else { Err(unserved()) }
}

fn unserved() -> Refusal {
    Refusal::plain(404, "the server could not find the requested resource")
}

fn bad_version(text: &str) -> Refusal {
    Refusal::plain(400, &format!("resourceVersion: Invalid value: \"{text}\": it must be a number"))
}

/// The metadata of an object or of each item of a list.
pub(super) fn metadata(body: Value) -> Value {
    let partial = |object: &Value| json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] });
    match body["items"].as_array() {
        Some(items) => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": body["metadata"], "items": items.iter().map(partial).collect::<Vec<_>>(),
        }),
        None if body["kind"] == "Status" => body,
        None => partial(&body),
    }
}

fn refused(refusal: &Refusal) -> Response<AnswerBody> {
    whole(refusal.code, refusal.body().to_string())
}

fn whole(code: u16, text: String) -> Response<AnswerBody> {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
    response(code, UnsyncBoxBody::new(body))
}

fn response(code: u16, body: AnswerBody) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
