//! What every request goes through: which service, fault rules, token, journal; and what is saved before it is answered.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tokio::time::Instant;

use crate::ask::{Ask, take_apart};
use crate::faults::{Call, CallInfo, Fault, FaultAction};
use crate::image::{Upload, is_upload};
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::World;
use crate::{Simulator, admin, compute, identity, image, lifecycle, load_balancer, network, volume};

const LARGEST_REQUEST: usize = 8 << 20;
const LONGEST_JOURNAL: usize = 200_000;
const NO_HOST: &str = "No valid host was found. There are not enough hosts available.";

/// What becomes of an answer on its way.
pub(crate) enum Sent {
    Whole(Response<Bytes>),
    /// The connection ends instead.
    Nothing,
    /// It begins and does not end.
    Endless,
}

impl Simulator {
    pub(crate) async fn answer_http(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        if is_upload(&head.method, &head.uri) {
            let upload = Upload::read(body).await;
            return self.send(self.answer(Request::from_parts(head, Bytes::new()), upload).await);
        }
        match Limited::new(body, LARGEST_REQUEST).collect().await {
            Ok(body) => self.send(self.answer(Request::from_parts(head, body.to_bytes()), None).await),
            Err(_) => render(Reply::empty(413)).map(Body::from),
        }
    }

    fn send(&self, sent: Sent) -> Response<Body> {
        match sent {
            Sent::Whole(answer) => answer.map(Body::from),
            Sent::Nothing => broken_off(),
            Sent::Endless => Response::new(Body::from_stream(futures::stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Some((Ok::<_, std::io::Error>(Bytes::from_static(b" ")), ()))
            }))),
        }
    }

    pub(crate) async fn answer(&self, request: Request<Bytes>, upload: Option<Upload>) -> Sent {
        self.resume();
        let began = self.millis();
        let mut ask = take_apart(request);
        ask.upload = upload;
        if ask.service == "admin" {
            let allowed = self.0.options.access.check(&ask);
            let reply = allowed.and_then(|()| admin::answer(self, &ask)).unwrap_or_else(|Refusal(reply)| *reply);
            return Sent::Whole(render(reply));
        }
        let info = CallInfo {
            service: ask.service.to_owned(),
            method: ask.method.to_string(),
            path: ask.path.clone(),
            query: ask.query.with(&[]),
            number: 0,
        };
        let (caller, fault, action) = self.trouble(info.clone(), &ask);
        let delay = if let Some(FaultAction::Delay(millis)) = action { millis } else { 0 };
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if fault == Fault::Before || action == Some(FaultAction::Drop) {
            self.write_down(info, 0, began, caller, "dropped");
            return Sent::Nothing;
        }
        let outcome = self.with_trouble(&mut ask, action.as_ref());
        let reply = outcome.unwrap_or_else(|Refusal(reply)| *reply);
        let lost = fault == Fault::After || action == Some(FaultAction::LoseReply);
        self.write_down(info, reply.status, began, caller, if lost { "lost" } else { "answered" });
        match action {
            _ if lost => Sent::Nothing,
            Some(FaultAction::Endless) => Sent::Endless,
            Some(FaultAction::HalfAnswer) => Sent::Whole(render(reply).map(|body| body.slice(..body.len() / 2))),
            _ => Sent::Whole(render(reply)),
        }
    }

    /// Who asks, and what the rules and the hook want to happen to it.
    fn trouble(&self, mut info: CallInfo, ask: &Ask) -> (String, Fault, Option<FaultAction>) {
        let (caller, hook, action) = {
            let world = &mut *self.world();
            let (caller, projects) = caller(world, ask);
            info.number = world.faults.calls;
            world.faults.calls += 1;
            (caller, world.faults.hook.clone(), world.faults.take(&info, &projects))
        };
        // Outside the lock, because a hook may look at the cloud.
        (caller, hook.map_or(Fault::None, |hook| hook(&info)), action)
    }

    fn with_trouble(&self, ask: &mut Ask, action: Option<&FaultAction>) -> Outcome {
        match action {
            Some(FaultAction::Fail { status, body }) => Ok(failed(*status, body.clone())),
            Some(FaultAction::Status(401) | FaultAction::Unauthorized) => Err(Refusal::unauthorized()),
            Some(FaultAction::Status(status)) => {
                let words = http::StatusCode::from_u16(*status).ok().and_then(|code| code.canonical_reason());
                Err(Refusal::of(ask.service, *status, words.unwrap_or("trouble on order")))
            }
            Some(FaultAction::Quota) => Err(quota(ask.service)),
            Some(FaultAction::TooManyRequests(seconds)) => Ok(later(ask.service, 429, *seconds)),
            Some(FaultAction::OverLimit(seconds)) => Ok(later(ask.service, 413, *seconds)),
            Some(FaultAction::ProxyPage(status)) => {
                let html = format!(
                    "<html><body><h1>{status}</h1>\nNo server is available to handle this request.\n</body></html>\n"
                );
                Ok(Reply { html: Some(html), ..Reply::empty(*status) })
            }
            Some(FaultAction::FailAfter { status }) => {
                self.carry_out(ask)?;
                Err(Refusal::of(ask.service, *status, "trouble on order"))
            }
            Some(FaultAction::Twice) => {
                drop(self.carry_out(ask));
                self.carry_out(ask)
            }
            Some(FaultAction::DeletedElsewhere) => {
                lifecycle::vanish(self, ask.service, &ask.segments());
                self.carry_out(ask)
            }
            Some(FaultAction::ServerError(message)) => {
                ask.doom = Some(message.clone());
                self.carry_out(ask)
            }
            Some(FaultAction::NoValidHost) => {
                ask.doom = Some(NO_HOST.to_owned());
                self.carry_out(ask)
            }
            _ => self.carry_out(ask),
        }
    }

    fn carry_out(&self, ask: &mut Ask) -> Outcome {
        let outcome = {
            let mut world = self.world();
            let needs_token = ask.versioned && (ask.service != "identity" || identity::needs_token(ask));
            let public = ask.path.is_empty();
            if needs_token && !public {
                check_token(&mut world, ask)?;
            }
            let outcome = match ask.service {
                "identity" => identity::answer(self, &mut world, ask),
                "compute" => compute::answer(self, &mut world, ask),
                "network" => network::answer(self, &mut world, ask),
                "image" => image::answer(self, &mut world, ask),
                "volume" => volume::answer(self, &mut world, ask),
                "load-balancer" => load_balancer::answer(self, &mut world, ask),
                _ => Err(Refusal::keystone(404, "Not Found", "No such service here")),
            };
            // Before the answer: what a client was told must still be true after a sudden death.
            self.record(&mut world, &ask.user_id);
            outcome
        };
        self.start_effects();
        outcome
    }

    fn write_down(&self, info: CallInfo, status: u16, began: u64, caller: String, outcome: &str) {
        let duration = self.millis() - began;
        let CallInfo { service, method, path, query, .. } = info;
        let journal = &mut self.world().journal;
        if journal.len() == LONGEST_JOURNAL {
            journal.pop_front();
        }
        let status = if outcome == "lost" { 0 } else { status };
        journal.push_back(Call {
            service,
            method,
            path,
            query,
            status,
            at: began,
            duration,
            caller,
            outcome: outcome.to_owned(),
        });
    }
}

