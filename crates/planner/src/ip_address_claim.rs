//! IPAddressClaim: an address from an OpenStackFloatingIPPool.
//! Flows: the pool gives it an IPAddress -> the claim names it. Holds: claims on pools of other providers are theirs and are left alone.

use hangar_api::kinds::{IPAddress, IPAddressClaim, MachineStatusNodeRef, OpenStackFloatingIPPool};
use hangar_api::{Kind, Object, ObjectKey};

use crate::{Phase, Phases, Planner, Progress, Report};

pub struct IPAddressClaims;

type World = crate::World<IPAddressClaims>;

/// The pool that a claim names, if it is one of ours.
pub fn pool(claim: &Object) -> Option<ObjectKey> {
    let reference = |field: &str| claim.get("/spec/poolRef")[field].as_str().unwrap_or_default();
    let is_ours =
        (reference("apiGroup"), reference("kind")) == (OpenStackFloatingIPPool::GROUP, OpenStackFloatingIPPool::KIND);
    is_ours.then(|| ObjectKey::of::<OpenStackFloatingIPPool>(claim.namespace(), reference("name")))
}

/// An address has the name of its claim.
pub fn address(claim: &Object) -> Option<ObjectKey> {
    Some(ObjectKey::of::<IPAddress>(claim.namespace(), claim.name()))
}

impl Planner for IPAddressClaims {
    type Kind = IPAddressClaim;
    type Facts = ();

    fn is_ours(claim: &Object) -> bool {
        pool(claim).is_some()
    }

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(given)
    }

    fn status(world: &World, _progress: &Progress, report: &mut Report<IPAddressClaim>) {
        report.status.address_ref =
            given_address(world).map(|address| MachineStatusNodeRef { name: address.name().to_owned() });
    }
}

fn given_address(world: &World) -> Option<&Object> {
    world.objects.get(&address(world.object())?).filter(|address| address.is_owned_by(world.object().uid()))
}

fn given(world: &World) -> Phase {
    let Some(key) = pool(world.object()) else { return Phase::Done };
    if given_address(world).is_some() {
        return Phase::Done;
    }
    match world.objects.get(&key) {
        Some(pool) => {
            let conditions = pool.get("/status/conditions").as_array().into_iter().flatten();
            let not_ready = conditions.filter(|one| one["type"] == "Ready" && one["status"] == "False");
            let why = not_ready.filter_map(|one| one["message"].as_str()).next().unwrap_or_default();
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            Phase::wait("WaitingForAddress", format!("waiting for an address of {key}{why}"))
        }
        None => Phase::wait("PoolNotFound", format!("there is no {key}: create it, or correct spec.poolRef")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{object, planned, said, world};

    const IPAM: &str = "ipam.cluster.x-k8s.io/v1beta2";

    fn claim(kind: &str) -> Value {
        let pool = json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": "p" });
        object(IPAM, "IPAddressClaim", "m", json!({ "spec": { "poolRef": pool } }))
    }

    fn of_pool(ready: &str, message: &str) -> Value {
        let conditions = json!([{ "type": "Ready", "status": ready, "message": message }]);
        let status = json!({ "status": { "conditions": conditions } });
        object("infrastructure.cluster.x-k8s.io/v1alpha1", "OpenStackFloatingIPPool", "p", status)
    }

    #[test]
    fn a_claim_waits_for_its_pool_and_says_why() {
        let address = |owner: &str| {
            let owners = json!([{ "apiVersion": IPAM, "kind": "IPAddressClaim", "name": "m", "uid": owner, "controller": true }]);
            object(IPAM, "IPAddress", "m", json!({ "metadata": { "ownerReferences": owners } }))
        };
        for (what, others, expected) in [
            (
                "no pool",
                vec![],
                "wait PoolNotFound: there is no OpenStackFloatingIPPool n/p: create it, or correct spec.poolRef",
            ),
            (
                "no address yet",
                vec![of_pool("True", "")],
                "wait WaitingForAddress: waiting for an address of OpenStackFloatingIPPool n/p",
            ),
            (
                "the pool says why",
                vec![of_pool("False", "quota exceeded")],
                "wait WaitingForAddress: waiting for an address of OpenStackFloatingIPPool n/p: quota exceeded",
            ),
            ("there", vec![of_pool("True", ""), address("m-uid")], "done"),
            (
                "the address of another claim of this name",
                vec![of_pool("True", ""), address("older-uid")],
                "wait WaitingForAddress: waiting for an address of OpenStackFloatingIPPool n/p",
            ),
        ] {
            let plan = planned(&world::<IPAddressClaims>(claim("OpenStackFloatingIPPool"), others));
            assert_eq!(said(&plan), expected, "{what}");
            let named = plan.status.unwrap()["addressRef"]["name"].as_str().map(str::to_owned);
            assert_eq!(named.as_deref(), (expected == "done").then_some("m"), "{what}");
        }
    }

    #[test]
    fn claims_on_pools_of_others_are_theirs() {
        assert!(IPAddressClaims::is_ours(&Object(claim("OpenStackFloatingIPPool"))));
        assert!(!IPAddressClaims::is_ours(&Object(claim("InClusterIPPool"))));
    }
}
