//! KamajiControlPlane: reads its Service, Secrets and Deployments, its DataStore, and what the tenant says of itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use hangar_api::{Object, ObjectKey, kinds, references};
use hangar_engine::pass::{Controller, PassError, act_on_management};
use hangar_planner::kamaji_control_plane::{self as planner, DatastoreView, World};
use hangar_planner::step::{DatastoreCall, Signer, TenantAnswer};
use hangar_planner::{Effect, Plan, Progress, Reason, Step, Wake};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{Api, ListParams};
use serde_json::Value;

use crate::datastores::DatastoreAccess;
use crate::secrets::Secrets;
use crate::{Context, cluster_of, issue, owned, referenced, tenant_calls, typed};

/// Of a container's last line.
const LAST_WORDS: usize = 300;
/// An API server that is at hand is ready sooner.
const LATE: SignedDuration = SignedDuration::from_secs(8);

pub struct KamajiControlPlanes {
    context: Arc<Context>,
    /// The version that a tenant reported, by UID and generation of its Deployment.
    versions: Mutex<BTreeMap<(String, i64), String>>,
    secrets: Secrets,
}

impl KamajiControlPlanes {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, versions: Mutex::default(), secrets: Secrets::default() }
    }

    /// The DataStore with everything that it refers to.
    async fn datastore(&self, key: &ObjectKey) -> Result<(DatastoreAccess, Signer), DatastoreView> {
        let store = self.context.cache().get(key);
        let store = store.ok_or_else(|| DatastoreView::Missing(key.name.clone()))?;
        let unusable = |why: &str| DatastoreView::Unusable(format!("DataStore {}: {why}", key.name));
        if store.text("/spec/driver") != "etcd" {
            return Err(unusable("only the driver etcd is built yet"));
        }
        let tls = store.get("/spec/tlsConfig");
        let (authority, client) = (&tls["certificateAuthority"], &tls["clientCertificate"]);
        let ca_pem = self.content(&authority["certificate"]).await.map_err(|why| unusable(&why))?;
        let ca_key = self.content(&authority["privateKey"]).await.map_err(|why| unusable(&why))?;
        let certificate_pem = self.content(&client["certificate"]).await.map_err(|why| unusable(&why))?;
        let key_pem = self.content(&client["privateKey"]).await.map_err(|why| unusable(&why))?;
        let endpoints =
            store.get("/spec/endpoints").as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let access =
            DatastoreAccess { endpoints: endpoints.collect(), ca_pem: ca_pem.clone(), certificate_pem, key_pem };
        let signer = Signer { certificate_pem: ca_pem, key_pem: ca_key, trust_pem: None };
        Ok((access, signer))
    }

    /// Inline, or from a Secret.
    async fn content(&self, reference: &Value) -> Result<String, String> {
        use base64::Engine as _;
        if let Some(inline) = reference["content"].as_str() {
            let bytes = base64::engine::general_purpose::STANDARD.decode(inline).map_err(|error| error.to_string())?;
            return String::from_utf8(bytes).map_err(|error| error.to_string());
        }
        let secret = &reference["secretReference"];
        let text = |field: &str| secret[field].as_str().unwrap_or_default();
        let key = ObjectKey::new("", "Secret", text("namespace"), text("name"));
        let found = self.secrets.get(self.context.management(), &key).await.map_err(|error| error.to_string())?;
        let found = found.ok_or_else(|| format!("there is no {key}"))?;
        found.secret_text(text("keyPath")).ok_or_else(|| format!("{key} has no key {}", text("keyPath")))
    }

    /// Asked only when the API server's pods take longer than they usually do, for the reason stands in the pods alone.
    async fn pods_wait_for(&self, world: &World, now: Timestamp) -> Option<String> {
        let deployment = world.api_server.as_ref().filter(|deployment| !planner::is_available(Some(deployment)))?;
        let created: Timestamp = deployment.text("/metadata/creationTimestamp").parse().ok()?;
        if now.duration_since(created) < LATE {
            return None;
        }
        let api: Api<Pod> = Api::namespaced(self.context.management().client().clone(), world.object.namespace());
        let own = ListParams::default().labels(&format!("kamaji.clastix.io/name={}", world.object.name()));
        let pods = api.list(&own).await.ok()?;
        let mut statuses = pods.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref()).flatten();
        statuses.find_map(complaint)
    }

    /// Asked once for each generation of the API server's Deployment, when it answers.
    async fn version(&self, world: &World) -> Option<String> {
        let deployment = world
            .api_server
            .as_ref()
            .filter(|deployment| deployment.get("/status/availableReplicas").as_i64().unwrap_or(0) > 0)?;
        let key = (world.object.uid().to_owned(), deployment.generation());
        let known = self.versions.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if known.is_some() {
            return known;
        }
        let client = self.context.tenants.client(&cluster_name(world)).await.ok()?;
        let version = client.apiserver_version().await.ok()?.git_version;
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).insert(key, version.clone());
        Some(version)
    }
}

