//! Years pass: certificates are issued anew in time, and pods restart only for that.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_simulation::{NAMESPACE, Simulation, condition};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

const DAYS: u64 = 7;

/// The first moment at which a certificate in one of the cluster's Secrets ends, and whose it is.
fn first_end(simulation: &Simulation) -> (Timestamp, String) {
    let mut ends = vec![];
    for secret in simulation.management.list("", "Secret") {
        let name = secret["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        for (file, content) in secret["data"].as_object().into_iter().flatten() {
            let text = String::from_utf8(STANDARD.decode(content.as_str().unwrap()).unwrap()).unwrap();
            for pem in certificates(&text) {
                ends.push((hangar_pki::expires_at(&pem).unwrap(), format!("{name} {file}")));
            }
        }
    }
    ends.into_iter().min().unwrap()
}

/// In a file of its own, or within a kubeconfig.
fn certificates(text: &str) -> Vec<String> {
    if text.starts_with("-----BEGIN CERTIFICATE") {
        return vec![text.to_owned()];
    }
    let config: Value = serde_json::from_str(text).unwrap_or_default();
    let users = config["users"].as_array().into_iter().flatten();
    let data = users.filter_map(|user| user["user"]["client-certificate-data"].as_str());
    data.map(|data| String::from_utf8(STANDARD.decode(data).unwrap()).unwrap()).collect()
}

/// How often each Deployment has rolled: its template changed.
fn generations(simulation: &Simulation) -> BTreeMap<String, i64> {
    let deployments = simulation.management.list("apps", "Deployment").into_iter();
    let generation = |deployment: &Value| deployment["metadata"]["generation"].as_i64().unwrap();
    deployments.map(|one| (one["metadata"]["name"].as_str().unwrap().to_owned(), generation(&one))).collect()
}

#[tokio::test(start_paused = true)]
async fn certificates_are_renewed_before_two_thirds_of_their_life_are_over() {
    let mut simulation = Simulation::new(111);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    let before = generations(&simulation);
    let days = 9 * 365;
    for day in (0..days).step_by(DAYS as usize) {
        // Nothing happens in between that would not happen afterwards: whatever is due runs at once, and once.
        tokio::time::advance(Duration::from_secs(DAYS * 24 * 3600 - 60)).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let (end, whose) = first_end(&simulation);
        let left = end.duration_since(simulation.now());
        assert!(left > SignedDuration::from_hours(24 * 120), "day {day}: {whose} ends at {end}");
        let machines = simulation.machines();
        assert!(machines.iter().all(|machine| condition(machine, "Available")), "day {day}");
    }
    // Every 243 days, seen within the week after.
    let renewals = days / 250..=days / 243;
    for (name, generation) in generations(&simulation) {
        let rolled = generation - before[&name];
        assert!(renewals.contains(&rolled), "{name} rolled {rolled} times, there were {renewals:?} renewals");
    }
    let plane = simulation.management.list("controlplane.cluster.x-k8s.io", "KamajiControlPlane").remove(0);
    assert!(condition(&plane, "CertificatesValid") && condition(&plane, "Available"));
    assert_eq!(plane["metadata"]["namespace"], NAMESPACE);
    simulation.delete_cluster().await;
    simulation.stop().await;
}
