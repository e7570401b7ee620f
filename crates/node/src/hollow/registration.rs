//! What a node says of itself: the Node object at first, its status, its lease.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::Join;

pub(super) const LEASE_SECONDS: i32 = 40;
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// As the kubelet registers it: ready from the first moment, with the cloud's taint if a cloud controller is to look at it first.
pub(super) fn node(facts: &Join, now: &str) -> Result<Node, serde_json::Error> {
    let mut labels = json!({
        "kubernetes.io/hostname": facts.node_name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
    });
    for (key, value) in &facts.labels {
        labels[key] = json!(value);
    }
    let mut taints: Vec<Value> = facts.taints.iter().map(|taint| json!(taint)).collect();
    if facts.external_cloud_provider {
        taints.push(json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}));
    }
    let mut spec = json!({"taints": taints});
    if let Some(provider_id) = &facts.provider_id {
        spec["providerID"] = json!(provider_id);
    }
    let status = status(facts, None, now);
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": facts.node_name, "labels": labels},
        "spec": spec,
        "status": status["status"],
    }))
}

/// What the kubelet says last when its machine is switched off.
pub(super) fn leaving(now: &str) -> Value {
    json!({"status": {"conditions": [{
        "type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "node is shutting down",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]}})
}

/// A strategic patch, so that the cloud controller's addresses stay, and the time of a transition that is none.
pub(super) fn status(facts: &Join, current: Option<&Node>, now: &str) -> Value {
    let conditions = current
        .and_then(|current| current.status.as_ref())
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let healthy = |kind: &str, status: &str, reason: &str, message: &str| {
        let mut condition =
            json!({"type": kind, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now});
        if !conditions.iter().any(|known| known.type_ == kind && known.status == status) {
            condition["lastTransitionTime"] = json!(now);
        }
        condition
    };
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "40Gi"});
    // With an external cloud provider the addresses are that controller's to say, except for the name.
    let told = facts.addresses.iter().filter(|(kind, _)| !facts.external_cloud_provider || kind == "Hostname");
    let mut addresses: Vec<Value> = told.map(|(kind, address)| json!({"type": kind, "address": address})).collect();
    if !facts.addresses.iter().any(|(kind, _)| kind == "Hostname") {
        addresses.push(json!({"type": "Hostname", "address": facts.node_name}));
    }
    json!({"status": {
        "capacity": room,
        "allocatable": room,
        "addresses": addresses,
        "conditions": [
            healthy("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            healthy("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            healthy("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            healthy("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "Hangar hollow node",
            "kernelVersion": "6.8.0", "containerRuntimeVersion": "containerd://2.1.4",
            "kubeletVersion": facts.kubelet_version, "kubeProxyVersion": facts.kubelet_version,
            "machineID": facts.node_name, "systemUUID": facts.node_name, "bootID": facts.node_name,
        },
    }})
}

/// `owner` is the Node's uid: the lease goes with it.
pub(super) fn lease(facts: &Join, owner: &str, now: &str) -> Result<Lease, serde_json::Error> {
    serde_json::from_value(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": facts.node_name, "namespace": "kube-node-lease", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": facts.node_name, "uid": owner}]},
        "spec": {"holderIdentity": facts.node_name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hollow::Taint;

    fn facts(external: bool) -> Join {
        Join {
            node_name: "w".to_owned(),
            taints: vec![Taint { key: "a".into(), value: String::new(), effect: "NoSchedule".into() }],
            addresses: vec![("InternalIP".into(), "10.6.0.2".into())],
            external_cloud_provider: external,
            provider_id: Some("openstack:///1".to_owned()),
            ..Join::default()
        }
    }

    #[test]
    fn an_external_cloud_provider_means_its_taint_and_no_address_of_ours() {
        for (external, taints, addresses) in [(true, 2, 1), (false, 1, 2)] {
            let node = node(&facts(external), "2026-01-01T00:00:00Z").unwrap().spec.unwrap();
            assert_eq!(node.taints.unwrap().len(), taints);
            assert_eq!(node.provider_id.as_deref(), Some("openstack:///1"));
            let status = status(&facts(external), None, "2026-01-01T00:00:00Z");
            assert_eq!(status["status"]["addresses"].as_array().unwrap().len(), addresses);
        }
    }

    #[test]
    fn a_transition_is_dated_once() {
        let at = |current: &Node| {
            let patch = status(&facts(true), Some(current), "2026-01-01T00:00:00Z");
            let conditions = patch["status"]["conditions"].as_array().unwrap().clone();
            conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap()["lastTransitionTime"].clone()
        };
        let with = |ready: &str| -> Node {
            serde_json::from_value(
                json!({"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
            )
            .unwrap()
        };
        assert!(at(&Node::default()).is_string());
        assert!(at(&with("Unknown")).is_string());
        assert!(at(&with("True")).is_null());
    }

    #[test]
    fn a_lease_belongs_to_its_node() {
        let lease = lease(&facts(true), "uid-1", "2026-01-01T00:00:00.000000Z").unwrap();
        assert_eq!(lease.metadata.owner_references.unwrap()[0].uid, "uid-1");
    }
}
