//! What is fuzzed: everything that reads what somebody else wrote.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hangar_api::kubeconfig::InlineKubeconfig;
use hangar_api::{Kind, Object, admission, conversion, registry, review, yaml};
use hangar_planner::{Effect, Objects, Planner, Step, World, plan};
use serde_json::{Value, json};

use crate::mutation::{Random, bytes, document};

/// How many plans were made: a manifest that nothing is planned for tests no planner.
pub static PLANS: AtomicU64 = AtomicU64::new(0);

pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    texts: Vec<Vec<u8>>,
    documents: Vec<Value>,
}

impl Target {
    /// The next input: a document that is another one, or bytes that may be none.
    pub fn input(&self, random: &mut Random) -> Vec<u8> {
        if !self.documents.is_empty() && random.below(4) != 0 {
            let example = random.pick(&self.documents);
            return document(example, random).to_string().into_bytes();
        }
        let example = random.pick(&self.texts).clone();
        bytes(&example, random)
    }
}

fn target(name: &'static str, run: fn(&[u8]), texts: &[&str], documents: Vec<Value>) -> Target {
    let mut texts: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    texts.extend(documents.iter().map(|document| document.to_string().into_bytes()));
    Target { name, run, texts, documents }
}

const CLOUDS: &str = "clouds:\n  openstack:\n    region_name: R\n    verify: false\n    auth: {auth_url: 'http://k/v3', username: u, password: hunter2, project_name: p, user_domain_name: d}\n";
const USER_DATA: &[&str] = &[
    "#cloud-config\nwrite_files:\n- path: /run/kubeadm/kubeadm-join-config.yaml\n  owner: root:root\n  permissions: '0640'\n  encoding: base64\n  content: |\n    apiVersion: kubeadm.k8s.io/v1beta3\n    kind: JoinConfiguration\n    discovery:\n      bootstrapToken: {apiServerEndpoint: 'h:6443', token: abcdef.0123456789abcdef}\nruncmd:\n- kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml\n",
    "## template: jinja\n#cloud-config\nhostname: {{ ds.meta_data.local_hostname }}\nruncmd: [[a, b]]\n",
    "Content-Type: multipart/mixed; boundary=\"b\"\nMIME-Version: 1.0\n\n--b\nContent-Type: text/cloud-config\n\n#cloud-config\n{}\n--b--\n",
    "#!/bin/sh\nkubeadm join h:6443 --token a.b\n",
    "{\"ignition\": {\"version\": \"3.2.0\"}, \"storage\": {\"files\": []}}",
];

pub fn all() -> Vec<Target> {
    let manifests = manifests();
    let pem = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==";
    let kubeconfig = json!({
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": pem}}],
        "users": [{"name": "u", "user": {"client-certificate-data": pem, "client-key-data": pem}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x",
    });
    let answer = json!({
        "retry-after": "7", "x-openstack-request-id": "req-1", "status": 429,
        "body": {"server": {"id": "1", "image": "", "addresses": {"n": [{"addr": "1", "version": 4}]}, "fault": {"code": 500}},
            "ports": [{"id": "1", "fixed_ips": []}], "ports_links": [{"rel": "next", "href": "http://x/?marker=1"}],
            "token": {"catalog": [{"endpoints": []}], "issued_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-02T00:00:00Z"},
            "NeutronError": {"type": "OverQuota", "message": "m"}},
    });
    vec![
        target("conversion_review", |body| drop(review::conversion(body)), &[], conversions(&manifests)),
        target("admission_review", |body| drop(review::admission(body)), &[], admissions(&manifests)),
        target("clouds_yaml", hangar_openstack::fuzz_clouds_yaml, &[CLOUDS], vec![yaml::document(CLOUDS).unwrap()]),
        target("user_data", hangar_simulator::guests::fuzz_user_data, USER_DATA, vec![]),
        target("api_answer", hangar_openstack::fuzz_exchange, &[], vec![answer]),
        target("kubeconfig", run_kubeconfig, &[], vec![kubeconfig]),
        target("manifest", run_manifest, &[], manifests),
    ]
}

/// Each manifest as a list of its documents, which is YAML too.
fn manifests() -> Vec<Value> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hangar/tests/seeds");
    let mut files: Vec<_> = std::fs::read_dir(seeds).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let yaml = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    yaml.map(|path| yaml::documents(&std::fs::read_to_string(path).unwrap()).unwrap().into()).collect()
}

fn objects(manifests: &[Value]) -> impl Iterator<Item = &Value> {
    manifests.iter().flat_map(|manifest| manifest.as_array().unwrap())
}

fn conversions(manifests: &[Value]) -> Vec<Value> {
    let review = |object: &Value| {
        let api = object["apiVersion"].as_str().unwrap_or_default();
        let (group, _) = api.split_once('/')?;
        let facts = registry::kind(group, object["kind"].as_str()?)?;
        Some(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
            "uid": "u", "desiredAPIVersion": facts.hub_api_version(), "objects": [object]}}))
    };
    objects(manifests).filter_map(review).collect()
}

