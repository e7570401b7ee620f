//! People do things behind Hangar's back: in the cloud, and to single Machines.

use std::time::Duration;

use hangar_simulation::{CAPI, NAMESPACE, Simulation, condition};

use crate::{available, goes};

fn names(simulation: &Simulation) -> Vec<String> {
    simulation.machines().iter().map(|machine| machine["metadata"]["name"].to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_a_user_deletes_is_replaced() {
    let simulation = available(41, 3).await;
    let before = names(&simulation);
    let name = before[0].trim_matches('"').to_owned();
    simulation.management.delete(CAPI, "Machine", NAMESPACE, &name);
    simulation.until("the machine is gone", || !names(&simulation).contains(&before[0])).await;
    simulation.becomes_available(3).await;
    goes(simulation).await;
}

#[tokio::test(start_paused = true)]
async fn a_security_group_that_somebody_deletes_is_made_again() {
    let simulation = available(42, 1).await;
    let groups = simulation.in_cloud("security-group");
    simulation.cloud.delete_behind("network", "security-groups", &groups[0].id);
    simulation.until("the group is back", || simulation.in_cloud("security-group").len() == groups.len()).await;
    goes(simulation).await;
}

#[tokio::test(start_paused = true)]
async fn om13_a_server_that_somebody_deletes_is_reported_or_replaced() {
    let simulation = available(43, 1).await;
    let server = simulation.in_cloud("server").remove(0);
    simulation.cloud.delete_behind("compute", "servers", &server.id);
    simulation
        .until("the machine is reported or replaced", || {
            let reported = simulation.machines().iter().any(|machine| !condition(machine, "Available"));
            reported || simulation.in_cloud("server").iter().any(|other| other.id != server.id)
        })
        .await;
    goes(simulation).await;
}

#[tokio::test(start_paused = true)]
async fn a_port_that_somebody_deletes_is_reported_or_made_again() {
    let simulation = available(44, 1).await;
    let port = simulation.in_cloud("port").remove(0);
    simulation.cloud.delete_behind("network", "ports", &port.id);
    simulation
        .until("the port is reported or made again", || {
            let machines = simulation.management.list("infrastructure.cluster.x-k8s.io", "OpenStackMachine");
            let reported = machines.iter().any(|machine| !condition(machine, "Ready"));
            reported || simulation.in_cloud("port").iter().any(|other| other.id != port.id)
        })
        .await;
    goes(simulation).await;
}

#[tokio::test(start_paused = true)]
async fn om13_a_server_that_somebody_stops_is_named_within_a_minute_and_well_again_when_it_runs() {
    let simulation = available(46, 1).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let (cloud, server) = (simulation.cloud_client(), simulation.in_cloud("server").remove(0));
    cloud.stop_server(&server.id).await.unwrap();
    let says = |words: &str| {
        let machines = simulation.management.list("infrastructure.cluster.x-k8s.io", "OpenStackMachine");
        machines.iter().any(|machine| machine["status"]["conditions"].to_string().contains(words))
    };
    simulation.until_within(Duration::from_secs(90), "it is named", || says("is SHUTOFF; start it")).await;
    assert_eq!(simulation.in_cloud("server").len(), 1, "it may be somebody's work: nothing is made anew");
    cloud.start_server(&server.id).await.unwrap();
    simulation.until_within(Duration::from_secs(90), "it is well", || !says("SHUTOFF")).await;
    simulation.becomes_available(1).await;
    goes(simulation).await;
}

/// Whatever is missing, the rest goes.
#[tokio::test(start_paused = true)]
async fn a_cluster_whose_resources_somebody_deletes_goes_without_a_trace() {
    for (kind, service, collection) in [
        ("server", "compute", "servers"),
        ("port", "network", "ports"),
        ("security-group", "network", "security-groups"),
    ] {
        let simulation = available(45, 1).await;
        for item in simulation.in_cloud(kind) {
            simulation.cloud.delete_behind(service, collection, &item.id);
        }
        goes(simulation).await;
    }
}

/// M4: a gate is somebody else's condition in our status; it is seen when it opens, and nothing is written over it or again.
#[tokio::test(start_paused = true)]
async fn m4_a_readiness_gate_that_somebody_opens_makes_a_machine_ready() {
    let simulation = available(47, 1).await;
    let name = names(&simulation)[0].trim_matches('"').to_owned();
    let edit = |change: &dyn Fn(&mut serde_json::Value)| {
        simulation.management.edit(CAPI, "Machine", NAMESPACE, &name, change);
    };
    edit(&|machine| machine["spec"]["readinessGates"] = serde_json::json!([{ "conditionType": "NetworkReady" }]));
    simulation.until("it waits", || !condition(&simulation.machines()[0], "Ready")).await;
    edit(&|machine| {
        let gate = serde_json::json!({ "type": "NetworkReady", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        machine["status"]["conditions"].as_array_mut().unwrap().push(gate);
    });
    simulation.until("it is ready", || condition(&simulation.machines()[0], "Ready")).await;
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    simulation.management.clear_requests();
    // A pass for another reason: there is nothing to write.
    edit(&|machine| machine["metadata"]["annotations"]["example.org/note"] = "".into());
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    let writes: Vec<_> = simulation.management.requests().into_iter().filter(|call| call.is_write()).collect();
    assert!(writes.is_empty(), "{writes:#?}");
    assert!(condition(&simulation.machines()[0], "NetworkReady"));
    goes(simulation).await;
}
