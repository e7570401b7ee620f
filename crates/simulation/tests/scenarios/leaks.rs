//! Leaks that were reported of upstream's OpenStack provider, each by its number: what was made for a machine or a cluster that never came goes all the same, and nothing is made again
//! and again.

use std::time::Duration;

use hangar_simulation::{CAPI, CLUSTER, NAMESPACE, Simulation};
use hangar_simulator::{FaultAction, FaultRule, starter};
use serde_json::{Value, json};

use crate::infrastructure::{Template, documents, is_ready};

fn fault(service: &str, method: &str, path: &str, action: FaultAction) -> FaultRule {
    let (service, method, path_regex) = (service.to_owned(), method.to_owned(), path.to_owned());
    FaultRule { service, method, path_regex, action, ..FaultRule::default() }
}

/// A machine that cannot be made for two hours; the most ports that there were at any moment; then it goes, or the cause does.
async fn in_vain(seed: u64, change: fn(&mut Value), faults: Vec<FaultRule>) -> usize {
    let mut simulation = Simulation::new(seed);
    simulation.start(None);
    let change = |object: &mut Value| {
        if object["kind"] == "OpenStackMachineTemplate" {
            change(&mut object["spec"]["template"]["spec"]);
        }
    };
    simulation.apply_changed(CLUSTER, change).await;
    simulation.cloud.set_faults(faults);
    let mut most = 0;
    for _ in 0..720 {
        simulation.wait(Duration::from_secs(10)).await;
        most = most.max(simulation.in_cloud("port").len());
    }
    assert!(simulation.in_cloud("server").len() <= 1, "{}", simulation.state());
    simulation.delete_cluster().await;
    simulation.stop().await;
    most
}

#[tokio::test(start_paused = true)]
async fn capo_723_ports_of_a_server_that_was_never_made_go_with_the_cluster() {
    assert_eq!(in_vain(901, |spec| spec["sshKeyName"] = "missing".into(), vec![]).await, 1);
}

#[tokio::test(start_paused = true)]
async fn capo_1062_no_port_is_made_for_an_image_or_a_flavor_that_is_not_there() {
    assert_eq!(in_vain(902, |spec| spec["image"] = json!({ "filter": { "name": "missing" } }), vec![]).await, 0);
    assert_eq!(in_vain(903, |spec| spec["flavor"] = "missing".into(), vec![]).await, 0);
    let away = vec![fault("image", "*", "", FaultAction::Status(500))];
    let by_name = |spec: &mut Value| spec["image"] = json!({ "filter": { "name": starter::IMAGES[0].0 } });
    assert_eq!(in_vain(904, by_name, away).await, 0);
}

#[tokio::test(start_paused = true)]
async fn capo_1404_servers_without_a_host_do_not_pile_up_ports() {
    let full = vec![fault("compute", "POST", "^/servers$", FaultAction::NoValidHost)];
    assert_eq!(in_vain(905, |_| {}, full).await, 1);
    let failing = vec![fault("compute", "POST", "^/servers$", FaultAction::Status(500))];
    assert_eq!(in_vain(906, |_| {}, failing).await, 1);
}

#[tokio::test(start_paused = true)]
async fn capo_2576_a_port_that_somebody_deletes_is_not_made_again_and_again() {
    let simulation = crate::available(907, 1).await;
    let port = simulation.in_cloud("port").remove(0);
    simulation.cloud.delete_behind("network", "ports", &port.id);
    for _ in 0..720 {
        simulation.wait(Duration::from_secs(10)).await;
        assert!(simulation.in_cloud("port").len() <= 1, "{}", simulation.state());
    }
    crate::goes(simulation).await;
}

/// Whatever Nova says for a moment: a port that a server has is never taken away from it.
#[tokio::test(start_paused = true)]
async fn capo_1612_a_port_stays_with_its_server_while_nova_does_not_find_it() {
    let simulation = crate::available(908, 1).await;
    let port = simulation.in_cloud("port").remove(0);
    simulation.cloud.set_faults(vec![fault("compute", "GET", "/servers", FaultAction::Status(404))]);
    simulation.wait(Duration::from_secs(3600)).await;
    let left: Vec<String> = simulation.in_cloud("port").into_iter().map(|it| it.id).collect();
    assert_eq!(left, [port.id]);
    simulation.cloud.set_faults(vec![]);
    simulation.becomes_available(1).await;
    crate::goes(simulation).await;
}

#[tokio::test(start_paused = true)]
async fn capo_1632_a_floating_ip_that_cannot_be_made_or_bound_is_not_made_again_and_again() {
    let mut simulation = Simulation::new(909);
    simulation.start(None);
    let refused = [fault("network", "PUT", "^/floatingips/", FaultAction::Status(404))];
    simulation.cloud.set_faults(refused.to_vec());
    simulation.apply_documents(documents(&simulation, CLUSTER, Template::Bastion)).await;
    for _ in 0..360 {
        simulation.wait(Duration::from_secs(10)).await;
        assert!(simulation.in_cloud("floating-ip").len() <= 2, "{}", simulation.state());
    }
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// Policies of some clouds let users make floating IPs and not delete them.
#[tokio::test(start_paused = true)]
async fn capo_2073_a_floating_ip_that_may_not_be_deleted_is_named_and_goes_when_it_may() {
    let mut simulation = Simulation::new(910);
    simulation.start(None);
    simulation.apply_documents(documents(&simulation, CLUSTER, Template::WithoutLoadBalancer)).await;
    simulation.until("it is ready", || is_ready(&simulation, Template::WithoutLoadBalancer)).await;
    let words = "rule:delete_floatingip is disallowed by policy";
    let body = json!({ "NeutronError": { "type": "PolicyNotAuthorized", "message": words, "detail": "" } });
    let refused = FaultAction::Fail { status: 403, body };
    simulation.cloud.set_faults(vec![fault("network", "DELETE", "^/floatingips/", refused)]);
    simulation.management.delete(CAPI, "Cluster", NAMESPACE, CLUSTER);
    simulation.until("the cloud's words are there", || simulation.state().contains(words)).await;
    simulation.wait(Duration::from_secs(600)).await;
    assert_eq!(simulation.in_cloud("floating-ip").len(), 1);
    simulation.cloud.set_faults(vec![]);
    simulation.delete_cluster().await;
    simulation.stop().await;
}
