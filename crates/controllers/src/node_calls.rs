//! Calls to a tenant cluster about a Node and the pods on it.

use std::sync::Arc;

use hangar_api::{Object, ObjectKey};
use hangar_engine::management::{api_for, api_of};
use hangar_engine::tenants::Tenants;
use hangar_planner::step::{ClusterName, Evicted, Eviction, NodeChange, TenantAnswer};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::tenant_calls::{Failure, is_not_found, words};

/// Writers that come in between are few; more of them are worth a look.
const MOST_ATTEMPTS: u32 = 4;
const MOST_LETTERS: usize = 500;

pub async fn delete(client: &Client, name: &str, last_try: bool) -> Result<TenantAnswer, Failure> {
    match api_for(client, &ObjectKey::new("", "Node", "", name)).delete(name, &DeleteParams::default()).await {
        Err(error) if !last_try && !is_not_found(&error) => Err(words(&error)),
        _ => Ok(TenantAnswer::NodeDeleted { name: name.to_owned() }),
    }
}

pub async fn cordon(
    tenants: &Tenants,
    client: &Client,
    cluster: &ClusterName,
    name: &str,
) -> Result<TenantAnswer, Failure> {
    let body = json!({ "spec": { "unschedulable": true } });
    let nodes = api_for(client, &ObjectKey::new("", "Node", "", name));
    match nodes.patch(name, &PatchParams::default(), &Patch::Merge(&body)).await {
        Ok(node) => {
            let node = Arc::new(node.into_object());
            tenants.absorb(cluster, node.clone());
            Ok(TenantAnswer::NodeCordoned(node))
        }
        Err(error) if is_not_found(&error) => Ok(TenantAnswer::NodeDeleted { name: name.to_owned() }),
        Err(error) => Err(words(&error)),
    }
}

/// By the Eviction subresource, which heeds disruption budgets.
pub async fn evict(client: &Client, eviction: &Eviction) -> Result<TenantAnswer, Failure> {
    let Eviction { namespace, name, uid, grace_seconds } = eviction;
    let mut options = json!({ "preconditions": { "uid": uid } });
    if let Some(seconds) = grace_seconds {
        options["gracePeriodSeconds"] = (*seconds).into();
    }
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": { "name": name, "namespace": namespace }, "deleteOptions": options,
    });
    // Written by hand: the client's own request leaves out the precondition.
    let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(|error| error.to_string())?;
    let answer = match client.request::<Value>(request).await {
        Ok(_) => Evicted::Accepted,
        // Gone, or another one of the same name: either way this one is no longer there.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Evicted::Accepted,
        Err(kube::Error::Api(status)) => Evicted::Refused(refusal(&status)),
        Err(error) => return Err(words(&error)),
    };
    Ok(TenantAnswer::PodEvicted { uid: uid.clone(), answer })
}

/// Which budget refuses, and why, is among the causes.
fn refusal(status: &kube::core::Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes).map(|cause| cause.message.as_str());
    let all: Vec<&str> = std::iter::once(status.message.as_str()).chain(causes).collect();
    // A tenant's words end up in a condition of ours.
    all.join(" ").chars().take(MOST_LETTERS).collect()
}

pub async fn adopt(
    tenants: &Tenants,
    client: &Client,
    cluster: &ClusterName,
    change: &NodeChange,
) -> Result<TenantAnswer, Failure> {
    let nodes = api_of(client, &Object::named("v1", "Node", "", &change.name));
    let map = |pairs: Vec<(&String, Value)>| -> serde_json::Map<String, Value> {
        pairs.into_iter().map(|(name, value)| (name.clone(), value)).collect()
    };
    let annotations = map(change.annotations.iter().map(|(name, value)| (name, json!(value))).collect());
    let labels = map(change.labels.iter().map(|(name, value)| (name, json!(value))).collect());
    let mut attempts = 0;
    loop {
        attempts += 1;
        let node = nodes.get(&change.name).await.map_err(|error| words(&error))?.into_object();
        let body = json!({
            // Taints are one list: the version read guards those that others add.
            "metadata": { "annotations": annotations, "labels": labels, "resourceVersion": node.resource_version() },
            "spec": { "taints": taints(&node, change) },
        });
        match nodes.patch(&change.name, &PatchParams::default(), &Patch::Merge(&body)).await {
            Ok(answer) => {
                let node = Arc::new(answer.into_object());
                tenants.absorb(cluster, node.clone());
                return Ok(TenantAnswer::NodeAdopted(node));
            }
            // A fresh Node is written by its kubelet and by the cloud controller at the same time: no news for anybody.
            Err(kube::Error::Api(status)) if status.code == 409 && attempts < MOST_ATTEMPTS => {}
            Err(error) => return Err(words(&error)),
        }
    }
}

fn taints(node: &Object, change: &NodeChange) -> Vec<Value> {
    let same = |one: &Value, key: &Value, effect: &Value| one["key"] == *key && one["effect"] == *effect;
    let mut taints = node.get("/spec/taints").as_array().cloned().unwrap_or_default();
    taints.retain(|taint| {
        let removed = change.remove_taints.iter().any(|(key, effect)| same(taint, &json!(key), &json!(effect)));
        !removed && !change.taints.iter().any(|other| same(taint, &other["key"], &other["effect"]))
    });
    taints.extend(change.taints.iter().cloned());
    taints
}
