//! What the names and filters in the spec of an OpenStackCluster mean.
//!
//! Holds: one call for each that is there; what a spec does not name is not asked for.

use std::time::Duration;

use hangar_api::{Object, ObjectKey, kinds};
use hangar_openstack::{Error, FloatingIp, FloatingIpQuery, Subnet};
use hangar_planner::cloud::instance::Resolved;
use hangar_planner::cloud::{Cloud, Lookup, Parameter, server};
use hangar_planner::image;
use hangar_planner::open_stack_cluster::{
    Found, bastion_enabled, is_managed, needs_floating_ips, needs_load_balancers, wants_external,
};
use serde_json::{Value, json};

use super::Clusters;
use crate::clouds::{self, Project, Session, instance};

/// What the answer depends on.
pub fn wanted(world: &Clusters) -> String {
    let spec = world.object().get("/spec");
    let fields = ["network", "subnets", "router", "externalNetwork", "externalRouterIPs"].map(|field| &spec[field]);
    let balancer = ["network", "subnets", "flavor"].map(|field| &spec["apiServerLoadBalancer"][field]);
    json!([fields, balancer, wants_external(world), is_managed(world), needs_load_balancers(world)]).to_string()
}

pub async fn find(session: &Session, world: &Clusters) -> Result<Found, Error> {
    let spec = world.object().get("/spec");
    let mut found = Found::default();
    if wants_external(world) {
        let parameter = Parameter::of(&spec["externalNetwork"]);
        (found.external, found.external_network) = clouds::network(session, &parameter, true).await?;
    }
    if !is_managed(world) {
        existing_network(session, spec, &mut found).await?;
    }
    let router = Parameter::of(&spec["router"]);
    if !router.is_none() {
        (found.router_lookup, found.router) = clouds::router(session, &router).await?;
    }
    if is_managed(world) {
        for ip in list(&spec["externalRouterIPs"]) {
            let outside = found.external_network.as_ref().map(|network| network.id.as_str());
            found.external_subnets.push(subnet(session, outside, &Parameter::of(&ip["subnet"])).await?.0);
        }
    }
    if needs_load_balancers(world) {
        balancer(session, &spec["apiServerLoadBalancer"], &mut found).await?;
    }
    Ok(found)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

async fn subnet(
    session: &Session,
    network: Option<&str>,
    parameter: &Parameter,
) -> Result<(Lookup, Option<Subnet>), Error> {
    Ok(parameter.choose(clouds::subnets(session, network, parameter).await?))
}

/// By its name, or else that of the first subnet.
async fn existing_network(session: &Session, spec: &Value, found: &mut Found) -> Result<(), Error> {
    let parameter = Parameter::of(&spec["network"]);
    if !parameter.is_none() {
        (found.network_lookup, found.network) = clouds::network(session, &parameter, false).await?;
        if found.network.is_none() {
            return Ok(());
        }
    }
    let named: Vec<Parameter> = list(&spec["subnets"]).map(Parameter::of).collect();
    let in_network = found.network.as_ref().map(|network| network.id.clone());
    if named.is_empty() {
        if let Some(network) = &in_network {
            found.subnets = clouds::subnets(session, Some(network), &Parameter::None).await?;
        }
        return Ok(());
    }
    // Several by id are in one list.
    let all_ids = named.iter().all(|parameter| matches!(parameter, Parameter::Id(_)));
    let listed = match &in_network {
        Some(network) if all_ids && named.len() > 1 => {
            Some(clouds::subnets(session, Some(network), &Parameter::None).await?)
        }
        _ => None,
    };
    for parameter in &named {
        let (lookup, chosen) = match &listed {
            Some(listed) => parameter.choose(listed.clone()),
            None => subnet(session, in_network.as_deref(), parameter).await?,
        };
        found.subnet_lookups.push(lookup);
        found.subnets.extend(chosen);
    }
    if let (None, Some(first)) = (&in_network, found.subnets.first()) {
        let of_subnet = Parameter::Id(first.network_id.clone());
        (found.network_lookup, found.network) = clouds::network(session, &of_subnet, false).await?;
    }
    Ok(())
}

async fn balancer(session: &Session, spec: &Value, found: &mut Found) -> Result<(), Error> {
    let network = Parameter::of(&spec["network"]);
    if !network.is_none() {
        found.balancer_network = clouds::network(session, &network, false).await?.0;
    }
    // Upstream looks at the first one only.
    let first = list(&spec["subnets"]).next().map(Parameter::of).filter(|parameter| !parameter.is_none());
    if let Some(first) = first {
        found.balancer_subnet = subnet(session, found.balancer_network.id(), &first).await?.0;
    }
    if let Some(wanted) = spec["flavor"].as_str().filter(|name| !name.is_empty()) {
        let flavors = session.cloud.load_balancer_flavors().await?;
        found.balancer_flavor = match flavors.iter().find(|flavor| flavor.name == wanted) {
            Some(flavor) => Lookup::Found(flavor.id.clone()),
            None => {
                let known = flavors.into_iter().map(|flavor| flavor.name).collect();
                Lookup::Missing { wanted: wanted.to_owned(), known }
            }
        };
    }
    Ok(())
}

/// Floating IPs of the user's that the spec names by their addresses.
pub async fn addresses(
    session: &Session,
    world: &Clusters,
    found: &mut Found,
    age: Duration,
    project: &Project,
) -> Result<(), Error> {
    if !needs_floating_ips(world) {
        return Ok(());
    }
    let text = |pointer| world.object().text(pointer);
    let (api, bastion) = (text("/spec/apiServerFloatingIP"), text("/spec/bastion/floatingIP"));
    let find = async |address: &str| -> Result<Option<FloatingIp>, Error> {
        if address.is_empty() {
            return Ok(None);
        }
        let key = (world.object().uid(), "address");
        let look = async {
            let floating_ip_address = Some(address.to_owned());
            let query = FloatingIpQuery { floating_ip_address, ..FloatingIpQuery::default() };
            Ok(session.cloud.floating_ips(&query).await?.into_iter().find(|ip| ip.floating_ip_address == address))
        };
        project.remembered(key, address, age, look).await
    };
    found.api_address = find(api).await?;
    found.bastion_address = find(bastion).await?;
    Ok(())
}

/// Once there is a server, its names have served their purpose.
pub async fn bastion(session: &Session, world: &Clusters, cloud: &Cloud) -> Result<Resolved, Error> {
    let spec = world.typed().spec.bastion.as_ref().and_then(|bastion| bastion.spec.as_ref());
    let Some(spec) = spec.filter(|_| bastion_enabled(world) && server::of(cloud).is_none()) else {
        return Ok(Resolved::default());
    };
    let image = image_ref(world.object()).map(|key| image::lookup(&key.name, world.objects.get(&key)));
    instance::resolve(session, spec, image).await
}

/// The Image that the bastion's spec names instead of one in Glance.
pub fn image_ref(cluster: &Object) -> Option<ObjectKey> {
    let name = cluster.text("/spec/bastion/spec/image/imageRef/name");
    (!name.is_empty()).then(|| ObjectKey::of::<kinds::Image>(cluster.namespace(), name))
}
