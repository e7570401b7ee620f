use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::cloud::Resource;
use crate::testing::{Fake, deleting, object, planned, said, world};

const INFRA: &str = "infrastructure.cluster.x-k8s.io/v1alpha1";
const IPAM: &str = "ipam.cluster.x-k8s.io/v1beta2";

fn pool(spec: Value) -> Value {
    let annotations = json!({ crate::cloud::PROJECT_ANNOTATION: "p" });
    let mut pool = object(
        INFRA,
        "OpenStackFloatingIPPool",
        "pool",
        json!({ "metadata": { "finalizers": [FINALIZER], "annotations": annotations }, "spec": { "reclaimPolicy": "Delete" } }),
    );
    crate::testing::merge(&mut pool["spec"], &spec);
    pool
}

fn claim(name: &str) -> Value {
    object(
        IPAM,
        "IPAddressClaim",
        name,
        json!({ "spec": { "poolRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackFloatingIPPool", "name": "pool" } } }),
    )
}

fn address(name: &str, address: &str) -> Value {
    let owners = json!([{ "apiVersion": IPAM, "kind": "IPAddressClaim", "name": name, "uid": format!("{name}-uid"), "controller": true }]);
    object(
        IPAM,
        "IPAddress",
        name,
        json!({ "metadata": { "ownerReferences": owners }, "spec": { "address": address } }),
    )
}

fn made(id: &str, claim: &str, address: &str) -> Resource {
    let key = OwnerKey::new("", "pool-uid", &format!("claim-{claim}-uid"));
    let description = key.describe("x");
    Resource::FloatingIp(Arc::new(FloatingIp {
        id: id.into(),
        floating_ip_address: address.into(),
        description,
        ..FloatingIp::default()
    }))
}

fn world_of(spec: Value, others: Vec<Value>, there: Vec<Resource>) -> World {
    let mut world: World = world(pool(spec), others);
    world.facts.cloud.project = "p".into();
    world.facts.network = Some(Network { id: "ext".into(), name: "public".into(), ..Network::default() });
    world.facts.lookup = Lookup::Found("ext".into());
    there.into_iter().for_each(|resource| world.facts.cloud.resources.insert(resource));
    world
}

#[test]
fn om6_each_claim_gets_one_address_and_what_nobody_claims_goes_back() {
    let retain = json!({ "reclaimPolicy": "Retain" });
    let brought = json!({ "preAllocatedFloatingIPs": ["1.1.1.1", "1.1.1.2"] });
    for (what, spec, others, there, expected) in [
        ("no claims", json!({}), vec![], vec![], "done"),
        ("one", json!({}), vec![claim("a")], vec![], "create floating IP in ext"),
        ("made before", json!({}), vec![claim("a")], vec![made("f", "a", "9.9.9.1")], "create IPAddress n/a"),
        ("has it", json!({}), vec![claim("a"), address("a", "9.9.9.1")], vec![made("f", "a", "9.9.9.1")], "done"),
        (
            "a second one",
            json!({}),
            vec![claim("a"), address("a", "9.9.9.1"), claim("b")],
            vec![made("f", "a", "9.9.9.1")],
            "create floating IP in ext",
        ),
        (
            "has it, and a lost answer made another one",
            json!({}),
            vec![claim("a"), address("a", "9.9.9.1")],
            vec![made("f", "a", "9.9.9.1"), made("g", "a", "9.9.9.2")],
            "delete FloatingIp g",
        ),
        (
            "its claim is gone",
            json!({}),
            vec![address("a", "9.9.9.1")],
            vec![made("f", "a", "9.9.9.1")],
            "delete IPAddress n/a",
        ),
        ("and the address, too", json!({}), vec![], vec![made("f", "a", "9.9.9.1")], "delete FloatingIp f"),
        ("kept for the next one", retain.clone(), vec![], vec![made("f", "a", "9.9.9.1")], "done"),
        ("which comes", retain, vec![claim("b")], vec![made("f", "a", "9.9.9.1")], "create IPAddress n/b"),
        ("brought by the user", brought.clone(), vec![claim("a")], vec![], "create IPAddress n/a"),
        ("brought, and never deleted", brought.clone(), vec![], vec![], "done"),
        (
            "all that were brought are taken",
            brought,
            vec![claim("a"), address("a", "1.1.1.1"), claim("b"), address("b", "1.1.1.2"), claim("c")],
            vec![],
            "create floating IP in ext",
        ),
        (
            "no more are allowed",
            json!({ "maxIPs": 1 }),
            vec![claim("a"), address("a", "9.9.9.1"), claim("b")],
            vec![made("f", "a", "9.9.9.1")],
            "blocked PoolExhausted: 1 claims have no address: all of the 1 that spec.maxIPs allows are taken",
        ),
    ] {
        let mut world = world_of(spec, others, there);
        world.facts.brought = ["1.1.1.1", "1.1.1.2"].map(str::to_owned).into();
        assert_eq!(said(&planned(&world)), expected, "{what}");
    }
}

