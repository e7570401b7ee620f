//! Keys that encrypt Secrets come and change while the process dies at every step, and every API server reads whatever another one wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_engine::pass::StepHook;
use hangar_engine::tenants::Connector as _;
use hangar_kubesim::{ApiCall, Fault, Write};
use hangar_planner::Step;
use hangar_planner::step::TenantCall;
use hangar_simulation::{CLUSTER, NAMESPACE, Simulation, condition};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::rotation::once_at_each;
use crate::years::control_plane;

const PLAIN: &str = "identity";
/// A pod that was replaced ends within this time, and works until then.
const GRACE: Duration = Duration::from_secs(60);

/// Providers in order: the first writes, all of them read.
type Keys = Vec<String>;

/// Pods of one form: each has read the configuration when it started, and any may have started again since.
struct Pods {
    template: Value,
    read: BTreeSet<Keys>,
    /// When they were replaced.
    ended: Option<Instant>,
}

/// What the API servers know, and what the Secrets may be encrypted with.
#[derive(Default)]
struct Book {
    configuration: Keys,
    pods: Vec<Pods>,
    secrets: BTreeMap<String, BTreeSet<String>>,
    /// What has been in use, in order.
    seen: Vec<Keys>,
}

impl Book {
    fn living(&self) -> impl Iterator<Item = &Keys> {
        self.pods.iter().flat_map(|pods| &pods.read)
    }

    fn writers(&self) -> BTreeSet<String> {
        self.living().map(|keys| keys[0].clone()).collect()
    }

    fn management(&mut self, write: &Write<'_>) {
        self.pods.retain(|pods| pods.ended.is_none_or(|at| at.elapsed() < GRACE));
        let Some(after) = &write.after else { return };
        if write.key.kind == "Secret" && write.key.name.ends_with("-encryption") {
            self.configuration = keys(after);
            for pods in self.pods.iter_mut().filter(|pods| mounts(&pods.template)) {
                pods.read.insert(self.configuration.clone());
            }
        }
        if write.key.kind == "Deployment" && is_api_server(after) {
            let template = &after["spec"]["template"];
            if self.pods.last().is_none_or(|last| last.template != *template) {
                let read = if mounts(template) { self.configuration.clone() } else { vec![PLAIN.to_owned()] };
                self.pods.push(Pods { template: template.clone(), read: [read].into(), ended: None });
            }
            if after["status"]["observedGeneration"] == after["metadata"]["generation"] {
                let newest = self.pods.len() - 1;
                for pods in self.pods[..newest].iter_mut().filter(|pods| pods.ended.is_none()) {
                    pods.ended = Some(Instant::now());
                }
            }
        }
        self.check(&write.key.to_string());
    }

    fn tenant(&mut self, call: &ApiCall) {
        if call.resource != "secrets" || !call.is_write() {
            return;
        }
        self.pods.retain(|pods| pods.ended.is_none_or(|at| at.elapsed() < GRACE));
        let (name, writers) = (format!("{}/{}", call.namespace, call.name), self.writers());
        match call.verb {
            "delete" => drop(self.secrets.remove(&name)),
            // Nobody knows which of them it reached.
            _ => drop(self.secrets.insert(name, writers)),
        }
        self.check("a Secret of the tenant");
    }

    fn check(&mut self, what: &str) {
        if let Some(last) = self.pods.last().and_then(|pods| pods.read.last())
            && self.seen.last() != Some(last)
        {
            self.seen.push(last.clone());
        }
        let written: BTreeSet<&String> = self.secrets.values().flatten().collect();
        let writers = self.writers();
        for keys in self.living() {
            let unknown = writers.iter().chain(written.iter().copied()).find(|key| !keys.contains(key));
            assert!(
                unknown.is_none(),
                "after {what}: an API server with {keys:?} does not read {unknown:?}: {:?}",
                self.secrets
            );
        }
    }
}

fn is_api_server(deployment: &Value) -> bool {
    deployment["metadata"]["labels"]["kamaji.clastix.io/component"] == "kube-apiserver"
}

fn mounts(template: &Value) -> bool {
    template.to_string().contains("encryption-provider-config")
}

fn keys(secret: &Value) -> Keys {
    let content = STANDARD.decode(secret["data"]["encryption.json"].as_str().unwrap()).unwrap();
    let configuration: Value = serde_json::from_slice(&content).unwrap();
    let providers = configuration["resources"][0]["providers"].as_array().unwrap().iter();
    let name = |provider: &Value| provider["secretbox"]["keys"][0]["name"].as_str().unwrap_or(PLAIN).to_owned();
    providers.map(name).collect()
}

/// Keeps the book from now on.
fn watch(simulation: &Simulation) -> Arc<Mutex<Book>> {
    let book: Arc<Mutex<Book>> = Arc::default();
    let (of_management, of_tenants) = (book.clone(), book.clone());
    simulation.management.observe(Arc::new(move |write| of_management.lock().unwrap().management(write)));
    simulation.tenants.set_faults(Some(Arc::new(move |call| {
        of_tenants.lock().unwrap().tenant(call);
        Fault::None
    })));
    book
}

