//! OpenStackCluster: the network and the security groups that machines stand in.
//! Flows: owner -> network and subnets -> security groups -> rules -> endpoint. Holds: every group carries our key from its create call;
//! nothing else is deleted; with a hosted control plane no endpoint is ever allocated here.

mod security_groups;

use hangar_api::Object;
use hangar_api::conditions::{Condition, Status, settle};
use hangar_api::kinds::OpenStackCluster;
use hangar_api::names::OPENSTACK_CLUSTER_FINALIZER;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cloud::{CloudCall, Network, SecurityGroup, Subnet};
use crate::intent;
use crate::{OwnerKey, Phase, Phases, Plan, Progress, Reason, Step};

pub use security_groups::Role;

#[derive(Debug, Clone)]
pub struct World {
    pub object: Object,
    pub spec: OpenStackCluster,
    /// The Cluster that owns it.
    pub cluster: Option<Object>,
    /// Whether the control plane runs elsewhere than on machines of this cloud.
    pub hosted: bool,
    pub cloud: Option<CloudView>,
    /// Infrastructure machines of the cluster that are still there.
    pub machines: usize,
    pub refusal: Option<Reason>,
}

/// What the cloud has for this cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudView {
    pub network: Option<Network>,
    pub subnets: Vec<Subnet>,
    pub groups: Vec<SecurityGroup>,
    pub zones: Vec<String>,
}

pub fn plan(world: &World, now: Timestamp) -> Plan {
    if world.object.is_deleting() {
        return Phases::of(world, now)
            .then(machines_gone)
            .unless_refused(world.refusal.as_ref())
            .then(delete_groups)
            .then(release)
            .report(status);
    }
    Phases::of(world, now)
        .then(owner)
        .then(not_built_yet)
        .unless_refused(world.refusal.as_ref())
        .then(network)
        .then(groups)
        .then(rules)
        .then(endpoint)
        .report(status)
}

fn machines_gone(world: &World, _now: Timestamp) -> Phase {
    match world.machines {
        0 => Phase::Done,
        left => Phase::wait("WaitingForMachines", format!("{left} machines are still going")),
    }
}

fn delete_groups(world: &World, _now: Timestamp) -> Phase {
    let ours = world.cloud.iter().flat_map(|cloud| &cloud.groups).filter(|group| is_ours(world, group));
    Phase::steps(ours.map(|group| Step::Cloud(CloudCall::DeleteSecurityGroup { id: group.id.clone() })))
}

fn release(world: &World, _now: Timestamp) -> Phase {
    Phase::steps(intent::release(&world.object, OPENSTACK_CLUSTER_FINALIZER))
}

fn owner(world: &World, _now: Timestamp) -> Phase {
    if world.cluster.is_none() {
        return Phase::wait("WaitingForCluster", "no Cluster refers to it yet");
    }
    Phase::steps(intent::adopt(&world.object, Some(OPENSTACK_CLUSTER_FINALIZER), None, &[]))
}

/// Said out loud instead of half done.
fn not_built_yet(world: &World, _now: Timestamp) -> Phase {
    let spec = world.object.get("/spec");
    let missing = if spec["managedSubnets"].as_array().is_some_and(|list| !list.is_empty()) {
        "managed networks (spec.managedSubnets) are not built yet; name an existing network and subnet"
    } else if !world.hosted {
        "control planes on machines of this cloud are not built yet; use a hosted control plane"
    } else if spec["bastion"]["enabled"] == true {
        "bastions (spec.bastion) are not built yet; leave it out"
    } else {
        return Phase::Done;
    };
    Phase::blocked("NotBuiltYet", missing)
}

fn network(world: &World, _now: Timestamp) -> Phase {
    match world.cloud.as_ref().map(|cloud| &cloud.network) {
        None => Phase::wait("WaitingForCloud", "the cloud has not answered yet"),
        Some(None) => Phase::blocked("NetworkNotFound", format!("the cloud has no network {}", wanted_network(world))),
        Some(Some(_)) => Phase::Done,
    }
}

fn wanted_network(world: &World) -> String {
    let network = world.object.get("/spec/network");
    network["id"].as_str().map_or_else(|| network["filter"].to_string(), str::to_owned)
}

fn groups(world: &World, _now: Timestamp) -> Phase {
    if world.object.get("/spec/managedSecurityGroups").is_null() {
        return Phase::Done;
    }
    let missing = Role::ALL.into_iter().filter(|role| group(world, *role).is_none());
    Phase::steps(missing.map(|role| {
        let key = key(world, role);
        Step::Cloud(CloudCall::CreateSecurityGroup {
            name: role.group_name(world.object.namespace(), cluster_name(world)),
            description: key.describe("Cluster API managed group"),
            key,
        })
    }))
}