#[async_trait]
impl Controller for KamajiControlPlanes {
    type World = World;

    async fn observe(&self, key: &ObjectKey, now: Timestamp) -> Result<Option<World>, PassError> {
        let cache = self.context.cache();
        let Some(object) = cache.get(key) else { return Ok(None) };
        let kind: kinds::KamajiControlPlane = typed(&object)?;
        let cluster = cluster_of(cache, &object);
        let of = |group: &str, kind: &str, suffix: &str| {
            cache
                .get(&ObjectKey::new(group, kind, &key.namespace, &format!("{}{suffix}", key.name)))
                .as_ref()
                .map(owned)
        };
        let datastore = match self.datastore(&references::data_store(&object)).await {
            Ok((access, authority)) => DatastoreView::Ready { endpoints: access.endpoints, authority },
            Err(view) => view,
        };
        let mut world = World {
            infrastructure: cluster
                .as_ref()
                .and_then(|cluster| referenced(cache, cluster, "/spec/infrastructureRef"))
                .as_ref()
                .map(owned),
            cluster: cluster.as_ref().map(owned),
            datastore,
            service: of("", "Service", ""),
            secrets: cache.owned_by(object.uid(), "Secret").iter().map(owned).collect(),
            kubeadm_config: of("", "ConfigMap", "-kubeadmconfig"),
            api_server: of("apps", "Deployment", ""),
            controller_manager: of("apps", "Deployment", "-controller-manager"),
            scheduler: of("apps", "Deployment", "-scheduler"),
            egress: of("", "ConfigMap", "-konnectivity-egress-selector-configuration"),
            konnectivity: self.context.site.konnectivity.clone(),
            tenant_version: None,
            pods_wait_for: None,
            tenant_applied: false,
            evicted: false,
            admitted: false,
            kind,
            object: owned(&object),
            refusal: None,
        };
        world.tenant_version = self.version(&world).await;
        world.pods_wait_for = self.pods_wait_for(&world, now).await;
        Ok(Some(world))
    }

    fn plan(&self, world: &World, now: Timestamp) -> Plan {
        planner::plan(world, now)
    }

    async fn act(&self, world: &World, step: Step) -> Result<Effect, Reason> {
        let refused = |code: &'static str, message: String| Reason { code, message, wake: Wake::Retry };
        match step {
            Step::Issue(order) => {
                let now = (self.context.passes.clock)();
                let secret = issue::fill(&self.context, &order, now)
                    .map_err(|error| refused("CertificateNotIssued", error.to_string()))?;
                act_on_management(self.context.management(), Step::Apply(secret)).await
            }
            Step::Datastore(call) => {
                let store = references::data_store(&world.object);
                let (access, _) = self
                    .datastore(&store)
                    .await
                    .map_err(|_| refused("DataStoreUnusable", format!("DataStore {} cannot be used", store.name)))?;
                self.context
                    .datastores
                    .call(&access, &call)
                    .await
                    .map_err(|message| refused("DataStoreRefused", message))?;
                Ok(Effect::Datastore(call))
            }
            Step::Tenant(call) => {
                let now = (self.context.passes.clock)();
                let answer = tenant_calls::carry_out(
                    &self.context.tenants,
                    self.context.keys.as_ref(),
                    &cluster_name(world),
                    &call,
                    now,
                )
                .await;
                answer.map(Effect::Tenant).map_err(|message| refused("TenantNotReady", message))
            }
            other => act_on_management(self.context.management(), other).await,
        }
    }

