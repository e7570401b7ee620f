//! Pods as this node reports them: running as soon as they arrive, done at once if they belong to a Job, gone when deleted.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

/// What has to be done about a pod.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    /// Delete it for good: its containers have ended.
    Finish,
    /// A patch of its status.
    Report(Value),
}

pub(super) fn step(pod: &Pod, host_ip: &str, now: &str) -> Step {
    if pod.metadata.deletion_timestamp.is_some() {
        return Step::Finish;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    if phase != "Pending" {
        return Step::Nothing;
    }
    let done = pod.owner_references().iter().any(|owner| owner.kind == "Job");
    Step::Report(report(pod, done, host_ip, now))
}

fn report(pod: &Pod, done: bool, host_ip: &str, now: &str) -> Value {
    let spec = pod.spec.as_ref();
    let host_network = spec.and_then(|spec| spec.host_network).unwrap_or(false);
    let ip =
        if host_network && !host_ip.is_empty() { host_ip.to_owned() } else { pod_ip(&pod.uid().unwrap_or_default()) };
    let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}});
    let state = if done { ended.clone() } else { json!({"running": {"startedAt": now}}) };
    let container = |name: &str, image: Option<&String>, state: &Value, ready: bool, started: bool| {
        json!({"name": name, "image": image, "imageID": image, "containerID": format!("hollow://{ip}/{name}"),
            "ready": ready, "started": started, "restartCount": 0, "state": state})
    };
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let running: Vec<Value> =
        containers.iter().map(|one| container(&one.name, one.image.as_ref(), &state, !done, !done)).collect();
    let inits: Vec<Value> = init
        .iter()
        .map(|one| {
            // A sidecar is an init container that stays.
            let stays = one.restart_policy.as_deref() == Some("Always");
            container(&one.name, one.image.as_ref(), if stays { &state } else { &ended }, true, stays && !done)
        })
        .collect();
    let ready = if done { "False" } else { "True" };
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": now});
    let mut status = json!({
        "phase": if done { "Succeeded" } else { "Running" },
        "startTime": now,
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": [
            condition("PodReadyToStartContainers", "True"),
            condition("Initialized", "True"),
            condition("Ready", ready),
            condition("ContainersReady", ready),
            condition("PodScheduled", "True"),
        ],
        "containerStatuses": running,
        "initContainerStatuses": inits,
    });
    if !host_ip.is_empty() {
        status["hostIP"] = json!(host_ip);
        status["hostIPs"] = json!([{"ip": host_ip}]);
    }
    json!({"status": status})
}

/// Of 100.64.0.0/10, by the pod's uid: the same after a restart, and no book to keep.
fn pod_ip(uid: &str) -> String {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let [_, _, _, _, _, a, b, c] = hasher.finish().to_be_bytes();
    Ipv4Addr::new(100, 64 | (a & 0x3f), b, c).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(extra: Value) -> Pod {
        let mut pod = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "initContainers": [{"name": "once"}, {"name": "side", "restartPolicy": "Always"}],
        }});
        for (path, value) in extra.as_object().unwrap() {
            let (outer, inner) = path.split_once('.').unwrap();
            pod[outer][inner] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_new_pod_runs_and_is_ready() {
        let Step::Report(patch) = step(&pod(json!({})), "10.6.0.2", "2026-01-01T00:00:00Z") else {
            panic!("no report")
        };
        let status = &patch["status"];
        assert_eq!((&status["phase"], &status["hostIP"]), (&json!("Running"), &json!("10.6.0.2")));
        assert_eq!(status["containerStatuses"][0]["ready"], true);
        assert!(status["initContainerStatuses"][0]["state"]["terminated"].is_object());
        assert!(status["initContainerStatuses"][1]["state"]["running"].is_object());
        assert!(status["podIP"].as_str().unwrap().starts_with("100."));
    }

    #[test]
    fn a_job_is_done_a_running_pod_is_left_alone_and_a_deleted_one_is_finished() {
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1"}]);
        let Step::Report(patch) = step(&pod(json!({"metadata.ownerReferences": owner})), "", "now") else {
            panic!("no report")
        };
        assert_eq!(patch["status"]["phase"], "Succeeded");
        assert_eq!(step(&pod(json!({"status.phase": "Running"})), "", "now"), Step::Nothing);
        let deleted = pod(json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z", "status.phase": "Running"}));
        assert_eq!(step(&deleted, "", "now"), Step::Finish);
    }
}
