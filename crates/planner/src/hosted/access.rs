//! Who gets into a tenant's API server without a name, and what is written down of those who get in.
//!
//! Flows: version, the user's arguments, the switch -> configuration files in a ConfigMap -> arguments of the API server. Holds: what the user says in
//! arguments of the same purpose wins whole, because the API server refuses both together; the audit log never has a body, so no Secret is in it.

use hangar_api::{Object, control_plane_arguments};
use serde_json::{Value, json};

use super::{ControlPlane, read_only};

/// Set to `false`, nothing is written to the audit log.
pub const AUDIT_ANNOTATION: &str = "hangar.dev/audit-log";
/// Where the files are.
pub const DIRECTORY: &str = "/etc/kubernetes/configuration";
const SUFFIX: &str = "-api-server-configuration";
const AUTHENTICATION: &str = "authentication.yaml";
const AUDIT_POLICY: &str = "audit-policy.yaml";
/// From here on conditions for anonymous requests are known without a feature gate.
const ANONYMOUS_CONDITIONS_SINCE: (u64, u64) = (1, 32);

/// Probes of the kubelet, and what a node reads before it trusts anybody.
const ANONYMOUS_PATHS: [&str; 4] =
    ["/livez", "/readyz", "/healthz", "/api/v1/namespaces/kube-public/configmaps/cluster-info"];

/// The files of the API server's configuration, and the arguments that name them.
#[derive(Debug, Default, PartialEq)]
pub struct Configuration {
    pub files: Vec<(&'static str, Value)>,
    pub arguments: Vec<(&'static str, String)>,
}

impl Configuration {
    pub fn of(plane: &ControlPlane) -> Self {
        let mut configuration = Self::default();
        let given = |fits: &dyn Fn(&str) -> bool| {
            plane.api_server.extra_args.iter().any(|argument| fits(&control_plane_arguments::name(argument)))
        };
        let (major, minor) = ANONYMOUS_CONDITIONS_SINCE;
        let is_own =
            |name: &str| ["anonymous-auth", "authentication-config"].contains(&name) || name.starts_with("oidc-");
        if plane.version.at_least(major, minor) && !given(&is_own) {
            configuration.add(AUTHENTICATION, authentication(), "authentication-config");
        }
        if plane.audit && !given(&|name| name.starts_with("audit-")) {
            configuration.add(AUDIT_POLICY, audit_policy(), "audit-policy-file");
            // To the container's output, whose size the kubelet bounds.
            configuration.arguments.push(("audit-log-path", "-".to_owned()));
        }
        if plane.read_only && read_only::is_possible(&plane.version) {
            let nobody = format!("{DIRECTORY}/{}", read_only::NOBODY);
            let authorization = read_only::authorization(&plane.version, &nobody);
            configuration.add(read_only::AUTHORIZATION, authorization, read_only::ARGUMENT);
            configuration.files.push((read_only::NOBODY, read_only::nobody()));
        }
        configuration
    }

    /// Whether it says itself who may do what: then nothing else may.
    pub fn has_authorizers(&self) -> bool {
        self.arguments.iter().any(|(argument, _)| *argument == read_only::ARGUMENT)
    }

    fn add(&mut self, file: &'static str, content: Value, argument: &'static str) {
        self.files.push((file, content));
        self.arguments.push((argument, format!("{DIRECTORY}/{file}")));
    }

    /// The files, if there are any.
    pub fn map(&self, plane: &ControlPlane) -> Option<Object> {
        if self.files.is_empty() {
            return None;
        }
        let mut map = Object::named("v1", "ConfigMap", &plane.namespace, &plane.object(SUFFIX));
        map.0["metadata"]["labels"] = plane.labels("kube-apiserver");
        for (file, content) in &self.files {
            map.0["data"][*file] = format!("{content:#}\n").into();
        }
        Some(map)
    }

    /// Adds the files to the pod of an API server, which does not read all of them again: another content is another pod.
    pub fn join_pod(&self, plane: &ControlPlane, template: &mut Value) {
        if self.files.is_empty() {
            return;
        }
        let content: Vec<&Value> = self.files.iter().map(|(_, content)| content).collect();
        template["metadata"]["annotations"]["hangar.dev/configuration"] =
            crate::intent::fingerprint(&json!(content)).into();
        let mount = json!({ "name": "configuration", "mountPath": DIRECTORY, "readOnly": true });
        let volume = json!({ "name": "configuration", "configMap": { "name": plane.object(SUFFIX) } });
        for (list, item) in [("/spec/containers/0/volumeMounts", mount), ("/spec/volumes", volume)] {
            template
                .pointer_mut(list)
                .and_then(Value::as_array_mut)
                .into_iter()
                .for_each(|list| list.push(item.clone()));
        }
    }
}

fn authentication() -> Value {
    let conditions: Vec<Value> = ANONYMOUS_PATHS.iter().map(|path| json!({ "path": path })).collect();
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthenticationConfiguration",
        "anonymous": { "enabled": true, "conditions": conditions },
    })
}

