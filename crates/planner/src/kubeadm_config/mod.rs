//! KubeadmConfig: the user-data by which a new server becomes a node.
//! Flows: control plane is there -> bootstrap token -> cloud-config -> Secret -> the token lives until the node has joined. Holds: the
//! token is kept nowhere but in the user-data; user text (jinja included) arrives untouched.

mod cloud_config;
mod join;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::conditions::{Condition, Status, settle};
use hangar_api::kinds::KubeadmConfig;
use hangar_api::names::{CLUSTER_NAME_LABEL, SECRET_TYPE};
use hangar_api::{KubeVersion, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::intent;
use crate::step::TenantCall;
use crate::{Phase, Phases, Plan, Progress, Reason, Step};

/// How long a token lives if nobody keeps it alive: a leaked one is soon worthless.
pub const TOKEN_SECONDS: i64 = 900;
/// Which token is in the user-data, so that it can be kept alive without reading the data.
pub const TOKEN_ID_ANNOTATION: &str = "hangar.dev/bootstrap-token-id";

#[derive(Debug, Clone)]
pub struct World {
    pub object: Object,
    pub config: KubeadmConfig,
    /// The Machine that owns this config.
    pub machine: Option<Object>,
    pub cluster: Option<Object>,
    /// `sha256:...` of the cluster's authority, once there is one.
    pub ca_hash: Option<String>,
    pub data_secret: Option<Object>,
    /// A token made in this pass.
    pub token: Option<Token>,
    /// When the token in the user-data ends, as the tenant says; asked only until the node has joined.
    pub token_expires: Option<Timestamp>,
    pub refusal: Option<Reason>,
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

pub fn plan(world: &World, now: Timestamp) -> Plan {
    if world.object.is_deleting() {
        return Phases::of(world, now).report(|_, _, _| None);
    }
    Phases::of(world, now)
        .unless_refused(world.refusal.as_ref())
        .then(owner)
        .then(control_plane)
        .then(token)
        .then(user_data)
        .then(keep_token)
        .report(status)
}

fn owner(world: &World, _now: Timestamp) -> Phase {
    match (&world.machine, &world.cluster) {
        (Some(_), Some(_)) => Phase::Done,
        (None, _) => Phase::wait("WaitingForMachine", "no Machine owns it yet"),
        (_, None) => Phase::wait("WaitingForCluster", "its Cluster is not there yet"),
    }
}

fn control_plane(world: &World, _now: Timestamp) -> Phase {
    let Some(cluster) = &world.cluster else { return Phase::Done };
    if world.data_secret.is_some() {
        return Phase::Done;
    }
    if cluster.get("/status/initialization/infrastructureProvisioned") != true {
        return Phase::wait("WaitingForClusterInfrastructure", "the cluster's infrastructure is not ready yet");
    }
    if cluster.get("/status/initialization/controlPlaneInitialized") != true {
        return Phase::wait("WaitingForControlPlane", "the control plane is not initialized yet");
    }
    if cluster.text("/spec/controlPlaneEndpoint/host").is_empty() {
        return Phase::wait("WaitingForEndpoint", "the cluster has no endpoint yet");
    }
    match world.ca_hash {
        Some(_) => Phase::Done,
        None => Phase::wait("WaitingForCertificateAuthority", format!("there is no Secret {}-ca yet", cluster.name())),
    }
}

fn token(world: &World, _now: Timestamp) -> Phase {
    if world.data_secret.is_some() || world.token.is_some() {
        return Phase::Done;
    }
    Phase::Steps(vec![Step::Tenant(TenantCall::CreateToken { seconds: TOKEN_SECONDS })])
}

fn user_data(world: &World, _now: Timestamp) -> Phase {
    let (None, Some(token), Some(cluster), Some(ca_hash)) =
        (&world.data_secret, &world.token, &world.cluster, &world.ca_hash)
    else {
        return Phase::Done;
    };
    let endpoint = cluster.get("/spec/controlPlaneEndpoint");
    let facts = join::Facts {
        endpoint: format!("{}:{}", endpoint["host"].as_str().unwrap_or_default(), endpoint["port"]),
        token: format!("{}.{}", token.id, token.secret),
        ca_hash: ca_hash.clone(),
        version: version(world),
    };
    match cloud_config::render(&world.object.0["spec"], &facts) {
        Ok(text) => Phase::steps(intent::apply(None, secret(world, token, &text))),
        Err(message) => Phase::blocked("InvalidConfiguration", message),
    }
}

fn version(world: &World) -> Option<KubeVersion> {
    KubeVersion::parse(world.machine.as_ref().map_or("", |machine| machine.text("/spec/version")))
}

fn secret(world: &World, token: &Token, user_data: &str) -> Object {
    let mut secret = Object::named("v1", "Secret", world.object.namespace(), world.object.name());
    let cluster = world.cluster.as_ref().map_or("", Object::name);
    secret.0["metadata"]["labels"] = json!({ CLUSTER_NAME_LABEL: cluster });
    secret.0["metadata"]["annotations"] = json!({ TOKEN_ID_ANNOTATION: token.id });
    secret.0["type"] = SECRET_TYPE.into();
    secret.0["data"] = json!({ "value": STANDARD.encode(user_data), "format": STANDARD.encode("cloud-config") });
    intent::owned(secret, &world.object.as_owner(true))
}

/// The token must outlive a slow boot, a full cloud, a weekend: it is kept alive until the node is there, and no longer.
fn keep_token(world: &World, now: Timestamp) -> Phase {
    let (Some(secret), false) = (&world.data_secret, has_joined(world)) else { return Phase::Done };
    let id = secret.annotation(TOKEN_ID_ANNOTATION).unwrap_or_default().to_owned();
    let half = Duration::from_secs(TOKEN_SECONDS as u64 / 2);
    match world.token_expires {
        Some(expires) if expires.duration_since(now) > half.try_into().unwrap_or_default() => {
            let left = expires.duration_since(now) - half.try_into().unwrap_or_default();
            let wake = Duration::from_secs(u64::try_from(left.as_secs()).unwrap_or(0) + 1);
            Phase::wait_for("WaitingForNode", "", wake)
        }
        Some(_) => Phase::Steps(vec![Step::Tenant(TenantCall::ExtendToken { id, seconds: TOKEN_SECONDS })]),
        // Made in this pass and not asked for since.
        None if world.token.is_some() => Phase::wait_for("WaitingForNode", "", half),
        // The token ended while nobody looked: the data is worthless, make it anew.
        None => Phase::steps(intent::delete(secret)),
    }
}

fn has_joined(world: &World) -> bool {
    world.machine.as_ref().is_some_and(|machine| machine.get("/status/nodeRef/name").is_string())
}

fn status(world: &World, progress: &Progress, now: Timestamp) -> Option<Value> {
    let created = world.data_secret.is_some();
    let condition = |kind: &str| match progress.reason() {
        _ if created => Condition::new(kind, Status::True, kind, ""),
        Some(reason) => Condition::new(kind, Status::False, reason.code, reason.message.clone()),
        None => Condition::new(kind, Status::False, &format!("Not{kind}"), "its data is being made"),
    };
    let present = world.config.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut status = json!({
        "observedGeneration": world.object.generation(),
        "initialization": { "dataSecretCreated": created },
        "conditions": settle(vec![condition("Ready"), condition("DataSecretAvailable")], &present, now),
    });
    if created {
        status["dataSecretName"] = world.object.name().into();
    }
    Some(status)
}
