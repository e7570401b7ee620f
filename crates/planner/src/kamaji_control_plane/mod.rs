//! KamajiControlPlane: a control plane as pods, its data in a shared etcd.
//! Flows: owner -> Service -> address -> authorities -> etcd user -> certificates -> API server -> controller manager, scheduler and what
//! the tenant needs inside -> endpoint. Holds: names are Kamaji's; the API server comes first and alone, since a controller manager beside
//! a fresh one exits; the tenant's etcd keys go only when its pods are gone.

mod endpoint;
mod status;
mod translate;

use std::collections::BTreeMap;
use std::time::Duration;

use hangar_api::Object;
use hangar_api::kinds::KamajiControlPlane;
use hangar_api::names::{CLUSTER_NAME_LABEL, KAMAJI_FINALIZER};
use jiff::Timestamp;
use serde_json::json;

use crate::hosted::{ControlPlane, certificates, konnectivity, pods, tenant};
use crate::intent::{self, fingerprint};
use crate::step::{DatastoreCall, Issue, Signer, TenantCall};
use crate::{Phase, Phases, Plan, Reason, Step};
use endpoint::{addresses, endpoint};

/// What was last applied inside the tenant.
const TENANT_OBJECTS_ANNOTATION: &str = "hangar.dev/tenant-objects";
const LOOK_AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct World {
    pub object: Object,
    pub kind: KamajiControlPlane,
    pub cluster: Option<Object>,
    /// What the Cluster's infrastructureRef points at.
    pub infrastructure: Option<Object>,
    pub datastore: DatastoreView,
    pub service: Option<Object>,
    /// Every Secret of the control plane.
    pub secrets: Vec<Object>,
    pub kubeadm_config: Option<Object>,
    pub api_server: Option<Object>,
    pub controller_manager: Option<Object>,
    pub scheduler: Option<Object>,
    /// The egress configuration of its API server, if it has one.
    pub egress: Option<Object>,
    /// Whether konnectivity can be run here, or what to do about it.
    pub konnectivity: Result<(), String>,
    /// What the tenant's API says it is, once it answers.
    pub tenant_version: Option<String>,
    /// What its pods wait for, if they take their time: a version that is being fetched, most likely.
    pub pods_wait_for: Option<String>,
    /// Set when the step succeeded in this pass.
    pub tenant_applied: bool,
    pub evicted: bool,
    pub admitted: bool,
    pub refusal: Option<Reason>,
}

/// The DataStore that the control plane names.
#[derive(Debug, Clone, PartialEq)]
pub enum DatastoreView {
    Missing(String),
    /// Something in it cannot be used.
    Unusable(String),
    Ready {
        endpoints: Vec<String>,
        authority: Signer,
    },
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer(..)")
    }
}

pub fn plan(world: &World, now: Timestamp) -> Plan {
    if world.object.is_deleting() {
        return Phases::of(world, now)
            .unless_refused(world.refusal.as_ref())
            .then(delete_pods)
            .then(evict)
            .then(release)
            .report(status::status);
    }
    Phases::of(world, now)
        .unless_refused(world.refusal.as_ref())
        .then(owner)
        .then(datastore)
        .then(valid)
        .then(service)
        .then(address)
        .then(endpoint)
        .then(roots)
        .then(leaves)
        .then(admit)
        .then(published)
        .then(egress)
        .then(api_server)
        .then(api_server_ready)
        .then(controllers)
        .then(tenant_objects)
        .report(status::status)
}

fn delete_pods(world: &World, _now: Timestamp) -> Phase {
    let all: Vec<&Object> =
        [&world.scheduler, &world.controller_manager, &world.api_server].into_iter().flatten().collect();
    let steps: Vec<Step> = all.iter().filter_map(|object| intent::delete(object)).collect();
    if steps.is_empty() && !all.is_empty() {
        return Phase::wait("WaitingForPodsDeletion", format!("{} Deployments are still going", all.len()));
    }
    Phase::steps(steps)
}

fn evict(world: &World, _now: Timestamp) -> Phase {
    if world.evicted || !matches!(world.datastore, DatastoreView::Ready { .. }) {
        return Phase::Done;
    }
    let datastore = translate::datastore(world, vec![]);
    let prefix = datastore.prefix();
    Phase::Steps(vec![Step::Datastore(DatastoreCall::Evict { user: datastore.user, role: datastore.schema, prefix })])
}

fn release(world: &World, _now: Timestamp) -> Phase {
    Phase::steps(intent::release(&world.object, KAMAJI_FINALIZER))
}

fn owner(world: &World, _now: Timestamp) -> Phase {
    match &world.cluster {
        None => Phase::wait("WaitingForCluster", "no Cluster refers to it yet"),
        Some(cluster) => {
            let labels = [(CLUSTER_NAME_LABEL, cluster.name())];
            Phase::steps(intent::adopt(&world.object, Some(KAMAJI_FINALIZER), None, &labels))
        }
    }
}

