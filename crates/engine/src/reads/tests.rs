use hangar_api::kinds::{self, Cluster, KamajiControlPlane, Machine, MachineSet};
use serde_json::json;

use super::*;

const SET: GroupKind = ("cluster.x-k8s.io", "MachineSet");
const MACHINE: GroupKind = ("cluster.x-k8s.io", "Machine");
const CLUSTER: GroupKind = ("cluster.x-k8s.io", "Cluster");
const STORE: GroupKind = ("kamaji.clastix.io", "DataStore");
const PLANE: GroupKind = ("controlplane.cluster.x-k8s.io", "KamajiControlPlane");

fn object<K: Kind>(name: &str, fields: Value) -> Object {
    let namespace = if K::KIND == "DataStore" { "" } else { "n" };
    let mut object = Object::named(&format!("{}/{}", K::GROUP, K::VERSION), K::KIND, namespace, name);
    object.0["metadata"]["uid"] = format!("{name}-uid").into();
    object.0["metadata"]["resourceVersion"] = "1".into();
    for (field, value) in fields.as_object().into_iter().flatten() {
        match field.as_str() {
            "metadata" => value
                .as_object()
                .into_iter()
                .flatten()
                .for_each(|(name, value)| object.0["metadata"][name] = value.clone()),
            _ => object.0[field] = value.clone(),
        }
    }
    object
}

fn store(object: &Object) -> Option<ObjectKey> {
    Some(references::data_store(object))
}

/// A Cluster with its control plane on a store, a set and two Machines, one of them of the set.
fn cache() -> Cache {
    let links = [(CLUSTER, Link::Reference("/spec/controlPlaneRef")), (PLANE, Link::Named(store))];
    let cache = Cache::new(links);
    let labels = json!({ "cluster.x-k8s.io/cluster-name": "c" });
    let owned = json!([{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "s", "uid": "s-uid", "controller": true }]);
    let reference = json!({ "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KamajiControlPlane", "name": "p" });
    for object in [
        object::<Cluster>("c", json!({ "spec": { "controlPlaneRef": reference } })),
        object::<KamajiControlPlane>(
            "p",
            json!({ "metadata": { "labels": labels }, "spec": { "dataStoreName": "d" } }),
        ),
        object::<kinds::DataStore>("d", json!({})),
        object::<MachineSet>("s", json!({ "metadata": { "labels": labels } })),
        object::<Machine>("m", json!({ "metadata": { "labels": labels, "ownerReferences": owned } })),
        object::<Machine>("alone", json!({ "metadata": { "labels": labels } })),
        object::<Machine>("foreign", json!({})),
    ] {
        cache.put(object);
    }
    for (group, kind) in [SET, MACHINE, CLUSTER, STORE, PLANE] {
        cache.set_listed(group, kind);
    }
    cache
}

fn get(cache: &Cache, (group, kind): GroupKind, name: &str) -> Arc<Object> {
    let namespace = if kind == "DataStore" { "" } else { "n" };
    cache.get(&ObjectKey::new(group, kind, namespace, name)).unwrap()
}

/// The change of a field.
fn changed(object: &Arc<Object>, pointer: &str, value: Value) -> Change {
    let mut new = (**object).clone();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    if new.0.pointer(parent).is_none() {
        new.0[parent.trim_start_matches('/')] = json!({});
    }
    new.0.pointer_mut(parent).unwrap()[field] = value;
    Change { key: object.key(), old: Some(object.clone()), new: Some(Arc::new(new)) }
}

const OWNER: Read = read(&[owner::<MachineSet>()], &["/spec/x"]);
const OWNED: Read = read(&[owned::<Machine>()], &["/spec/x"]);
const OF_CLUSTER: Read = read(&[cluster()], &["/spec/x"]);
const MEMBERS: Read = read(&[members::<Machine>()], &["/spec/x"]);
const REFERENCE: Read = read(&[reference("/spec/controlPlaneRef")], &["/spec/x"]);
const NAMED: Read = read(&[named("kamaji.clastix.io", "DataStore", store)], &["/spec/x"]);
const LINKED_BY: Read = read(&[linked_by::<KamajiControlPlane>()], &["/spec/x"]);
const TWO_HOPS: Read = read(&[cluster(), reference("/spec/controlPlaneRef")], &["/spec/x"]);

