//! Claims of the class `standard` become directories, and the directories go with their claims.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::Node;

const CLASS: &str = "standard";
const PROVISIONER: &str = "hangar.dev/directory";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// The default class; a cluster that has one of this name keeps its own settings otherwise.
pub(super) async fn ensure_storage_class(client: &kube::Client) {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
    });
    let api: Api<StorageClass> = Api::all(client.clone());
    let params = PatchParams::apply("hangar-node").force();
    if let Err(error) = api.patch(CLASS, &params, &Patch::Apply(class)).await {
        tracing::warn!(%error, "could not create storage class {CLASS}: claims must be bound manually");
    }
}

pub(super) async fn run(node: Arc<Node>) {
    let (mut claims, mut volumes) = (node.watched.claims.changes(), node.watched.volumes.changes());
    loop {
        let done = provision(&node).await && reclaim(&node).await;
        let again = async {
            match done {
                true => std::future::pending().await,
                false => tokio::time::sleep(TRY_AGAIN).await,
            }
        };
        tokio::select! {
            changed = claims.changed() => if changed.is_err() { return },
            changed = volumes.changed() => if changed.is_err() { return },
            () = again => {}
        }
    }
}

/// A volume for every claim that waits for one. False: something has to be tried again.
async fn provision(node: &Node) -> bool {
    let api: Api<PersistentVolume> = Api::all(node.client.clone());
    let known: Vec<String> = node.watched.volumes.all().iter().map(|volume| volume.name_any()).collect();
    let mut done = true;
    for claim in node.watched.claims.all().iter().filter(|claim| waits(claim)) {
        let name = format!("pvc-{}", claim.uid().unwrap_or_default());
        if known.contains(&name) {
            continue;
        }
        let directory = node.options.volumes_dir.join(&name);
        if let Err(error) = super::files::private_directory(&directory) {
            let note = format!("{}: {error}", directory.display());
            node.events.warning(&**claim, "ProvisioningFailed", &note).await;
            done = false;
            continue;
        }
        let volume = volume(claim, &name, &directory.display().to_string(), &node.options.name);
        let params = PatchParams::apply("hangar-node").force();
        match api.patch(&name, &params, &Patch::Apply(volume)).await {
            Ok(_) => {
                node.events.normal(&**claim, "ProvisioningSucceeded", &format!("{name} is a local directory")).await
            }
            Err(error) => {
                tracing::warn!(volume = name, %error, "could not be written");
                done = false;
            }
        }
    }
    done
}

fn waits(claim: &PersistentVolumeClaim) -> bool {
    let Some(spec) = &claim.spec else { return false };
    let block = spec.volume_mode.as_deref() == Some("Block");
    spec.storage_class_name.as_deref() == Some(CLASS)
        && spec.volume_name.as_deref().unwrap_or_default().is_empty()
        && claim.metadata.deletion_timestamp.is_none()
        && !block
}

fn volume(claim: &PersistentVolumeClaim, name: &str, directory: &str, node: &str) -> Value {
    let spec = claim.spec.as_ref();
    let requests = spec.and_then(|spec| spec.resources.as_ref()).and_then(|resources| resources.requests.clone());
    let storage = requests.and_then(|requests| requests.get("storage").cloned());
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": storage.map_or_else(|| "1Gi".to_owned(), |quantity| quantity.0)},
            "accessModes": spec.and_then(|spec| spec.access_modes.clone()).unwrap_or_else(|| vec!["ReadWriteOnce".into()]),
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": CLASS,
            "hostPath": {"path": directory, "type": "DirectoryOrCreate"},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "name": claim.name_any(), "namespace": claim.namespace(), "uid": claim.uid(),
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
            ]}]}},
        },
    })
}

/// Volumes of ours whose claim is gone go with what is in them.
async fn reclaim(node: &Node) -> bool {
    let api: Api<PersistentVolume> = Api::all(node.client.clone());
    let mut done = true;
    for volume in node.watched.volumes.all().iter().filter(|volume| is_released(volume)) {
        if let Some(directory) = own_directory(node, volume)
            && let Err(error) = std::fs::remove_dir_all(&directory)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            node.events.warning(&**volume, "VolumeFailedDelete", &format!("{}: {error}", directory.display())).await;
            done = false;
            continue;
        }
        match api.delete(&volume.name_any(), &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(error)) if error.code == 404 => {}
            Err(error) => {
                tracing::warn!(volume = volume.name_any(), %error, "could not be deleted");
                done = false;
            }
        }
    }
    done
}

fn is_released(volume: &PersistentVolume) -> bool {
    let ours = volume.annotations().get(PROVISIONED_BY).is_some_and(|by| by == PROVISIONER);
    let delete =
        volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) == Some("Delete");
    let released = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
    ours && delete && released && volume.metadata.deletion_timestamp.is_none()
}

/// Only what lies where we make them: a path in an object can be anything.
fn own_directory(node: &Node, volume: &PersistentVolume) -> Option<PathBuf> {
    let path = PathBuf::from(&volume.spec.as_ref()?.host_path.as_ref()?.path);
    (path == node.options.volumes_dir.join(volume.name_any())).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unbound_claims_of_the_class_wait() {
        let rows = [
            (json!({"storageClassName": "standard"}), true),
            (json!({"storageClassName": "other"}), false),
            (json!({"storageClassName": "standard", "volumeName": "v"}), false),
            (json!({"storageClassName": "standard", "volumeMode": "Block"}), false),
            (json!({}), false),
        ];
        for (spec, expected) in rows {
            let claim = serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": spec})).unwrap();
            assert_eq!(waits(&claim), expected, "{spec}");
        }
    }
}
