//! What it costs, in the rows of the peers' measurements. Run by `cargo xtask bench`; wall times are given beside a baseline of the same run.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark says what went wrong by panicking")]

mod baseline;
mod measure;
mod plane;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plane::{Plane, condition};
use serde_json::{Value, json};

const CLUSTER: &str = "capi-quickstart";
const DEPLOYMENT: &str = "machinedeployment/capi-quickstart-md-0";

/// The rows as they are measured, for people at once and for machines at the end.
#[derive(Default)]
struct Report(serde_json::Map<String, Value>);

impl Report {
    fn row(&mut self, name: &str, value: &str) {
        println!("| {name:<62} | {value:>24} |");
        self.0.insert(name.trim().to_owned(), value.into());
    }
}

/// How often what is compared is measured: the middle one counts.
const TIMES: usize = 3;

#[test]
#[ignore = "a measurement, not a test: `cargo xtask bench` runs it"]
fn what_it_costs() {
    let by_hand: Vec<_> = (0..TIMES).map(|_| baseline::one_plane_by_hand()).collect();
    let api_ready = median(by_hand.iter().map(|one| one.api_ready));
    let all_healthy = median(by_hand.iter().map(|one| one.all_healthy));
    let mut report = Report::default();
    println!();
    report.row("by hand: etcd, API server ready", &seconds(api_ready));
    report.row("by hand: controller manager and scheduler healthy too", &seconds(all_healthy));

    warm_start(&mut report, api_ready);
    let plane = Plane::new();
    let began = Instant::now();
    plane.ok(&["up"]);
    report.row("hangar up, components at hand", &seconds(began.elapsed()));
    plane.kubectl(&["rollout", "status", "statefulset/etcd", "-n", "kamaji-system", "--timeout=120s"]);
    report.row("  until the shared etcd is ready too", &seconds(began.elapsed()));
    measure::settled(&plane.pids());
    report.row("  until its processes are at rest", &seconds(began.elapsed()));
    let pid = plane.state()["pid"].as_u64().unwrap() as u32;

    let before = counts(&plane);
    let applied = Instant::now();
    plane.ok(&["up", "--no-wait", "examples/kamaji-openstack.yaml"]);
    plane.wait("kamajicontrolplane/kamaji-quickstart-control-plane", "jsonpath={.status.readyReplicas}=1");
    let tenant = applied.elapsed();
    report.row("apply to tenant API ready", &seconds(tenant));
    report.row(
        "  ratio to etcd..scheduler by hand (goal: at most 1.5)",
        &format!("{:.2}", tenant.as_secs_f64() / all_healthy.as_secs_f64()),
    );
    available(&plane, 1);
    report.row("apply to cluster available, one worker", &seconds(applied.elapsed()));

    let first = counts(&plane);
    report.row("OpenStack calls, infrastructure and first worker", &first.cloud.to_string());
    report.row("  of which for the worker (ports, servers, flavors; goal: 6)", &first.worker.to_string());
    report.row("tokens (goal: 1)", &first.tokens.to_string());
    report
        .row("management API requests for the cluster (goal: 60)", &(first.management - before.management).to_string());
    report.row("  answered 409", &first.conflicts.to_string());

    scale(&plane, 5);
    let five = counts(&plane);
    report.row("OpenStack calls per worker, 1 to 5 (goal: at most 6)", &per(five.cloud - first.cloud, 4));
    report.row("management API requests per worker, 1 to 5", &per(five.management - first.management, 4));
    scale(&plane, 1);
    let one = counts(&plane);
    report.row("OpenStack calls per worker deleted, 5 to 1 (goal: at most 5)", &per(one.cloud - five.cloud, 4));
    report.row("server ACTIVE to Machine ready (goal: below 2 s)", &seconds(active_to_ready(&plane)));

    rest(&plane, &mut report);
    report.row("hangar process: CPU seconds so far", &format!("{:.1} s", measure::cpu(pid)));
    report.row("hangar process: memory", &format!("{:.0} MiB", measure::memory(pid)));

    plane.kill();
    plane.ok(&["up"]);
    available(&plane, 1);
    report.row("tokens after a restart (goal: 1)", &counts(&plane).tokens.to_string());
    let began = Instant::now();
    plane.kubectl(&["delete", "cluster", CLUSTER, "--timeout=180s"]);
    report.row("cluster deleted", &seconds(began.elapsed()));
    report.row("left in the cloud", &plane.inventory().len().to_string());
    println!("{}", Value::Object(report.0));
}