#[test]
fn every_hop_leads_there_and_back_again() {
    let cache = cache();
    // (hop, own kind, own object) -> what it leads to; and whose change wakes whom.
    for (what, read, own, from, to_kind, expected, concerned) in [
        ("owner", OWNER, MACHINE, "m", SET, vec!["s"], vec!["m"]),
        ("owned", OWNED, SET, "s", MACHINE, vec!["m"], vec!["s"]),
        ("cluster", OF_CLUSTER, MACHINE, "m", CLUSTER, vec!["c"], vec!["alone", "m"]),
        ("members", MEMBERS, SET, "s", MACHINE, vec!["alone", "m"], vec!["s"]),
        ("members of the Cluster itself", MEMBERS, CLUSTER, "c", MACHINE, vec!["alone", "m"], vec!["c"]),
        ("reference", REFERENCE, CLUSTER, "c", PLANE, vec!["p"], vec!["c"]),
        ("named", NAMED, PLANE, "p", STORE, vec!["d"], vec!["p"]),
        ("linked_by", LINKED_BY, STORE, "d", PLANE, vec!["p"], vec!["d"]),
        ("two hops", TWO_HOPS, MACHINE, "m", PLANE, vec!["p"], vec!["alone", "m"]),
    ] {
        let found = read.gather(&get(&cache, own, from), &cache).unwrap();
        assert_eq!(found.iter().map(|it| it.name()).collect::<Vec<_>>(), expected, "{what}, forwards");
        let change = changed(&get(&cache, to_kind, expected.last().unwrap()), "/spec/x", json!(1));
        let woken = read.concerned(own, &change, &cache);
        assert_eq!(woken.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), concerned, "{what}, backwards");
        let undeclared = changed(&get(&cache, to_kind, expected.last().unwrap()), "/spec/other", json!(1));
        assert_eq!(read.concerned(own, &undeclared, &cache), [], "{what}: a field that nobody declared wakes nobody");
    }
}

#[test]
fn neighbours_are_found_by_namespace_and_wake_nobody() {
    const NEIGHBOURS: Read = read(&[neighbours::<kinds::MachineDrainRule>()], &[]);
    let cache = Cache::new(NEIGHBOURS.links(MACHINE));
    let machine = Arc::new(object::<Machine>("m", json!({})));
    let near = object::<kinds::MachineDrainRule>("near", json!({}));
    cache.put(near.clone());
    cache.put(object::<kinds::MachineDrainRule>("far", json!({ "metadata": { "namespace": "other" } })));
    let found = NEIGHBOURS.gather(&machine, &cache).unwrap();
    assert_eq!(found.iter().map(|it| it.name()).collect::<Vec<_>>(), ["near"]);
    let comes = Change { key: near.key(), old: None, new: Some(Arc::new(near)) };
    assert_eq!(NEIGHBOURS.concerned(MACHINE, &comes, &cache), []);
}

#[test]
fn hops_lead_nowhere_where_there_is_nothing() {
    let cache = cache();
    let foreign = get(&cache, MACHINE, "foreign");
    for (what, read) in [
        ("owner", OWNER),
        ("cluster", OF_CLUSTER),
        ("members", MEMBERS),
        ("reference", REFERENCE),
        ("two hops", TWO_HOPS),
    ] {
        assert_eq!(read.gather(&foreign, &cache), Ok(vec![]), "{what}");
    }
}

