//! MachineHealthChecks replace Machines whose Nodes are gone or silent, never more than they are allowed to; the law `rollout` looks on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use hangar_engine::pass::StepHook;
use hangar_simulation::{CAPI, NAMESPACE, Simulation};
use serde_json::{Value, json};

const CLUSTER: &str = "capi-quickstart";
const WORKERS: usize = 5;

fn check() -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck",
        "metadata": { "name": "workers", "namespace": NAMESPACE },
        "spec": {
            "clusterName": CLUSTER,
            "selector": { "matchLabels": { "cluster.x-k8s.io/cluster-name": CLUSTER } },
            "checks": { "unhealthyNodeConditions": [
                { "type": "Ready", "status": "Unknown", "timeoutSeconds": 300 },
                { "type": "ReadonlyFilesystem", "status": "True", "timeoutSeconds": 60 },
            ] },
            "remediation": { "triggerIf": { "unhealthyLessThanOrEqualTo": "40%" } },
        },
    })
}

/// Five workers that are looked after; one is replaced at a time.
async fn looked_after(seed: u64, hook: Option<StepHook>) -> Simulation {
    let mut simulation = Simulation::new(seed);
    simulation.start(hook);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    simulation.edit_deployment(|deployment| {
        deployment["spec"]["replicas"] = WORKERS.into();
        deployment["spec"]["remediation"] = json!({ "maxInFlight": 1 });
    });
    simulation.becomes_available(WORKERS).await;
    simulation.apply(&check()).await;
    simulation.until("all are found healthy", || marked(&simulation, "HealthCheckSucceeded", "True") == WORKERS).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    simulation
}

async fn goes(mut simulation: Simulation) {
    simulation.management.delete(CAPI, "MachineHealthCheck", NAMESPACE, "workers");
    simulation.delete_cluster().await;
    simulation.stop().await;
}

