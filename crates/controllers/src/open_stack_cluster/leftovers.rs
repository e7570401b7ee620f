//! What is in a cluster's network when it goes, and what controllers inside the tenant made elsewhere.
//!
//! Holds: asked for only while a cluster is deleted; a load balancer or volume is the cluster's by the name that the cloud controller and CSI write for every cluster.

use hangar_api::Object;
use hangar_openstack::{Error, FloatingIpQuery, PortQuery, SecurityGroup, SecurityGroupQuery};
use hangar_planner::cloud::Owned;
use hangar_planner::open_stack_cluster::{DELETE_ANNOTATION, Facts, Leftover, LeftoverSort};

use super::Clusters;
use crate::clouds::{Project, Session};

/// What the CSI driver writes into a volume.
const CSI_CLUSTER: &str = "cinder.csi.openstack.org/cluster";

pub async fn with_leftovers(
    session: &Session,
    project: &Project,
    world: &Clusters,
    mut facts: Facts,
) -> Result<Facts, Error> {
    let cloud = &session.cloud;
    let name = world.cluster().map_or_else(|| world.cluster_name(), |cluster: &Object| cluster.name().to_owned());
    let networks: Vec<String> = facts.cloud.resources.networks.keys().cloned().collect();
    for network in &networks {
        let query = PortQuery { network_id: Some(network.clone()), ..PortQuery::default() };
        facts.network_ports.extend(cloud.ports(&query).await?);
    }
    let annotations = [Some(world.object()), world.cluster()].into_iter().flatten();
    let asked: Vec<&str> = annotations.filter_map(|object| object.annotation(DELETE_ANNOTATION)).collect();
    // On somebody else's network they keep nothing from going, and nobody asked for their deletion.
    if name.is_empty() || (networks.is_empty() && asked.is_empty()) {
        return Ok(facts);
    }
    let in_ours = |network: Option<&String>| network.is_some_and(|network| networks.contains(network));
    if cloud.has_load_balancers().await? {
        let prefix = format!("kube_service_{name}_");
        let all = cloud.load_balancers(None).await?.into_iter();
        // On a network of ours only those in it: another cluster of the project may have the same name.
        let theirs = all.filter(|it| it.project_id == project.id() && it.name.starts_with(&prefix));
        facts.leftovers.extend(theirs.filter(|it| networks.is_empty() || in_ours(it.vip_network_id.as_ref())).map(
            |it| Leftover {
                sort: LeftoverSort::LoadBalancer,
                blocks: in_ours(it.vip_network_id.as_ref()),
                pending: it.provisioning_status.starts_with("PENDING"),
                id: it.id,
                name: it.name,
            },
        ));
    }
    let query = FloatingIpQuery { project_id: Some(project.id().to_owned()), ..FloatingIpQuery::default() };
    let ours = &facts.network_ports;
    let suffix = format!(" from cluster {name}");
    let of_service =
        |text: &str| text.starts_with("Floating IP for Kubernetes external service ") && text.ends_with(&suffix);
    for ip in cloud.floating_ips(&query).await?.into_iter().filter(|ip| ip.owner_key().is_none()) {
        let on_ours = ip.port_id.as_ref().is_some_and(|id| ours.iter().any(|port| port.id == *id));
        let given = ["/spec/apiServerFloatingIP", "/spec/bastion/floatingIP"];
        let is_users = given.iter().any(|pointer| world.object().text(pointer) == ip.floating_ip_address);
        if of_service(&ip.description) && !is_users {
            facts.leftovers.push(Leftover {
                sort: LeftoverSort::FloatingIp,
                id: ip.id,
                name: ip.floating_ip_address,
                blocks: on_ours,
                pending: false,
            });
        }
    }
    // Ports of a load balancer may be in its group: it goes when those are gone.
    let is_free = !facts.leftovers.iter().any(|it| it.sort == LeftoverSort::LoadBalancer);
    if is_free && asked.iter().any(|asked| asked.contains("load-balancers")) {
        facts.leftovers.extend(groups(session, project, &name).await?);
    }
    let volumes = asked.iter().any(|asked| asked.contains("volumes"));
    if volumes && cloud.has_volumes().await? {
        let all = cloud.volumes(None).await?.into_iter();
        let theirs = all.filter(|it| it.metadata.get(CSI_CLUSTER).is_some_and(|cluster| *cluster == name));
        // One that is still attached, or going already, is not for us to take.
        let free = theirs.filter(|it| ["available", "error"].contains(&it.status.as_str()));
        facts.leftovers.extend(free.map(|it| Leftover {
            sort: LeftoverSort::Volume,
            id: it.id,
            name: it.name,
            blocks: false,
            pending: false,
        }));
    }
    Ok(facts)
}

/// The groups that the cloud controller makes for Services, one each, if it is told to manage them. They keep nothing from going.
async fn groups(session: &Session, project: &Project, cluster: &str) -> Result<Vec<Leftover>, Error> {
    let query = SecurityGroupQuery { project_id: Some(project.id().to_owned()), ..SecurityGroupQuery::default() };
    let suffix = format!(" Service LoadBalancer in cluster {cluster}");
    let is_services =
        |it: &SecurityGroup| it.description.starts_with("Security Group for ") && it.description.ends_with(&suffix);
    let all = session.cloud.security_groups(&query).await?.into_iter();
    let theirs = all.filter(|it| it.name.starts_with("lb-sg-") && is_services(it) && it.owner_key().is_none());
    let leftover = |it: SecurityGroup| Leftover {
        sort: LeftoverSort::SecurityGroup,
        id: it.id,
        name: it.name,
        blocks: false,
        pending: false,
    };
    Ok(theirs.map(leftover).collect())
}
