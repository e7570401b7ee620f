//! What a Kubernetes API does, one behaviour for each test: in memory, and unchanged against a real server whose kubeconfig
//! `HANGAR_TEST_KUBECONFIG` names (its definitions are installed first). That keeps the simulation honest.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

mod in_memory;
mod place;
mod schema;

use futures::StreamExt as _;
use kube::api::*;
use place::{Place, apply, cluster, config_map, object, refusal, version};
use serde_json::{Value, json};

#[tokio::test]
async fn what_is_created_can_be_read_and_not_created_again() {
    let place = Place::new("create").await;
    let maps = place.config_maps();
    assert_eq!(refusal(maps.get("a").await), (404, "NotFound".into()));
    let made = maps.create(&PostParams::default(), &config_map("a", json!({"k": "v"}))).await.unwrap();
    let metadata = &made.metadata;
    assert!(metadata.uid.is_some() && metadata.creation_timestamp.is_some() && metadata.generation.is_none());
    let again = maps.create(&PostParams::default(), &config_map("a", json!({}))).await;
    assert_eq!(refusal(again), (409, "AlreadyExists".into()));
    let read = maps.get("a").await.unwrap();
    assert_eq!((version(&read), &read.data["data"]), (version(&made), &json!({"k": "v"})));
    let generated = object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-"}}));
    let generated = maps.create(&PostParams::default(), &generated).await.unwrap();
    assert_eq!(generated.metadata.name.unwrap().len(), 7);
    let nameless = object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}));
    assert_eq!(refusal(maps.create(&PostParams::default(), &nameless).await), (422, "Invalid".into()));
}

#[tokio::test]
async fn updates_need_the_version_that_they_are_based_on() {
    let place = Place::new("update").await;
    let clusters = place.clusters();
    let made = clusters.create(&PostParams::default(), &cluster("c")).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    let mut newer = made.clone();
    newer.data["spec"]["paused"] = true.into();
    let updated = clusters.replace("c", &PostParams::default(), &newer).await.unwrap();
    assert_eq!(updated.metadata.generation, Some(2));
    assert_eq!(refusal(clusters.replace("c", &PostParams::default(), &newer).await), (409, "Conflict".into()));
    newer.metadata.resource_version = None;
    assert_eq!(refusal(clusters.replace("c", &PostParams::default(), &newer).await), (422, "Invalid".into()));
    let same = clusters.replace("c", &PostParams::default(), &updated).await.unwrap();
    assert_eq!(version(&same), version(&updated), "a write that changes nothing is no change");
}

#[tokio::test]
async fn merge_patches_merge_and_heed_versions_and_uids() {
    let place = Place::new("patch").await;
    let maps = place.config_maps();
    let made = maps.create(&PostParams::default(), &config_map("a", json!({"x": "1", "y": "2"}))).await.unwrap();
    let patch = |body: Value| {
        let maps = maps.clone();
        async move { maps.patch("a", &PatchParams::default(), &Patch::Merge(body)).await }
    };
    let patched = patch(json!({"data": {"x": null, "z": "3"}})).await.unwrap();
    assert_eq!(patched.data["data"], json!({"y": "2", "z": "3"}));
    let stale = patch(json!({"metadata": {"resourceVersion": version(&made)}, "data": {"x": "4"}})).await;
    assert_eq!(refusal(stale), (409, "Conflict".into()));
    let stranger =
        patch(json!({"metadata": {"uid": "0c0ffee0-0000-4000-8000-000000000000"}, "data": {"x": "4"}})).await;
    assert_eq!(refusal(stranger), (422, "Invalid".into()));
    let right =
        json!({"metadata": {"uid": made.metadata.uid, "resourceVersion": version(&patched)}, "data": {"x": "5"}});
    assert_eq!(patch(right).await.unwrap().data["data"]["x"], "5");
    let nowhere = maps.patch("b", &PatchParams::default(), &Patch::Merge(json!({}))).await;
    assert_eq!(refusal(nowhere).0, 404);
}

