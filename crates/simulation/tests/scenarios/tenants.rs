//! Control planes of different people in one data store.

use hangar_simulation::{NAMESPACE, Simulation};

const CONTROL_PLANES: (&str, &str) = ("controlplane.cluster.x-k8s.io", "KamajiControlPlane");

/// The second one is told so, gets no certificate with that name, and takes nothing along when it goes.
#[tokio::test(start_paused = true)]
async fn a_name_in_the_data_store_belongs_to_whoever_had_it_first() {
    let mut simulation = Simulation::new(101);
    simulation.start(None);
    simulation.apply_cluster("one").await;
    simulation.all_become_available(&["one"], 1).await;
    let (group, kind) = CONTROL_PLANES;
    let first = simulation.management.list(group, kind).remove(0);
    let taken = simulation.datastores.users().remove(0);
    let (name, uid) = (first["metadata"]["name"].as_str().unwrap(), first["metadata"]["uid"].as_str().unwrap());
    assert_eq!(taken, uid);
    // The first one gives itself a name: it is another user from the start.
    simulation.delete_clusters(&["one"]).await;
    simulation.apply_named_tenant("one", "team").await;
    simulation.all_become_available(&["one"], 1).await;
    assert_eq!(simulation.datastores.users(), ["team"]);
    simulation.apply_named_tenant("two", "team").await;
    let second = name.replace("one", "two");
    simulation
        .until("the second is told", || {
            let plane = simulation.management.get(group, kind, NAMESPACE, &second);
            plane.is_some_and(|plane| plane["status"].to_string().contains("team is the name of another tenant"))
        })
        .await;
    let certificate = format!("{second}-datastore-certificate");
    assert!(simulation.management.get("", "Secret", NAMESPACE, &certificate).is_none());
    simulation.management.delete("cluster.x-k8s.io", "Cluster", NAMESPACE, "two");
    simulation
        .until("the second is gone", || simulation.management.get(group, kind, NAMESPACE, &second).is_none())
        .await;
    assert_eq!(simulation.datastores.users(), ["team"], "the first one's user is still there");
    simulation.all_become_available(&["one"], 1).await;
    simulation.delete_clusters(&["one"]).await;
    simulation.stop().await;
}
