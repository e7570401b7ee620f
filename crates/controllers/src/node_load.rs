//! What runs on a Node and what is attached to it, asked while its Machine is being deleted.
//!
//! Holds: nobody watches; each question is asked only when its answer decides something.

use std::collections::BTreeSet;

use hangar_api::{Object, ObjectKey};
use hangar_engine::management::api_for;
use hangar_planner::World;
use hangar_planner::machine::{Facts, Load, Machines, NodeLoad, Tenant, Volumes, deletion};
use jiff::Timestamp;
use kube::Client;
use kube::api::ListParams;

use crate::tenant_calls::{Failure, is_not_found, words};

/// The load of the Node, as far as it matters now.
pub async fn read(client: Result<Client, Failure>, world: &World<Machines>, facts: &mut Facts, now: Timestamp) {
    let Tenant::Node(node) = facts.tenant.clone() else { return };
    if !deletion::needs_pods(world, facts, now) {
        return;
    }
    facts.load = match client {
        Ok(client) => ask(&client, world, facts, &node, now).await.unwrap_or_else(Load::Unknown),
        Err(why) => Load::Unknown(why),
    };
}

async fn ask(
    client: &Client,
    world: &World<Machines>,
    facts: &Facts,
    node: &Object,
    now: Timestamp,
) -> Result<Load, Failure> {
    let on_node = ListParams::default().fields(&format!("spec.nodeName={}", node.name()));
    let mut load = NodeLoad { pods: list(client, "", "Pod", &on_node).await?, ..NodeLoad::default() };
    if deletion::needs_namespaces(world) {
        let namespaces = list(client, "", "Namespace", &ListParams::default()).await?;
        load.namespaces = namespaces.iter().map(|one| (one.name().to_owned(), one.labels())).collect();
    }
    let mut facts = Facts { load: Load::Read(load), ..facts.clone() };
    if deletion::needs_volumes(world, &facts, now) {
        let kept = deletion::keeps_volumes(world, &facts, now);
        if let Load::Read(load) = &mut facts.load {
            load.volumes = Some(volumes(client, node, &load.pods, &kept).await?);
        }
    }
    Ok(facts.load)
}

async fn list(client: &Client, group: &str, kind: &str, params: &ListParams) -> Result<Vec<Object>, Failure> {
    let api = api_for(client, &ObjectKey::new(group, kind, "", ""));
    let answer = api.list(params).await.map_err(|error| words(&error))?;
    Ok(answer.items.into_iter().map(hangar_engine::received::Received::into_object).collect())
}

/// What is attached, by the Node's own word and by that of the attachments; and what belongs to pods that stay.
async fn volumes(client: &Client, node: &Object, pods: &[Object], kept: &[String]) -> Result<Volumes, Failure> {
    let by_node = node.get("/status/volumesAttached").as_array().into_iter().flatten();
    let mut attached: BTreeSet<String> =
        by_node.filter_map(|volume| Some(volume["name"].as_str()?.to_owned())).collect();
    let attachments = list(client, "storage.k8s.io", "VolumeAttachment", &ListParams::default()).await?;
    let here = attachments.iter().filter(|attachment| attachment.text("/spec/nodeName") == node.name());
    attached.extend(here.map(|attachment| attachment.text("/spec/source/persistentVolumeName").to_owned()));
    attached.remove("");
    let mut in_use = BTreeSet::new();
    if !attached.is_empty() {
        for pod in pods.iter().filter(|pod| kept.iter().any(|uid| uid == pod.uid())) {
            for claim in claims(pod) {
                in_use.extend(volume_of(client, pod.namespace(), &claim).await?);
            }
        }
    }
    Ok(Volumes { attached, in_use })
}

/// Names of the claims that a pod uses.
fn claims(pod: &Object) -> Vec<String> {
    let volumes = pod.get("/spec/volumes").as_array().into_iter().flatten();
    let claim = |volume: &serde_json::Value| match volume["persistentVolumeClaim"]["claimName"].as_str() {
        Some(name) => Some(name.to_owned()),
        None if volume["ephemeral"].is_object() => Some(format!("{}-{}", pod.name(), volume["name"].as_str()?)),
        None => None,
    };
    volumes.filter_map(claim).collect()
}

/// The volume of a claim: its own name, and what a Node calls it.
async fn volume_of(client: &Client, namespace: &str, claim: &str) -> Result<Vec<String>, Failure> {
    let Some(claim) = get(client, ObjectKey::new("", "PersistentVolumeClaim", namespace, claim)).await? else {
        return Ok(vec![]);
    };
    let name = claim.text("/spec/volumeName").to_owned();
    if name.is_empty() {
        return Ok(vec![]);
    }
    let volume = get(client, ObjectKey::new("", "PersistentVolume", "", &name)).await?;
    let on_node = volume.map(|volume| {
        let csi = |field: &str| volume.text(&format!("/spec/csi/{field}")).to_owned();
        format!("kubernetes.io/csi/{}^{}", csi("driver"), csi("volumeHandle"))
    });
    Ok(on_node.into_iter().chain([name]).collect())
}

async fn get(client: &Client, key: ObjectKey) -> Result<Option<Object>, Failure> {
    match api_for(client, &key).get(&key.name).await {
        Ok(object) => Ok(Some(object.into_object())),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(words(&error)),
    }
}
