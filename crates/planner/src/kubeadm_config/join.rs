//! kubeadm's JoinConfiguration, in the version that the node's kubeadm reads.

use hangar_api::KubeVersion;
use hangar_api::names::NODE_UNINITIALIZED_TAINT;
use serde_json::{Map, Value, json};

/// What a node must know to join.
pub struct Facts {
    /// `host:port`
    pub endpoint: String,
    pub token: String,
    /// Any of them may be the authority that answers.
    pub ca_hashes: Vec<String>,
    pub version: Option<KubeVersion>,
}

/// Extra arguments are a list from here on; before, they were a map.
const V1BETA4_SINCE: (u64, u64) = (1, 31);
const V1BETA3_SINCE: (u64, u64) = (1, 22);

fn api_version(version: Option<&KubeVersion>) -> &'static str {
    match version {
        Some(version) if !version.at_least(V1BETA3_SINCE.0, V1BETA3_SINCE.1) => "v1beta2",
        Some(version) if !version.at_least(V1BETA4_SINCE.0, V1BETA4_SINCE.1) => "v1beta3",
        _ => "v1beta4",
    }
}

/// The configuration of a worker, from the joinConfiguration that the user wrote (in the hub's form).
pub fn configuration(written: &Value, facts: &Facts) -> Value {
    let api_version = api_version(facts.version.as_ref());
    let mut registration = written["nodeRegistration"].as_object().cloned().unwrap_or_default();
    if api_version != "v1beta4"
        && let Some(arguments) = registration.remove("kubeletExtraArgs")
    {
        registration.insert("kubeletExtraArgs".into(), as_map(&arguments));
    }
    let mut taints = registration.get("taints").and_then(Value::as_array).cloned().unwrap_or_default();
    taints.push(json!({ "key": NODE_UNINITIALIZED_TAINT, "effect": "NoSchedule" }));
    registration.insert("taints".into(), taints.into());
    let mut configuration = json!({
        "apiVersion": format!("kubeadm.k8s.io/{api_version}"),
        "kind": "JoinConfiguration",
        "discovery": { "bootstrapToken": {
            "apiServerEndpoint": facts.endpoint, "token": facts.token, "caCertHashes": facts.ca_hashes,
        }},
        "nodeRegistration": registration,
    });
    for field in ["caCertPath", "skipPhases", "patches"] {
        if !written[field].is_null() {
            configuration[field] = written[field].clone();
        }
    }
    configuration
}

fn as_map(arguments: &Value) -> Value {
    let pairs = arguments.as_array().into_iter().flatten();
    let map: Map<String, Value> =
        pairs.filter_map(|pair| Some((pair["name"].as_str()?.to_owned(), pair["value"].clone()))).collect();
    map.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(version: &str) -> Facts {
        Facts {
            endpoint: "10.0.0.1:6443".into(),
            token: "abcdef.0123456789abcdef".into(),
            ca_hashes: vec!["sha256:00".into()],
            version: KubeVersion::parse(version),
        }
    }

    #[test]
    fn b6_the_configuration_is_one_that_the_nodes_kubeadm_reads() {
        let table = [
            ("v1.19.1", "v1beta2"),
            ("v1.27.1", "v1beta3"),
            ("v1.30.9", "v1beta3"),
            ("v1.31.0", "v1beta4"),
            ("", "v1beta4"),
        ];
        for (version, expected) in table {
            let configuration = configuration(&json!({}), &facts(version));
            assert_eq!(configuration["apiVersion"], format!("kubeadm.k8s.io/{expected}"), "{version}");
        }
    }

    #[test]
    fn arguments_are_a_map_before_v1beta4_and_a_list_since() {
        let written = json!({"nodeRegistration": {"name": "{{ local_hostname }}", "kubeletExtraArgs": [{"name": "cloud-provider", "value": "external"}]}});
        let old = configuration(&written, &facts("v1.28.10"));
        assert_eq!(old["nodeRegistration"]["kubeletExtraArgs"], json!({"cloud-provider": "external"}));
        assert_eq!(old["nodeRegistration"]["name"], "{{ local_hostname }}");
        let new = configuration(&written, &facts("v1.34.4"));
        assert_eq!(new["nodeRegistration"]["kubeletExtraArgs"], written["nodeRegistration"]["kubeletExtraArgs"]);
    }

    #[test]
    fn a_worker_starts_with_the_taint_that_its_machine_takes_away() {
        let configuration = configuration(
            &json!({"nodeRegistration": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}),
            &facts(""),
        );
        assert_eq!(configuration["nodeRegistration"]["taints"][1]["key"], NODE_UNINITIALIZED_TAINT);
    }
}