fn marked(simulation: &Simulation, kind: &str, status: &str) -> usize {
    let says = |machine: &&Value| {
        let mut all = machine["status"]["conditions"].as_array().into_iter().flatten();
        all.any(|condition| condition["type"] == kind && condition["status"] == status)
    };
    simulation.machines().iter().filter(says).count()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn names(simulation: &Simulation) -> BTreeSet<String> {
    simulation.machines().iter().map(|machine| text(&machine["metadata"]["name"])).collect()
}

fn nodes(simulation: &Simulation, count: usize) -> Vec<String> {
    simulation.machines().iter().take(count).map(|machine| text(&machine["status"]["nodeRef"]["name"])).collect()
}

fn answer(simulation: &Simulation, nodes: &[String], answers: bool) {
    nodes.iter().for_each(|node| simulation.tenants.kubelet_answers(node, answers));
}

/// Machines that are on their way out: never more than one at a time.
fn one_at_a_time(simulation: &Simulation) {
    let going =
        simulation.machines().iter().filter(|machine| !machine["metadata"]["deletionTimestamp"].is_null()).count();
    assert!(going <= 1, "{going} at once\n{}", simulation.state());
}

/// All workers are there and well, of which so many are the same as before.
async fn recovers(simulation: &Simulation, before: &BTreeSet<String>, same: usize) {
    let well = || {
        one_at_a_time(simulation);
        marked(simulation, "HealthCheckSucceeded", "True") == WORKERS
            && marked(simulation, "Available", "True") == WORKERS
            && names(simulation).intersection(before).count() == same
    };
    simulation.until("the ill ones are replaced", well).await;
    assert_eq!(marked(simulation, "OwnerRemediated", "False"), 0);
    simulation.becomes_available(WORKERS).await;
}

/// H2, H4, MS5.
#[tokio::test(start_paused = true)]
async fn ms5_two_of_five_are_replaced_one_after_the_other() {
    let simulation = looked_after(151, None).await;
    let before = names(&simulation);
    answer(&simulation, &nodes(&simulation, 2), false);
    simulation.wait(Duration::from_secs(280)).await;
    assert_eq!(names(&simulation), before, "they may still come back");
    recovers(&simulation, &before, WORKERS - 2).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    simulation.management.clear_requests();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let writes: Vec<_> = simulation.management.requests().into_iter().filter(|call| call.is_write()).collect();
    assert!(writes.is_empty(), "at rest: {writes:#?}");
    goes(simulation).await;
}

/// H3.
#[tokio::test(start_paused = true)]
async fn h3_of_too_many_none_is_replaced_until_enough_are_well_again() {
    let simulation = looked_after(152, None).await;
    let (before, silent) = (names(&simulation), nodes(&simulation, 3));
    answer(&simulation, &silent, false);
    simulation.until("all are found", || marked(&simulation, "HealthCheckSucceeded", "False") == 3).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let check = simulation.management.get(CAPI, "MachineHealthCheck", NAMESPACE, "workers").unwrap();
    assert_eq!(check["status"]["conditions"][0]["reason"], "TooManyUnhealthy", "{check:#}");
    assert_eq!((&check["status"]["currentHealthy"], &check["status"]["expectedMachines"]), (&json!(2), &json!(5)));
    assert_eq!((names(&simulation), marked(&simulation, "OwnerRemediated", "False")), (before.clone(), 0));
    answer(&simulation, &silent[..1], true);
    recovers(&simulation, &before, WORKERS - 2).await;
    goes(simulation).await;
}

/// H2: a condition that no Machine tells of.
#[tokio::test(start_paused = true)]
async fn h2_any_condition_of_a_node_counts() {
    let simulation = looked_after(153, None).await;
    let (before, node) = (names(&simulation), nodes(&simulation, 1).remove(0));
    let since = simulation.now().to_string();
    simulation.tenants.apis()[0].edit("", "Node", "", &node, |node| {
        let ill = json!({ "type": "ReadonlyFilesystem", "status": "True", "lastTransitionTime": since });
        node["status"]["conditions"].as_array_mut().unwrap().push(ill);
    });
    recovers(&simulation, &before, WORKERS - 1).await;
    goes(simulation).await;
}

/// H4: somebody else mends Machines; here it is a person who turns a server on again.
#[tokio::test(start_paused = true)]
async fn h4_somebody_else_is_asked_and_no_longer_when_the_machines_are_well() {
    let simulation = looked_after(155, None).await;
    let (group, api_version) = ("infrastructure.cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io/v1beta2");
    let (kind, metadata) = ("Metal3RemediationTemplate", json!({ "name": "reboot", "namespace": NAMESPACE }));
    let spec = json!({ "template": { "spec": { "strategy": { "type": "Reboot" } } } });
    let template = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec });
    simulation.apply(&template).await;
    let mut external = check();
    external["spec"]["remediation"]["templateRef"] =
        json!({ "apiVersion": api_version, "kind": kind, "name": "reboot" });
    simulation.apply(&external).await;
    let (before, silent) = (names(&simulation), nodes(&simulation, 2));
    let requests = || simulation.management.list(group, "Metal3Remediation");
    answer(&simulation, &silent, false);
    simulation.until("help is asked for", || requests().len() == 2).await;
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!((requests().len(), names(&simulation)), (2, before.clone()), "nothing is replaced");
    answer(&simulation, &silent, true);
    simulation.until("nobody is asked any more", || requests().is_empty()).await;
    recovers(&simulation, &before, WORKERS).await;
    assert_eq!(marked(&simulation, "ExternallyRemediated", "False"), 0);
    simulation.management.delete(group, kind, NAMESPACE, "reboot");
    goes(simulation).await;
}

/// The process dies at one of the steps with which two Machines are replaced.
async fn dies(at: i64) -> i64 {
    // Nothing is counted before the Nodes fall silent.
    let count = Arc::new(AtomicI64::new(i64::MIN));
    let counted = count.clone();
    let hook: StepHook = Arc::new(move |_, _| counted.fetch_add(1, Ordering::Relaxed) == at);
    let simulation = looked_after(154, Some(hook)).await;
    let before = names(&simulation);
    answer(&simulation, &nodes(&simulation, 2), false);
    count.store(0, Ordering::Relaxed);
    recovers(&simulation, &before, WORKERS - 2).await;
    let calls = count.load(Ordering::Relaxed);
    goes(simulation).await;
    calls
}

#[test]
fn a_death_at_every_twentieth_step_of_a_remediation_does_no_harm() {
    let run = |at: i64| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(dies(at))
    };
    let calls = run(-1);
    assert!(calls > 50, "the steps were not counted");
    for at in (0..calls).step_by(20) {
        println!("death at call {at} of {calls}");
        run(at);
    }
}