fn rules(world: &World, _now: Timestamp) -> Phase {
    let spec = world.object.get("/spec/managedSecurityGroups");
    let (Some(cloud), Some(control_plane), Some(worker)) =
        (&world.cloud, group(world, Role::ControlPlane), group(world, Role::Worker))
    else {
        return Phase::Done;
    };
    if spec.is_null() {
        return Phase::Done;
    }
    let ids = security_groups::Ids { control_plane: &control_plane.id, worker: &worker.id };
    let cidrs: Vec<&str> = cloud.subnets.iter().map(|subnet| subnet.cidr.as_str()).collect();
    let mut steps = vec![];
    for (role, group) in [(Role::ControlPlane, control_plane), (Role::Worker, worker)] {
        let wanted = security_groups::wanted(spec, role, &ids, &cidrs);
        let surplus = group.rules.iter().filter(|rule| !security_groups::is_default(rule));
        let surplus = surplus.filter(|rule| !wanted.iter().any(|wanted| wanted.same(rule)));
        steps.extend(
            surplus.map(|rule| Step::Cloud(CloudCall::DeleteRule { group_id: group.id.clone(), id: rule.id.clone() })),
        );
        let missing: Vec<_> =
            wanted.iter().filter(|wanted| !group.rules.iter().any(|rule| wanted.same(rule))).cloned().collect();
        if !missing.is_empty() {
            steps.push(Step::Cloud(CloudCall::CreateRules { group_id: group.id.clone(), rules: missing }));
        }
    }
    Phase::steps(steps)
}

/// The control plane brings the address; here it is only put where Cluster API looks for it.
fn endpoint(world: &World, _now: Timestamp) -> Phase {
    let spec = world.object.get("/spec");
    let host = spec["apiServerFixedIP"].as_str().unwrap_or_default();
    let set = spec["controlPlaneEndpoint"]["host"].as_str().unwrap_or_default();
    if host.is_empty() || !set.is_empty() {
        return Phase::Done;
    }
    let port = spec["apiServerPort"].as_i64().unwrap_or(6443);
    Phase::steps(intent::touch(
        &world.object,
        json!({ "spec": { "controlPlaneEndpoint": { "host": host, "port": port } } }),
    ))
}

fn cluster_name(world: &World) -> &str {
    world.cluster.as_ref().map_or_else(|| world.object.name(), Object::name)
}

fn key(world: &World, role: Role) -> OwnerKey {
    let cluster = world.cluster.as_ref().map_or("", Object::uid);
    OwnerKey::new(cluster, world.object.uid(), role.key_role())
}

fn is_ours(world: &World, group: &SecurityGroup) -> bool {
    group.key.as_ref().is_some_and(|key| key.object_uid == world.object.uid())
}

fn group(world: &World, role: Role) -> Option<&SecurityGroup> {
    let ours = world
        .cloud
        .iter()
        .flat_map(|cloud| &cloud.groups)
        .filter(|group| is_ours(world, group) && group.key.as_ref().is_some_and(|key| key.role == role.key_role()));
    crate::cloud::oldest(ours, |group| (&group.created_at, &group.id))
}

fn status(world: &World, progress: &Progress, now: Timestamp) -> Option<Value> {
    if world.object.is_deleting() && *progress == Progress::Acting {
        return None;
    }
    let ready = *progress == Progress::Done && !world.object.is_deleting();
    let was_provisioned = world.object.get("/status/initialization/provisioned") == true;
    let condition = match progress.reason() {
        Some(reason) => Condition::new("Ready", Status::False, reason.code, reason.message.clone()),
        None if ready => Condition::new("Ready", Status::True, "Ready", ""),
        None => Condition::new("Ready", Status::False, "Provisioning", "its resources are being made"),
    };
    let present: Vec<Condition> =
        serde_json::from_value(world.object.get("/status/conditions").clone()).unwrap_or_default();
    let mut status = json!({
        "ready": ready,
        "initialization": { "provisioned": ready || was_provisioned },
        "conditions": old_style(settle(vec![condition], &present, now)),
    });
    let Some(cloud) = &world.cloud else {
        keep(&mut status, world, &["network", "failureDomains", "controlPlaneSecurityGroup", "workerSecurityGroup"]);
        return Some(status);
    };
    if let Some(network) = &cloud.network {
        let subnets: Vec<Value> = cloud
            .subnets
            .iter()
            .map(|subnet| json!({ "id": subnet.id, "name": subnet.name, "cidr": subnet.cidr }))
            .collect();
        status["network"] = json!({ "id": network.id, "name": network.name, "subnets": subnets });
    }
    let planes = world.object.get("/spec/controlPlaneAvailabilityZones").as_array();
    let zones = cloud.zones.iter().map(|zone| {
        let control_plane = planes.is_none_or(|planes| planes.iter().any(|plane| plane == zone));
        (zone.clone(), json!({ "controlPlane": control_plane }))
    });
    status["failureDomains"] = zones.collect::<serde_json::Map<_, _>>().into();
    for (role, field) in [(Role::ControlPlane, "controlPlaneSecurityGroup"), (Role::Worker, "workerSecurityGroup")] {
        if let Some(group) = group(world, role) {
            status[field] = json!({ "id": group.id, "name": group.name });
        }
    }
    Some(status)
}

/// What was reported before the cloud went silent stays.
fn keep(status: &mut Value, world: &World, fields: &[&str]) {
    for field in fields {
        let before = world.object.get("/status").get(*field);
        if let Some(before) = before {
            status[*field] = before.clone();
        }
    }
}

/// Conditions as this kind's schema wants them: an empty message is left out.
pub(crate) fn old_style(conditions: Vec<Condition>) -> Value {
    let mut list = json!(conditions);
    for condition in list.as_array_mut().into_iter().flatten() {
        if condition["message"] == ""
            && let Some(fields) = condition.as_object_mut()
        {
            fields.remove("message");
        }
    }
    list
}
