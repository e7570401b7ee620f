//! Rotations of authorities and keys while the process dies at every step of them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hangar_api::Object;
use hangar_engine::pass::StepHook;
use hangar_planner::Step;
use hangar_planner::step::TenantCall;
use hangar_simulation::{NAMESPACE, Simulation, condition};

use crate::years::{Nodes, control_plane, replace_machines, signer};

const ROTATIONS: [&str; 2] = ["hangar.dev/rotate-ca", "hangar.dev/rotate-service-account-keys"];

/// Old tokens are accepted for two days.
const HOURS: u64 = 56;

/// Everything is rotated once; hour by hour no node may be cut off.
async fn rotate(simulation: &Simulation) {
    let (old, mut nodes) = (signer(simulation), Nodes::default());
    let plane = control_plane(simulation);
    let name = plane["metadata"]["name"].as_str().unwrap();
    simulation.management.edit("controlplane.cluster.x-k8s.io", "KamajiControlPlane", NAMESPACE, name, |plane| {
        ROTATIONS.iter().for_each(|annotation| plane["metadata"]["annotations"][*annotation] = "1".into());
    });
    for hour in 0..HOURS {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        nodes.check(simulation);
        assert!(condition(&control_plane(simulation), "Available"), "hour {hour}");
        if hour == 4 || hour == 8 {
            replace_machines(simulation).await;
            nodes.check(simulation);
        }
    }
    assert_ne!(signer(simulation), old);
    assert!(condition(&control_plane(simulation), "AuthoritiesCurrent"), "{}", control_plane(simulation)["status"]);
    let secrets = simulation.management.list("", "Secret");
    for secret in secrets.iter().filter_map(|secret| secret["data"].as_object()) {
        assert!(
            !["next.key", "old.crt", "signer.crt"].iter().any(|file| secret.contains_key(*file)),
            "{:?}",
            secret.keys()
        );
    }
}

/// A step of a control plane, without what is another one at each attempt, such as times and keys.
fn what(step: &Step) -> Option<String> {
    let object = |object: &Object| {
        let files: Vec<&String> = object.get("/data").as_object().into_iter().flat_map(|data| data.keys()).collect();
        let notes = object.get("/metadata/annotations").as_object().into_iter().flat_map(|all| all.keys());
        format!("{} {files:?} {:?}", object.key(), notes.collect::<Vec<_>>())
    };
    let is_planes = |it: &Object| it.controller().is_some_and(|owner| owner.kind == "KamajiControlPlane");
    match step {
        Step::Create(it) | Step::Apply(it) if is_planes(it) => Some(object(it)),
        Step::Issue(issue) => Some(format!("{} {:?}", object(&issue.secret), issue.material)),
        Step::Tenant { call: TenantCall::Apply { .. }, .. } => Some("tenant".to_owned()),
        _ => None,
    }
}

/// A cluster whose process dies as the hook says as soon as it is there.
async fn rotated_under(decide: impl Fn(&str, bool) -> bool + Send + Sync + 'static) {
    let mut simulation = Simulation::new(121);
    let (armed, deaths) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (is_armed, counted) = (armed.clone(), deaths.clone());
    let hook: StepHook = Arc::new(move |step, after| {
        let dies = is_armed.load(Ordering::Relaxed) && what(step).is_some_and(|step| decide(&step, after));
        counted.fetch_add(dies.into(), Ordering::Relaxed);
        dies
    });
    simulation.start(Some(hook));
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    armed.store(true, Ordering::Relaxed);
    rotate(&simulation).await;
    assert!(deaths.load(Ordering::Relaxed) > 25, "{deaths:?}");
    armed.store(false, Ordering::Relaxed);
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// Once at each step, as what is tried again need not leave a trace that it was done.
pub fn once_at_each(wanted: bool) -> impl Fn(&str, bool) -> bool {
    let seen: Mutex<BTreeSet<String>> = Mutex::default();
    move |step, after| after == wanted && seen.lock().unwrap().insert(step.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_death_after_every_step_of_a_rotation_does_no_harm() {
    rotated_under(once_at_each(true)).await;
}

#[tokio::test(start_paused = true)]
async fn a_death_before_every_step_of_a_rotation_does_no_harm() {
    rotated_under(once_at_each(false)).await;
}
