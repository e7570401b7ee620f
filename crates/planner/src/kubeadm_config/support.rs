//! Which fields of a spec are honoured, for which version of kubeadm and in which format; all others are refused by name.
//!
//! Holds: nothing that a user wrote is left out without a word. A field that this table does not know is refused, so that one that a new schema brings is too.

use hangar_api::KubeVersion;
use serde_json::Value;

/// Paths of fields as far as all below them is honoured; `[]` is any item, `*` any name.
const HONOURED: &[&str] = &[
    "bootCommands",
    "diskSetup",
    "files",
    "format",
    "ignition.containerLinuxConfig.additionalConfig",
    "ignition.containerLinuxConfig.strict",
    "joinConfiguration.caCertPath",
    "joinConfiguration.discovery",
    "joinConfiguration.nodeRegistration",
    "joinConfiguration.patches",
    "joinConfiguration.skipPhases",
    "joinConfiguration.timeouts",
    "mounts",
    "ntp",
    "postKubeadmCommands",
    "preKubeadmCommands",
    "users",
    "verbosity",
];

/// Why a field is not honoured.
const REFUSED: &[(&str, &str)] = &[
    (
        "clusterConfiguration",
        "is for control planes on machines, which are not built yet; workers take it from the cluster",
    ),
    ("initConfiguration", "is for control planes on machines, which are not built yet"),
    ("joinConfiguration.controlPlane", "is for control planes on machines, which are not built yet"),
];

/// What kubeadm knows from a minor version on.
const SINCE: &[(&str, u64)] = &[
    ("joinConfiguration.skipPhases", 22),
    ("joinConfiguration.patches", 22),
    ("joinConfiguration.nodeRegistration.imagePullPolicy", 22),
    ("joinConfiguration.nodeRegistration.imagePullSerial", 31),
    ("joinConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds", 31),
    ("joinConfiguration.timeouts.discoverySeconds", 31),
    ("joinConfiguration.timeouts.etcdAPICallSeconds", 31),
    ("joinConfiguration.timeouts.kubeletHealthCheckSeconds", 31),
    ("joinConfiguration.timeouts.kubernetesAPICallSeconds", 31),
];

/// The first field that is not honoured, and why.
pub fn refusal(spec: &Value, version: Option<&KubeVersion>) -> Option<String> {
    let mut leaves = vec![];
    walk(spec, "", &mut leaves);
    leaves.iter().find_map(|leaf| field(leaf, version))
}

fn field(path: &str, version: Option<&KubeVersion>) -> Option<String> {
    let lies_in =
        |table: &str| path == table || path.strip_prefix(table).is_some_and(|rest| rest.starts_with(['.', '[']));
    if let Some((field, why)) = REFUSED.iter().find(|(field, _)| lies_in(field)) {
        return Some(format!("spec.{field} {why}"));
    }
    if !HONOURED.iter().any(|honoured| lies_in(honoured)) {
        return Some(format!("spec.{path} is not built yet"));
    }
    let (field, minor) = SINCE.iter().find(|(field, _)| lies_in(field))?;
    let is_older = version.is_some_and(|version| !version.at_least(1, *minor));
    is_older.then(|| format!("spec.{field} is known to kubeadm from v1.{minor} on; remove it"))
}

/// Paths of all values that are not empty.
fn walk(value: &Value, path: &str, leaves: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                walk(value, &below, leaves);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, &format!("{path}[]"), leaves)),
        _ => leaves.push(path.to_owned()),
    }
}