fn datastore(world: &World, _now: Timestamp) -> Phase {
    match &world.datastore {
        DatastoreView::Ready { .. } => Phase::Done,
        DatastoreView::Missing(name) => Phase::wait("WaitingForDataStore", format!("there is no DataStore {name} yet")),
        DatastoreView::Unusable(why) => Phase::blocked("DataStoreUnusable", why.clone()),
    }
}

fn valid(world: &World, _now: Timestamp) -> Phase {
    match translate::control_plane(world) {
        Ok(_) => Phase::Done,
        Err(message) => Phase::blocked("InvalidControlPlane", message),
    }
}

/// Runs a phase with the translated model; `valid` has shown that there is one.
fn with_model(world: &World, phase: impl FnOnce(&ControlPlane) -> Phase) -> Phase {
    match translate::control_plane(world) {
        Ok(plane) => phase(&plane),
        Err(message) => Phase::blocked("InvalidControlPlane", message),
    }
}

fn ours(world: &World, object: Object) -> Object {
    intent::owned(object, &world.object.as_owner(true))
}

fn service(world: &World, _now: Timestamp) -> Phase {
    with_model(world, |plane| Phase::steps(intent::apply(world.service.as_ref(), ours(world, pods::service(plane)))))
}

fn address(world: &World, _now: Timestamp) -> Phase {
    match addresses(world) {
        Some(_) => Phase::Done,
        None => Phase::wait("WaitingForAddress", format!("Service {} has no address yet", world.object.name())),
    }
}

fn roots(world: &World, _now: Timestamp) -> Phase {
    with_model(world, |plane| issue(world, certificates::roots(plane)))
}

/// Those that are missing or were issued for something else.
fn issue(world: &World, wanted: Vec<Issue>) -> Phase {
    let missing = wanted.into_iter().filter(|issue| {
        let wish = issue.secret.annotation(certificates::ISSUED_FOR_ANNOTATION);
        let there = secret(world, issue.secret.name());
        there.is_none_or(|there| there.annotation(certificates::ISSUED_FOR_ANNOTATION) != wish)
    });
    Phase::steps(
        missing.map(|issue| Step::Issue(Issue { secret: ours(world, issue.secret), material: issue.material })),
    )
}

fn secret<'a>(world: &'a World, name: &str) -> Option<&'a Object> {
    world.secrets.iter().find(|secret| secret.name() == name)
}

fn signer(world: &World, name: &str, file: &str) -> Option<Signer> {
    let secret = secret(world, name)?;
    Some(Signer {
        certificate_pem: secret.secret_text(&format!("{file}.crt"))?,
        key_pem: secret.secret_text(&format!("{file}.key"))?,
        trust_pem: None,
    })
}

fn leaves(world: &World, _now: Timestamp) -> Phase {
    with_model(world, |plane| {
        let (Some(addresses), DatastoreView::Ready { authority, .. }) = (addresses(world), &world.datastore) else {
            return Phase::Done;
        };
        let ca = signer(world, &plane.object("-ca"), "ca");
        let front_proxy = signer(world, &plane.object("-front-proxy-ca-certificate"), "front-proxy-ca");
        match (ca, front_proxy) {
            (Some(ca), Some(front_proxy)) => {
                issue(world, certificates::leaves(plane, &addresses, &ca, &front_proxy, authority))
            }
            _ => Phase::blocked(
                "CertificateAuthorityUnreadable",
                format!("the Secrets {}-ca or -front-proxy-ca-certificate hold no key", plane.name),
            ),
        }
    })
}

/// The tenant's user and role in etcd; that they exist is recorded in a Secret, as Kamaji does.
fn admit(world: &World, _now: Timestamp) -> Phase {
    with_model(world, |plane| {
        let name = plane.object("-datastore-config");
        let wanted = datastore_config(world, plane, &name);
        let Some(apply) = intent::apply(secret(world, &name), ours(world, wanted)) else { return Phase::Done };
        if world.admitted {
            return Phase::Steps(vec![apply]);
        }
        let prefix = plane.datastore.prefix();
        let (user, role) = (plane.datastore.user.clone(), plane.datastore.schema.clone());
        Phase::Steps(vec![Step::Datastore(DatastoreCall::Admit { user, role, prefix })])
    })
}

fn datastore_config(world: &World, plane: &ControlPlane, name: &str) -> Object {
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let mut secret = Object::named("v1", "Secret", world.object.namespace(), name);
    secret.0["metadata"]["labels"] =
        json!({ CLUSTER_NAME_LABEL: plane.cluster_name, "kamaji.clastix.io/name": plane.name });
    secret.0["data"] = json!({
        "DB_CONNECTION_STRING": encode(&plane.datastore.endpoints.join(",")),
        "DB_SCHEMA": encode(&plane.datastore.schema),
        "DB_USER": encode(&plane.datastore.user),
    });
    secret
}

