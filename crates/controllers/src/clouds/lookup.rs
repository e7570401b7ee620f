//! What names and filters of specs mean in a cloud: one list call each.

use hangar_openstack::{
    Error, Network, NetworkQuery, Router, RouterQuery, SecurityGroup, SecurityGroupQuery, ServerGroup, Subnet,
    SubnetQuery, TagFilter,
};
use hangar_planner::cloud::filter::Filter;
use hangar_planner::cloud::{Lookup, Parameter};

use super::Session;

/// The fields that all of Neutron's filters share, as a query of one sort.
macro_rules! query {
    ($query:ident, $parameter:expr) => {
        match $parameter {
            Parameter::None => $query::default(),
            Parameter::Id(id) => $query { id: Some(id.clone()), ..$query::default() },
            Parameter::Filter(filter) => $query {
                name: filter.name.clone(),
                description: filter.description.clone(),
                project_id: filter.project_id.clone(),
                tags: tags(filter),
                ..$query::default()
            },
        }
    };
}

fn tags(filter: &Filter) -> TagFilter {
    TagFilter {
        all: filter.tags.clone(),
        any: filter.tags_any.clone(),
        not_all: filter.not_tags.clone(),
        not_any: filter.not_tags_any.clone(),
    }
}

/// `external`: only networks that lead out of the cloud.
pub async fn network(
    session: &Session,
    parameter: &Parameter,
    external: bool,
) -> Result<(Lookup, Option<Network>), Error> {
    let mut query = query!(NetworkQuery, parameter);
    // An id is enough: it is the user's who says that it leads out.
    query.external = (external && query.id.is_none()).then_some(true);
    Ok(parameter.choose(session.cloud.networks(&query).await?))
}

pub async fn router(session: &Session, parameter: &Parameter) -> Result<(Lookup, Option<Router>), Error> {
    Ok(parameter.choose(session.cloud.routers(&query!(RouterQuery, parameter)).await?))
}

/// All that match, of one network if it is known.
pub async fn subnets(session: &Session, network: Option<&str>, parameter: &Parameter) -> Result<Vec<Subnet>, Error> {
    let mut query = query!(SubnetQuery, parameter);
    query.network_id = network.map(str::to_owned);
    if let Parameter::Filter(filter) = parameter {
        query.cidr.clone_from(&filter.cidr);
        query.ip_version = filter.ip_version;
        query.gateway_ip.clone_from(&filter.gateway_ip);
    }
    let mut found = session.cloud.subnets(&query).await?;
    found.retain(|subnet| parameter.matches(subnet));
    Ok(found)
}

/// Of the credential's project, unless the filter names another one.
pub async fn security_group(
    session: &Session,
    parameter: &Parameter,
) -> Result<(Lookup, Option<SecurityGroup>), Error> {
    let mut query = query!(SecurityGroupQuery, parameter);
    if query.id.is_none() && query.project_id.is_none() {
        query.project_id = Some(session.cloud.project_id().await?);
    }
    Ok(parameter.choose(session.cloud.security_groups(&query).await?))
}

pub async fn server_group(session: &Session, parameter: &Parameter) -> Result<(Lookup, Option<ServerGroup>), Error> {
    Ok(parameter.choose(session.cloud.server_groups().await?))
}
