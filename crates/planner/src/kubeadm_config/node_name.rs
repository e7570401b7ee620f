//! Under which name a machine will register, if that is known before it starts: then its token is good for that name only.
//!
//! Holds: a name that somebody else decides (another provider, a template of the user, a command that changes the hostname) is not guessed, because a wrong guess keeps a node out.

use hangar_api::kinds::{KamajiControlPlane, OpenStackMachine};
use hangar_api::{Kind as _, Object, references};
use serde_json::Value;

use super::contents::Contents;

/// What cloud-init calls the name of the server.
const HOSTNAMES: [&str; 3] = ["local_hostname", "v1.local_hostname", "ds.meta_data.local_hostname"];
/// A longer one is cut off by the operating system.
const LONGEST: usize = 63;

/// Nothing where no name can be relied on, or where the control plane knows no such tokens because it is not one of ours.
pub fn expected(config: &Object, contents: &Contents, machine: &Object, cluster: &Object) -> Option<String> {
    let plane = references::target(cluster, "/spec/controlPlaneRef")?;
    if (plane.group.as_str(), plane.kind.as_str()) != (KamajiControlPlane::GROUP, KamajiControlPlane::KIND) {
        return None;
    }
    // What is added to an Ignition config may give the machine any name.
    if config.get("/spec/format") == "ignition" {
        return None;
    }
    let registration = config.get("/spec/joinConfiguration/nodeRegistration");
    let mut arguments = registration["kubeletExtraArgs"].as_array().into_iter().flatten();
    if arguments.any(|argument| argument["name"] == "hostname-override") {
        return None;
    }
    let written = registration["name"].as_str().unwrap_or_default().trim();
    let template = written.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")).map(str::trim);
    match template {
        Some(variable) => HOSTNAMES.contains(&variable).then(|| server(machine))?,
        None if written.contains('{') => None,
        None if written.is_empty() => server(machine).filter(|_| !sets_hostname(config.get("/spec"), contents)),
        None => Some(written.to_lowercase()),
    }
}

/// Nova gives the server's name as hostname, as long as it is one.
fn server(machine: &Object) -> Option<String> {
    let server = references::target(machine, "/spec/infrastructureRef")?;
    let is_hostname = server.name.len() <= LONGEST && !server.name.contains('.');
    let is_ours = (server.group.as_str(), server.kind.as_str()) == (OpenStackMachine::GROUP, OpenStackMachine::KIND);
    (is_ours && is_hostname).then(|| server.name.to_lowercase())
}

/// Whether something that the user runs or writes may give the machine another name before it joins.
fn sets_hostname(spec: &Value, contents: &Contents) -> bool {
    contents.mention("hostname")
        || ["bootCommands", "preKubeadmCommands", "files"]
            .iter()
            .any(|field| spec[*field].to_string().contains("hostname"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{CORE, cluster, object};

    #[test]
    fn a_name_is_known_or_not_guessed() {
        let name = |spec: Value, contents: &Contents, server: (&str, &str), plane: &str| {
            let config =
                Object(object("bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfig", "k", json!({ "spec": spec })));
            let infra = json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": server.0, "name": server.1 });
            let machine = Object(object(CORE, "Machine", "m", json!({ "spec": { "infrastructureRef": infra } })));
            let plane = json!({ "apiGroup": "controlplane.cluster.x-k8s.io", "kind": plane, "name": "p" });
            expected(&config, contents, &machine, &Object(cluster(json!({ "spec": { "controlPlaneRef": plane } }))))
        };
        let called = |text: &str| json!({ "joinConfiguration": { "nodeRegistration": { "name": text } } });
        const OURS: (&str, &str) = ("OpenStackMachine", "s-1");
        const PLANE: &str = "KamajiControlPlane";
        let long = "x".repeat(64);
        for (what, spec, server, plane, expected) in [
            ("nothing is said", json!({}), OURS, PLANE, Some("s-1")),
            ("the usual template", called("{{ local_hostname }}"), OURS, PLANE, Some("s-1")),
            ("the same", called("{{ds.meta_data.local_hostname}}"), OURS, PLANE, Some("s-1")),
            ("a fixed name", called("Gateway"), OURS, PLANE, Some("gateway")),
            ("a fixed name elsewhere", called("gateway"), ("Metal3Machine", "s-1"), PLANE, Some("gateway")),
            ("another template", called("w-{{ local_hostname }}"), OURS, PLANE, None),
            ("another variable", called("{{ ds.meta_data.uuid }}"), OURS, PLANE, None),
            ("another provider", called("{{ local_hostname }}"), ("Metal3Machine", "s-1"), PLANE, None),
            ("another control plane", called("gateway"), OURS, "KubeadmControlPlane", None),
            ("no hostname", json!({}), ("OpenStackMachine", "s.1"), PLANE, None),
            ("too long a hostname", json!({}), ("OpenStackMachine", &long), PLANE, None),
            ("a command", json!({ "preKubeadmCommands": ["hostnamectl set-hostname x"] }), OURS, PLANE, None),
            (
                "an argument of the kubelet",
                json!({ "joinConfiguration": { "nodeRegistration": { "kubeletExtraArgs": [{ "name": "hostname-override", "value": "x" }] } } }),
                OURS,
                PLANE,
                None,
            ),
        ] {
            assert_eq!(name(spec, &Contents::default(), server, plane).as_deref(), expected, "{what}");
        }
        let script = |text: &str| Contents([(("s".into(), "k".into()), Ok(text.into()))].into());
        assert_eq!(name(json!({}), &script("hostnamectl hostname x"), OURS, PLANE), None, "a script from a Secret");
        assert_eq!(name(json!({}), &script("ntp"), OURS, PLANE).as_deref(), Some("s-1"), "another file from a Secret");
    }
}
