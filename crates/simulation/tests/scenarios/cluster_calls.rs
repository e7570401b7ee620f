//! Each call that a cluster's infrastructure takes is late or asked twice, for each of upstream's templates: it converges, nothing is there twice and nothing is left.
//! (`infrastructure.rs` has calls and answers that are lost.) `HANGAR_CALLS=all` tries each of them in each way; a normal run every third one that is late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hangar_simulation::cloud_transport::Trouble;
use hangar_simulation::{CLUSTER, Simulation};

use crate::infrastructure::{Template, documents, in_world, is_ready};

const ALL: [Template; 4] =
    [Template::Octavia, Template::WithoutLoadBalancer, Template::ExistingNetwork, Template::Bastion];

/// A life in which one call goes wrong; how many there were.
fn life(template: Template, at: Option<u64>, trouble: Trouble) -> u64 {
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    in_world(async {
        let mut simulation = Simulation::new(811);
        simulation.laws.excuse_duplicates();
        simulation.apply_documents(documents(&simulation, CLUSTER, template)).await;
        simulation.transport.set_hook(Some(Arc::new(move |request| {
            let is_one = request.method() != http::Method::GET && !request.uri().path().ends_with("/auth/tokens");
            let is_it = is_one && Some(counted.fetch_add(1, Ordering::Relaxed)) == at;
            if is_it { trouble } else { Trouble::None }
        })));
        simulation.start(None);
        simulation.until(&format!("{template:?} is ready"), || is_ready(&simulation, template)).await;
        simulation.until("nothing is there twice", || simulation.there_twice().is_empty()).await;
        simulation.delete_cluster().await;
        simulation.stop().await;
    });
    count.load(Ordering::Relaxed)
}

fn each(stride: usize, trouble: Trouble) {
    let is_all = std::env::var("HANGAR_CALLS").is_ok_and(|value| value == "all");
    for template in ALL {
        let all = life(template, None, Trouble::None);
        assert!(all > 5, "{template:?}: the calls were not counted");
        for at in (0..all).step_by(if is_all { 1 } else { stride }) {
            println!("{template:?}: {trouble:?} at call {at} of {all}");
            life(template, Some(at), trouble);
        }
    }
}

#[test]
fn oc11_each_call_of_any_template_may_be_asked_twice() {
    each(1, Trouble::Twice);
}

#[test]
fn oc11_each_call_of_any_template_may_arrive_after_it_was_given_up() {
    each(3, Trouble::SlowThere(Duration::from_secs(40)));
}

#[test]
fn oc11_each_answer_of_any_template_may_come_after_it_was_given_up() {
    each(3, Trouble::SlowBack(Duration::from_secs(40)));
}
