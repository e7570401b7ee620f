//! What an OpenStackCluster says of itself.
//!
//! Holds: what was reported before the cloud went silent stays; each condition is that of its own phases, so that one that waits does not hide the others.

use std::collections::BTreeMap;

use hangar_api::conditions::{Condition, Status};
use hangar_api::kinds::{
    OpenStackCluster, OpenStackClusterStatus, OpenStackClusterStatusApiServerLoadBalancer,
    OpenStackClusterStatusBastion, OpenStackClusterStatusExternalNetwork, OpenStackClusterStatusFailureDomainsValue,
    OpenStackClusterStatusInitialization, OpenStackClusterStatusNetwork, OpenStackClusterStatusNetworkSubnet,
    OpenStackClusterStatusRouter, OpenStackClusterStatusWorkerSecurityGroup,
};
use jiff::Timestamp;

use crate::cloud::rules::Role;
use crate::cloud::{load_balancer, security_groups};
use crate::planner::Part;
use crate::report::ready;
use crate::{Phase, Progress, Report};

use super::parts::{bastion_enabled, external, network, router, router_addresses, spec, subnets};
use super::{World, bastion, endpoint, infrastructure, names, parts};

pub fn write(world: &World, progress: &Progress, report: &mut Report<OpenStackCluster>) {
    let before = world.typed().status.clone().unwrap_or_default();
    let was_provisioned = before.initialization.as_ref().and_then(|flags| flags.provisioned) == Some(true);
    let phase = infrastructure(world, Timestamp::UNIX_EPOCH);
    let is_ready = phase.is_done() && !world.object().is_deleting();
    let conditions = before.conditions.clone();
    report.status = describe(world, before);
    report.status.ready = is_ready;
    report.status.initialization =
        Some(OpenStackClusterStatusInitialization { provisioned: Some(is_ready || was_provisioned) });
    report.condition(if is_ready { ready(world.object(), &Progress::Done) } else { ready(world.object(), progress) });
    parts_conditions(world, progress, conditions.unwrap_or_default(), report);
}

/// Before the credential works nothing is known of the rest; on the way out only Ready and Deleting count.
fn parts_conditions(world: &World, progress: &Progress, before: Vec<Condition>, report: &mut Report<OpenStackCluster>) {
    if world.object().is_deleting() {
        return;
    }
    let authentication = "OpenStackAuthenticationSucceeded";
    if let Some(reason) = &world.facts_error {
        let is_credential =
            ["OpenStackAuthenticationFailed", "InvalidIdentity", "IdentityNotFound"].contains(&reason.code);
        for mut condition in before.into_iter().filter(|it| it.kind.ends_with("Ready") && it.kind != "Ready") {
            condition.last_transition_time = None;
            report.condition(condition);
        }
        if is_credential {
            report.condition(Condition::new(authentication, Status::False, reason.code, reason.message.clone()));
        }
        return;
    }
    if world.cluster().is_none() {
        return;
    }
    let now = Timestamp::UNIX_EPOCH;
    let network = || names::names(world).then(|| parts::network_part(world).build(now));
    let endpoint =
        || endpoint::balancer(world, now).then(|| endpoint::address(world, now)).then(|| endpoint::endpoint(world));
    let mut all = vec![
        ("NetworkReady", network()),
        ("RouterReady", network().then(|| parts::router_part(world).build(now))),
        ("SecurityGroupsReady", network().then(|| parts::groups(world).build(now))),
        ("APIEndpointReady", network().then(endpoint)),
    ];
    if bastion_enabled(world) {
        all.push(("BastionReady", infrastructure(world, now).then(|| bastion::build(world, now))));
    }
    report.condition(Condition::new(authentication, Status::True, "Authenticated", ""));
    for (kind, phase) in all {
        let of_phase = match phase {
            Phase::Done => Progress::Done,
            // Steps that are left when nobody acts any more: one was refused.
            Phase::Steps(_) => progress.clone(),
            Phase::Wait(reason) => Progress::Waiting(reason),
            Phase::Blocked(reason) => Progress::Blocked(reason),
        };
        report.condition(Condition { kind: kind.to_owned(), ..ready(world.object(), &of_phase) });
    }
}

fn tags(tags: &[String]) -> Option<Vec<String>> {
    (!tags.is_empty()).then(|| tags.to_vec())
}