/// Under the names where Cluster API and people look.
fn published(world: &World, _now: Timestamp) -> Phase {
    with_model(world, |plane| {
        let (Some(ca), Some(admin)) =
            (secret(world, &plane.object("-ca")), secret(world, &plane.object("-admin-kubeconfig")))
        else {
            return Phase::Done;
        };
        let (ca, admin) = (ca.get("/data"), admin.get("/data"));
        let kubeconfig = certificates::published(
            plane,
            &format!("{}-kubeconfig", plane.cluster_name),
            json!({ "value": admin["admin.conf"] }),
        );
        let authority = json!({ "tls.crt": ca["ca.crt"], "tls.key": ca["ca.key"] });
        let authority = certificates::published(plane, &format!("{}-ca", plane.cluster_name), authority);
        let wanted = [kubeconfig, authority];
        Phase::steps(wanted.into_iter().filter_map(|object| {
            let current = secret(world, object.name()).cloned();
            intent::apply(current.as_ref(), ours(world, object))
        }))
    })
}

/// A change of any certificate must roll the pods; what is derived from it need not be looked at twice.
fn checksum(world: &World, plane: &ControlPlane) -> String {
    // By name: the order in which Secrets were made or listed must not matter.
    let parts: BTreeMap<&str, &str> = world
        .secrets
        .iter()
        .filter(|secret| secret.name().starts_with(&plane.name))
        .filter_map(|secret| Some((secret.name(), secret.annotation(certificates::ISSUED_FOR_ANNOTATION)?)))
        .collect();
    fingerprint(&json!(parts))
}

/// An API server does not start without the configuration that its arguments name.
fn egress(world: &World, _now: Timestamp) -> Phase {
    with_model(world, |plane| {
        let wanted = plane.addons.konnectivity.as_ref().map(|_| ours(world, konnectivity::egress_map(plane)));
        Phase::steps(wanted.and_then(|wanted| intent::apply(world.egress.as_ref(), wanted)))
    })
}

fn api_server(world: &World, _now: Timestamp) -> Phase {
    let Some(addresses) = addresses(world) else { return Phase::Done };
    with_model(world, |plane| {
        let wanted = pods::api_server(plane, &addresses, &checksum(world, plane));
        Phase::steps(intent::apply(world.api_server.as_ref(), ours(world, wanted)))
    })
}

fn api_server_ready(world: &World, _now: Timestamp) -> Phase {
    if world.kind.spec.replicas == Some(0) || is_available(world.api_server.as_ref()) {
        return Phase::Done;
    }
    // Pods are not watched: their words are read again now and then.
    match &world.pods_wait_for {
        Some(what) => Phase::wait_for("WaitingForAPIServer", format!("the API server is starting: {what}"), LOOK_AGAIN),
        None => Phase::wait_for("WaitingForAPIServer", "the API server is starting", LOOK_AGAIN),
    }
}

/// Whether at least one pod of a Deployment answers.
pub fn is_available(deployment: Option<&Object>) -> bool {
    deployment.is_some_and(|deployment| deployment.get("/status/availableReplicas").as_i64().unwrap_or(0) > 0)
}

fn controllers(world: &World, _now: Timestamp) -> Phase {
    with_model(world, |plane| {
        let checksum = checksum(world, plane);
        let manager =
            intent::apply(world.controller_manager.as_ref(), ours(world, pods::controller_manager(plane, &checksum)));
        let scheduler = intent::apply(world.scheduler.as_ref(), ours(world, pods::scheduler(plane, &checksum)));
        Phase::steps(manager.into_iter().chain(scheduler))
    })
}

fn tenant_objects(world: &World, _now: Timestamp) -> Phase {
    let Some(addresses) = addresses(world) else { return Phase::Done };
    if world.kind.spec.replicas == Some(0) {
        return Phase::Done;
    }
    with_model(world, |plane| {
        let ca =
            secret(world, &plane.object("-ca")).and_then(|secret| secret.secret_text("ca.crt")).unwrap_or_default();
        let objects = tenant::objects(plane, &addresses, &ca);
        let mut record = Object::named("v1", "ConfigMap", world.object.namespace(), &plane.object("-kubeadmconfig"));
        record.0["metadata"]["labels"] =
            json!({ CLUSTER_NAME_LABEL: plane.cluster_name, "kamaji.clastix.io/name": plane.name });
        record.0["metadata"]["annotations"] = json!({ TENANT_OBJECTS_ANNOTATION: fingerprint(&json!(objects)) });
        record.0["data"] =
            json!({ "ClusterConfiguration": format!("{:#}\n", tenant::cluster_configuration(plane, &addresses)) });
        let Some(apply) = intent::apply(world.kubeadm_config.as_ref(), ours(world, record)) else { return Phase::Done };
        if world.tenant_applied {
            Phase::Steps(vec![apply])
        } else {
            Phase::Steps(vec![Step::Tenant(TenantCall::Apply(objects))])
        }
    })
}
