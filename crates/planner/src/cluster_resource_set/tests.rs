use serde_json::{Value, json};

use super::*;
use crate::testing::{CORE, Fake, cluster, condition, deleting, merge, object, owner, planned, said, world};

const ADDONS: &str = "addons.cluster.x-k8s.io/v1beta2";

fn set(fields: Value) -> Value {
    let mut set = object(
        ADDONS,
        "ClusterResourceSet",
        "cni",
        json!({ "spec": {
            "clusterSelector": { "matchLabels": { "cni": "calico" } },
            "resources": [{ "kind": "ConfigMap", "name": "calico" }],
        } }),
    );
    merge(&mut set, &fields);
    set
}

fn labelled(fields: Value) -> Value {
    let mut cluster = cluster(json!({ "metadata": { "labels": { "cni": "calico" } } }));
    merge(&mut cluster, &fields);
    cluster
}

fn binding(spec: Value, problems: Value) -> Value {
    let mut binding = object(
        ADDONS,
        "ClusterResourceSetBinding",
        "c",
        json!({ "metadata": { "ownerReferences": owner(CORE, "Cluster", "c") }, "spec": spec }),
    );
    if !problems.is_null() {
        binding["metadata"]["annotations"] = json!({ binding::PROBLEMS_ANNOTATION: problems.to_string() });
    }
    binding
}

fn entry(set: &str, applied: bool) -> Value {
    let resource = json!({ "kind": "ConfigMap", "name": "calico", "applied": applied, "hash": "sha256:00" });
    json!({ "clusterResourceSetName": set, "resources": [resource] })
}

fn bound(entries: Value) -> Value {
    binding(json!({ "clusterName": "c", "bindings": entries }), Value::Null)
}

#[test]
fn r1_a_set_selects_clusters_of_its_namespace_and_with_an_empty_selector_none() {
    let elsewhere = labelled(json!({ "metadata": { "namespace": "other" } }));
    let rows = [
        (set(json!({})), labelled(json!({})), true),
        (set(json!({})), cluster(json!({})), false),
        (set(json!({})), elsewhere, false),
        (set(json!({})), labelled(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })), false),
        (set(json!({})), labelled(json!({ "spec": { "paused": true } })), false),
        (set(json!({ "spec": { "clusterSelector": { "matchLabels": null } } })), labelled(json!({})), false),
    ];
    for (set, cluster, selected) in rows {
        let plan = planned(&world::<ClusterResourceSets>(set, vec![cluster]));
        let expected = if selected { "patch ClusterResourceSet n/cni" } else { "done" };
        assert!(said(&plan).starts_with(expected), "{}", said(&plan));
    }
}

/// R3: the finalizer comes before the first binding.
#[test]
fn r3_a_selected_cluster_gets_a_binding_of_its_name() {
    let mut world = world::<ClusterResourceSets>(set(json!({})), vec![labelled(json!({}))]);
    let mut fake = Fake::default();
    let plan = fake.converge(&mut world);
    assert_eq!(fake.done[1..], ["create ClusterResourceSetBinding n/c"]);
    assert_eq!(world.object().finalizers(), [FINALIZER]);
    let binding = binding_of(&world, "c").unwrap();
    assert!(binding.is_owned_by("c-uid") && binding.text("/spec/clusterName") == "c");
    let (status, reason, message) = condition(&plan, APPLIED).unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "WaitingForControlPlane"));
    assert_eq!(message, "Cluster c: waiting for its control plane");
}

#[test]
fn r5_the_condition_says_what_is_applied_and_what_is_not() {
    let problems = json!({ "cni": { "ConfigMap/calico": "there is no ConfigMap n/calico" }, "other": { "x": "y" } });
    let foreign = object(ADDONS, "ClusterResourceSetBinding", "c", json!({ "spec": { "clusterName": "c" } }));
    let spec = json!({ "clusterName": "c", "bindings": [entry("cni", true)] });
    let rows = [
        (bound(json!([entry("cni", true)])), "True Applied "),
        (bound(json!([entry("cni", false)])), "False WaitingForControlPlane Cluster c: waiting for its control plane"),
        (bound(json!([entry("other", true)])), "False WaitingForControlPlane Cluster c: waiting for its control plane"),
        (binding(spec, problems), "False NotApplied Cluster c: there is no ConfigMap n/calico"),
        (
            foreign,
            "False NotApplied Cluster c: ClusterResourceSetBinding n/c exists and was not made by Hangar: rename or delete it",
        ),
    ];
    for (binding, expected) in rows {
        let plan = planned(&world::<ClusterResourceSets>(set(json!({})), vec![labelled(json!({})), binding]));
        let (status, reason, message) = condition(&plan, APPLIED).unwrap();
        assert_eq!(format!("{status} {reason} {message}"), expected);
    }
    let empty = set(json!({ "spec": { "clusterSelector": { "matchLabels": null } } }));
    let plan = planned(&world::<ClusterResourceSets>(empty, vec![]));
    assert_eq!(condition(&plan, APPLIED).unwrap().1, "NoClusterSelected");
}

#[test]
fn r6_a_set_that_goes_takes_its_entries_out_of_bindings() {
    let going = |others: Vec<Value>| deleting(world::<ClusterResourceSets>(set(json!({})), others), Some(FINALIZER));
    let mut world = going(vec![labelled(json!({})), bound(json!([entry("cni", true), entry("other", true)]))]);
    Fake::default().pass(&mut world);
    assert_eq!(binding_of(&world, "c").unwrap().get("/spec/bindings"), &json!([entry("other", true)]));
    assert!(world.object().finalizers().is_empty());
    let mut world = going(vec![labelled(json!({})), bound(json!([entry("cni", true)]))]);
    Fake::default().pass(&mut world);
    assert!(binding_of(&world, "c").is_none(), "nothing is left in it");
    let paused = labelled(json!({ "spec": { "paused": true } }));
    let plan = planned(&going(vec![paused, bound(json!([entry("cni", true)]))]));
    assert_eq!(said(&plan), "wait WaitingForPausedClusters: waiting for bindings of paused Clusters: c");
    let plan = planned(&going(vec![labelled(json!({})), bound(json!([entry("other", true)]))]));
    assert!(said(&plan).contains("\"finalizers\":[]"), "{}", said(&plan));
}

#[test]
fn a_condition_names_a_few_clusters_and_counts_the_others() {
    assert_eq!(listed(vec!["a".into(), "b".into(), "c".into()]), "a; b; c");
    assert_eq!(listed(["a", "b", "c", "d", "e"].map(str::to_owned).to_vec()), "a; b; c; and 2 more");
}
