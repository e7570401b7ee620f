//! What readers of older versions expect to find, made from the hub's status where nobody wrote it.
//!
//! Flows: a status of the next older version, after its rules ran downwards -> old-style conditions, counts and flags that are absent are
//! filled in. Holds: what is written by somebody is never touched; what is filled in here does not come back as data, because conversion
//! sets aside that the hub had nothing there.

use serde_json::{Map, Value, json};

/// Old condition types and the new ones whose state they have, by kind.
const CONDITIONS: &[(&str, &[(&str, &str)])] = &[
    (
        "Cluster",
        &[
            ("Ready", "Available"),
            ("InfrastructureReady", "InfrastructureReady"),
            ("ControlPlaneReady", "ControlPlaneAvailable"),
            ("ControlPlaneInitialized", "ControlPlaneInitialized"),
            ("TopologyReconciled", "TopologyReconciled"),
        ],
    ),
    (
        "Machine",
        &[
            ("Ready", "Ready"),
            ("BootstrapReady", "BootstrapConfigReady"),
            ("InfrastructureReady", "InfrastructureReady"),
            ("NodeHealthy", "NodeHealthy"),
            ("HealthCheckSucceeded", "HealthCheckSucceeded"),
            ("OwnerRemediated", "OwnerRemediated"),
        ],
    ),
    ("MachineSet", &[("Ready", "MachinesReady"), ("MachinesReady", "MachinesReady")]),
    ("MachineDeployment", &[("Ready", "Available"), ("Available", "Available"), ("MachineSetReady", "MachinesReady")]),
    (
        "MachinePool",
        &[
            ("Ready", "Available"),
            ("BootstrapReady", "BootstrapConfigReady"),
            ("InfrastructureReady", "InfrastructureReady"),
        ],
    ),
    ("MachineHealthCheck", &[("RemediationAllowed", "RemediationAllowed")]),
    ("ClusterClass", &[("VariablesReconciled", "VariablesReady"), ("RefVersionsUpToDate", "RefVersionsUpToDate")]),
    ("ClusterResourceSet", &[("ResourcesApplied", "ResourcesApplied")]),
    ("ExtensionConfig", &[("Discovered", "Discovered")]),
    ("IPAddressClaim", &[("Ready", "Ready")]),
    (
        "KubeadmControlPlane",
        &[
            ("Ready", "Available"),
            ("Available", "Initialized"),
            ("CertificatesAvailable", "CertificatesAvailable"),
            ("MachinesReady", "MachinesReady"),
            ("EtcdClusterHealthy", "EtcdClusterHealthy"),
            ("ControlPlaneComponentsHealthy", "ControlPlaneComponentsHealthy"),
        ],
    ),
    (
        "KubeadmConfig",
        &[
            ("Ready", "Ready"),
            ("DataSecretAvailable", "DataSecretAvailable"),
            ("CertificatesAvailable", "CertificatesAvailable"),
        ],
    ),
    ("Metal3Cluster", &[("Ready", "Ready"), ("BaremetalInfrastructureReady", "BaremetalInfrastructureReady")]),
    ("Metal3Machine", &[("Ready", "Ready")]),
];

/// Counts of the old form and where the new ones stand after the rules ran.
const COUNTS: &[(&str, &str)] = &[
    ("readyReplicas", "readyReplicas"),
    ("availableReplicas", "availableReplicas"),
    ("updatedReplicas", "upToDateReplicas"),
];

/// Fills in what the version below the hub's contract is expected to say.
pub fn fill(kind: &str, body: &mut Value) {
    let Some(status) = body.get_mut("status").and_then(Value::as_object_mut) else { return };
    conditions(kind, status);
    counts(status);
    flags(kind, status);
}

fn conditions(kind: &str, status: &mut Map<String, Value>) {
    let Some((_, types)) = CONDITIONS.iter().find(|(name, _)| *name == kind) else { return };
    if status.contains_key("conditions") {
        return;
    }
    let Some(new) = status.get("v1beta2").and_then(|status| status["conditions"].as_array()) else { return };
    let old: Vec<Value> = types.iter().filter_map(|(old, from)| old_style(old, find(new, from)?)).collect();
    if !old.is_empty() {
        status.insert("conditions".into(), Value::Array(old));
    }
}

fn find<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// A condition without generation, and with a severity if it is false: nothing that is derived is worse than a warning.
fn old_style(kind: &str, condition: &Value) -> Option<Value> {
    let status = condition["status"].as_str()?;
    let mut old =
        json!({ "type": kind, "status": status, "lastTransitionTime": condition["lastTransitionTime"].as_str()? });
    let fields = old.as_object_mut()?;
    if status != "True" {
        for name in ["reason", "message"] {
            if let Some(text) = condition[name].as_str().filter(|text| !text.is_empty()) {
                fields.insert(name.into(), text.into());
            }
        }
    }
    if status == "False" {
        fields.insert("severity".into(), "Warning".into());
    }
    Some(old)
}

fn counts(status: &mut Map<String, Value>) {
    let Some(new) = status.get("v1beta2").and_then(Value::as_object).cloned() else { return };
    for (old, from) in COUNTS {
        if let Some(count) = new.get(*from).filter(|count| count.is_i64()) {
            status.entry(*old).or_insert_with(|| count.clone());
        }
    }
    let (total, available) =
        (status.get("replicas").and_then(Value::as_i64), new.get("availableReplicas").and_then(Value::as_i64));
    if let (Some(total), Some(available)) = (total, available) {
        status.entry("unavailableReplicas").or_insert_with(|| (total - available).max(0).into());
    }
}

/// Flags of contract v1beta1 on control planes, and of v1alpha3 on Clusters.
fn flags(kind: &str, status: &mut Map<String, Value>) {
    let initialized = match kind {
        "KubeadmControlPlane" => status.get("initialized").cloned(),
        "K0smotronControlPlane" => status.get("initialization").map(|value| value["controlPlaneInitialized"].clone()),
        "Cluster" => {
            let initialized = status.get("controlPlaneReady").cloned();
            if let Some(value) = initialized.filter(Value::is_boolean) {
                status.entry("controlPlaneInitialized").or_insert(value);
            }
            return;
        }
        _ => return,
    };
    if let Some(value) = initialized.filter(Value::is_boolean) {
        status.entry("ready").or_insert_with(|| value.clone());
        status.entry("initialized").or_insert(value);
    }
}
