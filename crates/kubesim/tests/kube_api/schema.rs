//! What the schemas of our kinds do to objects.

use kube::api::*;
use serde_json::{Value, json};

use crate::place::{Place, apply, cluster, object, refusal};

#[tokio::test]
async fn unknown_fields_are_dropped_but_an_error_when_applied() {
    let place = Place::new("unknown").await;
    let mut strange = cluster("c");
    strange.data["spec"]["typo"] = 1.into();
    let made = place.clusters().create(&PostParams::default(), &strange).await.unwrap();
    assert_eq!(made.data["spec"].get("typo"), None);
    let answer = place.clusters().patch("c", &apply("one"), &Patch::Apply(&strange)).await;
    assert_eq!(refusal(answer).0, 500);
    let status = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "status": {"typo": 1}});
    let answer = place.clusters().patch_status("c", &apply("one"), &Patch::Apply(&status)).await;
    assert_eq!(refusal(answer).0, 500);
    let body = Patch::Merge(json!({"status": {"phase": "Failed", "typo": 1}}));
    let patched = place.clusters().patch_status("c", &PatchParams::default(), &body).await.unwrap();
    assert_eq!(patched.data["status"].get("typo"), None);
}

#[tokio::test]
async fn what_the_schema_forbids_is_invalid() {
    let place = Place::new("invalid").await;
    place.clusters().create(&PostParams::default(), &cluster("c")).await.unwrap();
    let rows = [
        json!({"status": {"phase": "NoSuchPhase"}}),
        json!({"status": {"observedGeneration": "one"}}),
        json!({"status": {"conditions": [{"type": "A"}]}}),
        json!({"status": {"initialization": "yes"}}),
    ];
    for body in rows {
        let answer = place.clusters().patch_status("c", &PatchParams::default(), &Patch::Merge(&body)).await;
        assert_eq!(refusal(answer), (422, "Invalid".into()), "{body}");
    }
    let without =
        object(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "d"}}));
    assert_eq!(refusal(place.clusters().create(&PostParams::default(), &without).await), (422, "Invalid".into()));
}

#[tokio::test]
async fn defaults_are_filled_in() {
    let place = Place::new("defaults").await;
    let clusters = place.api("infrastructure.cluster.x-k8s.io", "v1beta1", "OpenStackCluster");
    let written: Value = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "OpenStackCluster", "metadata": {"name": "c"},
        "spec": {"identityRef": {"name": "a", "cloudName": "b"}, "managedSecurityGroups": {}},
    });
    let made = clusters.create(&PostParams::default(), &object(written)).await.unwrap();
    assert_eq!(made.data["spec"]["managedSecurityGroups"]["allowAllInClusterTraffic"], false);
    assert_eq!(made.data["spec"]["identityRef"]["type"], "Secret");
}
