//! kubeadm's JoinConfiguration, in the version that the node's kubeadm reads.

use hangar_api::KubeVersion;
use hangar_api::names::NODE_UNINITIALIZED_TAINT;
use serde_json::{Map, Value, json};

use super::discovery;

/// What a node must know to join.
pub struct Facts {
    /// `host:port`
    pub endpoint: String,
    /// Made by Hangar.
    pub token: Option<String>,
    /// Any of them may be the authority that answers.
    pub ca_hashes: Vec<String>,
    pub ca_pem: String,
    pub control_plane_version: Option<String>,
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
pub fn configuration(written: &Value, facts: &Facts) -> Result<Value, String> {
    let api_version = api_version(facts.version.as_ref());
    let mut registration = written["nodeRegistration"].as_object().cloned().unwrap_or_default();
    if api_version != "v1beta4"
        && let Some(arguments) = registration.remove("kubeletExtraArgs")
    {
        registration.insert("kubeletExtraArgs".into(), as_map(&arguments)?);
    }
    let mut taints = registration.get("taints").and_then(Value::as_array).cloned().unwrap_or_default();
    taints.push(json!({ "key": NODE_UNINITIALIZED_TAINT, "effect": "NoSchedule" }));
    registration.insert("taints".into(), taints.into());
    let mut configuration = json!({
        "apiVersion": format!("kubeadm.k8s.io/{api_version}"),
        "kind": "JoinConfiguration",
        "discovery": discovery::discovery(&written["discovery"], facts)?,
        "nodeRegistration": registration,
    });
    for field in ["caCertPath", "skipPhases", "patches"] {
        if !written[field].is_null() {
            configuration[field] = written[field].clone();
        }
    }
    let timeouts = timeouts(&written["timeouts"]);
    match timeouts.get("tlsBootstrap") {
        _ if timeouts.is_empty() => {}
        // The only one that there was, under another name.
        Some(time) if api_version != "v1beta4" => configuration["discovery"]["timeout"] = time.clone(),
        _ => configuration["timeouts"] = timeouts.into(),
    }
    Ok(configuration)
}

fn timeouts(written: &Value) -> Map<String, Value> {
    let all = written.as_object().into_iter().flatten();
    let durations = all.filter_map(|(name, seconds)| {
        Some((name.strip_suffix("Seconds")?.to_owned(), format!("{}s", seconds.as_i64()?).into()))
    });
    durations.collect()
}

fn as_map(arguments: &Value) -> Result<Value, String> {
    let mut map = Map::new();
    for pair in arguments.as_array().into_iter().flatten() {
        let name = pair["name"].as_str().unwrap_or_default();
        if map.insert(name.to_owned(), pair["value"].clone()).is_some() {
            return Err(format!(
                "spec.joinConfiguration.nodeRegistration.kubeletExtraArgs: {name} is there twice, which kubeadm takes from v1.31 on"
            ));
        }
    }
    Ok(map.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(version: &str) -> Facts {
        Facts {
            endpoint: "10.0.0.1:6443".into(),
            token: Some("abcdef.0123456789abcdef".into()),
            ca_hashes: vec!["sha256:00".into()],
            ca_pem: "PEM".into(),
            control_plane_version: None,
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
            let configuration = configuration(&json!({}), &facts(version)).unwrap();
            assert_eq!(configuration["apiVersion"], format!("kubeadm.k8s.io/{expected}"), "{version}");
        }
    }

    #[test]
    fn arguments_are_a_map_before_v1beta4_and_a_list_since() {
        let written = json!({"nodeRegistration": {"name": "{{ local_hostname }}", "kubeletExtraArgs": [{"name": "cloud-provider", "value": "external"}]}});
        let old = configuration(&written, &facts("v1.28.10")).unwrap();
        assert_eq!(old["nodeRegistration"]["kubeletExtraArgs"], json!({"cloud-provider": "external"}));
        assert_eq!(old["nodeRegistration"]["name"], "{{ local_hostname }}");
        let new = configuration(&written, &facts("v1.34.4")).unwrap();
        assert_eq!(new["nodeRegistration"]["kubeletExtraArgs"], written["nodeRegistration"]["kubeletExtraArgs"]);
    }

    #[test]
    fn a_worker_starts_with_the_taint_that_its_machine_takes_away() {
        let configuration = configuration(
            &json!({"nodeRegistration": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}),
            &facts(""),
        )
        .unwrap();
        assert_eq!(configuration["nodeRegistration"]["taints"][1]["key"], NODE_UNINITIALIZED_TAINT);
    }

    #[test]
    fn b6_timeouts_are_written_as_the_nodes_kubeadm_reads_them() {
        let written = json!({ "timeouts": { "tlsBootstrapSeconds": 300, "kubeletHealthCheckSeconds": 60 } });
        let new = configuration(&written, &facts("v1.34.4")).unwrap();
        assert_eq!(new["timeouts"], json!({ "tlsBootstrap": "300s", "kubeletHealthCheck": "60s" }));
        let old = configuration(&json!({ "timeouts": { "tlsBootstrapSeconds": 300 } }), &facts("v1.28.10")).unwrap();
        assert_eq!((&old["discovery"]["timeout"], &old["timeouts"]), (&json!("300s"), &Value::Null));
    }

    #[test]
    fn an_argument_that_is_there_twice_is_no_map() {
        let twice = json!([{ "name": "v", "value": "1" }, { "name": "v", "value": "2" }]);
        let written = json!({ "nodeRegistration": { "kubeletExtraArgs": twice } });
        assert!(configuration(&written, &facts("v1.28.10")).unwrap_err().contains("v is there twice"));
        let new = configuration(&written, &facts("v1.34.4")).unwrap();
        assert_eq!(new["nodeRegistration"]["kubeletExtraArgs"], twice);
    }

    #[test]
    fn discovery_is_by_our_token_by_the_users_or_by_a_file() {
        let by = |discovery: Value| {
            configuration(&json!({ "discovery": discovery }), &facts("")).map(|it| it["discovery"].clone())
        };
        let own = json!({ "token": "own.token", "apiServerEndpoint": "a:1", "caCertHashes": ["sha256:11"] });
        let skips = json!({ "token": "own.token", "unsafeSkipCAVerification": true });
        let file = json!({ "file": { "kubeConfigPath": "/etc/k" }, "tlsBootstrapToken": "own.token" });
        for (written, expected) in [
            (json!({ "bootstrapToken": own }), json!({ "bootstrapToken": own })),
            (
                json!({ "bootstrapToken": skips }),
                json!({ "bootstrapToken": { "apiServerEndpoint": "10.0.0.1:6443", "token": "own.token", "unsafeSkipCAVerification": true } }),
            ),
            (file.clone(), file),
        ] {
            assert_eq!(by(written).unwrap(), expected);
        }
        assert!(by(json!({ "file": { "kubeConfigPath": "k" } })).unwrap_err().contains("must be an absolute path"));
        assert!(by(json!({ "file": { "kubeConfigPath": "/k" }, "bootstrapToken": {} })).unwrap_err().contains("both"));
    }
}
