use serde_json::{Value, json};

use super::*;
use crate::machine::Machines;
use crate::testing::{CORE, changed, cluster, object, owner, shared, world};
use hangar_api::kinds::{Machine, MachineSet};

fn own(fields: Value) -> Value {
    let mut own = object(
        CORE,
        "Machine",
        "m",
        json!({ "spec": { "clusterName": "c", "bootstrap": {} }, "metadata": { "ownerReferences": owner(CORE, "MachineSet", "s") } }),
    );
    crate::testing::merge(&mut own, &fields);
    own
}

#[test]
fn an_owner_is_the_one_with_its_uid_not_another_one_of_the_same_name() {
    let set = |uid: &str| object(CORE, "MachineSet", "s", json!({ "metadata": { "uid": uid } }));
    for (uid, found) in [("s-uid", true), ("another", false)] {
        let world = world::<Machines>(own(json!({})), vec![set(uid)]);
        assert_eq!(world.owner::<MachineSet>().is_some(), found, "{uid}");
        assert_eq!(world.owner::<Machine>().map(Object::name), None);
    }
}

#[test]
fn what_a_step_brought_back_replaces_what_was_known() {
    let mut world = world::<Machines>(own(json!({})), vec![cluster(json!({}))]);
    world.absorb(&Effect::Applied(shared(own(json!({ "spec": { "providerID": "p" } })))));
    assert_eq!(
        (world.object().text("/spec/providerID"), world.typed().spec.provider_id.as_deref()),
        ("p", Some("p")),
        "raw and typed together"
    );
    world.absorb(&Effect::Applied(shared(own(json!({ "spec": { "clusterName": 5 } })))));
    assert_eq!(
        world.object().text("/spec/providerID"),
        "p",
        "an answer that does not fit the kind is no reason to forget"
    );
    let other = object("v1", "ConfigMap", "x", json!({}));
    world.absorb(&Effect::Applied(shared(other.clone())));
    assert!(world.named("", "ConfigMap", "x").is_some());
    let key = Object(other.clone()).key();
    let going = changed_deletion(other);
    world.absorb(&Effect::Deleted { key: key.clone(), left: Some(shared(going.clone())) });
    assert!(world.named("", "ConfigMap", "x").is_some_and(Object::is_deleting));
    world.absorb(&Effect::Deleted { key: key.clone(), left: None });
    world.absorb(&Effect::Deleted { key, left: Some(shared(going)) });
    assert!(world.named("", "ConfigMap", "x").is_none(), "what was not in the World is not put there by its deletion");
}

fn changed_deletion(mut value: Value) -> Value {
    value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    value
}

#[test]
fn references_are_resolved_by_group_and_kind_whatever_version_the_object_has() {
    let reference = json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackMachine", "name": "m" });
    for version in ["v1alpha7", "v1beta1", "v1beta2"] {
        let target = object(&format!("infrastructure.cluster.x-k8s.io/{version}"), "OpenStackMachine", "m", json!({}));
        let world = changed(world::<Machines>(own(json!({})), vec![target]), |own| {
            own["spec"]["infrastructureRef"] = reference.clone()
        });
        assert!(world.referenced("/spec/infrastructureRef").is_some(), "{version}");
    }
    let foreign = object("example.org/v1", "OpenStackMachine", "m", json!({}));
    let world = changed(world::<Machines>(own(json!({})), vec![foreign]), |own| {
        own["spec"]["infrastructureRef"] = reference.clone()
    });
    assert!(world.referenced("/spec/infrastructureRef").is_none());
}

#[test]
fn objects_of_a_kind_are_those_and_no_others() {
    let machine = |group: &str, name: &str| shared(object(&format!("{group}/v1"), "Machine", name, json!({})));
    let objects: Objects = [
        machine("cluster.x-k8s.io", "b"),
        machine("cluster.x-k8s.io", "a"),
        machine("example.org", "c"),
        shared(object(CORE, "MachineSet", "s", json!({}))),
    ]
    .into_iter()
    .collect();
    let names: Vec<&str> = objects.of_kind("cluster.x-k8s.io", "Machine").map(Object::name).collect();
    assert_eq!(names, ["a", "b"]);
}
