//! What the names and filters of the spec mean: said before anything is made.

use crate::Phase;
use crate::cloud::Lookup;

use super::World;
use super::parts::is_managed;

pub fn names(world: &World) -> Phase {
    let (found, spec) = (&world.facts.found, world.object().get("/spec"));
    let indexed = |field: &'static str, lookups: &[Lookup], what: &'static str| {
        let mut all = lookups.iter().enumerate();
        all.find_map(|(index, lookup)| lookup.problem(&field.replace("[]", &format!("[{index}]")), what))
    };
    let nothing_named = !is_managed(world) && spec["network"].is_null() && spec["subnets"].is_null();
    let problem = external(world)
        .or_else(|| {
            nothing_named
                .then(|| "name the cluster's network: spec.managedSubnets, spec.network or spec.subnets".into())
        })
        .or_else(|| found.network_lookup.problem("spec.network", "network"))
        .or_else(|| indexed("spec.subnets[]", &found.subnet_lookups, "subnet"))
        .or_else(|| found.router_lookup.problem("spec.router", "router"))
        .or_else(|| indexed("spec.externalRouterIPs[].subnet", &found.external_subnets, "subnet"))
        .or_else(|| found.balancer_network.problem("spec.apiServerLoadBalancer.network", "network"))
        .or_else(|| found.balancer_subnet.problem("spec.apiServerLoadBalancer.subnets[0]", "subnet"))
        .or_else(|| found.balancer_flavor.problem("spec.apiServerLoadBalancer.flavor", "load balancer flavor"));
    match problem {
        Some(problem) => Phase::blocked("NetworkNotFound", problem),
        None => Phase::Done,
    }
}

/// Without a name the only one is meant; a cloud without any is one without a way out.
fn external(world: &World) -> Option<String> {
    match &world.facts.found.external {
        Lookup::Missing { wanted, .. } if wanted.is_empty() => None,
        Lookup::Ambiguous { wanted, candidates } if wanted.is_empty() => Some(format!(
            "the cloud has {} external networks ({}): name one of them in spec.externalNetwork",
            candidates.len(),
            candidates.join(", ")
        )),
        lookup => lookup.problem("spec.externalNetwork", "external network"),
    }
}
