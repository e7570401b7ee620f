//! What needs more than an API server: webhooks, the garbage collector, a history that is forgotten, faults.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use hangar_kubesim::{Fault, KubeApi, KubeApiOptions};
use kube::Client;
use kube::api::*;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::place::{apply, config_map, object, refusal};

fn api(client: &Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), "default", &resource)
}

fn deployment(version: &str, spec: Value) -> DynamicObject {
    object(json!({
        "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "MachineDeployment", "metadata": {"name": "md"},
        "spec": spec,
    }))
}

#[tokio::test]
async fn every_version_is_served_and_the_hub_is_kept() {
    let kube = KubeApi::new(KubeApiOptions::default());
    let client = kube.client();
    let (old, new) = (
        api(&client, "cluster.x-k8s.io", "v1beta1", "Cluster"),
        api(&client, "cluster.x-k8s.io", "v1beta2", "Cluster"),
    );
    let reference =
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "OpenStackCluster", "name": "c"});
    let written = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "metadata": {"name": "c"},
        "spec": {"infrastructureRef": reference, "clusterNetwork": {"serviceDomain": "cluster.local"}},
    });
    let answer = old.patch("c", &apply("kubectl"), &Patch::Apply(&written)).await.unwrap();
    assert_eq!(answer.data["spec"]["infrastructureRef"], reference);
    let hub = new.get("c").await.unwrap();
    assert_eq!(hub.data["spec"]["infrastructureRef"]["apiGroup"], "infrastructure.cluster.x-k8s.io");
    assert_eq!(kube.list("cluster.x-k8s.io", "Cluster")[0]["apiVersion"], "cluster.x-k8s.io/v1beta2");
    let body = json!({"spec": {"clusterNetwork": {"serviceDomain": "other.local"}}});
    old.patch("c", &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
    assert_eq!(new.get("c").await.unwrap().data["spec"]["clusterNetwork"]["serviceDomain"], "other.local");
    assert_eq!(refusal(api(&client, "cluster.x-k8s.io", "v1alpha1", "Cluster").get("c").await).0, 404);
}

#[tokio::test]
async fn admission_fills_in_and_refuses() {
    let client = KubeApi::new(KubeApiOptions::default()).client();
    let deployments = api(&client, "cluster.x-k8s.io", "v1beta2", "MachineDeployment");
    let template = json!({"spec": {
        "clusterName": "c", "bootstrap": {"dataSecretName": "s"},
        "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackMachineTemplate", "name": "t"},
    }});
    let plain = deployment("v1beta2", json!({"clusterName": "c", "template": template}));
    let made = deployments.create(&PostParams::default(), &plain).await.unwrap();
    assert_eq!((&made.data["spec"]["replicas"], made.metadata.generation), (&json!(1), Some(1)));
    let label = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}});
    let refused = deployments.patch("md", &PatchParams::default(), &Patch::Merge(&label)).await;
    assert_eq!(refusal(refused).0, 422);
}

#[tokio::test]
async fn dependants_go_with_their_last_owner() {
    let kube = KubeApi::new(KubeApiOptions::default());
    let maps = api(&kube.client(), "", "v1", "ConfigMap");
    let mut owners = vec![];
    for name in ["one", "two"] {
        owners.push(maps.create(&PostParams::default(), &config_map(name, json!({}))).await.unwrap());
    }
    let reference = |owner: &DynamicObject| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner.metadata.name, "uid": owner.metadata.uid});
    let mut child = config_map("child", json!({}));
    child.metadata.owner_references = serde_json::from_value(owners.iter().map(reference).collect()).unwrap();
    maps.create(&PostParams::default(), &child).await.unwrap();
    maps.delete("one", &DeleteParams::default()).await.unwrap();
    assert_eq!(maps.get("child").await.unwrap().metadata.owner_references.unwrap().len(), 1);
    maps.delete("two", &DeleteParams::default()).await.unwrap();
    assert!(kube.list("", "ConfigMap").is_empty());
    let late = maps.create(&PostParams::default(), &child).await.unwrap();
    assert!(late.metadata.uid.is_some() && kube.list("", "ConfigMap").is_empty(), "its owners are gone for ever");
}

