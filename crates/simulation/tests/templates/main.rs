//! What the templates of upstream's OpenStack provider make, in the simulated cloud and, unchanged, in a real one: resources, names, tags and rules are listed and compared with what
//! is written down here; afterwards nothing is left.
//!
//! `HANGAR_TEST_CLOUDS` names a clouds.yaml with the entries `admin` and `demo` of a real cloud (`cargo xtask openstack-real templates` sets it); without it the simulator is what is
//! used. A difference is a bug of one of the two or of ours, never a reason to skip.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are tests too")]

mod listing;
mod manifests;
mod place;

use hangar_simulation::{CAPI, NAMESPACE};
use serde_json::Value;

use listing::Listing;
use manifests::{Names, Template};
use place::Place;

fn conditions(place: &Place) -> String {
    let kinds = [
        (CAPI, "Cluster"),
        (CAPI, "Machine"),
        ("infrastructure.cluster.x-k8s.io", "OpenStackCluster"),
        ("infrastructure.cluster.x-k8s.io", "OpenStackMachine"),
    ];
    let mut lines = vec![];
    for (group, kind) in kinds {
        for object in place.api.management.list(group, kind) {
            let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let unwell = all.iter().filter(|it| it["status"] != "True");
            let words: Vec<String> =
                unwell.map(|it| format!("{} {} {}", it["type"], it["reason"], it["message"])).collect();
            lines.push(format!("{kind} {}: {}", object["metadata"]["name"], words.join("; ")));
        }
    }
    lines.join("\n")
}

fn is_ready(object: &Value) -> bool {
    object["status"]["ready"] == true
}

/// Comes, is as written down, and goes.
async fn life(template: Template) {
    let place = Place::find().await;
    let names = Names::of(&place);
    let before = Listing::of(&place).await;
    let documents = template.documents(&names);
    let machines = documents.iter().filter(|it| it["kind"] == "OpenStackMachine").count();
    let bastion = documents.iter().any(|it| it["spec"]["bastion"]["enabled"] == true);
    place.apply(&documents).await;
    let infra = "infrastructure.cluster.x-k8s.io";
    let there = || {
        let clusters = place.api.management.list(infra, "OpenStackCluster");
        let all = place.api.management.list(infra, "OpenStackMachine");
        let with_bastion = !bastion || clusters.iter().all(|it| it["status"]["bastion"]["floatingIP"].is_string());
        clusters.iter().all(is_ready) && with_bastion && all.len() == machines && all.iter().all(is_ready)
    };
    place.until(|| format!("{template:?} is ready\n{}", conditions(&place)), there).await;
    // Members and the address follow machines that are ready.
    let expected = template.expected();
    let mut now = vec![];
    for _ in 0..60 {
        now = Listing::of(&place).await.without(&before).lines(&names);
        if now == expected {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
    let (now, expected) = (now.join("\n"), expected.join("\n"));
    assert_eq!(now, expected, "{template:?}\n--- is\n{now}\n--- {}", conditions(&place));
    place.api.management.delete(CAPI, "Cluster", NAMESPACE, &names.cluster);
    let gone = || place.api.management.get(CAPI, "Cluster", NAMESPACE, &names.cluster).is_none();
    place.until(|| format!("{template:?} is gone\n{}", conditions(&place)), gone).await;
    let left = Listing::of(&place).await.without(&before).lines(&names);
    assert_eq!(left, Vec::<String>::new(), "{template:?}");
    place.remove().await;
}

#[test]
fn oc22_default_with_octavia_makes_what_is_written_down_and_leaves_nothing() {
    place::run(life(Template::Octavia));
}

#[test]
fn oc22_without_lb_makes_what_is_written_down_and_leaves_nothing() {
    place::run(life(Template::WithoutLoadBalancer));
}

#[test]
fn oc22_several_zones_and_volumes_make_what_is_written_down_and_leave_nothing() {
    place::run(life(Template::ZonesAndVolumes));
}

#[test]
fn oc22_several_networks_make_what_is_written_down_and_leave_nothing() {
    place::run(life(Template::Networks));
}

#[test]
fn oc22_a_bastion_makes_what_is_written_down_and_leaves_nothing() {
    place::run(life(Template::Bastion));
}

#[test]
fn oc22_a_trunk_makes_what_is_written_down_and_leaves_nothing() {
    place::run(life(Template::Trunk));
}

/// The words and numbers are a real cloud's, too.
#[test]
fn oc19_what_a_quota_lacks_is_said_and_heals_in_either_cloud() {
    place::run(async {
        let place = Place::find().await;
        let names = Names::of(&place);
        let project = place.demo.project_id().await.unwrap();
        let used = place.demo.network_usage(&project).await.unwrap()["network"].used;
        place.admin.set_network_quota(&project, "network", used).await.unwrap();
        place.admin.set_compute_quota(&project, "instances", 0).await.unwrap();
        let before = Listing::of(&place).await;
        place.apply(&Template::Trunk.documents(&names)).await;
        let says = |words: &str| conditions(&place).contains(words);
        let networks = format!("networks: 1 needed, {used} of {used} used");
        place.until(|| format!("{networks}\n{}", conditions(&place)), || says(&networks)).await;
        assert_eq!(Listing::of(&place).await.without(&before).lines(&names), Vec::<String>::new());
        place.admin.set_network_quota(&project, "network", -1).await.unwrap();
        let servers = "servers: 1 needed, 0 of 0 used";
        place.until(|| format!("{servers}\n{}", conditions(&place)), || says(servers)).await;
        place.admin.set_compute_quota(&project, "instances", -1).await.unwrap();
        let machines = || place.api.management.list("infrastructure.cluster.x-k8s.io", "OpenStackMachine");
        place.until(|| format!("it is ready\n{}", conditions(&place)), || machines().iter().all(is_ready)).await;
        place.api.management.delete(CAPI, "Cluster", NAMESPACE, &names.cluster);
        let gone = || place.api.management.get(CAPI, "Cluster", NAMESPACE, &names.cluster).is_none();
        place.until(|| format!("it is gone\n{}", conditions(&place)), gone).await;
        place.remove().await;
    });
}