    fn absorb(&self, world: &mut World, effect: Effect) {
        match effect {
            Effect::Applied(object) => take_in(world, object),
            Effect::Deleted(key) => {
                let all = world.api_server.iter_mut().chain(&mut world.controller_manager).chain(&mut world.scheduler);
                crate::cluster::mark_deleting(all, &key);
            }
            Effect::Datastore(DatastoreCall::Admit { .. }) => world.admitted = true,
            Effect::Datastore(DatastoreCall::Evict { .. }) => world.evicted = true,
            Effect::Tenant(TenantAnswer::Applied) => world.tenant_applied = true,
            _ => {}
        }
    }

    fn refuse(&self, world: &mut World, reason: Reason) {
        if reason.code.starts_with("DataStore") {
            self.secrets.forget();
        }
        world.refusal = Some(reason);
    }

    fn object<'a>(&self, world: &'a World) -> &'a Object {
        &world.object
    }

    fn settle(&self, world: &World, _progress: &Progress) {
        if world.object.is_deleting() {
            self.context.tenants.forget(&cluster_name(world));
            self.versions
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|(uid, _), _| uid != world.object.uid());
        }
    }
}

fn cluster_name(world: &World) -> (String, String) {
    let name = world.cluster.as_ref().map_or_else(|| world.object.name(), |cluster| cluster.name());
    (world.object.namespace().to_owned(), name.to_owned())
}

fn take_in(world: &mut World, object: Object) {
    let name = world.object.name().to_owned();
    match (object.kind(), object.name().strip_prefix(name.as_str())) {
        ("Service", _) => world.service = Some(object),
        ("ConfigMap", Some("-kubeadmconfig")) => world.kubeadm_config = Some(object),
        ("ConfigMap", _) => world.egress = Some(object),
        ("Deployment", Some("")) => world.api_server = Some(object),
        ("Deployment", Some("-controller-manager")) => world.controller_manager = Some(object),
        ("Deployment", _) => world.scheduler = Some(object),
        ("Secret", _) => {
            world.secrets.retain(|other| other.name() != object.name());
            world.secrets.push(object);
        }
        _ if object.uid() == world.object.uid() => {
            if let Ok(kind) = object.typed() {
                world.kind = kind;
            }
            world.object = object;
        }
        _ => {
            if let Some(infrastructure) =
                world.infrastructure.as_mut().filter(|infrastructure| infrastructure.uid() == object.uid())
            {
                *infrastructure = object;
            }
        }
    }
}

/// Why a container does not run: its own last line if it came to an end, else what it waits for.
fn complaint(status: &ContainerStatus) -> Option<String> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let ended = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    let Some(ended) = ended.filter(|_| waiting.reason.as_deref() == Some("CrashLoopBackOff")) else {
        return waiting.message.clone().filter(|message| !message.is_empty());
    };
    let mut lines = ended.message.as_deref().unwrap_or_default().lines().rev().map(str::trim);
    let last = lines.find(|line| !line.is_empty()).unwrap_or("it said nothing");
    let words: String = last.chars().take(LAST_WORDS).collect();
    Some(format!("{} ended with exit code {}: {words}", status.name, ended.exit_code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_container_says_last_is_why_it_does_not_run() {
        let status = |waiting: serde_json::Value, last: serde_json::Value| -> ContainerStatus {
            serde_json::from_value(serde_json::json!({
                "name": "kube-apiserver", "image": "", "imageID": "", "ready": false, "restartCount": 1,
                "state": waiting, "lastState": last,
            }))
            .unwrap()
        };
        let back_off = serde_json::json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
        let ended = |message: &str| serde_json::json!({"terminated": {"exitCode": 1, "message": message}});
        let pulling = serde_json::json!({"waiting": {"reason": "ImagePullBackOff", "message": "fetching"}});
        let rows = [
            (
                back_off.clone(),
                ended("I1116 starting\nError: unknown flag: --x\n\n"),
                Some("kube-apiserver ended with exit code 1: Error: unknown flag: --x"),
            ),
            (back_off.clone(), ended(""), Some("kube-apiserver ended with exit code 1: it said nothing")),
            (back_off, serde_json::json!({}), Some("back-off")),
            (pulling, ended("old words"), Some("fetching")),
            (serde_json::json!({"waiting": {"message": ""}}), serde_json::json!({}), None),
            (serde_json::json!({"running": {}}), ended("old words"), None),
        ];
        for (state, last, words) in rows {
            assert_eq!(complaint(&status(state.clone(), last)).as_deref(), words, "{state}");
        }
    }
}
