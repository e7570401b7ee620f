//! KubeadmConfig: the user-data by which a new server becomes a node.
//! Flows: control plane is there -> bootstrap token -> cloud-config or Ignition -> Secret -> the token lives until the node has joined, and is deleted then. Holds:
//! the token is kept nowhere but in the user-data, and good for one name where that is known; user text (jinja included) arrives untouched. Machines of a
//! MachinePool come at any time: its token is replaced by another one before it ends, for as long as the pool is there.

pub mod approval;
mod cloud_config;
mod container_linux;
mod content;
pub mod contents;
mod discovery;
mod disks;
mod go_template;
mod ignition;
mod join;
mod node_name;
mod support;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contents::Contents;
use hangar_api::conditions::{Condition, Status};
use hangar_api::contract::Foreign;
use hangar_api::kinds::{KubeadmConfig, KubeadmConfigStatusInitialization, Machine, MachinePool};
use hangar_api::names::{CLUSTER_NAME_LABEL, SECRET_TYPE};
use hangar_api::{KubeVersion, Object};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use approval::SigningRequest;

use crate::hosted::certificates::host_port;
use crate::intent;
use crate::report::READY;
use crate::step::{ClusterName, Effect, TenantAnswer, TenantCall};
use crate::{Absorb, Phase, Phases, Planner, Progress, Report, Step};

pub struct KubeadmConfigs;

type World = crate::World<KubeadmConfigs>;

/// How long a token lives if nobody keeps it alive: a leaked one is soon worthless.
pub const TOKEN_SECONDS: i64 = 900;
/// The same for the token of a MachinePool: a machine may be started with data that was read a while ago.
pub const POOL_TOKEN_SECONDS: i64 = 4 * 3600;
/// Nova takes 65535 bytes of base64.
const LARGEST: usize = 65_535 / 4 * 3;
/// Which token is in the user-data, so that it can be kept alive without reading the data.
pub const TOKEN_ID_ANNOTATION: &str = "hangar.dev/bootstrap-token-id";
/// The only name that this token is good for.
pub const NODE_ANNOTATION: &str = "hangar.dev/bootstrap-node";

/// What the cluster's authority and the tenant say.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// `sha256:...` of the cluster's authority, once there is one; of both while it is rotated.
    pub ca_hashes: Vec<String>,
    /// The authorities themselves.
    pub ca_pem: String,
    /// A token made in this pass.
    pub token: Option<Token>,
    /// When the token in the user-data ends, as the tenant says; asked only until the node has joined.
    pub token_expires: Option<Timestamp>,
    /// It was deleted in this pass.
    pub token_deleted: bool,
    /// What its owner has asked for, and nobody has decided on.
    pub requests: Vec<SigningRequest>,
    /// What the spec takes from Secrets.
    pub contents: Contents,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub id: String,
    pub secret: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({}..)", self.id)
    }
}

impl Absorb for Facts {
    fn absorb(&mut self, effect: &Effect) {
        match effect {
            Effect::Tenant(TenantAnswer::Token { id, secret, expires }) => {
                self.token = Some(Token { id: id.clone(), secret: secret.clone() });
                self.token_expires = Some(*expires);
            }
            Effect::Tenant(TenantAnswer::TokenExtended { expires }) => self.token_expires = Some(*expires),
            Effect::Tenant(TenantAnswer::TokenDeleted) => self.token_deleted = true,
            Effect::Tenant(TenantAnswer::RequestDecided { name }) => {
                self.requests.retain(|request| request.object.name() != name);
            }
            _ => {}
        }
    }
}

