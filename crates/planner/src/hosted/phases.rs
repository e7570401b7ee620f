//! The phases of every hosted control plane, from its Service to what is inside the tenant, and back.
//! Flows: model -> data store -> Service -> address -> endpoint -> authorities -> etcd user -> leaves -> published Secrets -> API server -> controller manager,
//! scheduler -> tenant objects. Holds: the API server comes first and alone, since a controller manager beside a fresh one exits; the tenant's
//! keys in etcd go only when its pods are gone.

use std::collections::BTreeMap;
use std::time::Duration;

use hangar_api::{Object, ObjectKey};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::access::Configuration;
use super::certificates::Admins;
use super::encryption::Rewriting;
use super::roots::{AllProvided, Root};
use super::rotation::Stage;
use super::{
    Addresses, ControlPlane, DataStoreView, Renewal, Runtime, Storage, certificates, encryption, endpoint,
    konnectivity, pods, roots, storage, tenant,
};
use crate::intent::{self, fingerprint};
use crate::step::{ClusterName, DataStoreCall, Effect, Issue, TenantAnswer, TenantCall};
use crate::world::Objects;
use crate::{Absorb, Part, Phase, Reason, Step};

/// What was last applied inside the tenant.
const TENANT_OBJECTS_ANNOTATION: &str = "hangar.dev/tenant-objects";
/// Which objects these were, so that those that are no longer wanted can go.
const TENANT_LIST_ANNOTATION: &str = "hangar.dev/tenant-object-list";
/// Pods are not watched: their words are read again now and then.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What is known of a control plane besides its objects.
#[derive(Debug, Clone)]
pub struct Facts {
    pub data_store: DataStoreView,
    /// Whether konnectivity can be run here, or what to do about it.
    pub konnectivity: Result<(), String>,
    /// Authorities and keys that users made for it.
    pub provided: AllProvided,
    /// The tenant's nodes and when they joined, while an authority is rotated and the tenant answers.
    pub nodes: Option<Vec<(String, Timestamp)>>,
    /// What the tenant's API says it is, once it answers.
    pub tenant_version: Option<String>,
    /// What its pods wait for, if they take their time: a version that is being fetched, most likely.
    pub pods_wait_for: Option<String>,
    /// How far it is with writing Secrets again.
    pub rewriting: Rewriting,
    /// Set when the step succeeded in this pass.
    pub tenant_applied: bool,
    pub tenant_created: bool,
    pub tenant_deleted: bool,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            data_store: DataStoreView::Unknown,
            konnectivity: Ok(()),
            provided: AllProvided::default(),
            nodes: None,
            tenant_version: None,
            pods_wait_for: None,
            rewriting: Rewriting::NotTried,
            tenant_applied: false,
            tenant_created: false,
            tenant_deleted: false,
        }
    }
}

impl Absorb for Facts {
    fn absorb(&mut self, effect: &Effect) {
        match effect {
            Effect::DataStore(DataStoreCall::CreateTenant { .. }) => self.tenant_created = true,
            Effect::DataStore(DataStoreCall::DeleteTenant { .. }) => self.tenant_deleted = true,
            Effect::Tenant(TenantAnswer::Applied) => self.tenant_applied = true,
            Effect::Tenant(TenantAnswer::SecretsRewritten { next, left }) => {
                self.rewriting = Rewriting::answered(next.as_ref(), left.as_ref());
            }
            _ => {}
        }
    }
}

/// A control plane in its surroundings.
pub struct Hosting<'a> {
    pub owner: &'a Object,
    /// The model, or what in the spec cannot be used.
    pub model: Result<ControlPlane, String>,
    pub objects: &'a Objects,
    pub facts: &'a Facts,
    /// What the Cluster's infrastructureRef points at.
    pub infrastructure: Option<&'a Object>,
}

