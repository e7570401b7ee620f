//! Years pass: certificates are issued anew in time, authorities are rotated, no node is cut off, and pods restart only for that.

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
            // The authority of the data store is not the control plane's.
            if name.ends_with("-datastore-certificate") && file == "ca.crt" {
                continue;
            }
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

pub fn control_plane(simulation: &Simulation) -> Value {
    simulation.management.list("controlplane.cluster.x-k8s.io", "KamajiControlPlane").remove(0)
}

/// A file of one of the control plane's Secrets.
fn file(simulation: &Simulation, suffix: &str, file: &str) -> Option<String> {
    let name = format!("{}{suffix}", control_plane(simulation)["metadata"]["name"].as_str()?);
    let secret = simulation.management.get("", "Secret", NAMESPACE, &name)?;
    String::from_utf8(STANDARD.decode(secret["data"][file].as_str()?).ok()?).ok()
}

/// The pin of the authority that signs.
pub fn signer(simulation: &Simulation) -> String {
    let signer = file(simulation, "-ca", "signer.crt").or_else(|| file(simulation, "-ca", "ca.crt")).unwrap();
    hangar_pki::ca_hash(&signer).unwrap()
}

/// The authorities that are trusted, each by itself.
fn trusted(simulation: &Simulation) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let bundle = file(simulation, "-ca", "ca.crt").unwrap();
    bundle.split_inclusive(END).filter(|pem| pem.contains(END)).map(|pem| pem.trim().to_owned()).collect()
}

fn waits_for_nodes(simulation: &Simulation) -> bool {
    let plane = control_plane(simulation);
    let mut conditions = plane["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["reason"] == "WaitingForNodes")
}

/// What people do when the condition asks for it.
pub async fn replace_machines(simulation: &Simulation) {
    let names = |simulation: &Simulation| -> Vec<Value> {
        simulation.machines().iter().map(|machine| machine["metadata"]["name"].clone()).collect()
    };
    let (old, now) = (names(simulation), simulation.now().to_string());
    simulation.edit_deployment(|deployment| deployment["spec"]["rollout"]["after"] = now.into());
    simulation.until("all Machines are others", || names(simulation).iter().all(|name| !old.contains(name))).await;
    simulation.becomes_available(old.len()).await;
}

/// What the kubelets of all Machines know: whom they trust since they joined, who signed them, and when.
#[derive(Default)]
pub struct Nodes(BTreeMap<String, (Vec<String>, String, Timestamp)>);

impl Nodes {
    /// New ones learn what there is now; no other may be cut off: it must trust who answers, and be trusted.
    pub fn check(&mut self, simulation: &Simulation) {
        let (bundle, signer, now) = (trusted(simulation), signer(simulation), simulation.now());
        let served = file(simulation, "-api-server-certificate", "apiserver.crt").unwrap();
        let client =
            file(simulation, "-api-server-kubelet-client-certificate", "apiserver-kubelet-client.crt").unwrap();
        let machines = simulation.machines();
        let names = machines.iter().filter_map(|machine| machine["metadata"]["name"].as_str());
        self.0 = names
            .map(|name| {
                let known = self.0.remove(name);
                (name.to_owned(), known.unwrap_or_else(|| (bundle.clone(), signer.clone(), now)))
            })
            .collect();
        for (name, (trusts, signed_by, signed)) in &mut self.0 {
            let by = |leaf: &str| trusts.iter().any(|one| hangar_pki::is_issued_by(leaf, one).unwrap());
            assert!(by(&served) && by(&client), "{name} does not trust the API server at {now}");
            let known = bundle.iter().any(|one| hangar_pki::ca_hash(one).unwrap() == *signed_by);
            assert!(known, "{name} is not trusted at {now}");
            // The kubelet asks for another certificate before a year is over.
            if now.duration_since(*signed) > SignedDuration::from_hours(24 * 300) {
                (*signed_by, *signed) = (signer.clone(), now);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn in_ten_years_certificates_are_renewed_and_the_authority_is_rotated_without_losing_a_node() {
    let mut simulation = Simulation::new(111);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    let before = generations(&simulation);
    let authority = signer(&simulation);
    let mut nodes = Nodes::default();
    let (days, mut replaced) = (10 * 365, vec![]);
    for day in (0..days).step_by(DAYS as usize) {
        // Nothing happens in between that would not happen afterwards: whatever is due runs at once, and once.
        tokio::time::advance(Duration::from_secs(DAYS * 24 * 3600 - 60)).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let (end, whose) = first_end(&simulation);
        let left = end.duration_since(simulation.now());
        assert!(left > SignedDuration::from_hours(24 * 120), "day {day}: {whose} ends at {end}");
        let machines = simulation.machines();
        assert!(machines.iter().all(|machine| condition(machine, "Available")), "day {day}");
        nodes.check(&simulation);
        // What the condition asks people for.
        if waits_for_nodes(&simulation) && replaced.last().is_none_or(|last| day - last > 30) {
            replace_machines(&simulation).await;
            nodes.check(&simulation);
            replaced.push(day);
        }
    }
    assert_eq!(
        replaced.len(),
        2,
        "once that nodes trust the new authority, once that it has signed them: {replaced:?}"
    );
    assert!((2420..2450).contains(&replaced[0]), "a third of its life was left: {replaced:?}");
    assert_ne!(signer(&simulation), authority);
    // Every 243 days, seen within the week after; and three times for the rotation, of which one renews everything.
    let renewals = days / 250 + 2..=days / 243 + 3;
    for (name, generation) in generations(&simulation) {
        let rolled = generation - before[&name];
        assert!(renewals.contains(&rolled), "{name} rolled {rolled} times, there were {renewals:?} renewals");
    }
    let plane = control_plane(&simulation);
    let current = ["CertificatesValid", "AuthoritiesCurrent", "Available"];
    assert!(current.iter().all(|kind| condition(&plane, kind)), "{}", plane["status"]);
    assert_eq!(plane["metadata"]["namespace"], NAMESPACE);
    simulation.delete_cluster().await;
    simulation.stop().await;
}
