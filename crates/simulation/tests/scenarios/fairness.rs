//! Many clusters in one project, and many projects: each gets its share, the calls to a project stay within its allowance, and nobody waits for another's slow cloud.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hangar_openstack::Limits;
use hangar_simulation::cloud_transport::Trouble;
use hangar_simulation::{CAPI, NAMESPACE, Simulation, condition, manifests};
use serde_json::Value;
use tokio::time::Instant;

const COUNT: usize = 50;

fn names() -> Vec<String> {
    (0..COUNT).map(|number| format!("c{number:02}")).collect()
}

fn is_available(simulation: &Simulation, name: &str) -> bool {
    let cluster = simulation.management.get(CAPI, "Cluster", NAMESPACE, name);
    cluster.is_some_and(|cluster| condition(&cluster, "Available"))
}

/// After how many seconds each of these was available, a machine included.
async fn available_after(simulation: &Simulation, names: &[String]) -> BTreeMap<String, u64> {
    let began = Instant::now();
    let mut after: BTreeMap<String, u64> = BTreeMap::new();
    while after.len() < names.len() {
        simulation.wait(Duration::from_secs(1)).await;
        assert!(began.elapsed() < Duration::from_secs(3600), "{}", simulation.state());
        for name in names {
            if !after.contains_key(name) && is_available(simulation, name) {
                after.insert(name.clone(), began.elapsed().as_secs());
            }
        }
    }
    after
}

fn spread(after: &BTreeMap<String, u64>) -> (u64, u64) {
    (after.values().min().copied().unwrap_or_default(), after.values().max().copied().unwrap_or_default())
}

/// The most calls that came within any second, and within any ten.
fn busiest(simulation: &Simulation) -> (usize, usize) {
    let times: Vec<u64> = simulation.cloud.journal().iter().map(|call| call.at).collect();
    let within = |span: u64| {
        let mut most = 0;
        let mut first = 0;
        for (last, at) in times.iter().enumerate() {
            while times[first] + span < *at {
                first += 1;
            }
            most = most.max(last + 1 - first);
        }
        most
    };
    (within(1_000), within(10_000))
}

/// As in a data centre: no call is answered at once.
fn takes(simulation: &Simulation, time: Duration) {
    simulation.transport.set_hook(Some(Arc::new(move |_| Trouble::SlowBack(time))));
}

#[tokio::test(start_paused = true)]
async fn oc20_fifty_clusters_of_one_project_share_its_allowance_fairly() {
    let mut simulation = Simulation::new(601);
    takes(&simulation, Duration::from_millis(150));
    simulation.start(None);
    for name in names() {
        simulation.apply_cluster(&name).await;
    }
    let after = available_after(&simulation, &names()).await;
    let (first, last) = spread(&after);
    let (second, ten) = busiest(&simulation);
    println!("available after {first} to {last} s; at most {second} calls in a second, {ten} in ten");
    assert!(last <= 3 * first.max(10), "{after:?}");
    let limits = Limits::default();
    assert!(second as f64 <= limits.burst + limits.per_second, "{second}");
    assert!(ten as f64 <= limits.burst + 10.0 * limits.per_second, "{ten}");
    let names = names();
    simulation.delete_clusters(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    simulation.stop().await;
}

/// One cluster that grows by a hundred machines, and others that are made meanwhile in the same project.
#[tokio::test(start_paused = true)]
async fn oc20_a_cluster_that_grows_by_a_hundred_keeps_small_ones_waiting_for_no_more_than_their_turn() {
    let mut simulation = Simulation::new(602);
    takes(&simulation, Duration::from_millis(300));
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    simulation.apply_cluster("alone").await;
    let alone = available_after(&simulation, &["alone".to_owned()]).await["alone"];
    simulation.scale(101);
    let small: Vec<String> = names().into_iter().take(5).collect();
    for name in &small {
        simulation.apply_cluster(name).await;
    }
    let (_, last) = spread(&available_after(&simulation, &small).await);
    let grown = simulation.machines().iter().filter(|it| condition(it, "Available")).count();
    println!("alone {alone} s, beside a hundred {last} s, when {grown} machines were there");
    assert!(last <= 3 * alone, "alone {alone} s, beside a hundred {last} s");
    let mut all: Vec<&str> = small.iter().map(String::as_str).collect();
    all.extend(["alone", hangar_simulation::CLUSTER]);
    simulation.delete_clusters(&all).await;
    simulation.stop().await;
}

/// A cluster with a network of its own, in a project and on a cloud of its own.
fn documents(simulation: &Simulation, name: &str) -> Vec<Value> {
    let yaml = simulation.cloud.clouds_yaml_of(&format!("http://{name}.test"), &[("openstack", name)], None);
    let mut documents = manifests::on_own_network(name, &yaml);
    // Key pairs are their users'.
    for object in &mut documents {
        if object["kind"] == "OpenStackMachineTemplate" {
            object["spec"]["template"]["spec"].as_object_mut().unwrap().remove("sshKeyName");
        }
    }
    documents
}

#[tokio::test(start_paused = true)]
async fn oc20_no_project_waits_for_anothers_slow_cloud() {
    let mut simulation = Simulation::new(603);
    // Five answer late, five never do, and the others as in a data centre.
    simulation.transport.set_hook(Some(Arc::new(move |request| match request.uri().host().unwrap_or_default() {
        host if host < "c05" => Trouble::SlowBack(Duration::from_secs(20)),
        host if host < "c10" => Trouble::SlowThere(Duration::from_secs(600)),
        _ => Trouble::SlowBack(Duration::from_millis(50)),
    })));
    simulation.start(None);
    for name in names() {
        simulation.cloud.add_project(&name);
        simulation.apply_documents(documents(&simulation, &name)).await;
    }
    let (first, last) = spread(&available_after(&simulation, &names()[10..]).await);
    println!("the others after {first} to {last} s");
    // As long as it takes if all are well.
    assert!(last <= 20, "{last}");
    simulation.transport.set_hook(None);
    let names = names();
    available_after(&simulation, &names).await;
    simulation.delete_clusters(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    simulation.stop().await;
}
