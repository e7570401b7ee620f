//! The Node object: written once at the start, for there is no lease and nobody who waits for a heartbeat.

use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{Node, NodeError, NodeOptions};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(super) async fn register(node: &Node, kubelet_port: Option<u16>) -> Result<(), NodeError> {
    let api: Api<NodeObject> = Api::all(node.client.clone());
    let name = &node.options.name;
    let failed = |error| NodeError::Register { name: name.clone(), source: Box::new(error) };
    let params = PatchParams::apply("hangar-node").force();
    let current = api.patch(name, &params, &Patch::Apply(object(&node.options))).await.map_err(failed)?;
    remove_taint(&api, &current).await.map_err(failed)?;
    let since = current.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let since = since.filter(|condition| condition.type_ == "Ready" && condition.status == "True");
    let since = since.filter_map(|condition| condition.last_transition_time.clone()).next();
    let since = since.map_or_else(jiff::Timestamp::now, |time| time.0);
    let status = status(node, kubelet_port, &since.to_string());
    api.patch_status(name, &params, &Patch::Apply(status)).await.map_err(failed)?;
    Ok(())
}

/// Admission taints every new Node as not ready, and the controller that would take it away does not run.
async fn remove_taint(api: &Api<NodeObject>, node: &NodeObject) -> Result<(), kube::Error> {
    let mut taints = node.spec.clone().and_then(|spec| spec.taints).unwrap_or_default();
    let before = taints.len();
    taints.retain(|taint| taint.key != NOT_READY);
    if taints.len() < before {
        let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
        api.patch(&node.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

fn object(options: &NodeOptions) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": options.name, "labels": {
            "kubernetes.io/hostname": options.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": architecture(),
            "hangar.dev/node": "process",
        }},
    })
}

fn status(node: &Node, kubelet_port: Option<u16>, since: &str) -> Value {
    let options = &node.options;
    let message = if node.isolation.host_root.is_some() {
        "pods run as local processes, each container with its own root file system"
    } else if node.isolation.has_namespaces() {
        "pods run as local processes that share the machine's file system, because overlay mounts are not available; mount paths in commands and variables are rewritten"
    } else {
        "pods run as local processes; names of Services and pods do not resolve, because user namespaces are not available"
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let resources = json!({
        "cpu": processors.to_string(),
        "memory": format!("{}Ki", memory_kib()),
        "pods": "500",
        "ephemeral-storage": "100Gi",
    });
    let mut status = json!({
        "capacity": resources,
        "allocatable": resources,
        "addresses": [
            {"type": "InternalIP", "address": options.address.to_string()},
            {"type": "Hostname", "address": options.name},
        ],
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "ProcessNodeReady",
            "message": message, "lastTransitionTime": since, "lastHeartbeatTime": since,
        }],
        "nodeInfo": {
            "architecture": architecture(), "operatingSystem": "linux", "osImage": "local processes",
            "containerRuntimeVersion": concat!("hangar://", env!("CARGO_PKG_VERSION")),
            "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION"), "-hangar"), "kubeProxyVersion": "",
            "kernelVersion": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
            "machineID": "", "systemUUID": "", "bootID": "",
        },
    });
    if let Some(port) = kubelet_port {
        status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": port}});
    }
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": options.name}, "status": status})
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(super) fn memory_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    total.unwrap_or(8 * 1024 * 1024)
}
