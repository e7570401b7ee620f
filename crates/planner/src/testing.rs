//! What tests of planners share: worlds from JSON, and a tiny API server, cloud, tenant and data store that carry out steps on them.
//!
//! Holds: statuses of other controllers' objects stay as they are during a pass; whoever wants them newer says so between two passes.

pub mod cloud;
mod load_balancer;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::Object;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cloud::{CloudAnswer, CloudCall, Resources};
use crate::hosted::roots::Root;
use crate::hosted::{encryption, rotation};
use crate::step::{Effect, Evicted, Issue, Material, TenantAnswer, TenantCall};
use crate::{Plan, Planner, Progress, Step, World, plan};

pub fn shared(value: Value) -> Arc<Object> {
    Arc::new(Object(value))
}

pub fn world<P: Planner>(object: Value, others: Vec<Value>) -> World<P> {
    World::new(shared(object), others.into_iter().map(shared).collect()).unwrap()
}

/// The same World with another form of its own object.
pub fn changed<P: Planner>(world: World<P>, change: impl FnOnce(&mut Value)) -> World<P> {
    let mut object = world.object().clone();
    change(&mut object.0);
    let mut changed: World<P> = World::new(Arc::new(object), world.objects).unwrap();
    (changed.facts, changed.facts_error) = (world.facts, world.facts_error);
    changed
}

/// The same World with its object on the way out.
pub fn deleting<P: Planner>(world: World<P>, finalizer: Option<&str>) -> World<P> {
    changed(world, |object| {
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        object["metadata"]["finalizers"] = json!(finalizer.into_iter().collect::<Vec<_>>());
    })
}

/// An object with UID, version and generation; `fields` are its other fields.
pub fn object(api_version: &str, kind: &str, name: &str, fields: Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": { "name": name, "namespace": "n", "uid": format!("{name}-uid"), "resourceVersion": "1", "generation": 1 },
    });
    merge(&mut object, &fields);
    object
}

pub const CORE: &str = "cluster.x-k8s.io/v1beta2";

/// The Cluster `c`.
pub fn cluster(fields: Value) -> Value {
    object(CORE, "Cluster", "c", fields)
}

