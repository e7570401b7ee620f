//! What a MachinePool says of itself: counts of Nodes, its phase, and what is ready.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hangar_api::conditions::{Condition, Status};
use hangar_api::kinds::{
    MachinePool, MachinePoolStatusDeprecated, MachinePoolStatusDeprecatedV1beta1, MachinePoolStatusNodeRef,
    MachineSetStatusVersion, MachineStatusInitialization,
};
use hangar_api::{KubeVersion, Object};
use jiff::{SignedDuration, Timestamp};

use super::{BOOTSTRAP, DATA_SECRET, World, desired, infrastructure_pool, own_nodes};
use crate::report::READY;
use crate::{Progress, Report};

pub(super) fn describe(world: &World, progress: &Progress, report: &mut Report<MachinePool>) {
    let before = world.typed().status.clone().unwrap_or_default();
    let has_data = !world.object().text(DATA_SECRET).is_empty();
    let provisioned = infrastructure_pool(world).and_then(|pool| pool.provisioned()) == Some(true);
    let total = infrastructure_pool(world).and_then(|pool| pool.pool_replicas());
    let total = total.unwrap_or_else(|| world.typed().spec.provider_id_list.as_ref().map_or(0, |ids| count(ids.len())));
    let status = &mut report.status;
    status.initialization = Some(MachineStatusInitialization {
        bootstrap_data_secret_created: Some(has_data),
        infrastructure_provisioned: Some(provisioned),
    });
    status.replicas = Some(total);
    if world.facts.nodes.is_some() {
        let nodes = own_nodes(world);
        let ready = nodes.iter().filter(|node| ready_since(node).is_some()).count();
        let available = nodes.iter().filter(|node| left(world, node, report.now).is_some_and(|left| left.is_zero()));
        status.node_refs = Some(nodes.iter().map(|node| reference(node)).collect());
        status.ready_replicas = Some(count(ready));
        status.available_replicas = Some(count(available.count()));
        status.up_to_date_replicas = Some(count(nodes.iter().filter(|node| is_up_to_date(world, node)).count()));
        status.versions = Some(versions(&nodes)).filter(|versions| !versions.is_empty());
    } else {
        // A cluster that cannot be asked for a while has not lost its Nodes.
        status.node_refs = before.node_refs;
        status.ready_replicas = before.ready_replicas;
        status.available_replicas = before.available_replicas;
        status.up_to_date_replicas = before.up_to_date_replicas;
        status.versions = before.versions;
    }
    let (ready, available) = (status.ready_replicas.unwrap_or(0), status.available_replicas.unwrap_or(0));
    status.phase = Some(phase(world, has_data, provisioned, ready).to_owned());
    status.deprecated = Some(MachinePoolStatusDeprecated {
        v1beta1: Some(MachinePoolStatusDeprecatedV1beta1 {
            ready_replicas: Some(ready),
            available_replicas: Some(available),
            unavailable_replicas: Some((count(desired(world)) - available).max(0)),
            ..Default::default()
        }),
    });
    conditions(world, progress, report, has_data, provisioned);
}

fn conditions(world: &World, progress: &Progress, report: &mut Report<MachinePool>, has_data: bool, provisioned: bool) {
    let needs_data = world.object().get(BOOTSTRAP).is_object();
    let say = |kind: &str, good: bool, otherwise: &str| match progress.reason() {
        _ if good => Condition::new(kind, Status::True, kind, ""),
        Some(reason) => Condition::new(kind, Status::False, reason.code, reason.message.clone()),
        None => Condition::new(kind, Status::False, &format!("Not{kind}"), otherwise),
    };
    let available = report.status.available_replicas.unwrap_or(0);
    let wanted = count(desired(world));
    let is_done = progress.is_done() && !world.object().is_deleting();
    let text = format!("{available} of {wanted} Nodes are available");
    report.condition(say("Available", is_done && available >= wanted, &text));
    report.condition(say(READY, is_done && available >= wanted, &text));
    report.condition(say("BootstrapReady", has_data || !needs_data, "there is no bootstrap data yet"));
    report.condition(say("InfrastructureReady", provisioned, "the infrastructure is not provisioned yet"));
    let total = report.status.replicas.unwrap_or(0);
    report.flag("ScalingUp", provisioned && total < wanted, "NotScalingUp");
    report.flag("ScalingDown", provisioned && total > wanted, "NotScalingDown");
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn phase(world: &World, has_data: bool, provisioned: bool, ready: i32) -> &'static str {
    let wanted = count(desired(world));
    match (world.object().is_deleting(), has_data, provisioned) {
        (true, ..) => "Deleting",
        (_, _, true) if ready == wanted => "Running",
        (_, _, true) if ready < wanted => "ScalingUp",
        (_, _, true) => "ScalingDown",
        (_, true, _) => "Provisioning",
        _ => "Pending",
    }
}

fn reference(node: &Object) -> MachinePoolStatusNodeRef {
    MachinePoolStatusNodeRef {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(node.name().to_owned()),
        uid: Some(node.uid().to_owned()),
        ..MachinePoolStatusNodeRef::default()
    }
}

/// Since when a Node is ready; one that does not say has always been.
fn ready_since(node: &Object) -> Option<Timestamp> {
    let mut all = node.get("/status/conditions").as_array().into_iter().flatten();
    let ready = all.find(|condition| condition["type"] == READY && condition["status"] == "True")?;
    Some(ready["lastTransitionTime"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default())
}

/// Until a ready Node has been so for long enough.
fn left(world: &World, node: &Object, now: Timestamp) -> Option<Duration> {
    let since = ready_since(node)?;
    let seconds = world.typed().spec.template.spec.min_ready_seconds.unwrap_or(0);
    let left = SignedDuration::from_secs(seconds.into()).saturating_sub(now.duration_since(since));
    Some(Duration::try_from(left).unwrap_or_default())
}

/// When the next Node is available although nothing else happens.
pub(super) fn available_in(world: &World, now: Timestamp) -> Option<Duration> {
    let nodes = own_nodes(world).into_iter();
    nodes.filter_map(|node| left(world, node, now)).filter(|left| !left.is_zero()).min()
}

fn kubelet(node: &Arc<Object>) -> Option<KubeVersion> {
    KubeVersion::parse(node.text("/status/nodeInfo/kubeletVersion"))
}

/// A pool that names no version takes what its image brings.
fn is_up_to_date(world: &World, node: &Arc<Object>) -> bool {
    let wanted = world.typed().spec.template.spec.version.as_deref().and_then(KubeVersion::parse);
    wanted.is_none_or(|wanted| kubelet(node) == Some(wanted))
}

fn versions(nodes: &[&Arc<Object>]) -> Vec<MachineSetStatusVersion> {
    let mut counts: BTreeMap<KubeVersion, i32> = BTreeMap::new();
    for version in nodes.iter().filter_map(|node| kubelet(node)) {
        *counts.entry(version).or_default() += 1;
    }
    counts
        .into_iter()
        .map(|(version, replicas)| MachineSetStatusVersion { version: version.to_string(), replicas: Some(replicas) })
        .collect()
}