/// A plane that comes back, in a home of its own: what its API server does right after a start must not disturb the rest.
fn warm_start(report: &mut Report, by_hand: Duration) {
    let plane = Plane::new();
    plane.ok(&["up"]);
    let time = median((0..TIMES).map(|_| {
        plane.ok(&["down"]);
        let began = Instant::now();
        plane.ok(&["up"]);
        began.elapsed()
    }));
    report.row("hangar up again, after down", &seconds(time));
    let ratio = time.as_secs_f64() / by_hand.as_secs_f64();
    report.row("  ratio to etcd and API server by hand (goal: at most 1.3)", &format!("{ratio:.2}"));
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<_> = times.collect();
    times.sort();
    times[times.len() / 2]
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn per(calls: u64, workers: u64) -> String {
    format!("{:.1}", calls as f64 / workers as f64)
}

fn available(plane: &Plane, size: i64) {
    plane.wait(DEPLOYMENT, &format!("jsonpath={{.status.replicas}}={size}"));
    plane.wait(DEPLOYMENT, &format!("jsonpath={{.status.availableReplicas}}={size}"));
    plane.wait("cluster/capi-quickstart", "condition=Available");
}

fn scale(plane: &Plane, size: i64) {
    plane.kubectl(&["scale", DEPLOYMENT, &format!("--replicas={size}")]);
    available(plane, size);
}

struct Counts {
    management: u64,
    conflicts: u64,
    cloud: u64,
    worker: u64,
    tokens: u64,
}

/// Asks the background process for its own counts.
fn counts(plane: &Plane) -> Counts {
    let path = plane.home().join("counts.json");
    std::fs::write(&path, b"").unwrap();
    plane.signal("USR1");
    let value: Value = loop {
        if let Ok(value) = serde_json::from_slice(&std::fs::read(&path).unwrap()) {
            break value;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let sum = |map: &Value, wanted: &dyn Fn(&str) -> bool| {
        map.as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| wanted(name))
            .map(|(_, count)| count.as_u64().unwrap())
            .sum::<u64>()
    };
    let all = |wanted: &dyn Fn(&str) -> bool| {
        value["clouds"].as_array().unwrap().iter().map(|cloud| sum(&cloud["calls"], wanted)).sum()
    };
    let of_worker = |name: &str| ["port", "server", "flavor"].iter().any(|word| name.contains(word));
    Counts {
        management: sum(&value["management"], &|_| true),
        conflicts: value["conflicts"].as_u64().unwrap(),
        cloud: all(&|_| true),
        worker: all(&of_worker),
        tokens: value["clouds"].as_array().unwrap().iter().map(|cloud| cloud["tokens"].as_u64().unwrap()).sum(),
    }
}

/// From the moment when Nova says ACTIVE to the moment when the Machine says Ready.
fn active_to_ready(plane: &Plane) -> Duration {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let clouds = std::fs::read(plane.home().join("clouds.yaml")).unwrap();
    let config = hangar_openstack::CloudConfig::parse(&clouds, "openstack", None, None).unwrap();
    let cloud = hangar_openstack::Cloud::new(config, hangar_openstack::http_transport(None).unwrap());
    plane.kubectl(&["scale", DEPLOYMENT, "--replicas=2"]);
    let active = runtime.block_on(async {
        loop {
            let servers = cloud.servers(&hangar_openstack::ServerQuery::default()).await.unwrap();
            if servers.iter().filter(|server| server.status == "ACTIVE").count() == 2 {
                return Instant::now();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    plane.until("machines", |list| {
        let machines = list["items"].as_array().cloned().unwrap_or_default();
        machines.len() == 2 && machines.iter().all(|machine| condition(machine, "Ready").0 == "True")
    });
    let time = active.elapsed();
    scale(plane, 1);
    time
}

/// Nothing is written when nothing happens.
fn rest(plane: &Plane, report: &mut Report) {
    let length: u64 = std::env::var("HANGAR_REST_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let mut before = writes(plane);
    // What was done just before may still be reported: rest begins with five quiet seconds.
    loop {
        std::thread::sleep(Duration::from_secs(5));
        let now = writes(plane);
        if now == std::mem::replace(&mut before, now.clone()) {
            break;
        }
    }
    plane.admin("DELETE", "/admin/journal", &json!(null));
    std::thread::sleep(Duration::from_secs(length));
    let after = writes(plane);
    let changed: Vec<&String> =
        after.iter().filter(|(name, count)| before.get(*name) != Some(count)).map(|(name, _)| name).collect();
    let total = |writes: &BTreeMap<String, u64>| writes.values().sum::<u64>();
    report.row(
        &format!("at rest, {length} s: writes to the management API"),
        &(total(&after) - total(&before)).to_string(),
    );
    changed.iter().for_each(|name| println!("  written at rest: {name}"));
    let journal = plane.admin_get("/admin/journal");
    let calls = journal.as_array().unwrap();
    let mutations = calls.iter().filter(|call| call["method"] != "GET").count();
    report.row(&format!("at rest, {length} s: cloud calls / mutations"), &format!("{} / {mutations}", calls.len()));
}

/// Every write that the API server has served, whoever made it, by what it was.
fn writes(plane: &Plane) -> BTreeMap<String, u64> {
    let metrics = plane.kubectl(&["get", "--raw", "/metrics"]);
    let written = |line: &&str| {
        let verbs = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
        line.starts_with("apiserver_request_total{")
            && verbs.iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")))
    };
    // Asking whether somebody may do something is a POST as well, and writes nothing.
    let asking =
        |line: &&str| ["subjectaccessreviews", "tokenreviews", "selfsubject"].iter().any(|word| line.contains(word));
    let lines = metrics.lines().filter(written).filter(|line| !asking(line));
    lines
        .filter_map(|line| {
            line.rsplit_once(' ').map(|(name, count)| (name.to_owned(), count.parse::<f64>().unwrap_or(0.0) as u64))
        })
        .collect()
}