impl Planner for KubeadmConfigs {
    type Kind = KubeadmConfig;
    type Facts = Facts;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases
            .then(owner)
            .then(secret_is_ours)
            .facts()
            .then(control_plane)
            .then(supported)
            .then_at(token)
            .then(user_data)
            .then(requests)
            .then_at(keep_token)
            .then(delete_token)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<KubeadmConfig>) {
        let created = data_secret(world).is_some();
        let condition = |kind: &str| match progress.reason() {
            _ if created => Condition::new(kind, Status::True, kind, ""),
            Some(reason) => Condition::new(kind, Status::False, reason.code, reason.message.clone()),
            None => Condition::new(kind, Status::False, &format!("Not{kind}"), "the bootstrap data is being made"),
        };
        report.condition(condition(READY));
        report.condition(condition("DataSecretAvailable"));
        report.status.initialization = Some(KubeadmConfigStatusInitialization { data_secret_created: Some(created) });
        report.status.data_secret_name = created.then(|| world.object().name().to_owned());
    }
}

fn machine(world: &World) -> Option<&Object> {
    world.owner::<Machine>()
}

fn pool(world: &World) -> Option<&Object> {
    world.owner::<MachinePool>()
}

/// Whether its data is for machines that may come at any time.
pub fn is_of_pool(world: &World) -> bool {
    pool(world).is_some()
}

fn token_seconds(world: &World) -> i64 {
    if is_of_pool(world) { POOL_TOKEN_SECONDS } else { TOKEN_SECONDS }
}

/// The Secret of this config; one of the same name that belongs to somebody else is not it.
pub fn data_secret(world: &World) -> Option<&Object> {
    named_secret(world).filter(|secret| secret.is_owned_by(world.object().uid()))
}

fn named_secret(world: &World) -> Option<&Object> {
    world.named("", "Secret", world.object().name())
}

/// Whether the token is still needed: the node is on its way, or others may come.
pub fn awaits_node(world: &World) -> bool {
    pool(world).is_some_and(|pool| !pool.is_deleting())
        || machine(world).is_some_and(|machine| !machine.is_deleting() && !has_joined(machine))
}

fn has_joined(machine: &Object) -> bool {
    machine.get("/status/nodeRef/name").is_string()
}

pub fn tenant(world: &World) -> ClusterName {
    ClusterName { namespace: world.object().namespace().to_owned(), name: world.cluster_name() }
}

fn owner(world: &World) -> Phase {
    match (machine(world).or(pool(world)), world.cluster()) {
        (Some(_), Some(_)) => Phase::Done,
        (None, _) => Phase::wait("WaitingForMachine", "no Machine or MachinePool owns it yet"),
        (_, None) => Phase::wait("WaitingForCluster", "its Cluster is not there yet"),
    }
}

fn secret_is_ours(world: &World) -> Phase {
    match named_secret(world) {
        Some(secret) if !secret.is_owned_by(world.object().uid()) => Phase::Blocked(intent::not_ours(&secret.key())),
        _ => Phase::Done,
    }
}

/// B1, B2.
fn control_plane(world: &World) -> Phase {
    let Some(cluster) = world.cluster() else { return Phase::Done };
    if data_secret(world).is_some() {
        return Phase::Done;
    }
    if cluster.get("/status/initialization/infrastructureProvisioned") != true {
        return Phase::wait("WaitingForClusterInfrastructure", "the cluster's infrastructure is not ready yet");
    }
    if cluster.get("/status/initialization/controlPlaneInitialized") != true {
        return Phase::wait("WaitingForControlPlane", "the control plane is not initialized yet");
    }
    if Foreign::new(cluster).endpoint().is_none() {
        return Phase::wait("WaitingForEndpoint", "the cluster has no endpoint yet");
    }
    if world.facts.ca_hashes.is_empty() {
        let text = format!("there is no Secret {}-ca with a certificate in tls.crt yet", cluster.name());
        return Phase::wait("WaitingForCertificateAuthority", text);
    }
    Phase::Done
}

/// Before a token is made for what cannot be written.
fn supported(world: &World) -> Phase {
    let refusal = || support::refusal(world.object().get("/spec"), version(world).as_ref());
    match refusal().filter(|_| data_secret(world).is_none()) {
        Some(why) => Phase::blocked("InvalidConfiguration", why),
        None => Phase::Done,
    }
}