fn admissions(manifests: &[Value]) -> Vec<Value> {
    let review = |object: &Value| {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "UPDATE", "object": object, "oldObject": object}})
    };
    objects(manifests).map(review).collect()
}

fn run_kubeconfig(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    match InlineKubeconfig::parse(text) {
        Ok(read) => assert_eq!(InlineKubeconfig::parse(&read.to_json()).as_ref(), Ok(&read)),
        Err(error) => assert!(error.to_string().len() < 2_000, "{error}"),
    }
}

/// As an API server and the controllers see it: admission, every version, every planner.
fn run_manifest(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(documents) = yaml::documents(text) else { return };
    let documents = documents.into_iter().flat_map(|document| match document {
        Value::Array(list) => list,
        other => vec![other],
    });
    let mut stored: Vec<Arc<Object>> = vec![];
    for (number, document) in documents.filter(Value::is_object).take(40).enumerate() {
        let object = Object(document);
        let Ok(mut admitted) = admission::admit(&object, None) else { continue };
        drop(admission::admit(&object, Some(&admitted)));
        let (group, kind) = (object.key().group, object.kind().to_owned());
        if let Some(facts) = registry::kind(&group, &kind) {
            for version in facts.versions.iter() {
                if let Ok(other) = conversion::convert(&admitted, version.name) {
                    drop(conversion::convert(&other, facts.hub().name));
                }
            }
            let Ok(hub) = conversion::convert(&admitted, facts.hub().name) else { continue };
            admitted = hub;
        }
        if let Some(metadata) = admitted.0["metadata"].as_object_mut() {
            metadata.entry("uid").or_insert(format!("uid-{number}").into());
            metadata.entry("namespace").or_insert("default".into());
        }
        stored.push(Arc::new(admitted));
    }
    every_planner(&stored);
}

fn every_planner(stored: &[Arc<Object>]) {
    use hangar_planner::*;
    planned::<cluster::Clusters>(stored);
    planned::<machine_deployment::MachineDeployments>(stored);
    planned::<machine_set::MachineSets>(stored);
    planned::<machine::Machines>(stored);
    planned::<machine_health_check::MachineHealthChecks>(stored);
    planned::<kubeadm_config::KubeadmConfigs>(stored);
    planned::<open_stack_cluster::OpenStackClusters>(stored);
    planned::<open_stack_machine::OpenStackMachines>(stored);
    planned::<kamaji_control_plane::KamajiControlPlanes>(stored);
    planned::<data_store::DataStores>(stored);
}

/// A few rounds of a pass, in which everything in Kubernetes succeeds.
fn planned<P: Planner>(stored: &[Arc<Object>]) {
    for object in stored {
        let key = object.key();
        if (key.group.as_str(), key.kind.as_str()) != (P::Kind::GROUP, P::Kind::KIND) {
            continue;
        }
        let objects: Objects = stored.iter().cloned().collect();
        let Ok(mut world) = World::<P>::new(object.clone(), objects) else { continue };
        for _ in 0..6 {
            let plan = plan(&world, "2026-06-01T00:00:00Z".parse().unwrap());
            PLANS.fetch_add(1, Ordering::Relaxed);
            assert!(plan.steps.len() <= 1_000, "{} steps at once", plan.steps.len());
            let effects: Vec<Effect> = plan.steps.into_iter().filter_map(|step| done(&world, step)).collect();
            if effects.is_empty() {
                break;
            }
            effects.iter().for_each(|effect| world.absorb(effect));
        }
    }
}

fn done<P: Planner>(world: &World<P>, step: Step) -> Option<Effect> {
    match step {
        Step::Create(object) | Step::CreateOnce(object) | Step::Apply(object) => {
            Some(Effect::Applied(Arc::new(object)))
        }
        Step::Patch { key, fields, .. } if key == world.object().key() => {
            let mut object = world.object().clone();
            merge(&mut object.0, &fields);
            Some(Effect::Applied(Arc::new(object)))
        }
        _ => None,
    }
}

fn merge(target: &mut Value, fields: &Value) {
    match (target, fields) {
        (Value::Object(target), Value::Object(fields)) => {
            for (name, value) in fields {
                merge(target.entry(name).or_insert(Value::Null), value);
            }
        }
        (target, fields) => *target = fields.clone(),
    }
}