/// What a release without encryption had made.
fn as_before(simulation: &Simulation, book: &Mutex<Book>) {
    let name = control_plane(simulation)["metadata"]["name"].as_str().unwrap().to_owned();
    *book.lock().unwrap() = Book::default();
    simulation.management.delete("", "Secret", NAMESPACE, &format!("{name}-encryption"));
    simulation.management.edit("apps", "Deployment", NAMESPACE, &name, |server| {
        let args = server["spec"]["template"]["spec"]["containers"][0]["args"].as_array_mut().unwrap();
        args.retain(|argument| !argument.as_str().unwrap().contains("encryption"));
    });
}

/// The cluster's API, as its administrators reach it.
pub async fn tenant(simulation: &Simulation) -> kube::Client {
    let kubeconfig = simulation.management.get("", "Secret", NAMESPACE, &format!("{CLUSTER}-kubeconfig")).unwrap();
    let kubeconfig = STANDARD.decode(kubeconfig["data"]["value"].as_str().unwrap()).unwrap();
    simulation.tenants.connect(&String::from_utf8(kubeconfig).unwrap()).await.unwrap()
}

async fn create_secret(simulation: &Simulation, name: &str) {
    let client = tenant(simulation).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name } });
    let secrets: Api<DynamicObject> = Api::namespaced_with(client, "default", &resource);
    secrets.patch(name, &PatchParams::apply("kubectl"), &Patch::Apply(&secret)).await.unwrap();
}

fn is_current(simulation: &Simulation) -> bool {
    condition(&control_plane(simulation), "AuthoritiesCurrent")
}

/// A step of the key, without what is another one at each attempt.
fn what(step: &Step) -> Option<String> {
    match step {
        Step::Issue(issue) if issue.secret.name().ends_with("-encryption") => {
            Some(format!("issue {:?}", issue.material))
        }
        Step::Apply(it) if it.name().ends_with("-encryption") => {
            let files: Vec<&String> = it.get("/data").as_object().unwrap().keys().collect();
            let notes: Vec<&String> = it.get("/metadata/annotations").as_object().unwrap().keys().collect();
            Some(format!("apply {files:?} {notes:?}"))
        }
        Step::Apply(it) if is_api_server(&it.0) => {
            Some(format!("roll {}", it.get("/spec/template/metadata/annotations")))
        }
        Step::Tenant { call: TenantCall::RewriteSecrets { .. }, .. } => Some("rewrite".to_owned()),
        _ => None,
    }
}

async fn moves_over_and_rotates(decide: impl Fn(&str, bool) -> bool + Send + Sync + 'static) {
    let mut simulation = Simulation::new(141);
    let book = watch(&simulation);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    assert_eq!(book.lock().unwrap().seen.len(), 1, "a new control plane has one key from the start");
    simulation.stop_engines().await;
    as_before(&simulation, &book);
    tokio::time::sleep(GRACE * 2).await;
    create_secret(&simulation, "before").await;
    let deaths = Arc::new(AtomicU64::new(0));
    let (armed, counted) = (Arc::new(AtomicBool::new(true)), deaths.clone());
    let is_armed = armed.clone();
    let hook: StepHook = Arc::new(move |step, after| {
        let dies = is_armed.load(Ordering::Relaxed) && what(step).is_some_and(|step| decide(&step, after));
        counted.fetch_add(dies.into(), Ordering::Relaxed);
        dies
    });
    simulation.start(Some(hook));
    simulation.until("it moves over", || !is_current(&simulation)).await;
    create_secret(&simulation, "meanwhile").await;
    simulation.until("it has moved over", || is_current(&simulation)).await;
    let plane = control_plane(&simulation)["metadata"]["name"].as_str().unwrap().to_owned();
    simulation.management.edit("controlplane.cluster.x-k8s.io", "KamajiControlPlane", NAMESPACE, &plane, |plane| {
        plane["metadata"]["annotations"]["hangar.dev/rotate-encryption-key"] = "1".into();
    });
    simulation.until("the rotation begins", || !is_current(&simulation)).await;
    simulation.until("the rotation ends", || is_current(&simulation)).await;
    tokio::time::sleep(GRACE * 2).await;
    book.lock().unwrap().check("all");
    let seen = book.lock().unwrap().seen.clone();
    let [first, next] = [&seen[2][0], &seen[5][0]].map(Clone::clone);
    let plain = || PLAIN.to_owned();
    let expected = [
        vec![plain()],
        vec![plain(), first.clone()],
        vec![first.clone(), plain()],
        vec![first.clone()],
        vec![first.clone(), next.clone()],
        vec![next.clone(), first],
        vec![next.clone()],
    ];
    assert_eq!(seen, expected);
    let encrypted: Vec<BTreeSet<String>> = book.lock().unwrap().secrets.values().cloned().collect();
    assert!(encrypted.len() >= 2 && encrypted.iter().all(|keys| *keys == [next.clone()].into()), "{encrypted:?}");
    println!("{deaths:?} deaths");
    assert!(deaths.load(Ordering::Relaxed) >= 12, "{deaths:?}");
    armed.store(false, Ordering::Relaxed);
    simulation.tenants.set_faults(None);
    simulation.delete_cluster().await;
    simulation.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_api_server_reads_what_the_others_write_whenever_the_process_dies_after_a_step() {
    moves_over_and_rotates(once_at_each(true)).await;
}

#[tokio::test(start_paused = true)]
async fn every_api_server_reads_what_the_others_write_whenever_the_process_dies_before_a_step() {
    moves_over_and_rotates(once_at_each(false)).await;
}