impl<'a> Hosting<'a> {
    pub fn named(&self, group: &str, kind: &str, name: &str) -> Option<&'a Object> {
        self.objects.get(&ObjectKey::new(group, kind, self.owner.namespace(), name))
    }

    /// The same, if it is ours.
    pub fn own(&self, group: &str, kind: &str, name: &str) -> Option<&'a Object> {
        self.named(group, kind, name).filter(|object| object.is_owned_by(self.owner.uid()))
    }

    pub(super) fn secret(&self, name: &str) -> Option<&'a Object> {
        self.own("", "Secret", name)
    }

    /// The Deployment of a component, by the suffix of its name.
    pub fn deployment(&self, suffix: &str) -> Option<&'a Object> {
        self.own("apps", "Deployment", &format!("{}{suffix}", self.owner.name()))
    }

    pub fn addresses(&self) -> Option<Addresses> {
        endpoint::addresses(self.own("", "Service", self.owner.name()))
    }

    fn ensure(&self, wanted: Vec<Object>) -> Phase {
        let pairs = wanted.into_iter().map(|object| (self.objects.get(&object.key()), object)).collect();
        Phase::attempt(intent::ensure_all(self.owner, pairs))
    }

    fn supported(&self, plane: &ControlPlane) -> Phase {
        let missing = match (&plane.runtime, &plane.storage) {
            (Runtime::K0s, _) => "control planes that run k0s are not built yet",
            (_, Storage::OwnEtcd { .. }) => "control planes with an etcd of their own are not built yet",
            (_, Storage::Kine) => "control planes on kine are not built yet",
            (Runtime::Upstream, Storage::SharedEtcd(_)) => return Phase::Done,
        };
        Phase::blocked("NotBuiltYet", missing)
    }

    fn service(&self, plane: &ControlPlane) -> Phase {
        self.ensure(vec![pods::service(plane)])
    }

    fn address(&self) -> Phase {
        match self.addresses() {
            Some(_) => Phase::Done,
            None => Phase::wait("WaitingForAddress", format!("Service {} has no address yet", self.owner.name())),
        }
    }

    /// The endpoint, and in the same request what is about to be made in the data store.
    fn endpoint(&self, plane: &ControlPlane) -> Phase {
        let Some(addresses) = self.addresses() else { return Phase::Done };
        let endpoint = json!({ "host": addresses.endpoint, "port": plane.exposure.port });
        let mut fields = json!({ "spec": { "controlPlaneEndpoint": endpoint } });
        if let Some(tenancy) = plane.tenancy() {
            fields["metadata"]["annotations"] = storage::record(tenancy);
        }
        let own = intent::touch(self.owner, fields);
        Phase::steps(own.into_iter().chain(self.infrastructure.and_then(|part| endpoint::push(part, &endpoint))))
    }

    /// The Secrets of this control plane.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &'a Object> {
        let owner = self.owner.uid();
        self.objects.of_kind("", "Secret").filter(move |secret| secret.is_owned_by(owner))
    }

    pub fn renewal(&self, now: Timestamp) -> Renewal {
        Renewal::of(self.secrets(), now)
    }

    /// Those that are missing, were issued for something else, or are due.
    fn issue(&self, wanted: Vec<Issue>, now: Timestamp) -> Phase {
        let renewal = self.renewal(now);
        let steps = wanted.into_iter().map(|issue| self.issued(issue, &renewal)).collect::<Result<Vec<_>, Reason>>();
        Phase::attempt(steps.map(|steps| steps.into_iter().flatten().collect()))
    }

    fn issued(&self, issue: Issue, renewal: &Renewal) -> Result<Option<Step>, Reason> {
        let wish = issue.secret.annotation(certificates::ISSUED_FOR_ANNOTATION);
        match self.objects.get(&issue.secret.key()) {
            Some(there) if !there.is_owned_by(self.owner.uid()) => Err(intent::not_ours(&there.key())),
            Some(there) if there.annotation(certificates::ISSUED_FOR_ANNOTATION) == wish && !renewal.is_due(there) => {
                Ok(None)
            }
            there => {
                let secret = intent::owned(issue.secret, &self.owner.as_owner(true));
                Ok(Some(Step::Issue(Issue { secret, replaces: there.is_some(), ..issue })))
            }
        }
    }

    /// A new control plane has kubeconfigs of the new form from the start: nobody can use them before the binding is there.
    pub(super) fn admins(&self, plane: &ControlPlane) -> Admins {
        let Some(secret) = self.secret(&plane.object("-admin-kubeconfig")) else { return Admins::Bound };
        let record = self.own("", "ConfigMap", &plane.object("-kubeadmconfig"));
        let applied = record.and_then(|record| record.annotation(TENANT_LIST_ANNOTATION)).unwrap_or_default();
        let is_bound = secret.get("/data")[certificates::SUPER_ADMIN_FILE].is_string()
            || applied.contains(&format!("{:?}", certificates::ADMINS));
        if is_bound { Admins::Bound } else { Admins::NotBoundYet }
    }

    fn leaves(&self, plane: &ControlPlane, now: Timestamp) -> Phase {
        let Some(addresses) = self.addresses() else { return Phase::Done };
        let store = match &self.facts.data_store {
            DataStoreView::Ready { authority, .. } => Some(authority),
            _ => None,
        };
        let ca = self.signer(plane, Root::ClusterAuthority);
        let front_proxy = self.signer(plane, Root::FrontProxyAuthority);
        match (ca, front_proxy) {
            (Some(ca), Some(front_proxy)) => {
                self.issue(certificates::leaves(plane, &addresses, &ca, &front_proxy, store, self.admins(plane)), now)
            }
            _ => Phase::blocked(
                "CertificateAuthorityUnreadable",
                format!(
                    "the Secrets {} or {}-front-proxy-ca-certificate hold no key",
                    plane.authority_secret, plane.name
                ),
            ),
        }
    }

    /// Under the names where Cluster API and people look.
    fn published(&self, plane: &ControlPlane) -> Phase {
        let (Some(ca), Some(admin)) =
            (self.secret(&plane.authority_secret), self.secret(&plane.object("-admin-kubeconfig")))
        else {
            return Phase::Done;
        };
        let (ca, admin) = (ca.get("/data"), admin.get("/data"));
        let kubeconfig = json!({ "value": admin["admin.conf"] });
        let authority = json!({ "tls.crt": ca["ca.crt"], "tls.key": ca["ca.key"] });
        let name = |suffix: &str| format!("{}{suffix}", plane.cluster_name);
        let mut wanted = vec![certificates::published(plane, &name("-kubeconfig"), kubeconfig)];
        // There already: made by a user, or ours, if the control plane is called like its cluster.
        let is_provided = self.named("", "Secret", &name("-ca")).is_some_and(roots::is_provided);
        if plane.authority_secret != name("-ca") && !is_provided {
            wanted.push(certificates::published(plane, &name("-ca"), authority));
        }
        self.ensure(wanted)
    }

    /// A change of any certificate must roll the pods; what is derived from it need not be looked at twice. Only API servers encrypt.
    fn checksum(&self, plane: &ControlPlane, encrypts: bool) -> String {
        // By name: the order in which Secrets were made or listed must not matter.
        let mut parts: BTreeMap<&str, (&str, Option<&str>)> = self
            .secrets()
            .filter(|secret| secret.name().starts_with(&plane.name))
            .filter(|secret| encrypts || secret.name() != plane.root_secret(Root::EncryptionKey))
            .filter_map(|secret| {
                let wish = secret.annotation(certificates::ISSUED_FOR_ANNOTATION)?;
                Some((secret.name(), (wish, secret.annotation(certificates::RENEW_AFTER_ANNOTATION))))
            })
            .collect();
        for secret in Root::ALL.into_iter().filter_map(|root| self.root_object(root)) {
            if let (Some(part), stage) = (parts.get_mut(secret.name()), Stage::of(secret))
                && stage != Stage::Rest
            {
                part.1 = Some(stage.word());
            }
        }
        let keys = self.root_object(Root::EncryptionKey).filter(|_| encrypts).map(encryption::key_names);
        match keys {
            // Two processes may each have made a next key: pods must know the one that was kept.
            Some(keys) => fingerprint(&json!([parts, keys])),
            None => fingerprint(&json!(parts)),
        }
    }

    /// An API server does not start without the configuration that its arguments name.
    fn api_server(&self, plane: &ControlPlane) -> Phase {
        let Some(addresses) = self.addresses() else { return Phase::Done };
        let egress = plane.addons.konnectivity.as_ref().map(|_| konnectivity::egress_map(plane));
        let server = pods::api_server(plane, &addresses, &self.checksum(plane, true));
        let configuration = Configuration::of(plane).map(plane);
        self.ensure(egress.into_iter().chain(configuration).chain([server]).collect())
    }

    fn api_server_ready(&self, plane: &ControlPlane) -> Phase {
        if plane.replicas == 0 || is_available(self.deployment("")) {
            return Phase::Done;
        }
        let text = match &self.facts.pods_wait_for {
            Some(what) => format!("the API server is starting: {what}"),
            None => "the API server is starting".to_owned(),
        };
        Phase::wait_for("WaitingForAPIServer", text, LOOK_AGAIN)
    }

    fn controllers(&self, plane: &ControlPlane) -> Phase {
        let checksum = self.checksum(plane, false);
        self.ensure(vec![
            pods::controller_manager(plane, &checksum, self.signing_file(plane)),
            pods::scheduler(plane, &checksum),
        ])
    }

    /// What the tenant has inside; what it had and is no longer wanted goes.
    fn tenant_objects(&self, plane: &ControlPlane) -> Phase {
        let Some(addresses) = self.addresses().filter(|_| plane.replicas != 0) else { return Phase::Done };
        let ca =
            self.secret(&plane.authority_secret).and_then(|secret| secret.secret_text("ca.crt")).unwrap_or_default();
        let plane = &tenant::as_it_runs(plane, self.facts.tenant_version.as_deref());
        let objects = tenant::objects(plane, &addresses, &ca);
        let keys: Vec<ObjectKey> = objects.iter().map(Object::key).collect();
        let name = plane.object("-kubeadmconfig");
        let mut record = Object::named("v1", "ConfigMap", &plane.namespace, &name);
        record.0["metadata"]["labels"] = plane.own_labels();
        record.0["metadata"]["annotations"] = json!({
            TENANT_OBJECTS_ANNOTATION: fingerprint(&json!(objects)),
            TENANT_LIST_ANNOTATION: json!(keys).to_string(),
        });
        record.0["data"] =
            json!({ "ClusterConfiguration": format!("{:#}\n", tenant::cluster_configuration(plane, &addresses)) });
        let current = self.named("", "ConfigMap", &name);
        match intent::ensure(self.owner, current, record) {
            Err(reason) => Phase::Blocked(reason),
            Ok(None) => Phase::Done,
            Ok(Some(apply)) if self.facts.tenant_applied => Phase::Steps(vec![apply]),
            Ok(Some(_)) => {
                let before = current.and_then(|record| record.annotation(TENANT_LIST_ANNOTATION));
                let before: Vec<ObjectKey> =
                    before.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
                let remove = before.into_iter().filter(|key| !keys.contains(key)).collect();
                let cluster = ClusterName { namespace: plane.namespace.clone(), name: plane.cluster_name.clone() };
                Phase::Steps(vec![Step::Tenant { cluster, call: TenantCall::Apply { objects, remove } }])
            }
        }
    }

    fn delete_pods(&self) -> Phase {
        let suffixes = ["-scheduler", "-controller-manager", ""];
        let all: Vec<&Object> = suffixes.iter().filter_map(|suffix| self.deployment(suffix)).collect();
        let steps: Vec<Step> = all.iter().filter_map(|object| intent::delete(object)).collect();
        if steps.is_empty() && !all.is_empty() {
            let text = format!("waiting for {} Deployments to be deleted", all.len());
            return Phase::wait("WaitingForPodsDeletion", text);
        }
        Phase::steps(steps)
    }
}