/// An owner reference.
pub fn owner(api_version: &str, kind: &str, name: &str) -> Value {
    json!([{ "apiVersion": api_version, "kind": kind, "name": name, "uid": format!("{name}-uid"), "controller": true }])
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub fn planned<P: Planner>(world: &World<P>) -> Plan {
    plan(world, at(0))
}

/// A condition of a planned status: status, reason and message.
pub fn condition(plan: &Plan, kind: &str) -> Option<(String, String, String)> {
    let status = plan.status.as_ref()?;
    let found = status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

/// Where a plan stands, in one line: `done`, `wait CODE: message`, `blocked CODE: message`, or its steps.
pub fn said(plan: &Plan) -> String {
    match &plan.progress {
        Progress::Done => "done".to_owned(),
        Progress::Waiting(reason) => format!("wait {}: {}", reason.code, reason.message),
        Progress::Blocked(reason) => format!("blocked {}: {}", reason.code, reason.message),
        Progress::Acting => plan.steps.iter().map(step).collect::<Vec<_>>().join("; "),
    }
}

/// Conditions with status and reason.
fn marks(object: &Object) -> String {
    let all = crate::report::present(object).into_iter();
    all.map(|one| format!("{}={} {}", one.kind, one.status, one.reason)).collect::<Vec<_>>().join(", ")
}

/// A step in a few words.
pub fn step(step: &Step) -> String {
    match step {
        Step::Create(object) | Step::CreateOnce(object) => format!("create {}", object.key()),
        Step::Apply(object) => format!("apply {}", object.key()),
        Step::Patch { key, fields, .. } => format!("patch {key} {fields}"),
        Step::Mark(object) => format!("mark {} {}", object.key(), marks(object)),
        Step::Delete { key, .. } => format!("delete {key}"),
        Step::Issue(issue) => format!("issue {}", issue.secret.key()),
        Step::Cloud { call, .. } => cloud::call(call),
        Step::DataStore { store, call } => format!("{}: {call:?}", store.name),
        Step::Tenant { cluster, call } => match call {
            TenantCall::Apply { objects, remove } => {
                format!("{}: apply {}, remove {}", cluster.name, objects.len(), remove.len())
            }
            TenantCall::EvictPod(it) => match it.grace_seconds {
                Some(seconds) => format!("evict {}/{} within {seconds} s", it.namespace, it.name),
                None => format!("evict {}/{}", it.namespace, it.name),
            },
            other => format!("{}: {other:?}", cluster.name),
        },
    }
}

/// Carries out steps as an API server, a cloud, a tenant and a data store would.
#[derive(Default)]
pub struct Fake {
    pub next: u64,
    pub cloud: Resources,
    /// Everything that was carried out, in a few words.
    pub done: Vec<String>,
    pub now: i64,
}

impl Fake {
    /// One pass: plan, act, absorb, until there is nothing left to do. Statuses of others do not change meanwhile.
    pub fn pass<P: Planner>(&mut self, world: &mut World<P>) -> Plan {
        for _ in 0..60 {
            let plan = plan(world, at(self.now));
            if plan.steps.is_empty() {
                return plan;
            }
            for step in &plan.steps {
                self.carry_out(world, step);
            }
        }
        panic!("no end of steps: {:#?}", self.done)
    }

    /// A pass, and then another one that has nothing to do: a converged World gives no step.
    pub fn converge<P: Planner>(&mut self, world: &mut World<P>) -> Plan {
        self.pass(world);
        let before = self.done.len();
        let plan = self.pass(world);
        assert_eq!(self.done[before..], [] as [String; 0], "a converged World gives no step");
        plan
    }

    pub fn carry_out<P: Planner>(&mut self, world: &mut World<P>, step: &Step) {
        self.done.push(self::step(step));
        for effect in self.effects(world, step) {
            world.absorb(&effect);
        }
    }

    fn id(&mut self) -> String {
        self.next += 1;
        format!("id-{:04}", self.next)
    }

    fn born(&mut self, mut object: Object) -> Effect {
        let id = self.id();
        let metadata = &mut object.0["metadata"];
        metadata["uid"] = format!("uid-{id}").into();
        metadata["resourceVersion"] = id.into();
        metadata["generation"] = 1.into();
        metadata["creationTimestamp"] = at(self.now).to_string().into();
        Effect::Applied(Arc::new(object))
    }

    fn written(&mut self, current: &Object, fields: &Value) -> Effect {
        let mut object = current.clone();
        merge(&mut object.0, fields);
        object.0["metadata"]["resourceVersion"] = self.id().into();
        if object.get("/spec") != current.get("/spec") {
            object.0["metadata"]["generation"] = (current.generation() + 1).into();
        }
        Effect::Applied(Arc::new(object))
    }

    fn effects<P: Planner>(&mut self, world: &World<P>, step: &Step) -> Vec<Effect> {
        let find = |key: &hangar_api::ObjectKey| {
            if world.object().key() == *key { Some(world.object()) } else { world.objects.get(key) }
        };
        match step {
            Step::Create(object) | Step::CreateOnce(object) => {
                assert!(find(&object.key()).is_none(), "{} is there already", object.key());
                vec![self.born(object.clone())]
            }
            Step::Apply(object) => {
                let mut current = find(&object.key()).unwrap().clone();
                // What was applied before and is not applied any more goes.
                if object.kind() == "Secret" {
                    current.0["data"] = Value::Null;
                    current.0["metadata"]["annotations"] = Value::Null;
                }
                vec![self.written(&current, &object.0)]
            }
            Step::Patch { key, uid, resource_version, fields } => {
                let current = find(key).unwrap();
                assert_eq!(current.uid(), uid, "{key}");
                if let Some(version) = resource_version {
                    assert_eq!(current.resource_version(), version, "{key} has changed since");
                }
                vec![self.written(current, fields)]
            }
            Step::Mark(object) => {
                let current = find(&object.key()).unwrap();
                vec![Effect::Applied(Arc::new(crate::machine_health_check::marks::merged(current, object)))]
            }
            Step::Delete { key, uid, .. } => {
                let current = find(key).unwrap();
                assert_eq!(current.uid(), uid, "{key}");
                let left = (!current.finalizers().is_empty()).then(|| {
                    let mut left = current.clone();
                    left.0["metadata"]["deletionTimestamp"] = at(self.now).to_string().into();
                    Arc::new(left)
                });
                vec![Effect::Deleted { key: key.clone(), left }]
            }
            Step::Issue(issue) => {
                assert_eq!(issue.replaces, find(&issue.secret.key()).is_some(), "{}", issue.secret.key());
                vec![self.born(issued(issue))]
            }
            Step::Cloud { call, .. } => vec![Effect::Cloud(self.called(call))],
            Step::DataStore { call, .. } => vec![Effect::DataStore(call.clone())],
            Step::Tenant { call, .. } => vec![Effect::Tenant(self.asked(call))],
        }
    }

    fn called(&mut self, call: &CloudCall) -> CloudAnswer {
        let (now, mut next) = (at(self.now), self.next);
        let mut ids = || {
            next += 1;
            format!("id-{next:04}")
        };
        let answer = cloud::called(&mut self.cloud, call, now, &mut ids);
        self.next = next;
        answer
    }

    fn asked(&mut self, call: &TenantCall) -> TenantAnswer {
        match call {
            TenantCall::Apply { .. } => TenantAnswer::Applied,
            TenantCall::Install(it) => crate::cluster_resource_set_binding::tests::answer(it),
            TenantCall::CreateToken { seconds, .. } => TenantAnswer::Token {
                id: "abcdef".into(),
                secret: "0123456789abcdef".into(),
                expires: at(self.now + seconds),
            },
            TenantCall::ExtendToken { seconds, .. } => TenantAnswer::TokenExtended { expires: at(self.now + seconds) },
            TenantCall::DeleteToken { .. } => TenantAnswer::TokenDeleted,
            TenantCall::DeleteNode { name, .. } => TenantAnswer::NodeDeleted { name: name.clone() },
            TenantCall::DecideRequest { name, .. } => TenantAnswer::RequestDecided { name: name.clone() },
            TenantCall::RewriteSecrets { .. } => TenantAnswer::SecretsRewritten { next: None, left: None },
            TenantCall::CordonNode { name } => {
                let fields = json!({ "spec": { "providerID": "p://1", "unschedulable": true } });
                TenantAnswer::NodeCordoned(shared(object("v1", "Node", name, fields)))
            }
            TenantCall::EvictPod(eviction) => {
                TenantAnswer::PodEvicted { uid: eviction.uid.clone(), answer: Evicted::Accepted }
            }
            TenantCall::AdoptNode(change) => {
                let annotations: serde_json::Map<String, Value> =
                    change.annotations.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
                let labels: serde_json::Map<String, Value> =
                    change.labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
                let fields = json!({
                    "metadata": { "annotations": annotations, "labels": labels },
                    "spec": { "providerID": "p://1", "taints": change.taints },
                });
                TenantAnswer::NodeAdopted(shared(object("v1", "Node", &change.name, fields)))
            }
        }
    }
}

/// The Secret with data that no key ever was.
fn issued(issue: &Issue) -> Object {
    let files: Vec<String> = match &issue.material {
        Material::Authority { files, .. } => {
            files.iter().flat_map(|(one, other)| [one.clone(), other.clone()]).collect()
        }
        Material::Leaf { files, ca_file, .. } => {
            [files.0.clone(), files.1.clone()].into_iter().chain(ca_file.clone()).collect()
        }
        Material::Kubeconfig { identities, .. } => {
            identities.iter().flat_map(|identity| identity.files.iter().map(|(file, _)| file.clone())).collect()
        }
        Material::ServiceAccount { public_file, private_file } => vec![public_file.clone(), private_file.clone()],
        Material::EncryptionKey { .. } | Material::Successor { .. } => vec![],
    };
    let mut secret = issue.secret.clone();
    if let Material::EncryptionKey { file } = &issue.material {
        secret.0["data"][file] = STANDARD.encode(encryption::with_key("first", &[1; 32])).into();
    }
    if let Material::Successor { root, current, .. } = &issue.material {
        let (public, private) = match root {
            Root::EncryptionKey => (encryption::with_key("next", &[2; 32]), String::new()),
            _ => ("next certificate\n".to_owned(), "next key\n".to_owned()),
        };
        secret.0["data"] = rotation::with_successor(*root, current, &public, &private).into();
    }
    for file in files {
        let content = format!("{} of {}", file, secret.name());
        secret.0["data"][file] = STANDARD.encode(content).into();
    }
    secret
}

/// RFC 7386.
pub fn merge(into: &mut Value, fields: &Value) {
    let Value::Object(fields) = fields else {
        *into = fields.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut into[name], value);
        }
    }
}
