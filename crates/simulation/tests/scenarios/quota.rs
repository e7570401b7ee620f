//! Tenants that take too much of a data store, and come back, while the process dies at every step.

use std::sync::Arc;
use std::time::Duration;

use hangar_engine::pass::StepHook;
use hangar_planner::Step;
use hangar_simulation::{NAMESPACE, Simulation, condition};
use serde_json::Value;

use crate::rotation::once_at_each;
use crate::years::control_plane;

const GI: u64 = 1 << 30;

fn server(simulation: &Simulation) -> Arc<Value> {
    let plane = control_plane(simulation);
    simulation.management.get("apps", "Deployment", NAMESPACE, plane["metadata"]["name"].as_str().unwrap()).unwrap()
}

fn is_read_only(simulation: &Simulation) -> bool {
    server(simulation)["spec"]["template"].to_string().contains("--authorization-config=")
}

/// A step by which a tenant becomes read-only or comes back.
fn what(step: &Step) -> Option<String> {
    match step {
        Step::Patch { key, fields, .. } if key.kind == "DataStore" => Some(format!("{fields}")),
        Step::Apply(it) if ["Deployment", "ConfigMap"].contains(&it.kind()) => {
            Some(format!("{} {}", it.key(), it.get("/metadata/annotations")))
        }
        _ => None,
    }
}

/// Above the hard quota it becomes read-only, between the two it stays as it is, and nothing else happens at rest.
async fn goes_and_comes_back(decide: impl Fn(&str, bool) -> bool + Send + Sync + 'static) {
    let mut simulation = Simulation::new(151);
    let hook: StepHook = Arc::new(move |step, after| what(step).is_some_and(|step| decide(&step, after)));
    simulation.start(Some(hook));
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    let before = server(&simulation)["spec"]["template"].clone();
    // The version of the example is older than what can be made read-only.
    let name = control_plane(&simulation)["metadata"]["name"].as_str().unwrap().to_owned();
    simulation.management.edit("controlplane.cluster.x-k8s.io", "KamajiControlPlane", NAMESPACE, &name, |plane| {
        plane["spec"]["version"] = "v1.34.4".into();
    });
    simulation.until("it is upgraded", || server(&simulation)["spec"]["template"] != before).await;
    let before = server(&simulation)["spec"]["template"].clone();
    let quarter = GI / 4;
    for (bytes, read_only) in [
        (9 * quarter, false),
        (10 * quarter, false),
        (11 * quarter, true),
        (9 * quarter, true),
        (8 * quarter, false),
        (12 * quarter, true),
        (quarter, false),
    ] {
        simulation.datastores.set_used(bytes);
        simulation.until(&format!("{bytes} bytes have their effect"), || is_read_only(&simulation) == read_only).await;
        tokio::time::sleep(Duration::from_secs(1800)).await;
        assert_eq!(is_read_only(&simulation), read_only, "{bytes}");
        let plane = control_plane(&simulation);
        let said = plane["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "WithinQuota");
        assert_eq!(said.map(|it| &it["reason"] == "ReadOnly"), read_only.then_some(true), "{bytes}");
        assert!(condition(&plane, "Available"), "{bytes}");
        simulation.management.clear_requests();
        tokio::time::sleep(Duration::from_secs(1800)).await;
        let writes: Vec<_> = simulation.management.requests().into_iter().filter(|call| call.is_write()).collect();
        assert!(writes.is_empty(), "{bytes}: {writes:#?}");
    }
    assert_eq!(server(&simulation)["spec"]["template"], before, "it is as it was before");
    simulation.delete_cluster().await;
    simulation.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_far_above_its_quota_is_read_only_until_it_is_below_whenever_the_process_dies_after_a_step() {
    goes_and_comes_back(once_at_each(true)).await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_far_above_its_quota_is_read_only_until_it_is_below_whenever_the_process_dies_before_a_step() {
    goes_and_comes_back(once_at_each(false)).await;
}
