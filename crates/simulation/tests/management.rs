//! The engine's one way to write, against an API whose answers get lost.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

use std::sync::Arc;

use hangar_api::Object;
use hangar_engine::cache::Cache;
use hangar_engine::management::{ApiError, Management};
use hangar_kubesim::{Fault, KubeApi, KubeApiOptions};
use serde_json::json;

fn cluster(api: &KubeApi) -> Object {
    Object(api.object("cluster.x-k8s.io", "Cluster", "default", "c").unwrap())
}

/// The way back to the old status must not be taken for no change.
#[tokio::test(start_paused = true)]
async fn a_status_whose_answer_was_lost_is_written_again_even_if_the_cache_has_not_seen_it() {
    let api = KubeApi::new(KubeApiOptions::default());
    let mut object = Object::named("cluster.x-k8s.io/v1beta2", "Cluster", "default", "c");
    object.0["spec"] = json!({ "paused": true });
    object.0["status"] = json!({ "phase": "Provisioned" });
    api.put(object.0);
    let (changed, _changes) = tokio::sync::mpsc::unbounded_channel();
    let management = Management::new(api.client(), Cache::default(), changed);
    let seen = cluster(&api);

    api.set_fault_hook(Arc::new(|_| Fault::After));
    let lost = management.report(&seen, &json!({ "phase": "Failed" })).await;
    assert!(matches!(lost, Err(ApiError::Unreachable { .. })), "{lost:?}");
    assert_eq!(cluster(&api).text("/status/phase"), "Failed");

    api.clear_fault_hook();
    management.report(&seen, &json!({ "phase": "Provisioned" })).await.unwrap();
    assert_eq!(cluster(&api).text("/status/phase"), "Provisioned");
    api.clear_requests();
    assert!(management.report(&cluster(&api), &json!({ "phase": "Provisioned" })).await.unwrap().is_none());
    assert!(api.requests().is_empty(), "no doubt is left");
}

/// Priority and fairness turn requests away when much is going on.
#[tokio::test(start_paused = true)]
async fn too_many_requests_is_no_refusal() {
    let api = KubeApi::new(KubeApiOptions::default());
    api.set_fault_hook(Arc::new(|_| Fault::Before(429)));
    let (changed, _changes) = tokio::sync::mpsc::unbounded_channel();
    let management = Management::new(api.client(), Cache::default(), changed);
    let object = Object::named("v1", "ConfigMap", "default", "c");
    let answer = management.apply(&object).await;
    assert!(matches!(answer, Err(ApiError::Unreachable { .. })), "{answer:?}");
}
