//! Everything that control planes render to: a reviewer sees here what a change does to users.

use hangar_api::Object;
use serde_json::{Value, json};

use super::tests::{World, run, world};
use crate::kamaji_control_plane::tests::model;
use crate::testing::Fake;

/// Without what the API server adds, and without keys.
fn plain(object: &Object) -> Value {
    let mut object = object.0.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        ["uid", "resourceVersion", "generation", "creationTimestamp"]
            .iter()
            .for_each(|field| drop(metadata.remove(*field)));
    }
    object.as_object_mut().into_iter().for_each(|object| drop(object.remove("status")));
    if object["kind"] == "Secret" {
        for value in object["data"].as_object_mut().into_iter().flat_map(|data| data.values_mut()) {
            *value = "...".into();
        }
    }
    object
}

fn text(objects: impl Iterator<Item = Value>) -> String {
    objects.map(|object| format!("{object:#}\n")).collect::<Vec<_>>().join("---\n")
}

/// The objects in the management cluster.
fn rendered(spec: Value) -> (World, String) {
    let (mut world, mut fake) = (world(spec), Fake::default());
    run(&mut world, &mut fake);
    let kinds = [("", "Service"), ("", "Secret"), ("", "ConfigMap"), ("apps", "Deployment")];
    let objects = kinds.iter().flat_map(|(group, kind)| world.objects.of_kind(group, kind)).map(plain);
    let text = text(objects);
    (world, text)
}

/// The objects in the tenant.
fn tenant(world: &World) -> String {
    let addresses = super::addresses(world.named("", "Service", "p")).unwrap();
    text(super::tenant::objects(&model(world), &addresses, "the authority's certificate").iter().map(plain))
}

fn variant() -> Value {
    json!({ "addons": { "coreDNS": null, "kubeProxy": null, "konnectivity": { "server": {}, "agent": {} } }, "network": { "serviceType": "NodePort" },
        "registry": "mirror.example.org", "apiServer": { "extraArgs": ["--cloud-provider=external"], "resources": { "requests": { "cpu": "1" } } },
        "deployment": { "nodeSelector": { "pool": "planes" } } })
}

#[test]
fn what_a_control_plane_renders_to() {
    insta::assert_snapshot!(rendered(json!({})).1);
}

#[test]
fn what_a_control_plane_puts_into_its_tenant() {
    insta::assert_snapshot!(tenant(&rendered(json!({})).0));
}

#[test]
fn what_a_control_plane_with_konnectivity_and_a_node_port_renders_to() {
    insta::assert_snapshot!(rendered(variant()).1);
}

#[test]
fn what_a_control_plane_with_konnectivity_and_without_add_ons_puts_into_its_tenant() {
    insta::assert_snapshot!(tenant(&rendered(variant()).0));
}
