use super::*;
use crate::testing::{CORE, Fake, at, changed, cluster, merge, object, owner, planned, said, world};

const ADDONS: &str = "addons.cluster.x-k8s.io/v1beta2";

/// What a tenant answers that refuses what is called so.
pub fn answer(it: &Installation) -> TenantAnswer {
    let broken = it.objects.iter().filter(|object| object.name() == "broken");
    let problems = broken.map(|object| format!("{}: refused", object.key())).collect();
    TenantAnswer::Installed { resource: it.resource.clone(), problems, is_last: it.is_last }
}

fn set(name: &str, fields: Value) -> Value {
    let mut set = object(
        ADDONS,
        "ClusterResourceSet",
        name,
        json!({ "spec": {
            "strategy": "ApplyOnce", "clusterSelector": { "matchLabels": { "cni": "calico" } },
            "resources": [{ "kind": "ConfigMap", "name": "one" }],
        } }),
    );
    merge(&mut set, &fields);
    set
}

fn reconciled(name: &str) -> Value {
    set(name, json!({ "spec": { "strategy": "Reconcile" } }))
}

fn up() -> Value {
    cluster(json!({
        "metadata": { "labels": { "cni": "calico" } },
        "status": { "initialization": { "controlPlaneInitialized": true } },
    }))
}

fn manifest(hash: &str, names: &[&str]) -> Result<Arc<Manifest>, String> {
    let objects = names.iter().map(|name| Object::named("v1", "ConfigMap", "x", name)).collect();
    Ok(Arc::new(Manifest { hash: hash.to_owned(), objects: Ok(objects) }))
}