/// Changes, reads of Secrets by people and their programs, and ways into containers; who, what and when, never the content.
fn audit_policy() -> Value {
    const READS: [&str; 3] = ["get", "list", "watch"];
    let resources = |group: &str, names: &[&str]| json!([{ "group": group, "resources": names }]);
    let components = ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"];
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "Metadata", "resources": resources("", &["pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "nodes/proxy", "services/proxy"]) },
            { "level": "None", "userGroups": ["system:nodes", "system:serviceaccounts:kube-system"], "verbs": READS },
            { "level": "None", "users": components, "verbs": READS },
            { "level": "Metadata", "verbs": READS, "resources": resources("", &["secrets"]) },
            { "level": "None", "verbs": READS },
            { "level": "None", "resources": [
                { "group": "", "resources": ["events", "endpoints"] },
                { "group": "events.k8s.io", "resources": ["events"] },
                { "group": "coordination.k8s.io", "resources": ["leases"] },
                { "group": "discovery.k8s.io", "resources": ["endpointslices"] },
                { "group": "authentication.k8s.io", "resources": ["tokenreviews"] },
                { "group": "authorization.k8s.io" },
            ] },
            { "level": "None", "userGroups": ["system:nodes"], "resources": resources("", &["nodes/status", "pods/status"]) },
            { "level": "Metadata" },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosted::tests::world;
    use crate::kamaji_control_plane::tests::model;

    #[test]
    fn what_the_user_says_wins_whole_and_old_versions_keep_their_default() {
        let names = |version: &str, arguments: &[&str], audit: bool| {
            let mut plane = model(&world(json!({ "version": version })));
            plane.api_server.extra_args = arguments.iter().map(|it| (*it).to_owned()).collect();
            plane.audit = audit;
            let configuration = Configuration::of(&plane);
            configuration.arguments.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
        };
        let all = "authentication-config audit-policy-file audit-log-path";
        for (version, arguments, audit, expected) in [
            ("v1.34.4", &[][..], true, all),
            ("v1.32.0", &["--v=4"], true, all),
            ("v1.31.9", &[], true, "audit-policy-file audit-log-path"),
            ("v1.34.4", &["--anonymous-auth=false"], true, "audit-policy-file audit-log-path"),
            ("v1.34.4", &["--oidc_issuer_url=https://x"], true, "audit-policy-file audit-log-path"),
            ("v1.34.4", &["--authentication-config=/x"], true, "audit-policy-file audit-log-path"),
            ("v1.34.4", &["--audit-webhook-config-file=/x"], true, "authentication-config"),
            ("v1.34.4", &[], false, "authentication-config"),
            ("v1.28.10", &[], false, ""),
        ] {
            assert_eq!(names(version, arguments, audit), expected, "{version} {arguments:?} {audit}");
        }
        assert!(Configuration::default().map(&model(&world(json!({})))).is_none());
    }

    #[test]
    fn no_body_is_ever_logged() {
        let policy = audit_policy();
        for rule in policy["rules"].as_array().unwrap() {
            assert!(["None", "Metadata"].contains(&rule["level"].as_str().unwrap()), "{rule}");
        }
    }
}
