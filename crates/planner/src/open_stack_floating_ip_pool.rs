//! OpenStackFloatingIPPool: floating IPs for IPAddressClaims.
//! Flows: network -> project -> each claim gets an address (its own, one that is free, a new one) -> what nobody claims goes back. Holds: a floating IP is made with the claim's
//! UID in its key, so that a repeated create finds it; one address is given to one claim; addresses that the user brought are never deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hangar_api::kinds::{IPAddress, IPAddressClaim, OpenStackClusterStatusExternalNetwork, OpenStackFloatingIPPool};
use hangar_api::{Kind, Object};
use hangar_openstack_types::{CreateFloatingIp, FloatingIp, Network};
use jiff::Timestamp;
use serde_json::json;

use crate::cloud::{self, Cloud, CloudCall, Lookup, ResourceType};
use crate::step::Effect;
use crate::{Absorb, OwnerKey, Phase, Phases, Planner, Progress, Report, Shared, Step, intent};

pub struct OpenStackFloatingIPPools;

type World = crate::World<OpenStackFloatingIPPools>;

const FINALIZER: &str = "openstackfloatingippool.infrastructure.cluster.x-k8s.io";
/// What somebody changed in the cloud is seen after this time: clouds do not call back.
const DRIFT: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub cloud: Cloud,
    /// The external network.
    pub lookup: Lookup,
    pub network: Option<Network>,
    /// Of the addresses that the user brought: those that the project has.
    pub brought: BTreeSet<String>,
}

impl Absorb for Facts {
    fn absorb(&mut self, effect: &Effect) {
        self.cloud.absorb(effect);
    }
}

impl Planner for OpenStackFloatingIPPools {
    type Kind = OpenStackFloatingIPPool;
    type Facts = Facts;
    const FINALIZER: Option<&'static str> = Some(FINALIZER);
    const SHARED: Shared = Shared::WhenTrue;

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.facts().then(network).then(wanted).then(project).then(returned).then(given).then(enough)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(unclaimed).facts().then(same_project).then(gone)
    }

    fn status(world: &World, progress: &Progress, report: &mut Report<OpenStackFloatingIPPool>) {
        if world.facts.network.is_none() {
            // What was reported before the cloud went silent stays.
            report.status = world.typed().status.clone().unwrap_or_default();
            report.status.conditions = None;
            return;
        }
        let taken: BTreeSet<&str> = taken(world).into_values().collect();
        let failed = failed(world);
        report.status.claimed_ips = list(taken.iter().copied());
        report.status.available_ips = list(free(world, &taken).into_iter());
        report.status.failed_ips = list(failed.iter().copied());
        report.status.floating_ip_network =
            world.facts.network.as_ref().map(|network| OpenStackClusterStatusExternalNetwork {
                id: network.id.clone(),
                name: network.name.clone(),
                ..Default::default()
            });
        if progress.is_done() && !failed.is_empty() {
            let text = format!(
                "spec.preAllocatedFloatingIPs: the project has no floating IP {}",
                failed.iter().copied().collect::<Vec<_>>().join(", ")
            );
            report.condition(hangar_api::conditions::Condition::new(
                "PreAllocatedAvailable",
                hangar_api::conditions::Status::False,
                "FloatingIPNotFound",
                text,
            ));
        }
    }

    fn recheck(world: &World, _now: Timestamp) -> Option<Duration> {
        claims(world).next().is_some().then_some(DRIFT)
    }
}

fn list<'a>(addresses: impl Iterator<Item = &'a str>) -> Option<Vec<String>> {
    let list: Vec<String> = addresses.map(str::to_owned).collect();
    (!list.is_empty()).then_some(list)
}

/// Those that want an address and are not about to go.
fn claims(world: &World) -> impl Iterator<Item = &Object> {
    world.all::<IPAddressClaim>().filter(|claim| !claim.is_deleting())
}

/// By name, which is that of the claim.
fn taken(world: &World) -> BTreeMap<&str, &str> {
    world.all::<IPAddress>().map(|address| (address.name(), address.text("/spec/address"))).collect()
}

fn role(claim: &Object) -> String {
    format!("claim-{}", claim.uid())
}

fn own(world: &World) -> impl Iterator<Item = &FloatingIp> {
    world.facts.cloud.resources.floating_ips.values().map(AsRef::as_ref)
}

fn written(world: &World) -> impl Iterator<Item = &str> {
    world.typed().spec.pre_allocated_floating_ips.iter().flatten().map(String::as_str)
}

/// Brought by the user, and not in the project.
fn failed(world: &World) -> BTreeSet<&str> {
    written(world).filter(|address| !world.facts.brought.contains(*address)).collect()
}

/// Made by us or brought, and given to nobody.
fn free<'a>(world: &'a World, taken: &BTreeSet<&str>) -> Vec<&'a str> {
    let brought = written(world).filter(|address| world.facts.brought.contains(*address));
    let all: BTreeSet<&str> = brought.chain(own(world).map(|ip| ip.floating_ip_address.as_str())).collect();
    all.into_iter().filter(|address| !taken.contains(address)).collect()
}

fn network(world: &World) -> Phase {
    match world.facts.lookup.problem("spec.floatingIPNetwork", "external network") {
        Some(problem) => Phase::blocked("NetworkNotFound", problem),
        None => Phase::Done,
    }
}

