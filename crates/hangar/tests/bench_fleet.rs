//! `cargo xtask bench fleet`: N clusters with one worker each against a real API server and etcd, in the rows of the peers' measurements.
//!
//! Real: API server, etcd, our definitions, webhook, TLS. Faked: pods of control planes (Deployments are marked as available a second after they came), tenants, nodes and
//! cloud, all in memory; the garbage collector is stopped until clusters are deleted. Threads: this one has the controllers and the webhook, another one the users, the
//! stand-in and the count. `hangarCpuSeconds` is the process less that other thread and less what the fakes took of this one (see `Meter`).
//! `HANGAR_FLEET=10,100` chooses other numbers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark says what went wrong by panicking")]

mod api;
mod measure;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use api::Api;
use cap::Cap;
use futures::{StreamExt as _, TryStreamExt as _};
use hangar_simulation::fleet::Fleet;
use hangar_simulation::meter::{process_time, thread_time};
use hangar_simulation::{CAPI, NAMESPACE, condition};
use kube::Client;
use kube::api::{Api as Objects, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static HEAP: Cap<mimalloc::MiMalloc> = Cap::new(mimalloc::MiMalloc, usize::MAX);

/// How long nothing is done, to see that nothing is done.
const REST: Duration = Duration::from_secs(120);
/// Users apply so many clusters at once.
const APPLIED_AT_ONCE: usize = 8;

/// What the other thread took so far.
type Taken = Arc<AtomicU64>;

#[test]
#[ignore = "a measurement, not a test: `cargo xtask bench fleet` runs it"]
fn fleets() {
    let counts = std::env::var("HANGAR_FLEET").unwrap_or_else(|_| "10,100".to_owned());
    for count in counts.split(',').map(|text| text.trim().parse::<usize>().unwrap()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        println!("{}", runtime.block_on(fleet(count)));
    }
}

/// A phase as the other thread asks for it.
enum Ask {
    /// Take the numbers.
    Look(oneshot::Sender<Numbers>),
    /// The process ends and another one starts; answers with the heap that became free.
    Restart(oneshot::Sender<usize>),
}

#[derive(Clone, Copy)]
struct Numbers {
    at: Instant,
    hangar: Duration,
    api_server: f64,
    etcd: f64,
}

async fn fleet(count: usize) -> Value {
    let api = Api::start().await;
    let fleet = Arc::new(Fleet::default());
    let pids = [pid(&api, "kube-apiserver").await, pid(&api, "etcd").await];
    let idle = [pid(&api, "kube-controller-manager").await, pid(&api, "kube-scheduler").await];
    let (asked, mut asks) = tokio::sync::mpsc::unbounded_channel();
    let taken = Taken::default();
    let users = Users { kubeconfig: api.kubeconfig(), fleet: fleet.clone(), asked, taken: taken.clone(), count, idle };
    let (done, mut ended) = oneshot::channel();
    let others = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        drop(done.send(runtime.block_on(users.live())));
    });
    let numbers = || Numbers {
        at: Instant::now(),
        hangar: process_time()
            .saturating_sub(Duration::from_nanos(taken.load(Ordering::Relaxed)))
            .saturating_sub(fleet.meter.total()),
        api_server: measure::cpu(pids[0]),
        etcd: measure::cpu(pids[1]),
    };
    let start = || {
        let (fleet, client, stop) = (fleet.clone(), api.client.clone(), CancellationToken::new());
        let told = stop.clone();
        (tokio::spawn(async move { fleet.control(client, told).await }), stop)
    };
    let mut process = start();
    let mut result = loop {
        tokio::select! {
            result = &mut ended => break result.unwrap(),
            Some(ask) = asks.recv() => match ask {
                Ask::Look(answer) => drop(answer.send(numbers())),
                Ask::Restart(answer) => {
                    let full = HEAP.allocated();
                    process.1.cancel();
                    process.0.await.unwrap();
                    let _ = answer.send(full.saturating_sub(HEAP.allocated()));
                    process = start();
                }
            },
        }
    };
    others.join().unwrap();
    result["apiServerMemoryMiB"] = measure::memory(pids[0]).round().into();
    process.1.cancel();
    process.0.await.unwrap();
    api.stop().await;
    result
}