fn version(world: &World) -> Option<KubeVersion> {
    let of_pool = || pool(world).map_or("", |pool| pool.text("/spec/template/spec/version"));
    KubeVersion::parse(machine(world).map_or_else(of_pool, |machine| machine.text("/spec/version")))
}

/// The second half of its life has begun, and it is not one that is kept alive.
fn is_to_be_replaced(world: &World, now: Timestamp) -> bool {
    let half = SignedDuration::from_secs(POOL_TOKEN_SECONDS / 2);
    let is_old = |expires: Timestamp| expires.duration_since(now) <= half;
    pool(world).is_some() && awaits_node(world) && world.facts.token_expires.is_some_and(is_old)
}

/// B3.
fn token(world: &World, now: Timestamp) -> Phase {
    let is_needed = discovery::needs_token(world.object().get("/spec"));
    let is_due = data_secret(world).is_none() || is_to_be_replaced(world, now);
    if !is_due || world.facts.token.is_some() || !is_needed {
        return Phase::Done;
    }
    let call = TenantCall::CreateToken { seconds: token_seconds(world), node: node_name(world) };
    Phase::Steps(vec![Step::Tenant { cluster: tenant(world), call }])
}

fn user_data(world: &World) -> Phase {
    let token = world.facts.token.as_ref();
    let spec = world.object().get("/spec");
    let written = data_secret(world);
    let is_written = written.is_some_and(|secret| {
        let is_in = |token: &Token| secret.annotation(TOKEN_ID_ANNOTATION) == Some(&token.id);
        !is_of_pool(world) || !awaits_node(world) || token.is_none_or(is_in)
    });
    if is_written || (token.is_none() && discovery::needs_token(spec)) {
        return Phase::Done;
    }
    let Some(endpoint) = world.cluster().and_then(|cluster| Foreign::new(cluster).endpoint()) else {
        return Phase::Done;
    };
    let plane = world.cluster_referenced("/spec/controlPlaneRef").map(|plane| plane.text("/spec/version"));
    let facts = join::Facts {
        endpoint: host_port(&endpoint.host, endpoint.port.into()),
        token: token.map(|token| format!("{}.{}", token.id, token.secret)),
        ca_hashes: world.facts.ca_hashes.clone(),
        ca_pem: world.facts.ca_pem.clone(),
        control_plane_version: plane.filter(|version| !version.is_empty()).map(str::to_owned),
        version: version(world),
    };
    match rendered(spec, &facts, &world.facts.contents) {
        Ok(text) => {
            // A server may have been started with what another process of Hangar has written, and its token is the one that counts.
            let secret = intent::owned(secret(world, token, &text), &world.object().as_owner(true));
            match written {
                None => Phase::Steps(vec![Step::CreateOnce(secret)]),
                Some(old) => {
                    let annotations = secret.get("/metadata/annotations");
                    let fields = json!({ "metadata": { "annotations": annotations }, "data": secret.get("/data") });
                    Phase::steps(intent::touch(old, fields))
                }
            }
        }
        Err(message) => Phase::blocked("InvalidConfiguration", message),
    }
}

/// B4, B7.
fn rendered(spec: &Value, facts: &join::Facts, contents: &Contents) -> Result<String, String> {
    let text = match format(spec) {
        "ignition" => ignition::render(spec, facts, contents)?,
        _ => cloud_config::render(spec, facts, contents)?,
    };
    if text.len() > LARGEST {
        let text = text.len();
        return Err(format!("user-data has {text} bytes, Nova takes {LARGEST} at most; make spec.files smaller"));
    }
    Ok(text)
}

fn format(spec: &Value) -> &str {
    spec["format"].as_str().filter(|format| !format.is_empty()).unwrap_or("cloud-config")
}