fn caller(world: &World, ask: &Ask) -> (String, Vec<String>) {
    let token = ask.header("x-auth-token").and_then(|token| world.tokens.get(token));
    let Some(token) = token else { return (String::new(), vec![]) };
    let project = world.state.projects.get(&token.project_id).map_or("", |project| project.name.as_str());
    let user = world.state.users.get(&token.user_id).map_or("", |user| user.name.as_str());
    (format!("{user}@{project}"), vec![project.to_owned(), token.project_id.clone()])
}

fn check_token(world: &mut World, ask: &mut Ask) -> Result<(), Refusal> {
    let given = ask.header("x-auth-token").unwrap_or_default();
    match world.tokens.get(given) {
        Some(token) if Instant::now() < token.expires => {
            ask.project_id.clone_from(&token.project_id);
            ask.user_id.clone_from(&token.user_id);
            ask.admin = token.admin;
            Ok(())
        }
        _ if ask.service == "image" => Err(Refusal::glance(
            401,
            "This server could not verify that you are authorized to access the document you requested.",
        )),
        _ => Err(Refusal::unauthorized()),
    }
}

fn failed(status: u16, body: Value) -> Reply {
    let retry = body.get("retry_after").and_then(Value::as_u64);
    let mut reply = Reply::new(status, body);
    reply.headers.extend(retry.map(|seconds| ("retry-after", seconds.to_string())));
    reply
}

fn later(service: &str, status: u16, seconds: u64) -> Reply {
    let Refusal(mut reply) = Refusal::of(service, status, "This request was rate-limited.");
    reply.headers.push(("retry-after", seconds.to_string()));
    *reply
}

fn quota(service: &str) -> Refusal {
    match service {
        "network" => Refusal::neutron(409, "OverQuota", "Quota exceeded for resources: ['port']."),
        "volume" => Refusal::nova(
            413,
            "VolumeLimitExceeded: Maximum number of volumes allowed (0) exceeded for quota 'volumes'.",
        ),
        "load-balancer" => Refusal::octavia(403, "Quota has been met for resources: load_balancer"),
        "image" => Refusal::glance(413, "Denying attempt to upload image because it exceeds the quota"),
        "identity" => Refusal::keystone(403, "Forbidden", "Unable to create: quota exceeded"),
        _ => Refusal::nova(403, "Quota exceeded for instances: Requested 1, but already used 0 of 0 instances"),
    }
}

/// A body that fails makes the server close the connection in the middle of the answer.
fn broken_off() -> Response<Body> {
    let lost = std::io::Error::other("the answer is lost on purpose");
    Response::new(Body::from_stream(futures::stream::iter([Err::<Bytes, _>(lost)])))
}

fn render(reply: Reply) -> Response<Bytes> {
    let (kind, body) = match (reply.body, reply.html) {
        (Some(body), _) => ("application/json", Bytes::from(body.to_string())),
        (None, Some(html)) => ("text/html; charset=UTF-8", Bytes::from(html)),
        (None, None) => ("", Bytes::new()),
    };
    let mut response = Response::builder()
        .status(reply.status)
        .header("x-openstack-request-id", format!("req-{}", uuid::Uuid::new_v4()));
    if !kind.is_empty() {
        response = response.header("content-type", kind);
    }
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(body.clone()).unwrap_or_else(|_| Response::new(body))
}
