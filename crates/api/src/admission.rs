//! What is filled in and what is refused before an object is stored, where a schema cannot say it. Hub versions only.
//!
//! Flows: object (and the old one on update) -> defaulted object, or every reason against it. Holds: pure; one function per kind.

use serde_json::{Value, json};

use crate::names::{CLUSTER_NAME_LABEL, DEPLOYMENT_NAME_LABEL};
use crate::object::Object;

/// Why an object is refused: where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub field: String,
    pub message: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Kinds with something to fill in or to check, as `group`, `plural`, `hub version`.
pub const ADMITTED: &[(&str, &str, &str)] = &[
    ("cluster.x-k8s.io", "machinedeployments", "v1beta2"),
    ("cluster.x-k8s.io", "machinesets", "v1beta2"),
    ("infrastructure.cluster.x-k8s.io", "openstackclusters", "v1beta1"),
    ("infrastructure.cluster.x-k8s.io", "openstackmachinetemplates", "v1beta1"),
];

/// The object as it should be stored.
pub fn admit(object: &Object, old: Option<&Object>) -> Result<Object, Vec<Refusal>> {
    match object.kind() {
        "MachineDeployment" => machine_deployment(object),
        "MachineSet" => machine_set(object),
        "OpenStackCluster" => open_stack_cluster(object, old),
        "OpenStackMachineTemplate" => old.map_or(Ok(()), |old| template(object, old)).map(|()| object.clone()),
        _ => Ok(object.clone()),
    }
}

fn machine_deployment(object: &Object) -> Result<Object, Vec<Refusal>> {
    let mut admitted = object.clone();
    let (name, cluster) = (object.name().to_owned(), object.text("/spec/clusterName").to_owned());
    let spec = &mut admitted.0["spec"];
    if is_empty(&spec["selector"]["matchLabels"]) && is_empty(&spec["selector"]["matchExpressions"]) {
        spec["selector"] = json!({ "matchLabels": { DEPLOYMENT_NAME_LABEL: name } });
        spec["template"]["metadata"]["labels"][DEPLOYMENT_NAME_LABEL] = name.into();
    }
    with_cluster_label(spec, &cluster);
    with_leading_v(spec);
    if spec["replicas"].is_null() {
        spec["replicas"] = 1.into();
    }
    if spec["rollout"]["strategy"].is_null() {
        spec["rollout"]["strategy"]["type"] = "RollingUpdate".into();
    }
    if spec["rollout"]["strategy"]["type"] == "RollingUpdate" {
        let rolling = &mut spec["rollout"]["strategy"]["rollingUpdate"];
        for (field, value) in [("maxSurge", 1), ("maxUnavailable", 0)] {
            if rolling[field].is_null() {
                rolling[field] = value.into();
            }
        }
    }
    selects_its_template(spec)?;
    Ok(admitted)
}

