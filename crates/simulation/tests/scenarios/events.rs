//! What people see in `kubectl describe`: changes, each said once, and nothing at rest.

use std::time::Duration;

use hangar_simulation::Simulation;
use serde_json::Value;

use crate::{available, goes};

/// Kind, reason and count of all events.
fn events(simulation: &Simulation) -> Vec<(String, String, i64)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = simulation.management.list("", "Event").into_iter();
    let mut all: Vec<_> = all
        .map(|event| (text(&event["involvedObject"]["kind"]), text(&event["reason"]), event["count"].as_i64().unwrap()))
        .collect();
    all.sort();
    all
}

fn count(simulation: &Simulation, kind: &str, reason: &str) -> i64 {
    let all = events(simulation).into_iter().filter(|(of, why, _)| (of.as_str(), why.as_str()) == (kind, reason));
    all.map(|(_, _, count)| count).sum()
}

#[tokio::test(start_paused = true)]
async fn changes_are_events_and_rest_is_none() {
    let simulation = available(321, 1).await;
    simulation.wait(Duration::from_secs(60)).await;
    assert_eq!(count(&simulation, "MachineSet", "SuccessfulCreate"), 1, "{:#?}", events(&simulation));
    let few = events(&simulation).len();
    assert!(few <= 3, "a cluster that comes up says little: {:#?}", events(&simulation));
    simulation.management.clear_requests();
    simulation.wait(Duration::from_secs(3600)).await;
    let asked = simulation.management.requests().into_iter().filter(|call| call.resource == "events").count();
    assert_eq!(asked, 0);
    simulation.edit_deployment(|deployment| deployment["spec"]["template"]["spec"]["version"] = "v1.28.11".into());
    simulation.until("it rolls out", || count(&simulation, "MachineDeployment", "RollingOut") == 1).await;
    simulation.until("it has rolled out", || count(&simulation, "MachineDeployment", "RolledOut") == 1).await;
    simulation.becomes_available(1).await;
    simulation.scale(3);
    simulation.becomes_available(3).await;
    simulation.until("Machines were made", || count(&simulation, "MachineSet", "SuccessfulCreate") == 4).await;
    simulation.scale(1);
    simulation.becomes_available(1).await;
    simulation.until("Machines were deleted", || count(&simulation, "MachineSet", "SuccessfulDelete") == 3).await;
    goes(simulation).await;
}
