//! What the core reads from infrastructure, control plane and bootstrap objects, whoever made them, in contract v1beta1 and v1beta2.
//!
//! Flows: labels of a definition -> the contract and the version in which its objects are read; an object -> typed answers. Holds: nobody
//! else looks into foreign objects by path. A flag that is absent is not the same as one that is false.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::conditions::{self, Condition};
use crate::object::Object;
use crate::version::KubeVersion;

/// A contract between the core and providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contract {
    V1beta1,
    V1beta2,
}

impl Contract {
    const NEWEST_FIRST: [Self; 2] = [Self::V1beta2, Self::V1beta1];

    fn label(self) -> &'static str {
        match self {
            Self::V1beta1 => "cluster.x-k8s.io/v1beta1",
            Self::V1beta2 => "cluster.x-k8s.io/v1beta2",
        }
    }

    /// The newest contract that a definition's labels name, and the newest version that fulfils it.
    pub fn of_definition(labels: &BTreeMap<String, String>) -> Option<(Self, &str)> {
        Self::NEWEST_FIRST.into_iter().find_map(|contract| {
            let versions = labels.get(contract.label())?.split('_').filter(|version| !version.is_empty());
            Some((contract, versions.max_by_key(|version| maturity(version))?))
        })
    }
}

/// Kubernetes' order of versions: v1alpha3 < v1beta1 < v1.
fn maturity(version: &str) -> (u32, u8, u32) {
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    let major = digits(version.trim_start_matches('v'));
    match (version.split_once("alpha"), version.split_once("beta")) {
        (Some((_, minor)), _) => (major, 0, digits(minor)),
        (_, Some((_, minor))) => (major, 1, digits(minor)),
        _ => (major, 2, 0),
    }
}

/// Where an API is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureDomain {
    pub name: String,
    pub control_plane: bool,
    pub attributes: BTreeMap<String, String>,
}

/// An object of a provider, in whichever contract it speaks: where both have a place for something, the new one counts.
#[derive(Debug, Clone, Copy)]
pub struct Foreign<'a> {
    object: &'a Object,
}

impl<'a> Foreign<'a> {
    pub fn new(object: &'a Object) -> Self {
        Self { object }
    }

    /// Infrastructure of machines: there, and known by its provider id.
    pub fn is_provisioned_machine(&self) -> bool {
        self.provisioned() == Some(true) && self.provider_id().is_some()
    }

    /// What it says of itself while it is not ready, or else our own words.
    pub fn waits_for(&self, otherwise: &str) -> String {
        match self.condition("Ready") {
            Some(ready) if !ready.is_true() && !ready.message.is_empty() => ready.message,
            _ => format!("{} {otherwise}", self.object.key()),
        }
    }

    /// A condition, in whichever form the object has it; the new form is preferred where it has both.
    pub fn condition(&self, kind: &str) -> Option<Condition> {
        ["/status/v1beta2/conditions", "/status/conditions"].iter().find_map(|place| {
            let list: Vec<Condition> = serde_json::from_value(self.object.get(place).clone()).ok()?;
            conditions::find(&list, kind).cloned()
        })
    }

    /// What went wrong for good, in words; only objects of the old contract say so.
    pub fn failure(&self) -> Option<String> {
        let (reason, message) = (self.object.text("/status/failureReason"), self.object.text("/status/failureMessage"));
        match (reason.is_empty(), message.is_empty()) {
            (true, true) => None,
            (_, false) => Some(message.to_owned()),
            (false, true) => Some(reason.to_owned()),
        }
    }

    /// Somebody else makes and keeps it: nothing is to be written.
    pub fn is_externally_managed(&self) -> bool {
        self.object.annotation("cluster.x-k8s.io/managed-by").is_some()
    }

    /// Infrastructure of clusters and machines: whether it is there.
    pub fn provisioned(&self) -> Option<bool> {
        self.flag("/status/ready", "/status/initialization/provisioned")
    }

    /// Bootstrap configurations: whether the data is there.
    pub fn data_secret_created(&self) -> Option<bool> {
        self.flag("/status/ready", "/status/initialization/dataSecretCreated")
    }

    /// Control planes: whether the API has answered once.
    pub fn control_plane_initialized(&self) -> Option<bool> {
        self.flag("/status/initialized", "/status/initialization/controlPlaneInitialized")
    }

    fn flag(&self, old: &str, new: &str) -> Option<bool> {
        self.object.get(new).as_bool().or_else(|| self.object.get(old).as_bool())
    }

