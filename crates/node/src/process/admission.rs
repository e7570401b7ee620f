//! What this node refuses to run, before anything is done for it.
//!
//! Holds: a pod that came here without a scheduler is told why it cannot stay, with the reasons that kubelets give.

use k8s_openapi::api::core::v1::Pod;

/// Reason and message of a pod that cannot run here.
pub(super) fn refused(pod: &Pod) -> Option<(&'static str, String)> {
    let spec = pod.spec.as_ref()?;
    if let Some(os) = spec.os.as_ref().filter(|os| os.name != "linux") {
        let message = format!("Failed to admit pod as the OS field doesn't match node OS: {} is not linux", os.name);
        return Some(("PodOSNotSupported", message));
    }
    let sysctls = spec.security_context.as_ref().and_then(|context| context.sysctls.as_ref());
    if let Some(sysctl) = sysctls.and_then(|sysctls| sysctls.first()) {
        let message = format!(
            "forbidden sysctl: {:?}: pods that run as processes share the machine's kernel, set it on the machine",
            sysctl.name
        );
        return Some(("SysctlForbidden", message));
    }
    None
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
            let found = refused(&serde_json::from_value(pod).unwrap());
            assert_eq!(found.map(|(reason, _)| reason), expected, "{spec}");
        }
    }
}
