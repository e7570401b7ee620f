//! A machine's floating IP from a pool: it claims an address, and binds it to its first port.
//!
//! Holds: pools are anybody's who speaks Cluster API's contract for addresses; a floating IP that is bound elsewhere is left there and named.

use hangar_api::kinds::{IPAddressClaim, OpenStackMachine};
use hangar_api::names::CLUSTER_NAME_LABEL;
use hangar_api::{Kind, Object, ObjectKey};
use serde_json::json;

use super::World;
use crate::cloud::instance::role;
use crate::cloud::{CloudCall, oldest, server};
use crate::{Phase, intent};

const POOL: &str = "/spec/floatingIPPoolRef";

/// The claim of a machine, as upstream names it; nothing if it wants no address.
pub fn claim(machine: &Object) -> Option<ObjectKey> {
    let wants = machine.kind() == OpenStackMachine::KIND && machine.get(POOL).is_object();
    let name = || format!("{}-floating-ip-address", machine.name());
    wants.then(|| ObjectKey::of::<IPAddressClaim>(machine.namespace(), &name()))
}

/// What a claim was given.
pub fn address_of(claim: &Object) -> Option<ObjectKey> {
    let name = claim.text("/status/addressRef/name");
    (!name.is_empty()).then(|| ObjectKey::new(IPAddressClaim::GROUP, "IPAddress", claim.namespace(), name))
}

/// The address, once there is one.
pub fn address(world: &World) -> Option<&str> {
    let claim = world.objects.get(&claim(world.object())?)?;
    let address = world.objects.get(&address_of(claim)?)?.text("/spec/address");
    (!address.is_empty()).then_some(address)
}

/// Asked for early: the pool may need a while.
pub(super) fn claimed(world: &World) -> Phase {
    let Some(key) = claim(world.object()) else { return Phase::Done };
    let api_version = format!("{}/{}", IPAddressClaim::GROUP, IPAddressClaim::VERSION);
    let mut wanted = Object::named(&api_version, IPAddressClaim::KIND, &key.namespace, &key.name);
    let (pool, cluster) = (world.object().get(POOL), world.cluster_name());
    wanted.0["metadata"]["labels"] = json!({ CLUSTER_NAME_LABEL: cluster });
    wanted.0["spec"] = json!({ "clusterName": cluster, "poolRef": pool });
    Phase::attempt(intent::ensure_all(world.object(), vec![(world.objects.get(&key), wanted)]))
}

pub(super) fn bound(world: &World) -> Phase {
    let Some(key) = claim(world.object()) else { return Phase::Done };
    let Some(address) = address(world) else {
        return Phase::wait("WaitingForFloatingIP", format!("waiting for {key} to be given an address"));
    };
    let Some(ip) = &world.facts.floating_ip else {
        let text = format!("the project has no floating IP {address}, which {key} was given");
        return Phase::blocked("FloatingIPError", text);
    };
    let cloud = &world.facts.cloud;
    let (Some(port), Some(_)) = (oldest(&cloud.resources.ports, &role(0)), server::of(cloud)) else {
        return Phase::Done;
    };
    match ip.port_id.as_deref().filter(|bound| !bound.is_empty()) {
        Some(bound) if bound == port.id => Phase::Done,
        Some(bound) => Phase::blocked(
            "FloatingIPError",
            format!("floating IP {address} is bound to port {bound}: unbind it, or let the pool give another address"),
        ),
        // Somebody else may bind it at the same time: only as it was seen.
        None => Phase::Steps(vec![cloud.step(CloudCall::BindFloatingIp {
            id: ip.id.clone(),
            port_id: Some(port.id.clone()),
            revision: Some(ip.revision_number),
        })]),
    }
}

/// Bound to a port that is about to go, it becomes free by itself.
pub(super) fn unclaimed(world: &World) -> Phase {
    let there = claim(world.object()).and_then(|key| world.objects.get(&key));
    Phase::steps(there.filter(|claim| claim.is_owned_by(world.object().uid())).and_then(intent::delete))
}
