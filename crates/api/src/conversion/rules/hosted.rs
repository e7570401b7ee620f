//! Hosted control planes: Kamaji's and k0smotron's, with the configurations of k0s workers.

use serde_json::Value;

use super::{Rule, moved, moved_below, rebuilt};

pub fn rules(kind: &str) -> Vec<Rule> {
    match kind {
        "KamajiControlPlane" => moved(&[
            ("status.initialized", "status.initialization.controlPlaneInitialized"),
            ("status.updatedReplicas", "status.upToDateReplicas"),
        ]),
        "K0smotronControlPlane" => {
            [k0smotron("spec"), moved(&[("status.updatedReplicas", "status.upToDateReplicas")])].concat()
        }
        "K0smotronControlPlaneTemplate" => k0smotron("spec.template.spec"),
        // k0smotron.io, not Cluster API's.
        "Cluster" => [k0smotron("spec"), deprecated(&["ready", "reconciliationStatus"])].concat(),
        "JoinTokenRequest" => {
            let spec = moved(&[("spec.clusterRef.name", "spec.clusterName")]);
            [spec, deprecated(&["clusterUID", "reconciliationStatus"])].concat()
        }
        "K0sWorkerConfig" | "K0sControllerConfig" => {
            [k0s_config("spec"), moved(&[("status.ready", "status.initialization.dataSecretCreated")])].concat()
        }
        "K0sWorkerConfigTemplate" => k0s_config("spec.template.spec"),
        _ => vec![],
    }
}

fn deprecated(names: &[&str]) -> Vec<Rule> {
    let pairs = names.iter().map(|name| (format!("status.{name}"), format!("status.deprecated.v1beta1.{name}")));
    pairs.flat_map(|(old, new)| moved(&[(&old, &new)])).collect()
}

fn k0smotron(prefix: &str) -> Vec<Rule> {
    let mut rules = moved_below(
        prefix,
        &[
            ("controllerPlaneFlags", "controlPlaneFlags"),
            ("etcd", "storage.etcd"),
            ("kineDataSourceURL", "storage.kine.dataSourceURL"),
            ("kineDataSourceSecretName", "storage.kine.dataSourceSecretName"),
            ("kubeconfigRef", "remoteHostCluster.kubeconfigRef"),
        ],
    );
    rules.push(rebuilt(&format!("{prefix}.storage"), name_kine, forget_kine));
    rules
}

/// In the old version a source for kine alone says that it is to be used.
fn name_kine(storage: &mut Value) {
    name(storage, "kine", "kine");
}

fn forget_kine(storage: &mut Value) {
    forget(storage, "kine", "kine");
}

fn k0s_config(prefix: &str) -> Vec<Rule> {
    let mut rules = moved_below(
        prefix,
        &[
            ("preStartCommands", "preK0sCommands"),
            ("postStartCommands", "postK0sCommands"),
            ("ignition", "provisioner.ignition"),
            ("customUserDataRef", "provisioner.customUserDataRef"),
        ],
    );
    rules.push(rebuilt(&format!("{prefix}.provisioner"), name_ignition, forget_ignition));
    rules
}

/// In the old version an ignition configuration alone says that ignition is to be used.
fn name_ignition(provisioner: &mut Value) {
    name(provisioner, "ignition", "ignition");
}

fn forget_ignition(provisioner: &mut Value) {
    forget(provisioner, "ignition", "ignition");
}

fn name(union: &mut Value, member: &str, kind: &str) {
    if let Some(fields) = union.as_object_mut().filter(|fields| fields.contains_key(member)) {
        fields.entry("type").or_insert_with(|| kind.into());
    }
}

fn forget(union: &mut Value, member: &str, kind: &str) {
    if let Some(fields) = union.as_object_mut().filter(|fields| fields.contains_key(member))
        && fields.get("type").is_some_and(|value| value == kind)
    {
        fields.remove("type");
    }
}
