//! Machines go when the pods on their Nodes have found another place; the law `drain` looks on.

use std::sync::Arc;
use std::time::Duration;

use hangar_kubesim::{ApiCall, Fault, KubeApi};
use hangar_simulation::laws::HANGAR;
use hangar_simulation::{CAPI, NAMESPACE, Simulation};
use serde_json::{Value, json};

use crate::goes;

const DRAINED: &str = "machine.cluster.x-k8s.io/exclude-node-draining";

/// The example with so many Machines, at rest.
async fn available(seed: u64, replicas: usize) -> Simulation {
    let simulation = crate::available(seed, replicas).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    simulation
}

/// The tenant, a Machine and its Node.
fn victim(simulation: &Simulation) -> (KubeApi, String, String) {
    let machine = simulation.machines().remove(0);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (
        simulation.tenants.apis().remove(0),
        text(&machine["metadata"]["name"]),
        text(&machine["status"]["nodeRef"]["name"]),
    )
}

fn pod(name: &str, node: &str, fields: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": name } },
        "spec": { "nodeName": node }, "status": { "phase": "Running" },
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        pod["metadata"][field] = value.clone();
    }
    pod
}

fn budget(name: &str, app: &str, allowed: u64) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name, "namespace": "default" },
        "spec": { "selector": { "matchLabels": { "app": app } } },
        "status": { "disruptionsAllowed": allowed, "desiredHealthy": 1, "currentHealthy": 1 },
    })
}

fn machine(simulation: &Simulation, name: &str) -> Option<Value> {
    simulation.management.object(CAPI, "Machine", NAMESPACE, name)
}

fn says(simulation: &Simulation, name: &str, words: &str) -> bool {
    let machine = machine(simulation, name).unwrap_or_default();
    let conditions = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions
        .iter()
        .any(|one| one["type"] == "Deleting" && one["message"].as_str().unwrap_or_default().contains(words))
}

fn servers(simulation: &Simulation) -> usize {
    simulation.in_cloud("server").len()
}