/// It may just be starting.
async fn pid(api: &Api, name: &str) -> u32 {
    loop {
        match api.pid(name) {
            Some(pid) => return pid,
            None => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Whoever uses the fleet, and what they use.
struct Users {
    kubeconfig: String,
    fleet: Arc<Fleet>,
    asked: tokio::sync::mpsc::UnboundedSender<Ask>,
    taken: Taken,
    count: usize,
    /// Processes that would undo what the stand-in does.
    idle: [u32; 2],
}

impl Users {
    async fn live(self) -> Value {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        self.signal("-STOP");
        let (fleet, pods) = (self.fleet.clone(), client.clone());
        let stand_in = tokio::spawn(async move { fleet.stand_in(pods).await });
        apply(&client, &self.fleet.data_store()).await;

        let before = self.look(&client).await;
        let names: Vec<String> = (0..self.count).map(|number| format!("fleet-{number}")).collect();
        let (watched, mut ready) = tokio::sync::mpsc::unbounded_channel();
        let watch = tokio::spawn(availability(client.clone(), watched));
        futures::stream::iter(&names)
            .for_each_concurrent(APPLIED_AT_ONCE, |name| async {
                for object in self.fleet.manifests(name) {
                    apply(&client, &object).await;
                }
            })
            .await;
        let mut times = vec![];
        while times.len() < self.count {
            times.push(ready.recv().await.unwrap());
        }
        let made = self.look(&client).await;
        watch.abort();
        times.sort_unstable();

        // Whatever follows from the last change is done by then.
        tokio::time::sleep(REST / 4).await;
        let rest = self.look(&client).await;
        tokio::time::sleep(REST).await;
        let rested = self.look(&client).await;
        let (answer, heap) = oneshot::channel();
        drop(self.asked.send(Ask::Restart(answer)));
        let heap = heap.await.unwrap();
        tokio::time::sleep(REST / 4).await;

        self.signal("-CONT");
        stand_in.abort();
        let deleting = self.look(&client).await;
        let clusters = objects(&client, "v1beta2", "Cluster");
        futures::stream::iter(&names)
            .for_each_concurrent(APPLIED_AT_ONCE, |name| async {
                clusters.delete(name, &DeleteParams::default()).await.unwrap();
            })
            .await;
        while !clusters.list(&Default::default()).await.unwrap().items.is_empty() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let gone = self.look(&client).await;
        assert!(self.fleet.cloud.inventory().is_empty(), "something is left in the cloud");

        let each = |total: f64| (total / self.count as f64 * 10.0).round() / 10.0;
        let seconds = |time: Duration| (time.as_secs_f64() * 10.0).round() / 10.0;
        let documents = self.fleet.manifests("x").len() as f64;
        let requests = made.requests("") - before.requests("") - made.patches + before.patches;
        json!({
            "benchmark": "fleet", "clusters": self.count,
            "wallSeconds": seconds(made.now.at - before.now.at),
            "availableAfterMedian": times[times.len() / 2], "availableAfterP95": times[times.len() * 95 / 100],
            "hangarCpuSeconds": seconds(made.now.hangar - before.now.hangar),
            "apiServerCpuSeconds": (made.now.api_server - before.now.api_server).round(),
            "etcdCpuSeconds": (made.now.etcd - before.now.etcd).round(),
            "hangarHeapMiB": (heap as f64 / f64::from(1 << 20) * 10.0).round() / 10.0,
            "requestsPerCluster": each(requests) - documents,
            "conflictsPerCluster": each(made.requests("409") - before.requests("409")),
            "atRest": {
                "seconds": REST.as_secs(), "writes": rested.writes() - rest.writes(),
                "hangarCpuPercent": seconds((rested.now.hangar - rest.now.hangar) * 100 / REST.as_secs() as u32),
                "tenantRequestsPerClusterAndMinute":
                    each((rested.tenants - rest.tenants) as f64 * 60.0 / REST.as_secs_f64()),
            },
            "deleteSeconds": seconds(gone.now.at - deleting.now.at),
            "deleteHangarCpuSeconds": seconds(gone.now.hangar - deleting.now.hangar),
        })
    }

    async fn look(&self, client: &Client) -> Seen {
        let text = client.request_text(http::Request::get("/metrics").body(vec![]).unwrap()).await.unwrap();
        let patches = self.fleet.patches.load(Ordering::Relaxed) as f64;
        self.taken.store(thread_time().as_nanos() as u64, Ordering::Relaxed);
        let (answer, now) = oneshot::channel();
        drop(self.asked.send(Ask::Look(answer)));
        Seen { now: now.await.unwrap(), patches, tenants: self.fleet.tenant_requests(), by_kind: counted(&text) }
    }

    fn signal(&self, signal: &str) {
        let pids = self.idle.map(|pid| pid.to_string());
        assert!(std::process::Command::new("kill").arg(signal).args(pids).status().unwrap().success());
    }
}

/// What is known at one moment.
struct Seen {
    now: Numbers,
    patches: f64,
    tenants: u64,
    /// Requests at the API server, by verb and code.
    by_kind: BTreeMap<(String, String), f64>,
}

impl Seen {
    /// All but watches and those of the API server itself, of this code or of any.
    fn requests(&self, code: &str) -> f64 {
        let fits = |(verb, is): &(String, String)| verb != "WATCH" && (code.is_empty() || is == code);
        self.by_kind.iter().filter(|(kind, _)| fits(kind)).map(|(_, count)| count).sum()
    }

    fn writes(&self) -> f64 {
        let writes = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
        self.by_kind.iter().filter(|((verb, _), _)| writes.contains(&verb.as_str())).map(|(_, count)| count).sum()
    }
}

/// Leases and the API server's own objects aside.
fn counted(text: &str) -> BTreeMap<(String, String), f64> {
    let mut counts = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
        let (labels, count) = line.rsplit_once("} ").unwrap();
        let label = |name: &str| {
            let rest = labels.split(&format!("{name}=\"")).nth(1).unwrap_or_default();
            rest.split('"').next().unwrap_or_default().to_owned()
        };
        if !["leases", "", "endpointslices", "endpoints", "apiservices", "flowschemas", "prioritylevelconfigurations"]
            .contains(&label("resource").as_str())
        {
            *counts.entry((label("verb"), label("code"))).or_insert(0.0) += count.parse::<f64>().unwrap();
        }
    }
    counts
}

fn objects(client: &Client, version: &str, kind: &str) -> Objects<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(CAPI, version, kind));
    Objects::namespaced_with(client.clone(), NAMESPACE, &resource)
}

