//! A plane is new once, comes back as it was, and lives beside others.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;

use plane::Plane;
use serde_json::Value;

fn definitions(plane: &Plane) -> Vec<Value> {
    let listed = plane.get("customresourcedefinitions");
    listed["items"].as_array().expect("definitions are listed").clone()
}

fn versions(definitions: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    definitions.iter().map(|one| (text(&one["metadata"]["name"]), text(&one["metadata"]["resourceVersion"]))).collect()
}

/// The API server must find nothing to write about definitions that it was given, and ours must stay ours.
#[test]
fn a_new_plane_has_its_definitions_from_the_start_and_keeps_them() {
    let plane = Plane::new();
    plane.ok(&["up"]);
    let first = definitions(&plane);
    assert_eq!(first.len(), hangar_api::crds::definitions(None).len());
    for definition in &first {
        let (name, metadata) = (&definition["metadata"]["name"], &definition["metadata"]);
        assert_eq!(metadata["generation"], 1, "{name} was written again");
        let revision: usize = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(revision <= first.len() + 1, "{name} was written again, at {revision}");
    }

    plane.ok(&["down"]);
    plane.ok(&["up"]);
    assert_eq!(versions(&definitions(&plane)), versions(&first), "a start without a change wrote definitions");

    let name = "customresourcedefinitions/machinesets.cluster.x-k8s.io";
    plane.kubectl(&["patch", name, "--type=merge", "-p", r#"{"spec":{"names":{"shortNames":["theirs"]}}}"#]);
    plane.ok(&["down"]);
    plane.ok(&["up"]);
    let mended = plane.get(name);
    assert_eq!(mended["spec"]["names"]["shortNames"], serde_json::json!(["ms"]), "a foreign change stayed");
    assert_eq!(mended["metadata"]["generation"], 3);
    plane.kubectl(&["get", "ms,kcp,osm,m3m"]);
}