#[tokio::test]
async fn status_and_spec_have_a_door_each() {
    let place = Place::new("status").await;
    let clusters = place.clusters();
    let mut with_status = cluster("c");
    with_status.data["status"] = json!({"phase": "Provisioned"});
    let made = clusters.create(&PostParams::default(), &with_status).await.unwrap();
    assert_eq!(made.data.get("status"), None);
    let body = json!({"spec": {"paused": true}, "status": {"phase": "Failed"}, "metadata": {"labels": {"a": "b"}}});
    let spec = clusters.patch("c", &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
    assert_eq!((spec.data.get("status"), &spec.data["spec"]["paused"]), (None, &json!(true)));
    assert_eq!(spec.metadata.generation, Some(2));
    let body = json!({"spec": {"paused": false}, "status": {"phase": "Failed"}});
    let status = clusters.patch_status("c", &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
    assert_eq!((&status.data["status"]["phase"], &status.data["spec"]["paused"]), (&json!("Failed"), &json!(true)));
    assert_eq!(status.metadata.generation, Some(2), "status does not count");
    let nothing = place.config_maps().patch_status("c", &PatchParams::default(), &Patch::Merge(&body)).await;
    assert_eq!(refusal(nothing).0, 404);
}

#[tokio::test]
async fn apply_creates_changes_and_takes_back_its_own_fields() {
    let place = Place::new("apply").await;
    let maps = place.config_maps();
    let put = |manager: &'static str, data: Value| {
        let maps = maps.clone();
        async move { maps.patch("a", &apply(manager), &Patch::Apply(config_map("a", data))).await }
    };
    put("one", json!({"x": "1", "y": "1"})).await.unwrap();
    let both = put("two", json!({"y": "1", "z": "2"})).await.unwrap();
    assert_eq!(both.data["data"], json!({"x": "1", "y": "1", "z": "2"}));
    let less = put("one", json!({})).await.unwrap();
    assert_eq!(less.data["data"], json!({"y": "1", "z": "2"}), "x goes, y is also two's");
    let same = put("two", json!({"y": "1", "z": "2"})).await.unwrap();
    assert_eq!(version(&same), version(&less), "applying the same again changes nothing");
    let gentle = maps.patch("a", &PatchParams::apply("one"), &Patch::Apply(config_map("a", json!({"z": "9"})))).await;
    assert_eq!(refusal(gentle), (409, "Conflict".into()));
    assert_eq!(put("one", json!({"z": "9"})).await.unwrap().data["data"], json!({"y": "1", "z": "9"}));
    let lost = put("two", json!({"y": "1"})).await.unwrap();
    assert_eq!(lost.data["data"], json!({"y": "1", "z": "9"}), "two lost z to one");
}

#[tokio::test]
async fn apply_heeds_uids() {
    let place = Place::new("uids").await;
    let maps = place.config_maps();
    let uid = "0c0ffee0-0000-4000-8000-000000000000";
    let mut stranger = config_map("a", json!({"x": "1"}));
    stranger.metadata.uid = Some(uid.into());
    assert_eq!(refusal(maps.patch("a", &apply("one"), &Patch::Apply(&stranger)).await), (409, "Conflict".into()));
    maps.create(&PostParams::default(), &config_map("a", json!({}))).await.unwrap();
    assert_eq!(refusal(maps.patch("a", &apply("one"), &Patch::Apply(&stranger)).await), (422, "Invalid".into()));
    let mut status =
        object(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c"}}));
    status.data = json!({"status": {"phase": "Failed"}});
    assert_eq!(refusal(place.clusters().patch_status("c", &apply("one"), &Patch::Apply(&status)).await).0, 404);
    place.clusters().create(&PostParams::default(), &cluster("c")).await.unwrap();
    status.metadata.uid = Some(uid.into());
    let reported = place.clusters().patch_status("c", &apply("one"), &Patch::Apply(&status)).await.unwrap();
    assert_eq!(
        reported.data["status"]["phase"], "Failed",
        "a wrong uid does not guard the status of a custom resource"
    );
}

#[tokio::test]
async fn conditions_belong_to_whoever_applied_them() {
    let place = Place::new("conditions").await;
    let clusters = place.clusters();
    clusters.create(&PostParams::default(), &cluster("c")).await.unwrap();
    let report = |manager: &'static str, kinds: &'static [&'static str]| {
        let clusters = clusters.clone();
        async move {
            let condition = |kind: &&str| json!({"type": kind, "status": "True", "reason": "Ok", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let body = json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "status": {"conditions": kinds.iter().map(condition).collect::<Vec<_>>()},
            });
            let answer = clusters.patch_status("c", &apply(manager), &Patch::Apply(&body)).await.unwrap();
            let conditions = answer.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().map(|condition| condition["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        }
    };
    assert_eq!(report("one", &["A", "B"]).await, ["A", "B"]);
    assert_eq!(report("two", &["C"]).await, ["A", "B", "C"]);
    assert_eq!(report("one", &["B"]).await, ["B", "C"]);
}

#[tokio::test]
async fn owners_and_finalizers_are_merged_one_by_one() {
    let place = Place::new("metadata").await;
    let (maps, owner) = (place.config_maps(), place.config_maps());
    let owner = owner.create(&PostParams::default(), &config_map("owner", json!({}))).await.unwrap();
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid});
    let put = |manager: &'static str, metadata: Value| {
        let maps = maps.clone();
        async move {
            let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            body["metadata"]["name"] = "a".into();
            maps.patch("a", &apply(manager), &Patch::Apply(body)).await.unwrap().metadata
        }
    };
    put("one", json!({"ownerReferences": [reference], "finalizers": ["one.io/x"]})).await;
    let both = put("two", json!({"finalizers": ["two.io/x"]})).await;
    assert_eq!((both.owner_references.unwrap().len(), both.finalizers.unwrap().len()), (1, 2));
    let less = put("one", json!({})).await;
    assert_eq!((less.owner_references, less.finalizers.unwrap()), (None, vec!["two.io/x".to_owned()]));
    put("two", json!({})).await;
}

#[tokio::test]
async fn deletion_waits_for_finalizers_and_takes_no_new_ones() {
    let place = Place::new("delete").await;
    let maps = place.config_maps();
    let mut held = config_map("a", json!({}));
    held.metadata.finalizers = Some(vec!["hangar.dev/x".into()]);
    let made = maps.create(&PostParams::default(), &held).await.unwrap();
    let stranger = Preconditions { uid: Some("0c0ffee0-0000-4000-8000-000000000000".into()), ..Default::default() };
    let params = DeleteParams { preconditions: Some(stranger), ..Default::default() };
    assert_eq!(refusal(maps.delete("a", &params).await), (409, "Conflict".into()));
    let dying = maps.delete("a", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(dying.metadata.deletion_timestamp.is_some());
    assert_eq!(dying.metadata.deletion_grace_period_seconds, Some(0));
    assert_ne!(version(&dying), version(&made));
    let again = maps.delete("a", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(version(&again), version(&dying));
    let more = json!({"metadata": {"finalizers": ["hangar.dev/x", "hangar.dev/y"]}});
    assert_eq!(refusal(maps.patch("a", &PatchParams::default(), &Patch::Merge(more)).await), (422, "Invalid".into()));
    let none = json!({"metadata": {"finalizers": null}});
    let last = maps.patch("a", &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
    assert!(last.metadata.deletion_timestamp.is_some());
    assert_eq!(refusal(maps.get("a").await).0, 404);
    maps.create(&PostParams::default(), &config_map("b", json!({}))).await.unwrap();
    assert!(maps.delete("b", &DeleteParams::default()).await.unwrap().is_right());
    assert_eq!(refusal(maps.delete("b", &DeleteParams::default()).await).0, 404);
}

#[tokio::test]
async fn lists_select_by_label_and_name() {
    let place = Place::new("list").await;
    let maps = place.config_maps();
    for (name, labels) in [("a", json!({"app": "x"})), ("b", json!({"app": "y"})), ("c", json!({}))] {
        let mut map = config_map(name, json!({}));
        map.metadata.labels = serde_json::from_value(labels).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let rows = [
        (ListParams::default().labels("app=x"), "a"),
        (ListParams::default().labels("app"), "ab"),
        (ListParams::default().labels("!app").fields("metadata.name=c"), "c"),
        (ListParams::default().fields("metadata.name=b"), "b"),
        (ListParams::default().labels("app in (x,y),app!=x"), "b"),
    ];
    for (params, expected) in rows {
        let list = maps.list(&params).await.unwrap();
        let names: String = list.items.iter().map(|item| item.metadata.name.clone().unwrap()).collect();
        assert_eq!(names, expected, "{params:?}");
        assert!(list.metadata.resource_version.is_some());
    }
}

#[tokio::test]
async fn watches_tell_everything_in_order_and_follow_the_selector() {
    let place = Place::new("watch").await;
    let maps = place.config_maps();
    let from = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let label = |value: &str| json!({"metadata": {"labels": {"app": value}}});
    let mut map = config_map("a", json!({}));
    map.metadata.labels = Some([("app".to_owned(), "x".to_owned())].into());
    maps.create(&PostParams::default(), &map).await.unwrap();
    let merge = PatchParams::default();
    maps.patch("a", &merge, &Patch::Merge(json!({"data": {"k": "v"}}))).await.unwrap();
    let left = maps.patch("a", &merge, &Patch::Merge(label("y"))).await.unwrap();
    maps.patch("a", &merge, &Patch::Merge(label("x"))).await.unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let params = WatchParams::default().labels("app=x").timeout(20);
    let mut stream = maps.watch(&params, &from).await.unwrap().boxed();
    let mut seen = vec![];
    while seen.len() < 5 {
        match stream.next().await.unwrap().unwrap() {
            WatchEvent::Added(object) => seen.push(("ADDED", version(&object))),
            WatchEvent::Modified(object) => seen.push(("MODIFIED", version(&object))),
            WatchEvent::Deleted(object) => seen.push(("DELETED", version(&object))),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(
        seen.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
        ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    );
    assert_eq!(seen[2].1, version(&left));
    assert!(seen.is_sorted_by_key(|(_, version)| version.parse::<u64>().unwrap()), "{seen:?}");
}

#[tokio::test]
async fn secrets_take_text_and_services_get_an_address() {
    let place = Place::new("filled").await;
    let secrets = place.api("", "v1", "Secret");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"b": "Yg=="}, "stringData": {"a": "a"}});
    let made = secrets.create(&PostParams::default(), &object(secret)).await.unwrap();
    assert_eq!((&made.data["data"], &made.data["type"]), (&json!({"a": "YQ==", "b": "Yg=="}), &json!("Opaque")));
    let body = json!({"stringData": {"a": "b"}});
    let patched = secrets.patch("s", &PatchParams::default(), &Patch::Merge(body)).await.unwrap();
    assert_eq!((&patched.data["data"]["a"], patched.data.get("stringData")), (&json!("Yg=="), None));

    let services = place.api("", "v1", "Service");
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"type": "LoadBalancer", "selector": {"a": "b"}, "ports": [{"name": "a", "port": 6443}]},
    });
    let made = services.patch("s", &apply("one"), &Patch::Apply(&service)).await.unwrap();
    assert!(made.data["spec"]["clusterIP"].is_string() && made.data["spec"]["ports"][0]["nodePort"].is_u64());
    let again = services.patch("s", &apply("one"), &Patch::Apply(&service)).await.unwrap();
    assert_eq!(version(&again), version(&made), "what the server filled in stays");
}