async fn apply(client: &Client, object: &Value) {
    let object = hangar_api::Object(object.clone());
    let api = hangar_engine::management::api_of(client, &object);
    api.patch(object.name(), &PatchParams::apply("kubectl").force(), &Patch::Apply(&object.0)).await.unwrap();
}

/// Tells of each cluster how many seconds after its creation it and its Machine were available.
async fn availability(client: Client, ready: tokio::sync::mpsc::UnboundedSender<u64>) {
    let watch = |kind| watcher(objects(&client, "v1beta2", kind), Default::default()).applied_objects().boxed();
    let mut changes = futures::stream::select(watch("Cluster"), watch("Machine"));
    let mut available: BTreeMap<String, (bool, bool, bool)> = BTreeMap::new();
    while let Ok(Some(object)) = changes.try_next().await {
        let began = object.metadata.creation_timestamp.clone().unwrap().0;
        let value = serde_json::to_value(&object).unwrap();
        let is_cluster = value["spec"].get("clusterName").is_none();
        let name = if is_cluster { &value["metadata"]["name"] } else { &value["spec"]["clusterName"] };
        let entry = available.entry(name.as_str().unwrap().to_owned()).or_default();
        *(if is_cluster { &mut entry.0 } else { &mut entry.1 }) = condition(&value, "Available");
        if entry.0 && entry.1 && !entry.2 {
            entry.2 = true;
            let _ = ready.send((jiff::Timestamp::now().as_second() - began.as_second()).unsigned_abs());
        }
    }
}