#[test]
fn an_address_belongs_to_its_claim_and_names_the_pool() {
    let plan = planned(&world_of(json!({}), vec![claim("a")], vec![made("f", "a", "9.9.9.1")]));
    let [Step::Create(object)] = &plan.steps[..] else { panic!("{plan:?}") };
    assert_eq!(object.controller().unwrap().uid, "a-uid");
    assert!(object.is_owned_by("pool-uid"));
    assert_eq!(object.get("/spec/address"), "9.9.9.1");
    assert_eq!(object.get("/spec/claimRef/name"), "a");
}

#[test]
fn several_claims_get_several_addresses_in_one_pass() {
    let mut world = world_of(json!({}), vec![claim("a"), claim("b"), claim("c")], vec![]);
    let mut fake = Fake::default();
    fake.pass(&mut world);
    assert_eq!(fake.cloud.floating_ips.len(), 3, "{:?}", fake.done);
    assert_eq!(world.all::<IPAddress>().count(), 3);
}

#[test]
fn a_pool_waits_for_its_claims_and_leaves_what_is_to_be_retained() {
    let retain = json!({ "reclaimPolicy": "Retain" });
    let released = r#"patch OpenStackFloatingIPPool n/pool {"metadata":{"finalizers":[]}}"#;
    for (what, spec, others, there, expected) in [
        (
            "claimed",
            json!({}),
            vec![claim("a")],
            vec![],
            "wait WaitingForClaims: waiting for 1 IPAddressClaims to be deleted",
        ),
        ("unclaimed", json!({}), vec![], vec![made("f", "a", "9.9.9.1")], "delete FloatingIp f"),
        ("retained", retain, vec![], vec![made("f", "a", "9.9.9.1")], released),
        ("empty", json!({}), vec![], vec![], released),
    ] {
        assert_eq!(said(&planned(&deleting(world_of(spec, others, there), Some(FINALIZER)))), expected, "{what}");
    }
}

#[test]
fn the_status_says_who_has_what_and_what_is_missing() {
    let spec = json!({ "preAllocatedFloatingIPs": ["1.1.1.1", "1.1.1.9"] });
    let mut world = world_of(spec, vec![claim("a"), address("a", "9.9.9.1")], vec![made("f", "a", "9.9.9.1")]);
    world.facts.brought = ["1.1.1.1".to_owned()].into();
    let status = planned(&world).status.unwrap();
    assert_eq!(status["claimedIPs"], json!(["9.9.9.1"]));
    assert_eq!(status["availableIPs"], json!(["1.1.1.1"]));
    assert_eq!(status["failedIPs"], json!(["1.1.1.9"]));
    assert_eq!(status["floatingIPNetwork"]["name"], "public");
    assert!(status["conditions"].to_string().contains("the project has no floating IP 1.1.1.9"));
}