/// Nothing is held and nothing made before somebody claims an address.
fn wanted(world: &World) -> Phase {
    let is_used = claims(world).next().is_some() || world.object().finalizers().contains(&FINALIZER);
    match is_used {
        true => Phase::Done,
        false => Phase::wait("NoClaims", "no IPAddressClaim names it yet"),
    }
}

fn project(world: &World) -> Phase {
    cloud::project(world.object(), &world.facts.cloud)
}

fn same_project(world: &World) -> Phase {
    cloud::same_project(world.object(), &world.facts.cloud)
}

/// Addresses whose claim is gone, and then floating IPs that nobody has, unless they are to be kept.
fn returned(world: &World) -> Phase {
    let claimed: BTreeSet<&str> = world.all::<IPAddressClaim>().map(Object::uid).collect();
    let is_orphan = |address: &&Object| !address.owners().iter().any(|owner| claimed.contains(owner.uid.as_str()));
    let orphans = world.all::<IPAddress>().filter(is_orphan).filter_map(intent::delete);
    Phase::steps(orphans).then(|| {
        if world.typed().spec.reclaim_policy != "Delete" {
            return Phase::Done;
        }
        let given = taken(world);
        // A claim that has its address wants no other: of two that a lost answer made, one goes.
        let roles: BTreeSet<String> =
            claims(world).filter(|claim| !given.contains_key(claim.name())).map(role).collect();
        let taken: BTreeSet<&str> = given.into_values().collect();
        let is_wanted = |ip: &&FloatingIp| {
            let role = OwnerKey::find_in(&ip.description).map(|key| key.role);
            taken.contains(ip.floating_ip_address.as_str()) || role.is_some_and(|role| roles.contains(&role))
        };
        let unwanted = own(world).filter(|ip| !is_wanted(ip));
        Phase::steps(unwanted.map(|ip| delete(world, ip)))
    })
}

fn delete(world: &World, ip: &FloatingIp) -> Step {
    world.facts.cloud.step(CloudCall::Delete(ResourceType::FloatingIp, ip.id.clone()))
}

/// One claim after the other, so that no two get one address.
fn given(world: &World) -> Phase {
    let taken = taken(world);
    let Some(claim) = claims(world).find(|claim| !taken.contains_key(claim.name())) else { return Phase::Done };
    let taken: BTreeSet<&str> = taken.into_values().collect();
    let role = role(claim);
    let is_its_own = |ip: &&FloatingIp| OwnerKey::find_in(&ip.description).is_some_and(|key| key.role == role);
    let its_own = own(world).find(is_its_own).map(|ip| ip.floating_ip_address.as_str());
    let free = free(world, &taken);
    match its_own.filter(|address| free.contains(address)).or_else(|| free.first().copied()) {
        Some(address) => Phase::Steps(vec![Step::Create(ip_address(world, claim, address))]),
        None if is_full(world) => Phase::Done,
        None => Phase::Steps(vec![world.facts.cloud.step(create(world, &role))]),
    }
}

fn is_full(world: &World) -> bool {
    let count = own(world).count() + written(world).count();
    world.typed().spec.max_ips.is_some_and(|most| i64::try_from(count).unwrap_or(i64::MAX) >= most)
}

fn create(world: &World, role: &str) -> CloudCall {
    let pool = world.object();
    let key = OwnerKey::new("", pool.uid(), role);
    let text =
        format!("Created by cluster-api-provider-openstack floating IP pool {}/{}", pool.namespace(), pool.name());
    CloudCall::CreateFloatingIp(Box::new(CreateFloatingIp {
        floating_network_id: world.facts.network.as_ref().map(|network| network.id.clone()).unwrap_or_default(),
        description: Some(key.describe(&text)),
        ..CreateFloatingIp::default()
    }))
}

/// It goes with its claim; the pool is held by it.
fn ip_address(world: &World, claim: &Object, address: &str) -> Object {
    let pool = world.object();
    let api_version = format!("{}/{}", IPAddress::GROUP, IPAddress::VERSION);
    let mut object = Object::named(&api_version, IPAddress::KIND, claim.namespace(), claim.name());
    object.0["metadata"]["ownerReferences"] = json!([claim.as_owner(true), pool.as_owner(false)]);
    object.0["spec"] = json!({
        "address": address,
        "prefix": 32,
        "claimRef": { "name": claim.name() },
        "poolRef": { "apiGroup": OpenStackFloatingIPPool::GROUP, "kind": OpenStackFloatingIPPool::KIND, "name": pool.name() },
    });
    object
}

/// Claims that got nothing.
fn enough(world: &World) -> Phase {
    let taken = taken(world);
    let without = claims(world).filter(|claim| !taken.contains_key(claim.name())).count();
    match world.typed().spec.max_ips.filter(|_| without > 0) {
        Some(most) => Phase::blocked(
            "PoolExhausted",
            format!("{without} claims have no address: all of the {most} that spec.maxIPs allows are taken"),
        ),
        None => Phase::Done,
    }
}

fn unclaimed(world: &World) -> Phase {
    match world.all::<IPAddressClaim>().count() {
        0 => Phase::Done,
        left => Phase::wait("WaitingForClaims", format!("waiting for {left} IPAddressClaims to be deleted")),
    }
}

/// What is to be retained stays in the project.
fn gone(world: &World) -> Phase {
    let addresses = world.all::<IPAddress>().filter_map(intent::delete);
    Phase::steps(addresses).then(|| match world.typed().spec.reclaim_policy.as_str() {
        "Delete" => Phase::steps(own(world).map(|ip| delete(world, ip))),
        _ => Phase::Done,
    })
}

#[cfg(test)]
mod tests;