    /// Infrastructure of clusters, and control planes: where the API is, once both parts are known.
    pub fn endpoint(&self) -> Option<Endpoint> {
        let endpoint = self.object.get("/spec/controlPlaneEndpoint");
        let host = endpoint["host"].as_str().filter(|host| !host.is_empty())?;
        let port = endpoint["port"].as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0)?;
        Some(Endpoint { host: host.to_owned(), port })
    }

    /// Infrastructure of clusters: a list in the new contract, a map in the old one; in the order of their names.
    pub fn failure_domains(&self) -> Vec<FailureDomain> {
        let domain = |name: &str, value: &Value| FailureDomain {
            name: name.to_owned(),
            control_plane: value["controlPlane"] == true,
            attributes: serde_json::from_value(value["attributes"].clone()).unwrap_or_default(),
        };
        let mut domains: Vec<FailureDomain> = match self.object.get("/status/failureDomains") {
            Value::Array(list) => list.iter().filter_map(|item| Some(domain(item["name"].as_str()?, item))).collect(),
            Value::Object(map) => map.iter().map(|(name, value)| domain(name, value)).collect(),
            _ => vec![],
        };
        domains.sort_by(|one, other| one.name.cmp(&other.name));
        domains
    }

    /// Infrastructure of machines.
    pub fn provider_id(&self) -> Option<&'a str> {
        Some(self.object.text("/spec/providerID")).filter(|id| !id.is_empty())
    }

    /// Infrastructure of machine pools: of all its machines.
    pub fn provider_ids(&self) -> Vec<&'a str> {
        let ids = self.object.get("/spec/providerIDList").as_array().into_iter().flatten();
        ids.filter_map(Value::as_str).filter(|id| !id.is_empty()).collect()
    }

    /// Infrastructure of machine pools: how many machines there are, whether or not they have ids.
    pub fn pool_replicas(&self) -> Option<i32> {
        self.object.get("/status/replicas").as_i64().map(|count| count.clamp(0, i32::MAX.into()) as i32)
    }

    /// Infrastructure of machines: type and address.
    pub fn addresses(&self) -> Vec<(String, String)> {
        let addresses = self.object.get("/status/addresses").as_array().into_iter().flatten();
        addresses
            .filter_map(|item| Some((item["type"].as_str()?.to_owned(), item["address"].as_str()?.to_owned())))
            .collect()
    }

    /// Infrastructure of machines: where it really is. The old contract has it in the spec.
    pub fn failure_domain(&self) -> Option<&'a str> {
        let places = ["/status/failureDomain", "/spec/failureDomain"].iter();
        places.map(|place| self.object.text(place)).find(|domain| !domain.is_empty())
    }

    /// Infrastructure of machines: whether the cloud may take it away at any time.
    pub fn is_interruptible(&self) -> bool {
        self.object.get("/status/interruptible") == true
    }

    /// Bootstrap configurations.
    pub fn data_secret_name(&self) -> Option<&'a str> {
        Some(self.object.text("/status/dataSecretName")).filter(|name| !name.is_empty())
    }

    /// Control planes: that there are no Machines of it, so workers are drained without any.
    pub fn is_externally_managed_control_plane(&self) -> bool {
        self.object.get("/status/externalManagedControlPlane") == true
    }

    pub fn wanted_version(&self) -> Option<KubeVersion> {
        KubeVersion::parse(self.object.text("/spec/version"))
    }

    /// Control planes: the oldest version that still runs.
    pub fn running_version(&self) -> Option<KubeVersion> {
        let versions = self.object.get("/status/versions").as_array().into_iter().flatten();
        let oldest = versions.filter_map(|item| KubeVersion::parse(item["version"].as_str()?)).min();
        oldest.or_else(|| KubeVersion::parse(self.object.text("/status/version")))
    }

    /// Control planes: wanted, and nothing runs yet.
    pub fn is_provisioning(&self) -> bool {
        self.wanted_version().is_some() && self.running_version().is_none()
    }

    /// Control planes: something older than wanted still runs.
    pub fn is_upgrading(&self) -> bool {
        matches!((self.wanted_version(), self.running_version()), (Some(wanted), Some(running)) if wanted > running)
    }

    /// Control planes: nothing if it has no replicas.
    pub fn replicas(&self) -> Option<Replicas> {
        let count = |pointer: &str| self.object.get(pointer).as_i64();
        let total = count("/status/replicas").unwrap_or_default();
        let missing = || count("/status/unavailableReplicas").map(|missing| (total - missing).max(0));
        let available = count("/status/availableReplicas").or_else(missing);
        let up_to_date = count("/status/upToDateReplicas").or_else(|| count("/status/updatedReplicas"));
        Some(Replicas {
            desired: count("/spec/replicas")?,
            total,
            ready: count("/status/readyReplicas").unwrap_or_default(),
            available: available.unwrap_or_default(),
            up_to_date: up_to_date.unwrap_or_default(),
        })
    }
}

