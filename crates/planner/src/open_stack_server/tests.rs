use serde_json::{Value, json};

use super::*;
use crate::cloud::{Lookup, PROJECT_ANNOTATION};
use crate::testing::{Fake, deleting, merge, object, planned, said, world};

fn own(spec: &Value) -> Value {
    let metadata = json!({ "finalizers": [FINALIZER], "annotations": { PROJECT_ANNOTATION: "p" } });
    let mut own = object(
        "infrastructure.cluster.x-k8s.io/v1alpha1",
        "OpenStackServer",
        "s",
        json!({ "metadata": metadata, "spec": {
            "flavor": "f", "image": { "id": "img" }, "sshKeyName": "", "identityRef": { "name": "x", "cloudName": "o" },
            "ports": [{ "network": { "id": "net" } }], "availabilityZone": "nova",
        } }),
    );
    merge(&mut own["spec"], spec);
    own
}

fn world_of(spec: &Value) -> World {
    let mut world: World = world(own(spec), vec![]);
    world.facts.cloud.project = "p".into();
    world.facts.spec = shared_spec(world.object());
    world.facts.resolved =
        Resolved { flavor: Lookup::Found("f".into()), image: Lookup::Found("img".into()), ..Resolved::default() };
    world
}

#[test]
fn om8_a_server_comes_with_what_its_spec_says_and_goes_without_a_trace() {
    let mut world = world_of(&json!({ "rootVolume": { "sizeGiB": 5 }, "trunk": true }));
    let mut fake = Fake::default();
    for _ in 0..4 {
        fake.pass(&mut world);
        crate::testing::cloud::settle(&mut fake.cloud);
        world.facts.cloud.resources = fake.cloud.clone();
    }
    let plan = fake.pass(&mut world);
    assert_eq!(said(&plan), "done", "{:?}", fake.done);
    assert_eq!(plan.status.unwrap()["ready"], true);
    assert_eq!(fake.done, ["create volume s-root", "create port s-0", "create trunk s-0", "create server s"]);
    let mut world = deleting(world, Some(FINALIZER));
    for _ in 0..4 {
        fake.pass(&mut world);
        crate::testing::cloud::settle(&mut fake.cloud);
        world.facts.cloud.resources = fake.cloud.clone();
    }
    let left = &fake.cloud;
    assert_eq!((left.servers.len(), left.trunks.len(), left.ports.len(), left.volumes.len()), (0, 0, 0, 0));
    assert!(world.object().finalizers().is_empty());
}

#[test]
fn what_a_server_cannot_do_is_said() {
    let pool = json!({ "floatingIPPoolRef": { "name": "p", "kind": "X", "apiGroup": "y" } });
    for (what, spec, expected) in [
        ("pool", pool, "blocked NotBuiltYet: spec.floatingIPPoolRef is not built yet for OpenStackServers"),
        (
            "no network",
            json!({ "ports": [{}] }),
            "blocked InvalidServerSpec: spec.ports[0].network must name a network",
        ),
        ("no ports", json!({ "ports": [] }), "blocked InvalidServerSpec: spec.ports must have a port at least"),
        (
            "no user-data",
            json!({ "userDataRef": { "name": "u" } }),
            "wait WaitingForUserData: there is no Secret n/u with a key value yet",
        ),
    ] {
        assert_eq!(said(&planned(&world_of(&spec))), expected, "{what}");
    }
    let mut world = world_of(&json!({ "userDataRef": { "name": "u" } }));
    world.facts.user_data = Some(UserData("#cloud-config".into()));
    assert_eq!(said(&planned(&world)), "create port s-0");
}