fn secret(world: &World, token: Option<&Token>, user_data: &str) -> Object {
    let mut secret = Object::named("v1", "Secret", world.object().namespace(), world.object().name());
    secret.0["metadata"]["labels"] = json!({ CLUSTER_NAME_LABEL: world.cluster_name() });
    if let Some(token) = token {
        secret.0["metadata"]["annotations"] = json!({ TOKEN_ID_ANNOTATION: token.id });
    }
    if let Some(node) = node_name(world).filter(|_| token.is_some()) {
        secret.0["metadata"]["annotations"][NODE_ANNOTATION] = node.into();
    }
    secret.0["type"] = SECRET_TYPE.into();
    secret.0["data"] =
        json!({ "value": STANDARD.encode(user_data), "format": STANDARD.encode(format(world.object().get("/spec"))) });
    secret
}

fn node_name(world: &World) -> Option<String> {
    node_name::expected(world.object(), &world.facts.contents, machine(world)?, world.cluster()?)
}

/// The token in the user-data and the Node that it is good for, if it is only good for one, until that has joined.
pub fn bound_token(world: &World) -> Option<(&str, &str)> {
    let secret = data_secret(world).filter(|_| awaits_node(world))?;
    Some((secret.annotation(TOKEN_ID_ANNOTATION)?, secret.annotation(NODE_ANNOTATION)?))
}

/// The node gets its certificate, and nobody else gets one by its token.
fn requests(world: &World) -> Phase {
    let Some((token, node)) = bound_token(world) else { return Phase::Done };
    let calls = world.facts.requests.iter().map(|request| request.decide(token, node));
    Phase::steps(calls.map(|call| Step::Tenant { cluster: tenant(world), call }))
}

/// The token must outlive a slow boot, a full cloud, a weekend: it is kept alive until the node is there, and no longer.
fn keep_token(world: &World, now: Timestamp) -> Phase {
    let (Some(secret), true) = (data_secret(world), awaits_node(world)) else { return Phase::Done };
    // A token of the user's own is the user's.
    let Some(id) = secret.annotation(TOKEN_ID_ANNOTATION).map(str::to_owned) else { return Phase::Done };
    let half = Duration::from_secs(token_seconds(world).unsigned_abs() / 2);
    match world.facts.token_expires {
        Some(expires) if expires.duration_since(now) > half.try_into().unwrap_or_default() => {
            let left = expires.duration_since(now) - half.try_into().unwrap_or_default();
            let wake = Duration::from_secs(u64::try_from(left.as_secs()).unwrap_or(0) + 1);
            Phase::wait_for("WaitingForNode", "waiting for the node to join", wake)
        }
        // Its successor could not be made.
        Some(_) if pool(world).is_some() => Phase::Done,
        Some(_) => {
            let call = TenantCall::ExtendToken { id, seconds: TOKEN_SECONDS };
            Phase::Steps(vec![Step::Tenant { cluster: tenant(world), call }])
        }
        // The token ended while nobody looked: the data is worthless, make it anew.
        None => Phase::steps(intent::delete(secret)),
    }
}

/// Whoever reads the user-data later, such as a pod that asks the metadata service, finds a token that opens nothing.
fn delete_token(world: &World) -> Phase {
    let is_over = machine(world).is_some_and(has_joined) || pool(world).is_some_and(Object::is_deleting);
    let stays = world.cluster().is_some_and(|cluster| !cluster.is_deleting());
    let Some(secret) = data_secret(world).filter(|_| is_over && stays) else { return Phase::Done };
    let Some(id) = secret.annotation(TOKEN_ID_ANNOTATION) else { return Phase::Done };
    if world.facts.token_deleted {
        let done = json!({ "metadata": { "annotations": { TOKEN_ID_ANNOTATION: null } } });
        return Phase::steps(intent::touch(secret, done));
    }
    let call = TenantCall::DeleteToken { id: id.to_owned() };
    Phase::Steps(vec![Step::Tenant { cluster: tenant(world), call }])
}

#[cfg(test)]
mod tests;
