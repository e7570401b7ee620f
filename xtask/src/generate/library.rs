//! Parts of pods and other things that Kubernetes itself defines: the library's own types, recognised by their shape.

use serde_json::Value;

/// What a shape must have, and the type that it then is. More telling shapes come first.
const SHAPES: &[(&[&str], &str)] = &[
    (&["type", "status", "lastTransitionTime", "message"], "crate::conditions::Condition"),
    (&["nodeAffinity", "podAffinity", "podAntiAffinity"], "k8s_openapi::api::core::v1::Affinity"),
    (&["maxSkew", "topologyKey", "whenUnsatisfiable"], "k8s_openapi::api::core::v1::TopologySpreadConstraint"),
    (&["effect", "key", "operator", "tolerationSeconds", "value"], "k8s_openapi::api::core::v1::Toleration"),
    (&["image", "name", "command", "livenessProbe"], "k8s_openapi::api::core::v1::Container"),
    (&["name", "configMap", "emptyDir", "hostPath", "secret"], "k8s_openapi::api::core::v1::Volume"),
    (&["mountPath", "name", "mountPropagation", "subPath"], "k8s_openapi::api::core::v1::VolumeMount"),
    (&["limits", "requests", "claims"], "k8s_openapi::api::core::v1::ResourceRequirements"),
    (&["fsGroup", "supplementalGroups", "sysctls"], "k8s_openapi::api::core::v1::PodSecurityContext"),
    (&["capabilities", "privileged", "readOnlyRootFilesystem"], "k8s_openapi::api::core::v1::SecurityContext"),
    (&["name", "value", "valueFrom"], "k8s_openapi::api::core::v1::EnvVar"),
    (&["accessModes", "volumeName", "storageClassName"], "k8s_openapi::api::core::v1::PersistentVolumeClaimSpec"),
];

/// The library's type of a field, if it has one.
pub fn type_of(parent: &str, property: &str, schema: &Value) -> Option<&'static str> {
    let properties = schema["properties"].as_object()?;
    let has = |names: &[&str]| names.iter().all(|name| properties.contains_key(*name));
    if properties.len() == 2 && has(&["matchExpressions", "matchLabels"]) {
        return Some("k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector");
    }
    // A MachineDeployment's strategy has the same shape, and is not a Deployment's.
    if property == "strategy" && (parent.starts_with("Kamaji") || parent.starts_with("TenantControlPlane")) {
        return Some("k8s_openapi::api::apps::v1::DeploymentStrategy");
    }
    // A volume without a name is a source of one: its own struct.
    SHAPES.iter().find(|(names, _)| has(names)).map(|(_, library)| *library)
}