#[test]
fn what_comes_begins_to_go_or_is_gone_always_counts() {
    let cache = cache();
    let set = get(&cache, SET, "s");
    let m = || vec![ObjectKey::of::<Machine>("n", "m")];
    let mut again = (*set).clone();
    again.0["metadata"]["uid"] = "other".into();
    for (what, change, expected) in [
        ("it comes", Change { key: set.key(), old: None, new: Some(set.clone()) }, m()),
        ("it is gone", Change { key: set.key(), old: Some(set.clone()), new: None }, m()),
        ("it begins to go", changed(&set, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")), m()),
        (
            "another one of the same name",
            Change { key: set.key(), old: Some(set.clone()), new: Some(Arc::new(again)) },
            m(),
        ),
        ("nothing", Change { key: set.key(), old: Some(set.clone()), new: Some(set.clone()) }, vec![]),
    ] {
        assert_eq!(OWNER.concerned(MACHINE, &change, &cache), expected, "{what}");
    }
}

#[test]
fn whoever_it_belonged_to_hears_of_it_too() {
    let cache = cache();
    let moved = json!([{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "t", "uid": "t-uid", "controller": true }]);
    let mut change = changed(&get(&cache, MACHINE, "m"), "/metadata/ownerReferences", moved);
    if let Some(new) = &mut change.new {
        Arc::make_mut(new).0["spec"] = json!({ "x": 1 });
    }
    let woken = OWNED.concerned(SET, &change, &cache);
    assert_eq!(woken.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["s", "t"]);
}

#[test]
fn a_condition_counts_with_its_status_alone() {
    const READY: Read = read(&[owned::<Machine>()], &["/status/conditions[Ready]"]);
    let cache = cache();
    let machine = get(&cache, MACHINE, "m");
    let with = |status: &str, message: &str| {
        let conditions =
            json!([{ "type": "Other", "status": "True" }, { "type": "Ready", "status": status, "message": message }]);
        changed(&machine, "/status/conditions", conditions).new.unwrap()
    };
    let change = |old, new| Change { key: machine.key(), old: Some(old), new: Some(new) };
    for (what, change, wakes) in [
        ("it comes", change(machine.clone(), with("False", "")), true),
        ("another status", change(with("False", ""), with("True", "")), true),
        ("other words", change(with("False", "a"), with("False", "b")), false),
    ] {
        assert_eq!(!READY.concerned(SET, &change, &cache).is_empty(), wakes, "{what}");
    }
    assert_eq!(field(&with("False", ""), "/status/conditions[Ready]"), "False");
    assert_eq!(field(&machine, "/status/conditions[Ready]"), &Value::Null);
}

#[test]
fn a_kind_that_has_not_been_listed_yet_is_not_taken_for_absent() {
    let cache = Cache::new([(CLUSTER, Link::Reference("/spec/controlPlaneRef"))]);
    let of = |kind: &str| {
        let reference = json!({ "apiGroup": "controlplane.cluster.x-k8s.io", "kind": kind, "name": "p" });
        Arc::new(object::<Cluster>("c", json!({ "spec": { "controlPlaneRef": reference } })))
    };
    let key = ObjectKey::of::<KamajiControlPlane>("n", "p");
    assert_eq!(REFERENCE.gather(&of("KamajiControlPlane"), &cache), Err(NotListed(key)));
    assert_eq!(REFERENCE.gather(&of("NobodyKnowsIt"), &cache), Ok(vec![]), "it is not watched, and will not be listed");
    cache.set_listed(PLANE.0, PLANE.1);
    assert_eq!(REFERENCE.gather(&of("KamajiControlPlane"), &cache), Ok(vec![]));
}

#[test]
fn links_are_those_that_reads_follow_from_the_kind_that_has_them() {
    assert_eq!(OWNER.links(MACHINE).len(), 0);
    let [(from, Link::Reference(pointer))] = TWO_HOPS.links(MACHINE)[..] else { panic!() };
    assert_eq!((from, pointer), (CLUSTER, "/spec/controlPlaneRef"));
    assert!(matches!(NAMED.links(PLANE)[..], [(PLANE, Link::Named(_))]));
}
