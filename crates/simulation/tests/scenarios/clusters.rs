//! Several clusters and several processes at once.

use hangar_simulation::Simulation;

use crate::grow_and_go;

const NAMES: [&str; 3] = ["one", "two", "three"];

#[tokio::test(start_paused = true)]
async fn three_clusters_do_not_get_in_each_others_way() {
    let mut simulation = Simulation::new(21);
    simulation.start(None);
    for name in NAMES {
        simulation.apply_cluster(name).await;
    }
    simulation.all_become_available(&NAMES, 1).await;
    // One goes, the others stay.
    simulation.management.delete("cluster.x-k8s.io", "Cluster", "default", "two");
    simulation.all_become_available(&["one", "three"], 1).await;
    simulation.delete_clusters(&NAMES).await;
    simulation.stop().await;
}

/// Two processes without a lease: one that has lost it and does not know yet.
async fn two_processes(seed: u64) -> Simulation {
    let mut simulation = Simulation::new(seed);
    simulation.laws.excuse_duplicates();
    simulation.laws.excuse_two_at_once();
    simulation.start(None);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    simulation.scale(3);
    simulation.becomes_available(3).await;
    simulation
}

#[tokio::test(start_paused = true)]
async fn two_processes_at_once_leave_nothing_behind() {
    for seed in 31..36 {
        let mut simulation = two_processes(seed).await;
        grow_and_go(&simulation).await;
        simulation.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_two_processes_made_twice_is_there_once_after_a_while() {
    // In the second line one process makes a port while the other lets its machine go; in the third one they make servers from each other's younger ports.
    let seeds = [[36, 37, 38, 39, 40], [52, 54, 58, 62, 68], [103, 104, 106, 121, 133]];
    for seed in seeds.into_iter().flatten() {
        let mut simulation = two_processes(seed).await;
        simulation.stop_engines().await;
        simulation.start(None);
        simulation.until("nothing is there twice", || simulation.there_twice().is_empty()).await;
        simulation.delete_cluster().await;
        simulation.stop().await;
    }
}
