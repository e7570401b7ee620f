//! The Node of a Machine: found by its provider id, then told whose it is.

use hangar_api::Object;
use hangar_api::names::NODE_UNINITIALIZED_TAINT;

use super::{CONNECTING, Tenant, UNREACHABLE, World, tenant};
use crate::Phase;
use crate::step::TenantCall;

pub(super) const MACHINE_ANNOTATION: &str = "cluster.x-k8s.io/machine";

pub(super) fn node(world: &World) -> Phase {
    let node = match &world.facts.tenant {
        Tenant::Node(node) => node,
        Tenant::Unreachable => return Phase::wait("WaitingForNode", UNREACHABLE),
        Tenant::Connecting => return Phase::wait("WaitingForNode", CONNECTING),
        Tenant::NoNode => return Phase::wait("WaitingForNode", "no Node with its provider id has joined yet"),
    };
    let mut taints = node.get("/spec/taints").as_array().into_iter().flatten();
    let uninitialized = taints.any(|taint| taint["key"] == NODE_UNINITIALIZED_TAINT);
    if uninitialized || node.annotation(MACHINE_ANNOTATION) != Some(world.object().name()) {
        return Phase::Steps(vec![tenant(world, adoption(world, node))]);
    }
    Phase::Done
}

fn adoption(world: &World, node: &Object) -> TenantCall {
    let mut annotations = vec![
        ("cluster.x-k8s.io/cluster-name".to_owned(), world.typed().spec.cluster_name.clone()),
        ("cluster.x-k8s.io/cluster-namespace".to_owned(), world.object().namespace().to_owned()),
        (MACHINE_ANNOTATION.to_owned(), world.object().name().to_owned()),
    ];
    if let Some(owner) = world.object().controller() {
        annotations.push(("cluster.x-k8s.io/owner-kind".to_owned(), owner.kind));
        annotations.push(("cluster.x-k8s.io/owner-name".to_owned(), owner.name));
    }
    TenantCall::AdoptNode {
        name: node.name().to_owned(),
        annotations,
        remove_taint: NODE_UNINITIALIZED_TAINT.to_owned(),
    }
}
