//! What this node refuses to run, before anything is done for it.
//!
//! Holds: a pod that came here without a scheduler is told why it cannot stay, with the reasons that kubelets give.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

/// Reason and message of a pod that cannot run here beside the `others`.
pub(super) fn refused(pod: &Pod, others: &[Arc<Pod>]) -> Option<(&'static str, String)> {
    let spec = pod.spec.as_ref()?;
    let wanted: Vec<_> = host_ports(pod).collect();
    let earlier = others.iter().filter(|other| {
        let age = |pod: &Pod| (pod.metadata.creation_timestamp.clone().map(|time| time.0), pod.metadata.uid.clone());
        !is_over(other) && age(other) < age(pod)
    });
    if let Some((port, protocol)) = earlier.flat_map(|other| host_ports(other)).find(|taken| wanted.contains(taken)) {
        let words = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        return Some(("NodePorts", format!("{words}: {port}/{protocol}")));
    }
    if let Some(os) = spec.os.as_ref().filter(|os| os.name != "linux") {
        let message = format!("Failed to admit pod as the OS field doesn't match node OS: {} is not linux", os.name);
        return Some(("PodOSNotSupported", message));
    }
    let sysctls = spec.security_context.as_ref().and_then(|context| context.sysctls.as_ref());
    if let Some(sysctl) = sysctls.and_then(|sysctls| sysctls.first()) {
        let message = format!(
            "forbidden sysctl: {:?}: pods share the machine's kernel settings, set it on the machine",
            sysctl.name
        );
        return Some(("SysctlForbidden", message));
    }
    None
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Ports of the node that a pod wants for itself.
fn host_ports(pod: &Pod) -> impl Iterator<Item = (i32, &str)> {
    let containers = pod.spec.iter().flat_map(|spec| spec.containers.iter());
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.filter_map(|port| Some((port.host_port.filter(|port| *port > 0)?, port.protocol.as_deref().unwrap_or("TCP"))))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_cannot_run_here_is_refused_with_a_reason() {
        let rows = [
            (json!({"containers": []}), None),
            (json!({"containers": [], "os": {"name": "linux"}}), None),
            (json!({"containers": [], "os": {"name": "windows"}}), Some("PodOSNotSupported")),
            (
                json!({"containers": [], "securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
                Some("SysctlForbidden"),
            ),
        ];
        for (spec, expected) in rows {
            let pod: Value = json!({"spec": spec});
            let found = refused(&serde_json::from_value(pod).unwrap(), &[]);
            assert_eq!(found.map(|(reason, _)| reason), expected, "{spec}");
        }
    }

    #[test]
    fn who_came_first_has_the_port() {
        let pod = |uid: &str, second: u32, port: i32, phase: &str| -> Arc<Pod> {
            let ports = json!([{"containerPort": 80, "hostPort": port}]);
            let object = json!({
                "metadata": {"uid": uid, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")},
                "spec": {"containers": [{"name": "c", "ports": ports}]}, "status": {"phase": phase},
            });
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let others = [pod("a", 1, 8080, "Running"), pod("b", 1, 9090, "Failed")];
        let rows = [(8080, 2, true), (8080, 0, false), (9090, 2, false), (7070, 2, false)];
        for (port, second, expected) in rows {
            let found = refused(&pod("c", second, port, "Pending"), &others);
            assert_eq!(found.map(|(reason, _)| reason), expected.then_some("NodePorts"), "{port} at {second}");
        }
    }
}