fn machine_set(object: &Object) -> Result<Object, Vec<Refusal>> {
    let mut admitted = object.clone();
    let cluster = object.text("/spec/clusterName").to_owned();
    let spec = &mut admitted.0["spec"];
    if is_empty(&spec["selector"]["matchLabels"]) && is_empty(&spec["selector"]["matchExpressions"]) {
        spec["selector"] = json!({ "matchLabels": { "cluster.x-k8s.io/set-name": object.name() } });
        spec["template"]["metadata"]["labels"]["cluster.x-k8s.io/set-name"] = object.name().into();
    }
    with_cluster_label(spec, &cluster);
    with_leading_v(spec);
    if spec["replicas"].is_null() {
        spec["replicas"] = 1.into();
    }
    selects_its_template(spec)?;
    Ok(admitted)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn with_cluster_label(spec: &mut Value, cluster: &str) {
    spec["selector"]["matchLabels"][CLUSTER_NAME_LABEL] = cluster.into();
    spec["template"]["metadata"]["labels"][CLUSTER_NAME_LABEL] = cluster.into();
}

fn with_leading_v(spec: &mut Value) {
    let version = &mut spec["template"]["spec"]["version"];
    if let Some(text) = version.as_str().filter(|text| !text.is_empty() && !text.starts_with('v')) {
        *version = format!("v{text}").into();
    } else if version.is_null()
        && let Some(template) = spec["template"]["spec"].as_object_mut()
    {
        template.remove("version");
    }
}

fn selects_its_template(spec: &Value) -> Result<(), Vec<Refusal>> {
    let labels = &spec["template"]["metadata"]["labels"];
    let wanted = spec["selector"]["matchLabels"].as_object().into_iter().flatten();
    let refusals: Vec<Refusal> = wanted
        .filter(|(name, value)| labels.get(name.as_str()) != Some(value))
        .map(|(name, value)| Refusal {
            field: format!("spec.template.metadata.labels[{name}]"),
            message: format!(
                "must be {value}, because spec.selector asks for it; add the label or drop it from the selector"
            ),
        })
        .collect();
    if refusals.is_empty() { Ok(()) } else { Err(refusals) }
}

/// The fields of an OpenStackCluster's spec that may change at any time.
const MUTABLE: &[&str] = &[
    "identityRef",
    "bastion",
    "managedSecurityGroups",
    "controlPlaneAvailabilityZones",
    "controlPlaneOmitAvailabilityZone",
];

fn open_stack_cluster(object: &Object, old: Option<&Object>) -> Result<Object, Vec<Refusal>> {
    let Some(old) = old else { return Ok(object.clone()) };
    let mut admitted = object.clone();
    // Manifests say "" for "let the control plane fill it in": applying one again must not take the address away.
    let filled = old.text("/spec/apiServerFixedIP");
    if object.get("/spec/apiServerFixedIP") == "" && !filled.is_empty() {
        admitted.0["spec"]["apiServerFixedIP"] = filled.into();
    }
    let (new_spec, old_spec) = (&admitted.0["spec"], &old.0["spec"]);
    let names: std::collections::BTreeSet<&String> =
        [new_spec, old_spec].into_iter().filter_map(Value::as_object).flat_map(|spec| spec.keys()).collect();
    let refusals: Vec<Refusal> = names
        .into_iter()
        .filter(|name| new_spec.get(name.as_str()) != old_spec.get(name.as_str()))
        .filter(|name| !MUTABLE.contains(&name.as_str()) && !fills_in(name, old_spec))
        .map(|name| Refusal {
            field: format!("spec.{name}"),
            message: "cannot be changed once set; make a new cluster, or set it back".into(),
        })
        .collect();
    if refusals.is_empty() { Ok(admitted) } else { Err(refusals) }
}

/// A hosted control plane brings the endpoint later: what is empty or absent may be filled in once.
fn fills_in(name: &str, old_spec: &Value) -> bool {
    match name {
        "controlPlaneEndpoint" => old_spec["controlPlaneEndpoint"]["host"].as_str().unwrap_or_default().is_empty(),
        "apiServerFixedIP" => {
            old_spec["disableAPIServerFloatingIP"] == true
                && old_spec["apiServerFixedIP"].as_str().unwrap_or_default().is_empty()
        }
        "apiServerPort" => old_spec["disableAPIServerFloatingIP"] == true && old_spec["apiServerPort"].is_null(),
        _ => false,
    }
}

fn template(object: &Object, old: &Object) -> Result<(), Vec<Refusal>> {
    if object.get("/spec/template/spec") == old.get("/spec/template/spec") {
        return Ok(());
    }
    Err(vec![Refusal {
        field: "spec.template.spec".into(),
        message: "cannot be changed, machines were made from it; make a new template and refer to that one".into(),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(spec: Value) -> Object {
        let mut object = Object::named("cluster.x-k8s.io/v1beta2", "MachineDeployment", "default", "md-0");
        object.0["spec"] = spec;
        object
    }

    #[test]
    fn a_missing_selector_selects_the_deployments_own_machines() {
        for selector in [json!(null), json!({}), json!({"matchLabels": null})] {
            let object = deployment(
                json!({"clusterName": "c", "selector": selector, "template": {"spec": {"version": "1.28.10"}}}),
            );
            let admitted = admit(&object, None).unwrap();
            let labels = json!({DEPLOYMENT_NAME_LABEL: "md-0", CLUSTER_NAME_LABEL: "c"});
            assert_eq!(admitted.get("/spec/selector/matchLabels"), &labels);
            assert_eq!(admitted.get("/spec/template/metadata/labels"), &labels);
            assert_eq!(admitted.get("/spec/template/spec/version"), "v1.28.10");
            assert_eq!(admitted.get("/spec/rollout/strategy/rollingUpdate/maxSurge"), 1);
        }
    }

    #[test]
    fn admitting_twice_changes_nothing() {
        let once = admit(&deployment(json!({"clusterName": "c", "template": {"spec": {}}})), None).unwrap();
        assert_eq!(admit(&once, Some(&once)).unwrap(), once);
    }

    #[test]
    fn a_selector_that_misses_the_template_is_refused() {
        let object =
            deployment(json!({"clusterName": "c", "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {}}}));
        assert_eq!(admit(&object, None).unwrap_err()[0].field, "spec.template.metadata.labels[a]");
    }

    #[test]
    fn an_endpoint_is_filled_in_once() {
        let cluster = |spec: Value| {
            let mut object =
                Object::named("infrastructure.cluster.x-k8s.io/v1beta1", "OpenStackCluster", "default", "c");
            object.0["spec"] = spec;
            object
        };
        let empty = cluster(json!({"disableAPIServerFloatingIP": true, "apiServerFixedIP": ""}));
        let filled = cluster(json!({"disableAPIServerFloatingIP": true, "apiServerFixedIP": "10.0.0.1"}));
        let other = cluster(json!({"disableAPIServerFloatingIP": true, "apiServerFixedIP": "10.0.0.2"}));
        assert!(admit(&filled, Some(&empty)).is_ok());
        assert_eq!(admit(&empty, Some(&filled)).unwrap(), filled);
        assert_eq!(admit(&other, Some(&filled)).unwrap_err()[0].field, "spec.apiServerFixedIP");
    }
}
