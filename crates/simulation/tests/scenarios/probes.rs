//! What a Cluster says of its own API and of what goes on with its machines.

use std::sync::Arc;
use std::time::Duration;

use hangar_kubesim::Fault;
use hangar_simulation::{CAPI, NAMESPACE, Simulation};

use crate::{available, goes};

const CLUSTER: &str = "capi-quickstart";

/// Status and reason of a condition of the Cluster.
fn said(simulation: &Simulation, kind: &str) -> Option<String> {
    let cluster = simulation.management.get(CAPI, "Cluster", NAMESPACE, CLUSTER)?;
    let all = cluster["status"]["conditions"].as_array()?;
    let found = all.iter().find(|condition| condition["type"] == kind)?;
    Some(format!("{} {}", found["status"].as_str()?, found["reason"].as_str()?))
}

fn go_away(simulation: &Simulation) {
    simulation.tenants.set_faults(Some(Arc::new(|_| Fault::Before(503))));
    for api in simulation.tenants.apis() {
        api.compact();
        api.drop_watches();
    }
}

#[tokio::test(start_paused = true)]
async fn c8_a_tenant_is_away_after_several_attempts_and_comes_back() {
    let simulation = available(311, 1).await;
    simulation.wait(Duration::from_secs(60)).await;
    let probe = || said(&simulation, "RemoteConnectionProbe");
    assert_eq!(probe().as_deref(), Some("True ProbeSucceeded"));
    // A control plane that restarts.
    simulation.management.clear_requests();
    go_away(&simulation);
    simulation.wait(Duration::from_secs(40)).await;
    simulation.tenants.set_faults(None);
    simulation.wait(Duration::from_secs(60)).await;
    let writes: Vec<_> = simulation.management.requests().into_iter().filter(|call| call.is_write()).collect();
    assert!(writes.is_empty(), "{writes:#?}");
    go_away(&simulation);
    simulation.wait(Duration::from_secs(45)).await;
    assert_eq!(probe().as_deref(), Some("True ProbeSucceeded"), "not yet");
    simulation.wait(Duration::from_secs(15)).await;
    assert_eq!(probe().as_deref(), Some("False ProbeFailed"));
    assert!(said(&simulation, "Available").unwrap().starts_with("False"));
    simulation.management.clear_requests();
    simulation.wait(Duration::from_secs(200)).await;
    let writes: Vec<_> = simulation.management.requests().into_iter().filter(|call| call.is_write()).collect();
    assert!(writes.is_empty(), "it is said once: {writes:#?}");
    simulation.tenants.set_faults(None);
    let back = || {
        probe().as_deref() == Some("True ProbeSucceeded") && said(&simulation, "Available").unwrap().starts_with("True")
    };
    simulation.until_within(Duration::from_secs(20), "it answers again", back).await;
    goes(simulation).await;
}

#[tokio::test(start_paused = true)]
async fn c7_a_rollout_is_seen_at_the_cluster_while_it_goes_on() {
    let simulation = available(312, 2).await;
    simulation.wait(Duration::from_secs(60)).await;
    let on = |kind: &str| said(&simulation, kind).unwrap().starts_with("True");
    assert!(!on("RollingOut") && !on("ScalingUp") && !on("ScalingDown") && !on("Remediating"));
    simulation.edit_deployment(|deployment| deployment["spec"]["template"]["spec"]["version"] = "v1.28.11".into());
    simulation.until("it rolls out", || on("RollingOut")).await;
    simulation.until("it has rolled out", || !on("RollingOut") && !on("ScalingDown")).await;
    simulation.becomes_available(2).await;
    simulation.scale(3);
    simulation.until("it grows", || on("ScalingUp")).await;
    simulation.becomes_available(3).await;
    simulation.until("it has grown", || !on("ScalingUp")).await;
    goes(simulation).await;
}