/// Whether at least one pod of a Deployment answers.
pub fn is_available(deployment: Option<&Object>) -> bool {
    deployment.is_some_and(|deployment| deployment.get("/status/availableReplicas").as_i64().unwrap_or(0) > 0)
}

impl Part for Hosting<'_> {
    fn build(&self, now: Timestamp) -> Phase {
        let plane = match &self.model {
            Ok(plane) => plane,
            Err(message) => return Phase::blocked("InvalidControlPlane", message.clone()),
        };
        self.supported(plane)
            .then(|| storage::ready(&self.facts.data_store))
            .then(|| storage::unchanged(self, plane))
            .then(|| self.service(plane))
            .then(|| self.address())
            .then(|| self.endpoint(plane))
            .then(|| self.roots(plane))
            // Before a certificate bears its name: the name may be another tenant's.
            .then(|| storage::create_tenant(self, plane))
            .then(|| self.leaves(plane, now))
            .then(|| self.published(plane))
            .then(|| self.api_server(plane))
            .then(|| self.api_server_ready(plane))
            .then(|| self.controllers(plane))
            .then(|| self.tenant_objects(plane))
            .then(|| self.rotation(plane, now))
    }

    fn delete(&self, _now: Timestamp) -> Phase {
        self.delete_pods().then(|| storage::delete_tenant(self))
    }
}

/// The replicas of a component as its Deployment counts them.
pub fn replicas(deployment: Option<&Object>, field: &str) -> Option<i32> {
    let count = deployment.map_or(&Value::Null, |deployment| &deployment.get("/status")[field]);
    Some(count.as_i64().and_then(|count| i32::try_from(count).ok()).unwrap_or(0))
}
