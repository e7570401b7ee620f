//! Quotas of a project: what does not fit is said at once with all its numbers, nothing is begun that cannot be finished, and a higher quota is all that is needed.

use std::collections::BTreeMap;
use std::time::Duration;

use hangar_openstack::{CreateServer, ServerNetwork};
use hangar_simulation::{CLUSTER, Simulation, condition};
use hangar_simulator::starter;
use serde_json::Value;

use crate::infrastructure::{INFRASTRUCTURE, Template, documents, is_ready};

/// What servers say of why they are not made.
fn complaints(simulation: &Simulation) -> Vec<String> {
    let machines = simulation.management.list(INFRASTRUCTURE, "OpenStackMachine");
    let conditions = machines.iter().flat_map(|it| it["status"]["conditions"].as_array().into_iter().flatten());
    let ready = conditions.filter(|condition| condition["type"] == "Ready" && condition["reason"] == "QuotaExceeded");
    ready.map(|condition| condition["message"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Calls about limits.
fn asked(simulation: &Simulation) -> BTreeMap<String, usize> {
    let mut asked = BTreeMap::new();
    for call in simulation.cloud.journal().iter().filter(|it| it.path.contains("limits") || it.path.contains("quota")) {
        *asked.entry(call.service.clone()).or_default() += 1;
    }
    asked
}

/// Nova counts servers, cores and memory, Neutron ports: the foreign server and its ports are in the same project.
#[tokio::test(start_paused = true)]
async fn oc19_a_batch_that_does_not_fit_is_made_as_far_as_it_fits_and_the_rest_says_all_that_is_missing() {
    let mut simulation = Simulation::new(501);
    // Three of ours, and one that is foreign.
    simulation.cloud.set_quota("demo", "instances", 4);
    simulation.cloud.set_quota("demo", "cores", 7);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    simulation.scale(8);
    let available =
        |simulation: &Simulation| simulation.machines().iter().filter(|it| condition(it, "Available")).count();
    simulation.until("as many as fit are there", || available(&simulation) == 3).await;
    simulation
        .until("the others say what is missing", || {
            let said = complaints(&simulation);
            said.len() == 5 && said.iter().all(|text| text.contains("servers: 5 needed, 4 of 4 used"))
        })
        .await;
    let text = complaints(&simulation).remove(0);
    assert!(text.contains("together with 4 other objects that wait"), "{text}");
    assert!(text.contains("openstack quota set --instances 9 --cores 12"), "{text}");
    assert_eq!(simulation.in_cloud("port").len(), 3, "nothing was begun for servers that cannot be made");
    simulation.cloud.clear_journal();
    simulation.wait(Duration::from_secs(600)).await;
    let calls = simulation.cloud.journal();
    assert!(calls.iter().all(|call| call.method == "GET"), "nothing is tried in vain");
    let asked_while_waiting = asked(&simulation);
    println!("asked in ten minutes while five machines wait: {asked_while_waiting:?}, {} calls in all", calls.len());
    assert!(asked_while_waiting.values().all(|count| *count <= 31), "{asked_while_waiting:?}");

    simulation.cloud.set_quota("demo", "instances", 20);
    simulation.cloud.set_quota("demo", "cores", 30);
    simulation.becomes_available(8).await;
    simulation.wait(Duration::from_secs(60)).await;
    simulation.cloud.clear_journal();
    simulation.wait(Duration::from_secs(1200)).await;
    assert_eq!(asked(&simulation), BTreeMap::new(), "at rest nobody asks");
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// A rollout at the limit: what the old one leaves is used at once.
#[tokio::test(start_paused = true)]
async fn oc19_what_is_deleted_makes_room_for_what_waits() {
    let mut simulation = Simulation::new(502);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    let cloud = simulation.cloud_client();
    let network = ServerNetwork { uuid: Some(starter::NETWORK_ID.into()), ..ServerNetwork::default() };
    let theirs = CreateServer {
        name: "theirs".into(),
        flavor_id: starter::FLAVORS[0].1.into(),
        image_id: starter::IMAGES[0].1.into(),
        networks: vec![network],
        ..CreateServer::default()
    };
    let theirs = cloud.create_server(&theirs).await.unwrap();
    simulation.cloud.set_quota("demo", "instances", 3);
    simulation.scale(2);
    simulation.until("one waits", || complaints(&simulation).len() == 1).await;
    cloud.delete_server(&theirs).await.unwrap();
    let served = || simulation.in_cloud("server").iter().filter(|it| it.name != "theirs").count() == 2;
    simulation.until_within(Duration::from_secs(120), "it gets the place", served).await;
    simulation.becomes_available(2).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
}

fn says(simulation: &Simulation, text: &str) -> bool {
    let clusters = simulation.management.list(INFRASTRUCTURE, "OpenStackCluster");
    let mut conditions = clusters.iter().flat_map(|it| it["status"]["conditions"].as_array().into_iter().flatten());
    conditions
        .any(|it: &Value| it["reason"] == "QuotaExceeded" && it["message"].as_str().unwrap_or_default().contains(text))
}

/// Nothing is made as long as something is missing; a bastion that does not fit keeps nobody waiting.
#[tokio::test(start_paused = true)]
async fn oc19_a_cluster_is_not_begun_that_does_not_fit() {
    for (name, limit, template, text) in [
        ("network", 0, Template::Octavia, "networks: 1 needed, "),
        ("subnet", 0, Template::Octavia, "subnets: 1 needed, "),
        ("router", 0, Template::Octavia, "routers: 1 needed, "),
        ("port", 0, Template::Octavia, "ports: 2 needed, "),
        ("security_group", 0, Template::WithoutLoadBalancer, "security groups: 2 needed, "),
        ("security_group_rule", 0, Template::WithoutLoadBalancer, "security group rules: "),
        ("floatingip", 0, Template::WithoutLoadBalancer, "floating IPs: 1 needed, 0 of 0 used"),
        ("load_balancer", 0, Template::Octavia, "load balancers: 1 needed, 0 of 0 used"),
    ] {
        let mut simulation = Simulation::new(503);
        let documents = documents(&simulation, CLUSTER, template);
        simulation.apply_documents(documents).await;
        simulation.cloud.set_quota("demo", name, limit);
        simulation.start(None);
        simulation.until(&format!("{name} are missing"), || says(&simulation, text)).await;
        simulation.wait(Duration::from_secs(120)).await;
        assert_eq!(simulation.left_in_cloud(), vec![], "{name}");
        simulation.cloud.set_quota("demo", name, 100);
        simulation.until(&format!("there is room for {name}"), || is_ready(&simulation, template)).await;
        simulation.delete_cluster().await;
        simulation.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn oc19_a_bastion_that_does_not_fit_keeps_nobody_waiting() {
    let mut simulation = Simulation::new(504);
    simulation.apply_documents(documents(&simulation, CLUSTER, Template::Bastion)).await;
    simulation.cloud.set_quota("demo", "instances", 1);
    simulation.start(None);
    simulation.until("the rest is ready", || is_ready(&simulation, Template::WithoutLoadBalancer)).await;
    simulation.until("the bastion says why", || says(&simulation, "servers: 1 needed, 1 of 1 used")).await;
    assert_eq!((simulation.in_cloud("server").len(), simulation.in_cloud("port").len()), (0, 1));
    simulation.cloud.set_quota("demo", "instances", 2);
    simulation.until("it is there", || is_ready(&simulation, Template::Bastion)).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// Whoever may not ask for limits, and whatever is wrong with the answer: the cloud itself says what does not fit.
#[tokio::test(start_paused = true)]
async fn oc19_a_cloud_that_does_not_tell_its_limits_is_used_all_the_same() {
    use hangar_simulator::{FaultAction, FaultRule};
    for action in
        [FaultAction::Status(403), FaultAction::Status(404), FaultAction::Status(500), FaultAction::ProxyPage(502)]
    {
        let mut simulation = Simulation::new(505);
        let rule = |path: &str| FaultRule { path_regex: path.into(), action: action.clone(), ..FaultRule::default() };
        simulation.cloud.set_faults(vec![rule("limits"), rule("quotas")]);
        simulation.start(None);
        simulation.apply_example().await;
        simulation.becomes_available(1).await;
        simulation.cloud.set_quota("demo", "instances", 2);
        simulation.scale(2);
        let refused = || complaints(&simulation).iter().any(|text| text.contains("Quota exceeded for instances"));
        simulation.until(&format!("{action:?}: Nova says no"), refused).await;
        simulation.cloud.set_quota("demo", "instances", 9);
        simulation.becomes_available(2).await;
        simulation.delete_cluster().await;
        simulation.stop().await;
    }
}