#[tokio::test(start_paused = true)]
async fn watches_end_expire_and_lag_behind() {
    let options = KubeApiOptions { watch_delay: Duration::from_secs(3), ..KubeApiOptions::default() };
    let kube = KubeApi::new(options);
    let maps = api(&kube.client(), "", "v1", "ConfigMap");
    let from = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut stream = maps.watch(&WatchParams::default().timeout(60), &from).await.unwrap().boxed();
    maps.create(&PostParams::default(), &config_map("a", json!({}))).await.unwrap();
    let began = tokio::time::Instant::now();
    assert!(matches!(stream.next().await, Some(Ok(WatchEvent::Added(_)))));
    assert_eq!(began.elapsed().as_secs(), 3);
    assert!(matches!(stream.next().await, Some(Ok(WatchEvent::Bookmark(_)))));
    assert!(stream.next().await.is_none());
    assert_eq!(began.elapsed().as_secs(), 60);

    let mut stream = maps.watch(&WatchParams::default(), &from).await.unwrap().boxed();
    kube.drop_watches();
    assert!(stream.next().await.unwrap().is_err());
    let old = maps.get("a").await.unwrap().metadata.resource_version.unwrap();
    maps.create(&PostParams::default(), &config_map("b", json!({}))).await.unwrap();
    kube.compact();
    let mut stream = maps.watch(&WatchParams::default(), &old).await.unwrap().boxed();
    assert!(matches!(stream.next().await, Some(Ok(WatchEvent::Error(status))) if status.code == 410));
}

#[tokio::test]
async fn faults_happen_before_or_after_the_deed() {
    let kube = KubeApi::new(KubeApiOptions::default());
    let maps = api(&kube.client(), "", "v1", "ConfigMap");
    kube.set_fault_hook(Arc::new(|call| if call.name == "before" { Fault::Before(503) } else { Fault::After }));
    for (name, code, there) in [("before", 503, false), ("after", 500, true)] {
        let answer = maps.patch(name, &apply("one"), &Patch::Apply(config_map(name, json!({})))).await;
        assert_eq!(refusal(answer).0, code);
        assert_eq!(kube.object("", "ConfigMap", "default", name).is_some(), there, "{name}");
    }
    let seen: Vec<_> = kube.requests().into_iter().map(|call| (call.verb, call.name, call.status)).collect();
    assert_eq!(seen, [("apply", "before".to_owned(), 503), ("apply", "after".to_owned(), 500)]);
}

#[tokio::test]
async fn the_same_requests_make_the_same_cluster() {
    let mut worlds = vec![];
    for _ in 0..2 {
        let clock = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
        let kube = KubeApi::new(KubeApiOptions { clock, seed: 5, ..KubeApiOptions::default() });
        let maps = api(&kube.client(), "", "v1", "ConfigMap");
        maps.create(&PostParams::default(), &config_map("a", json!({}))).await.unwrap();
        worlds.push(kube.list("", "ConfigMap"));
    }
    assert_eq!(worlds[0], worlds[1]);
}

/// As the API server words it.
#[tokio::test]
async fn an_eviction_is_a_deletion_that_a_budget_may_refuse() {
    let kube = KubeApi::new(KubeApiOptions::default());
    let client = kube.client();
    let evict = |uid: Option<&str>| {
        let client = client.clone();
        let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "p" }, "deleteOptions": { "preconditions": { "uid": uid } } });
        let request =
            http::Request::post("/api/v1/namespaces/default/pods/p/eviction").body(body.to_string().into_bytes());
        async move { client.request::<Value>(request.unwrap()).await }
    };
    assert_eq!(refusal(evict(None).await).0, 404);
    let pod = || json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "default", "labels": { "a": "b" } } });
    let budget = |name: &str| {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name, "namespace": "default" },
            "spec": { "selector": { "matchLabels": { "a": "b" } } }, "status": { "disruptionsAllowed": 0, "desiredHealthy": 2, "currentHealthy": 2 },
        })
    };
    kube.put(pod());
    kube.put(budget("one"));
    assert_eq!(refusal(evict(Some("other")).await).0, 429);
    let Err(kube::Error::Api(status)) = evict(None).await else { panic!("it was evicted") };
    assert_eq!(
        status.details.unwrap().causes[0].message,
        "The disruption budget one needs 2 healthy pods and has 2 currently"
    );
    kube.put(budget("two"));
    assert_eq!(refusal(evict(None).await).0, 500);
    kube.delete("policy", "PodDisruptionBudget", "default", "two");
    kube.edit("policy", "PodDisruptionBudget", "default", "one", |budget| {
        budget["status"]["disruptionsAllowed"] = 1.into()
    });
    evict(None).await.unwrap();
    assert!(kube.object("", "Pod", "default", "p").is_none());
    kube.put(pod());
    assert_eq!(refusal(evict(None).await).0, 429, "the budget is spent");
}