type Manifests = Vec<(&'static str, Result<Arc<Manifest>, String>)>;

fn bound(others: Vec<Value>, manifests: Manifests) -> World {
    let binding = object(
        ADDONS,
        "ClusterResourceSetBinding",
        "c",
        json!({ "metadata": { "ownerReferences": owner(CORE, "Cluster", "c") }, "spec": { "clusterName": "c" } }),
    );
    let mut world: World = world(binding, others);
    world.facts.tenant = Tenant::Answers;
    world.facts.manifests =
        manifests.into_iter().map(|(name, read)| (("ConfigMap".to_owned(), name.to_owned()), read)).collect();
    world
}

/// The next pass: what was done in the last one is only known from what was written.
fn next(mut world: World, manifests: Manifests) -> World {
    let now = world.facts.repaired.clone();
    world.facts = Facts { tenant: Tenant::Answers, repaired: now, ..Facts::default() };
    world.facts.manifests =
        manifests.into_iter().map(|(name, read)| (("ConfigMap".to_owned(), name.to_owned()), read)).collect();
    world
}

fn stood(world: &World, set: &str, name: &str) -> Value {
    binding::resource(binding::entry(world.object(), set), "ConfigMap", name).clone()
}

fn installs(fake: &Fake) -> usize {
    fake.done.iter().filter(|step| step.contains("Install")).count()
}

#[test]
fn r3_r4_what_is_applied_once_is_recorded_and_never_written_again() {
    let mut world = bound(vec![up(), set("cni", json!({}))], vec![("one", manifest("sha256:1", &["a", "b"]))]);
    let mut fake = Fake { now: 100, ..Fake::default() };
    assert_eq!(said(&fake.converge(&mut world)), "done");
    assert_eq!(fake.done[0], "c: Install(Install(2 objects of ConfigMap one of cni, once true))");
    let expected = json!({
        "kind": "ConfigMap", "name": "one", "applied": true, "hash": "sha256:1", "lastAppliedTime": "1970-01-01T00:01:40Z",
    });
    assert_eq!(stood(&world, "cni", "one"), expected);
    assert_eq!(may_be_due(&world), [], "nobody reads it again");
    // Another content makes no difference.
    let mut world = next(world, vec![("one", manifest("sha256:2", &["a"]))]);
    fake.now = 200;
    fake.converge(&mut world);
    assert_eq!((installs(&fake), stood(&world, "cni", "one")), (1, expected));
}

#[test]
fn r4_reconcile_writes_when_the_hash_differs_and_only_then() {
    let mut world = bound(vec![up(), reconciled("cni")], vec![("one", manifest("sha256:1", &["a"]))]);
    let mut fake = Fake::default();
    fake.converge(&mut world);
    assert_eq!(fake.done[0], "c: Install(Install(1 objects of ConfigMap one of cni, once false))");
    let mut world = next(world, vec![("one", manifest("sha256:1", &["a"]))]);
    fake.converge(&mut world);
    assert_eq!(installs(&fake), 1, "the same");
    let mut world = next(world, vec![("one", manifest("sha256:2", &["a"]))]);
    fake.converge(&mut world);
    assert_eq!((installs(&fake), stood(&world, "cni", "one")["hash"].as_str()), (2, Some("sha256:2")));
    // One that is gone is told of; in the cluster everything stays as it is.
    let mut world = next(world, vec![("one", Err("there is no ConfigMap n/one".into()))]);
    assert_eq!(said(&fake.converge(&mut world)), "done");
    assert_eq!((installs(&fake), stood(&world, "cni", "one")["applied"].as_bool()), (2, Some(true)));
    assert_eq!(binding::problems(world.object(), "cni")["ConfigMap/one"], "there is no ConfigMap n/one");
    let mut world = next(world, vec![("one", manifest("sha256:2", &["a"]))]);
    fake.converge(&mut world);
    assert!(binding::all_problems(world.object()).is_empty(), "it is there again");
}

#[test]
fn r5_it_waits_until_the_control_plane_answers() {
    let manifests = || vec![("one", manifest("sha256:1", &["a"]))];
    let fresh = cluster(json!({ "metadata": { "labels": { "cni": "calico" } } }));
    let with = |tenant: Tenant| {
        let mut world = bound(vec![up(), set("cni", json!({}))], manifests());
        world.facts.tenant = tenant;
        world
    };
    let rows = [
        (
            bound(vec![fresh, set("cni", json!({}))], manifests()),
            "wait WaitingForControlPlane: the control plane is not initialized yet",
        ),
        (with(Tenant::Silent), "wait WaitingForControlPlane: the control plane does not answer"),
        (with(Tenant::Refused("no".into())), "blocked InvalidKubeconfig: no"),
        (bound(vec![], vec![]), "wait WaitingForCluster: its Cluster is not there"),
    ];
    for (world, expected) in rows {
        assert_eq!(said(&planned(&world)), expected);
    }
    let another = object(CORE, "Cluster", "c", json!({ "metadata": { "uid": "later" } }));
    assert!(said(&planned(&bound(vec![another], vec![]))).starts_with("wait NotOurs"));
}

#[test]
fn r7_one_bad_resource_does_not_stop_the_others() {
    let two = json!({ "spec": { "resources": [
        { "kind": "ConfigMap", "name": "gone" }, { "kind": "ConfigMap", "name": "bad" }, { "kind": "ConfigMap", "name": "one" },
    ] } });
    let manifests = || -> Manifests {
        vec![
            ("gone", Err("there is no ConfigMap n/gone".into())),
            ("bad", manifest("sha256:2", &["broken"])),
            ("one", manifest("sha256:1", &["a"])),
        ]
    };
    // An empty selector says nothing about others, wherever it stands.
    let empty = set("a", json!({ "spec": { "clusterSelector": { "matchLabels": null } } }));
    let mut world = bound(vec![up(), empty, set("cni", two)], manifests());
    let mut fake = Fake::default();
    let plan = fake.converge(&mut world);
    assert_eq!(said(&plan), "blocked NotApplied: ConfigMap x/broken: refused");
    let applied = |name: &str| stood(&world, "cni", name)["applied"].as_bool();
    assert_eq!((applied("one"), applied("bad"), applied("gone")), (Some(true), Some(false), Some(false)));
    let problems = binding::problems(world.object(), "cni");
    assert_eq!(problems["ConfigMap/gone"], "there is no ConfigMap n/gone");
    assert_eq!(problems["ConfigMap/bad"], "ConfigMap x/broken: refused");
    let mut world = next(world, manifests());
    fake.done.clear();
    fake.converge(&mut world);
    assert_eq!(
        fake.done,
        ["c: Install(Install(1 objects of ConfigMap bad of cni, once true))"],
        "that one, and nothing is written"
    );
}

#[test]
fn r8_drift_is_repaired_only_if_asked_for() {
    let manifests = || vec![("one", manifest("sha256:1", &["a"]))];
    let repaired = |strategy: &str| {
        set(
            "cni",
            json!({ "metadata": { "annotations": { REPAIR_ANNOTATION: "10m" } }, "spec": { "strategy": strategy } }),
        )
    };
    for (set, again) in [(reconciled("cni"), false), (repaired("ApplyOnce"), false), (repaired("Reconcile"), true)] {
        let mut world = bound(vec![up(), set], manifests());
        let mut fake = Fake::default();
        fake.converge(&mut world);
        let resource = Resource { set: "cni".into(), kind: "ConfigMap".into(), name: "one".into() };
        world.facts.repaired.insert(resource, at(0));
        let mut world = next(world, manifests());
        fake.now = 300;
        let plan = fake.pass(&mut world);
        assert_eq!(installs(&fake), 1);
        assert_eq!(plan.recheck, again.then_some(Duration::from_secs(301)));
        fake.now = 601;
        let before = world.object().clone();
        fake.pass(&mut world);
        assert_eq!((installs(&fake), world.object() == &before), (if again { 2 } else { 1 }, true));
    }
}

#[test]
fn many_objects_are_applied_in_parts() {
    let names: Vec<String> = (0..45).map(|number| format!("m{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = bound(vec![up(), set("cni", json!({}))], vec![("one", manifest("sha256:1", &names))]);
    let mut fake = Fake::default();
    fake.converge(&mut world);
    let sizes: Vec<bool> =
        ["(20 ", "(20 ", "(5 "].iter().zip(&fake.done).map(|(size, step)| step.contains(size)).collect();
    assert_eq!((sizes, fake.done.len()), (vec![true; 3], 4), "{:?}", fake.done);
}

#[test]
fn r6_entries_of_sets_that_are_gone_go_and_an_empty_binding_with_them() {
    let entry = |set: &str| json!({ "clusterResourceSetName": set, "resources": [] });
    let with =
        |entries: Value, others: Vec<Value>| changed(bound(others, vec![]), |it| it["spec"]["bindings"] = entries);
    let unselected = || set("cni", json!({ "spec": { "clusterSelector": { "matchLabels": { "x": "y" } } } }));
    let rows = [
        (with(json!([entry("gone")]), vec![up()]), "delete ClusterResourceSetBinding n/c"),
        (with(json!([]), vec![up()]), "delete ClusterResourceSetBinding n/c"),
        // What was applied once stays known when the Cluster's labels change.
        (with(json!([entry("cni")]), vec![up(), unselected()]), "done"),
    ];
    for (world, expected) in rows {
        assert_eq!(said(&planned(&world)), expected);
    }
    let both = with(json!([entry("gone"), entry("cni")]), vec![up(), unselected()]);
    assert!(said(&planned(&both)).contains(r#""bindings":[{"clusterResourceSetName":"cni""#));
    let going = set("cni", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    assert_eq!(said(&planned(&with(json!([entry("cni")]), vec![up(), going]))), "done", "it takes out its own");
}