/// How many of a control plane there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicas {
    pub desired: i64,
    pub total: i64,
    pub ready: i64,
    pub available: i64,
    pub up_to_date: i64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(body: Value) -> Object {
        let mut object = Object::named("x/v1", "X", "default", "x");
        for (name, value) in body.as_object().unwrap() {
            object.0[name] = value.clone();
        }
        object
    }

    #[test]
    fn the_newest_contract_and_version_win() {
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let both: BTreeMap<_, _> =
            labels(&[("cluster.x-k8s.io/v1beta1", "v1alpha1_v1beta1"), ("cluster.x-k8s.io/v1beta2", "v1beta2")]);
        assert_eq!(Contract::of_definition(&both), Some((Contract::V1beta2, "v1beta2")));
        let old: BTreeMap<_, _> = labels(&[("cluster.x-k8s.io/v1beta1", "v1beta1_v1alpha10")]);
        assert_eq!(Contract::of_definition(&old), Some((Contract::V1beta1, "v1beta1")));
        assert_eq!(Contract::of_definition(&BTreeMap::new()), None);
        for definition in crate::crds::definitions(None) {
            let labels: BTreeMap<String, String> =
                serde_json::from_value(definition["metadata"]["labels"].clone()).unwrap();
            let served = definition["spec"]["versions"].as_array().unwrap();
            if let Some((_, version)) = Contract::of_definition(&labels) {
                assert!(
                    served.iter().any(|one| one["name"] == version),
                    "{}: {version}",
                    definition["metadata"]["name"]
                );
            }
        }
    }

    #[test]
    fn flags_stand_in_their_contracts_places_and_absent_is_not_false() {
        let old = object(json!({"status": {"ready": true, "initialized": false}}));
        let new = object(
            json!({"status": {"initialization": {"provisioned": true, "controlPlaneInitialized": false, "dataSecretCreated": true}}}),
        );
        let (old, new) = (Foreign::new(&old), Foreign::new(&new));
        assert_eq!(
            (old.provisioned(), old.control_plane_initialized(), old.data_secret_created()),
            (Some(true), Some(false), Some(true))
        );
        assert_eq!(
            (new.provisioned(), new.control_plane_initialized(), new.data_secret_created()),
            (Some(true), Some(false), Some(true))
        );
        let nothing = object(json!({}));
        assert_eq!(Foreign::new(&nothing).provisioned(), None);
    }

    #[test]
    fn failure_domains_are_read_as_a_list_and_as_a_map() {
        let map = object(
            json!({"status": {"failureDomains": {"b": {"controlPlane": true}, "a": {"attributes": {"k": "v"}}}}}),
        );
        let list = object(
            json!({"status": {"failureDomains": [{"name": "b", "controlPlane": true}, {"name": "a", "attributes": {"k": "v"}}]}}),
        );
        let domains = Foreign::new(&map).failure_domains();
        assert_eq!(domains, Foreign::new(&list).failure_domains());
        assert_eq!((domains[0].name.as_str(), domains[1].control_plane), ("a", true));
    }

    #[test]
    fn an_endpoint_is_there_when_both_parts_are() {
        let table = [
            (json!({"host": "", "port": 6443}), None),
            (json!({"host": "h", "port": 0}), None),
            (json!({"host": "h", "port": 70000}), None),
            (json!({"host": "h", "port": 6443}), Some(6443)),
        ];
        for (endpoint, port) in table {
            let object = object(json!({"spec": {"controlPlaneEndpoint": endpoint}}));
            assert_eq!(Foreign::new(&object).endpoint().map(|endpoint| endpoint.port), port);
        }
    }

    #[test]
    fn a_control_plane_upgrades_until_its_oldest_part_is_new() {
        let plane = object(
            json!({"spec": {"version": "1.33.6"}, "status": {"versions": [{"version": "v1.33.6"}, {"version": "v1.32.1"}]}}),
        );
        let plane = Foreign::new(&plane);
        assert!(plane.is_upgrading() && !plane.is_provisioning());
        let done = object(json!({"spec": {"version": "1.33.6"}, "status": {"version": "v1.33.6+k0s.0"}}));
        assert!(!Foreign::new(&done).is_upgrading());
        let counted = object(
            json!({"spec": {"replicas": 3}, "status": {"replicas": 3, "readyReplicas": 2, "unavailableReplicas": 1, "updatedReplicas": 3}}),
        );
        let counts = Foreign::new(&counted).replicas().unwrap();
        assert_eq!((counts.desired, counts.available, counts.up_to_date), (3, 2, 3));
    }

    #[test]
    fn conditions_of_the_new_form_are_preferred() {
        let old = json!([{"type": "Ready", "status": "True"}]);
        let new = json!([{"type": "Ready", "status": "False", "reason": "R", "message": "m"}]);
        let both =
            object(json!({"status": {"conditions": old, "v1beta2": {"conditions": new}, "failureReason": "Gone"}}));
        let foreign = Foreign::new(&both);
        assert_eq!(foreign.condition("Ready").unwrap().status, "False");
        assert_eq!(foreign.failure().as_deref(), Some("Gone"));
    }
}
