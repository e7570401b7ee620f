use hangar_api::kinds;
use hangar_api::names::CLUSTER_NAME_LABEL;

use super::*;

fn secret(uid: &str, version: u64) -> Object {
    let mut object = Object::named("v1", "Secret", "default", "s");
    object.0["metadata"]["uid"] = uid.into();
    object.0["metadata"]["resourceVersion"] = version.to_string().into();
    object.0["metadata"]["labels"] = serde_json::json!({ CLUSTER_NAME_LABEL: "c" });
    object
}

#[test]
fn old_news_is_no_news() {
    let cache = Cache::default();
    assert!(cache.put(secret("a", 5)).is_some());
    assert!(cache.put(secret("a", 5)).is_none());
    assert!(cache.put(secret("a", 4)).is_none());
    assert!(cache.put(secret("a", 6)).is_some());
}

#[test]
fn what_is_deleted_does_not_come_back_but_its_successor_does() {
    let cache = Cache::default();
    cache.put(secret("a", 5));
    cache.remove(&secret("a", 7));
    assert!(cache.put(secret("a", 6)).is_none());
    assert!(cache.put(secret("b", 8)).is_some());
    // A late deletion event of the first one does not touch the second.
    assert!(cache.remove(&secret("a", 9)).is_none());
}

#[test]
fn indexes_follow_the_objects() {
    let cache = Cache::default();
    cache.put(secret("a", 1));
    assert_eq!(cache.of_cluster("default", "c", "", "Secret").len(), 1);
    cache.remove(&secret("a", 2));
    assert!(cache.of_cluster("default", "c", "", "Secret").is_empty());
}

#[test]
fn kinds_of_the_same_name_are_told_apart_by_their_group() {
    let cache = Cache::default();
    for group in ["cluster.x-k8s.io", "k0smotron.io"] {
        let mut object = Object::named(&format!("{group}/v1beta1"), "Cluster", "default", "c");
        object.0["metadata"]["resourceVersion"] = "1".into();
        object.0["metadata"]["labels"] = serde_json::json!({ CLUSTER_NAME_LABEL: "c" });
        object.0["metadata"]["ownerReferences"] =
            serde_json::json!([{ "apiVersion": "x/v1", "kind": "X", "name": "x", "uid": "x" }]);
        cache.put(object);
    }
    assert_eq!(cache.of_cluster("default", "c", "k0smotron.io", "Cluster").len(), 1);
    assert_eq!(cache.owned_by("x", "cluster.x-k8s.io", "Cluster").len(), 1);
    assert_eq!(cache.owned_by("x", "other.io", "Cluster").len(), 0);
}

#[test]
fn whoever_refers_is_found_under_what_it_refers_to_now() {
    let store: fn(&Object) -> Option<ObjectKey> = |plane| Some(references::data_store(plane));
    let kind = ("controlplane.cluster.x-k8s.io", "KamajiControlPlane");
    let cache = Cache::new([(kind, Link::Named(store))]);
    let plane = |version: u64, store: &str| {
        let mut plane = Object::named("controlplane.cluster.x-k8s.io/v1alpha2", "KamajiControlPlane", "n", "p");
        plane.0["metadata"]["resourceVersion"] = version.to_string().into();
        plane.0["spec"] = serde_json::json!({ "dataStoreName": store });
        plane
    };
    let users = |store: &str| cache.linking_to(&ObjectKey::of::<kinds::DataStore>("", store)).len();
    cache.put(plane(1, "a"));
    assert_eq!((users("a"), users("b")), (1, 0));
    cache.put(plane(2, "b"));
    assert_eq!((users("a"), users("b")), (0, 1));
    cache.remove(&plane(3, "b"));
    assert!(cache.inner().by_link.is_empty());
}

#[test]
fn tombstones_are_not_kept_for_ever() {
    let cache = Cache::default();
    for number in 0..TOMBSTONES + 10 {
        let mut gone = secret("a", 1);
        gone.0["metadata"]["name"] = number.to_string().into();
        cache.put(gone.clone());
        cache.remove(&gone);
    }
    let inner = cache.inner();
    assert_eq!((inner.tombstones.len(), inner.oldest_tombstones.len()), (TOMBSTONES, TOMBSTONES));
}

#[test]
fn an_old_tombstone_does_not_take_a_newer_one_of_the_same_name_with_it() {
    let cache = Cache::default();
    let bury = |name: &str, uid: &str, version: u64| {
        let mut gone = secret(uid, version);
        gone.0["metadata"]["name"] = name.into();
        cache.put(gone.clone());
        cache.remove(&gone);
    };
    bury("s", "a", 1);
    (1..TOMBSTONES as u64).for_each(|number| bury("t", &number.to_string(), 10 + number));
    bury("s", "c", 90_000);
    assert!(cache.put(secret("c", 89_999)).is_none(), "it was deleted a short while ago");
}

#[test]
fn a_full_list_drops_what_it_does_not_have_unless_it_is_newer() {
    let cache = Cache::default();
    cache.put(secret("a", 5));
    let before = cache.versions_of("", "Secret");
    cache.put(secret("a", 6));
    assert!(cache.retain(&before, &BTreeSet::new()).is_empty());
    let before = cache.versions_of("", "Secret");
    assert_eq!(cache.retain(&before, &BTreeSet::new()).len(), 1);
}

#[test]
fn what_nobody_uses_is_packed_and_found_all_the_same() {
    let cache = Cache::default();
    let open = || cache.inner().open.len();
    cache.put(secret("a", 5));
    assert_eq!(open(), 1);
    cache.pack_unused();
    cache.pack_unused();
    assert_eq!(open(), 0);
    assert_eq!(cache.get(&secret("a", 5).key()).as_deref(), Some(&secret("a", 5)));
    assert_eq!(open(), 1, "it is open again");
    cache.pack_unused();
    cache.pack_unused();
    let change = cache.put(secret("a", 6)).unwrap();
    assert_eq!(change.old.as_deref(), Some(&secret("a", 5)), "a change knows what was there");
    drop(change);
    cache.pack_unused();
    cache.pack_unused();
    assert!(cache.remove(&secret("a", 7)).is_some());
    cache.pack_unused();
    assert_eq!(open(), 0);
}

#[tokio::test(start_paused = true)]
async fn at_rest_everything_is_packed_and_nothing_ticks() {
    let cache = Cache::default();
    let task = tokio::spawn(cache.clone().keep_packed());
    for version in 1..4 {
        cache.put(secret("a", version));
        tokio::time::sleep(2 * PACK_EVERY + Duration::from_secs(1)).await;
        assert!(cache.inner().open.is_empty(), "version {version}");
    }
    task.abort();
}