/// M6, M8.
#[tokio::test(start_paused = true)]
async fn m8_a_server_goes_when_its_pods_are_gone_and_budgets_are_heeded() {
    let simulation = available(141, 2).await;
    let (tenant, name, node) = victim(&simulation);
    let daemon = json!({ "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true }] });
    tenant.put(pod("plain", &node, &json!({})));
    tenant.put(pod("slow", &node, &json!({ "finalizers": ["example.org/slow"] })));
    tenant.put(pod("guarded", &node, &json!({})));
    tenant.put(pod("daemon", &node, &daemon));
    tenant.put(budget("one", "guarded", 0));
    simulation.management.delete(CAPI, "Machine", NAMESPACE, &name);
    simulation
        .until("the budget's words are told", || says(&simulation, &name, "The disruption budget one needs 1"))
        .await;
    assert!(says(&simulation, &name, "default/slow: evicted, terminating"), "{}", simulation.state());
    assert_eq!(tenant.object("", "Node", "", &node).unwrap()["spec"]["unschedulable"], true);
    assert!(tenant.get("", "Pod", "default", "plain").is_none(), "nobody waits for the others");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(machine(&simulation, &name).unwrap()["status"]["deletion"]["nodeDrainStartTime"].is_string());
    tenant.edit("policy", "PodDisruptionBudget", "default", "one", |budget| {
        budget["status"]["disruptionsAllowed"] = 1.into();
    });
    simulation.until("the guarded one goes", || tenant.get("", "Pod", "default", "guarded").is_none()).await;
    assert!(machine(&simulation, &name).is_some() && simulation.tenants.evictable(&node) == ["slow"]);
    tenant.edit("", "Pod", "default", "slow", |pod| pod["metadata"]["finalizers"] = json!([]));
    simulation.until("the machine is gone", || machine(&simulation, &name).is_none()).await;
    simulation.becomes_available(2).await;
    goes(simulation).await;
}

/// C9: nobody drains what goes as a whole.
#[tokio::test(start_paused = true)]
async fn c9_a_cluster_that_goes_is_not_drained() {
    let simulation = available(142, 1).await;
    let (tenant, _, node) = victim(&simulation);
    tenant.put(pod("guarded", &node, &json!({ "finalizers": ["example.org/never"] })));
    tenant.put(budget("one", "guarded", 0));
    goes(simulation).await;
}

/// M9: 0 is no timeout, and a timeout ends a drain.
#[tokio::test(start_paused = true)]
async fn m9_a_drain_ends_with_its_timeout() {
    let simulation = available(143, 2).await;
    let (tenant, name, node) = victim(&simulation);
    tenant.put(pod("guarded", &node, &json!({})));
    tenant.put(budget("one", "guarded", 0));
    let timeout = |seconds: i64| {
        simulation.management.edit(CAPI, "Machine", NAMESPACE, &name, |machine| {
            machine["spec"]["deletion"] = json!({ "nodeDrainTimeoutSeconds": seconds });
        });
    };
    timeout(0);
    simulation.management.delete(CAPI, "Machine", NAMESPACE, &name);
    tokio::time::sleep(Duration::from_secs(3000)).await;
    assert!(machine(&simulation, &name).is_some(), "0 does not mean that nothing is drained");
    timeout(3600);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(machine(&simulation, &name).is_some());
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert!(machine(&simulation, &name).is_none(), "{}", simulation.state());
    simulation.becomes_available(2).await;
    goes(simulation).await;
}

/// M7: what cannot be asked may have pods.
#[tokio::test(start_paused = true)]
async fn m7_an_api_that_cannot_be_reached_holds_a_machine_until_somebody_says_otherwise() {
    let simulation = available(144, 2).await;
    let (tenant, name, node) = victim(&simulation);
    tenant.put(pod("plain", &node, &json!({})));
    simulation.tenants.set_faults(Some(Arc::new(|_| Fault::Before(503))));
    simulation.management.delete(CAPI, "Machine", NAMESPACE, &name);
    simulation.until("it is told", || says(&simulation, &name, "the simulation refused the request")).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(machine(&simulation, &name).is_some() && servers(&simulation) >= 2);
    simulation.tenants.set_faults(None);
    simulation.until("it is drained", || machine(&simulation, &name).is_none()).await;
    simulation.becomes_available(2).await;
    let (tenant, name, node) = victim(&simulation);
    tenant.put(pod("other", &node, &json!({})));
    simulation.tenants.set_faults(Some(Arc::new(|_| Fault::Before(503))));
    simulation.management.delete(CAPI, "Machine", NAMESPACE, &name);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(machine(&simulation, &name).is_some());
    simulation.management.edit(CAPI, "Machine", NAMESPACE, &name, |machine| {
        let detach = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach";
        machine["metadata"]["annotations"] = json!({ DRAINED: "", detach: "" });
    });
    simulation.until("it goes without a drain", || machine(&simulation, &name).is_none()).await;
    simulation.tenants.set_faults(None);
    simulation.becomes_available(2).await;
    goes(simulation).await;
}

/// M10, M11, and a process that dies in between.
#[tokio::test(start_paused = true)]
async fn m10_hooks_and_volumes_hold_up_a_deletion_across_restarts() {
    let mut simulation = available(145, 2).await;
    let (tenant, name, node) = victim(&simulation);
    let hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup";
    let annotate = |simulation: &Simulation, value: Value| {
        simulation
            .management
            .edit(CAPI, "Machine", NAMESPACE, &name, |machine| machine["metadata"]["annotations"] = value);
    };
    annotate(&simulation, json!({ hook: "" }));
    tenant.put(pod("plain", &node, &json!({})));
    tenant.put(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "va" },
        "spec": { "attacher": "csi", "nodeName": node, "source": { "persistentVolumeName": "pv-1" } },
    }));
    simulation.management.delete(CAPI, "Machine", NAMESPACE, &name);
    simulation.until("the hook is named", || says(&simulation, &name, hook)).await;
    assert!(tenant.get("", "Pod", "default", "plain").is_some());
    simulation.stop_engines().await;
    simulation.start(None);
    annotate(&simulation, json!({}));
    simulation.until("the volume is named", || says(&simulation, &name, "pv-1")).await;
    assert!(tenant.get("", "Pod", "default", "plain").is_none());
    simulation.stop_engines().await;
    simulation.start(None);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(machine(&simulation, &name).is_some());
    tenant.delete("storage.k8s.io", "VolumeAttachment", "", "va");
    simulation.until("the machine is gone", || machine(&simulation, &name).is_none()).await;
    simulation.becomes_available(2).await;
    goes(simulation).await;
}

/// Calls to tenants, by verb and resource.
fn count_tenant_calls(simulation: &Simulation) -> Arc<std::sync::Mutex<Vec<String>>> {
    let calls: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let seen = calls.clone();
    simulation.tenants.set_faults(Some(Arc::new(move |call: &ApiCall| {
        if *call.user == *HANGAR && call.verb != "watch" {
            seen.lock().unwrap().push(format!("{} {}", call.verb, call.resource));
        }
        Fault::None
    })));
    calls
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_pods_costs_a_cordon_and_two_lists() {
    let simulation = available(146, 2).await;
    let calls = count_tenant_calls(&simulation);
    simulation.scale(1);
    simulation.becomes_available(1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut seen = calls.lock().unwrap().clone();
    // The guest took its Node along, or Hangar deletes it.
    seen.retain(|call| call != "delete nodes");
    assert_eq!(seen, ["patch nodes", "list pods", "list volumeattachments"]);
    simulation.tenants.set_faults(None);
    goes(simulation).await;
}