fn describe(world: &World, before: OpenStackClusterStatus) -> OpenStackClusterStatus {
    let facts = &world.facts;
    let Some(network) = network(world) else {
        return OpenStackClusterStatus { conditions: None, ..before };
    };
    let group = |role| {
        security_groups::of(&facts.cloud, role)
            .map(|group| OpenStackClusterStatusWorkerSecurityGroup { id: group.id.clone(), name: group.name.clone() })
    };
    OpenStackClusterStatus {
        network: Some(OpenStackClusterStatusNetwork {
            id: network.id.clone(),
            name: network.name.clone(),
            tags: tags(&network.tags),
            subnets: Some(subnets_of(world)),
        }),
        external_network: external(world).map(|network| OpenStackClusterStatusExternalNetwork {
            id: network.id.clone(),
            name: network.name.clone(),
            tags: tags(&network.tags),
        }),
        router: router(world).map(|router| OpenStackClusterStatusRouter {
            id: router.id.clone(),
            name: router.name.clone(),
            tags: tags(&router.tags),
            ips: Some(router_addresses(router)).filter(|ips| !ips.is_empty()),
        }),
        api_server_load_balancer: balancer(world),
        failure_domains: Some(failure_domains(world)),
        control_plane_security_group: group(Role::ControlPlane),
        worker_security_group: group(Role::Worker),
        bastion_security_group: group(Role::Bastion),
        bastion: bastion_status(world),
        ..OpenStackClusterStatus::default()
    }
}

fn subnets_of(world: &World) -> Vec<OpenStackClusterStatusNetworkSubnet> {
    let subnet = |subnet: &hangar_openstack_types::Subnet| OpenStackClusterStatusNetworkSubnet {
        id: subnet.id.clone(),
        name: subnet.name.clone(),
        cidr: subnet.cidr.clone(),
        tags: tags(&subnet.tags),
    };
    subnets(world).into_iter().map(subnet).collect()
}

/// What is pending comes and goes, and is not written down.
fn balancer(world: &World) -> Option<OpenStackClusterStatusApiServerLoadBalancer> {
    let tree = load_balancer::of(&world.facts.cloud)?;
    let internal = tree.balancer.vip_address.clone().unwrap_or_default();
    let floating = endpoint::api_address(world).ip().filter(|_| parts::wants_api_address(world));
    let before = world.typed().status.as_ref().and_then(|status| status.api_server_load_balancer.clone());
    let allowed = tree.listeners.first().and_then(|listener| listener.allowed_cidrs.clone());
    Some(OpenStackClusterStatusApiServerLoadBalancer {
        id: tree.balancer.id.clone(),
        name: tree.balancer.name.clone(),
        ip: floating.map_or_else(|| internal.clone(), |ip| ip.floating_ip_address.clone()),
        internal_ip: internal,
        allowed_cidrs: match load_balancer::is_pending(tree) {
            true => before.and_then(|before| before.allowed_cidrs),
            false => allowed.filter(|list| !list.is_empty()),
        },
        tags: tags(&tree.balancer.tags),
        load_balancer_network: endpoint::is_own_network(world).then(|| OpenStackClusterStatusNetwork {
            id: tree.balancer.vip_network_id.clone().unwrap_or_default(),
            ..OpenStackClusterStatusNetwork::default()
        }),
    })
}

fn bastion_status(world: &World) -> Option<OpenStackClusterStatusBastion> {
    let server = bastion::current(world)?;
    let port = bastion::port(world);
    let ip = port.and_then(|port| port.fixed_ips.first()).and_then(|ip| ip.ip_address.clone());
    let spec = world.typed().spec.bastion.as_ref().and_then(|bastion| bastion.spec.as_ref());
    Some(OpenStackClusterStatusBastion {
        id: Some(server.id.clone()),
        name: Some(server.name.clone()),
        state: Some(server.status.clone()),
        ssh_key_name: spec.and_then(|spec| spec.ssh_key_name.clone()),
        ip,
        floating_ip: bastion::address(world).ip().map(|ip| ip.floating_ip_address.clone()),
        ..OpenStackClusterStatusBastion::default()
    })
}

/// Zones that are available; those for the control plane as the spec says.
fn failure_domains(world: &World) -> BTreeMap<String, OpenStackClusterStatusFailureDomainsValue> {
    let planes = spec(world)["controlPlaneAvailabilityZones"].as_array().filter(|planes| !planes.is_empty());
    let is_omitted = spec(world)["controlPlaneOmitAvailabilityZone"] == true;
    let domain = |zone: &String| OpenStackClusterStatusFailureDomainsValue {
        control_plane: Some(!is_omitted && planes.is_none_or(|planes| planes.iter().any(|plane| plane == zone))),
        ..Default::default()
    };
    world.facts.zones.iter().map(|zone| (zone.clone(), domain(zone))).collect()
}
