//! Carries out one call to a cloud.
//!
//! Holds: what a call made or took away is in the project's lists before anything else can fail. Until there is an answer, the lists count as wrong: a
//! pass that is cut off in the middle leaves them so.

use hangar_openstack::{
    CreateLoadBalancer, CreatePool, CreateServer, Error, ErrorKind, FloatingIp, LoadBalancer, Network, Port, Router,
    SecurityGroup, Server, Subnet, Trunk, Volume,
};
use hangar_planner::cloud::{CloudAnswer, CloudCall, LoadBalancerChange, LoadBalancerTree, Resource, ResourceType};

use super::sorts::Sort;
use super::{Project, Session};

/// Invalidates the lists unless it is told that all is well.
struct Unanswered<'a>(Option<&'a Project>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(project) = self.0 {
            project.invalidate();
        }
    }
}

pub async fn carry_out(session: &Session, project: &Project, call: CloudCall) -> Result<CloudAnswer, Error> {
    let mut unanswered = Unanswered(Some(project));
    let answer = try_out(session, project, call).await;
    match &answer {
        Ok(CloudAnswer::Is(resource)) => project.insert(resource).await,
        Ok(CloudAnswer::Gone(of, id)) => project.remove(*of, id).await,
        Err(error) if error.kind == ErrorKind::Quota => project.quota.is_wrong().await,
        // What was named is not there, or is somebody else's: what we know is old.
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::BadRequest | ErrorKind::Conflict) => {
            session.forget_flavors().await;
            return answer;
        }
        Err(error) if !is_answer(error) => return answer,
        Err(_) => {}
    }
    unanswered.0 = None;
    answer
}

/// The service itself said no: nothing was done.
fn is_answer(error: &Error) -> bool {
    !matches!(error.kind, ErrorKind::Server | ErrorKind::Unreachable | ErrorKind::Malformed)
}

async fn try_out(session: &Session, project: &Project, call: CloudCall) -> Result<CloudAnswer, Error> {
    let cloud = &session.cloud;
    match call {
        CloudCall::CreatePort(body) => cloud.create_port(&body).await.map(is),
        CloudCall::UpdatePort { id, changes } => cloud.update_port(&id, &changes, None).await.map(is),
        CloudCall::CreateServer(body) => {
            let id = cloud.create_server(&body).await?;
            Ok(is(new_server(id, *body)))
        }
        CloudCall::CreateVolume(body) => cloud.create_volume(&body).await.map(is),
        CloudCall::CreateTrunk(body) => cloud.create_trunk(&body).await.map(is),
        CloudCall::CreateImage(fields) => cloud.create_image(&fields).await.map(is),
        CloudCall::ImportImage { id, url } => {
            cloud.import_image(&id, &url).await?;
            cloud.image(&id).await.map(is)
        }
        CloudCall::RemoveSubPorts { trunk_id, port_ids } => {
            tolerate(cloud.remove_sub_ports(&trunk_id, &port_ids).await)?;
            let mut trunk = known(project, &trunk_id, |id| Trunk { id, ..Trunk::default() }).await;
            trunk.sub_ports.retain(|port| !port_ids.contains(&port.port_id));
            Ok(is(trunk))
        }
        CloudCall::CreateSecurityGroup(body) => cloud.create_security_group(&body).await.map(is),
        CloudCall::CreateRules { group_id, rules } => {
            let made = cloud.create_security_group_rules(&rules).await?;
            let mut group = known_group(project, &group_id).await;
            group.security_group_rules.extend(made);
            Ok(is(group))
        }
        CloudCall::DeleteRule { group_id, id } => {
            tolerate(cloud.delete_security_group_rule(&id).await)?;
            let mut group = known_group(project, &group_id).await;
            group.security_group_rules.retain(|rule| rule.id != id);
            Ok(is(group))
        }
        CloudCall::CreateNetwork(body) => cloud.create_network(&body).await.map(is),
        CloudCall::UpdateNetwork { id, changes } => cloud.update_network(&id, &changes).await.map(is),
        CloudCall::CreateSubnet(body) => cloud.create_subnet(&body).await.map(is),
        CloudCall::UpdateSubnet { id, changes } => cloud.update_subnet(&id, &changes).await.map(is),
        CloudCall::CreateRouter(body) => cloud.create_router(&body).await.map(is),
        CloudCall::UpdateRouter { id, changes } => cloud.update_router(&id, &changes).await.map(is),
        CloudCall::AddRouterInterface { router_id, port_id } => {
            cloud.add_router_port(&router_id, &port_id).await?;
            let port = known(project, &port_id, |id| Port { id, ..Port::default() }).await;
            Ok(is(Port { device_id: router_id, device_owner: "network:router_interface".into(), ..port }))
        }
        CloudCall::RemoveRouterInterface { router_id, port_id } => {
            if let Err(error) = cloud.remove_router_port(&router_id, &port_id).await {
                tolerate(Err(error))?;
                // The router is gone, or has let go of it: the port may still be there.
                tolerate(cloud.delete_port(&port_id).await)?;
            }
            Ok(CloudAnswer::Gone(ResourceType::Port, port_id))
        }
        CloudCall::CreateFloatingIp(body) => cloud.create_floating_ip(&body).await.map(is),
        CloudCall::BindFloatingIp { id, port_id, revision } => {
            cloud.bind_floating_ip(&id, port_id.as_deref(), revision).await.map(is)
        }
        CloudCall::CreateLoadBalancer(mut body) => {
            let made = cloud.create_load_balancer(&body).await;
            let balancer = match made {
                // Nothing was made. A provider without health monitors gets none.
                Err(error) if is_not_implemented(&error) && has_monitors(&body) => {
                    pools_of(&mut body).for_each(|pool| pool.healthmonitor = None);
                    cloud.create_load_balancer(&body).await?
                }
                made => made?,
            };
            Ok(is(LoadBalancerTree { balancer, ..LoadBalancerTree::default() }))
        }
        CloudCall::ChangeLoadBalancer { id, change } => {
            let is_monitor = matches!(change, LoadBalancerChange::CreateMonitor(_));
            match change_load_balancer(session, change).await {
                Err(error) if is_monitor && is_not_implemented(&error) => {
                    project.no_monitors.lock().await.insert(id.clone());
                    let mut tree = known(project, &id, unknown_balancer).await;
                    tree.no_monitors = true;
                    Ok(is(tree))
                }
                changed => {
                    changed?;
                    pending(project, id, "PENDING_UPDATE").await
                }
            }
        }
        CloudCall::Tag { of, id, tags } => tag(session, project, of, id, tags).await,
        CloudCall::Delete(of, id) => delete(session, project, of, id).await,
    }
}

async fn change_load_balancer(session: &Session, change: LoadBalancerChange) -> Result<(), Error> {
    let cloud = &session.cloud;
    match change {
        LoadBalancerChange::CreateListener(body) => cloud.create_listener(&body).await.map(drop),
        LoadBalancerChange::UpdateListener { id, changes } => cloud.update_listener(&id, &changes).await.map(drop),
        LoadBalancerChange::DeleteListener(id) => tolerate(cloud.delete_listener(&id).await),
        LoadBalancerChange::CreatePool(body) => cloud.create_pool(&body).await.map(drop),
        LoadBalancerChange::DeletePool(id) => tolerate(cloud.delete_pool(&id).await),
        LoadBalancerChange::SetMembers { pool_id, members } => cloud.set_members(&pool_id, &members).await,
        LoadBalancerChange::CreateMonitor(body) => cloud.create_health_monitor(&body).await.map(drop),
        LoadBalancerChange::UpdateMonitor { id, changes } => cloud.update_health_monitor(&id, &changes).await.map(drop),
        LoadBalancerChange::DeleteMonitor(id) => tolerate(cloud.delete_health_monitor(&id).await),
    }
}

fn unknown_balancer(id: String) -> LoadBalancerTree {
    LoadBalancerTree { balancer: LoadBalancer { id, ..LoadBalancer::default() }, ..LoadBalancerTree::default() }
}

/// The provider behind Octavia cannot do this.
fn is_not_implemented(error: &Error) -> bool {
    error.status == Some(501)
}

fn pools_of(body: &mut CreateLoadBalancer) -> impl Iterator<Item = &mut CreatePool> {
    let of_listeners = body.listeners.iter_mut().filter_map(|listener| listener.default_pool.as_deref_mut());
    of_listeners.chain(body.pools.iter_mut())
}

fn has_monitors(body: &CreateLoadBalancer) -> bool {
    let of_listeners = body.listeners.iter().filter_map(|listener| listener.default_pool.as_deref());
    of_listeners.chain(&body.pools).any(|pool| pool.healthmonitor.is_some())
}

/// Octavia goes on by itself; it is looked at again.
async fn pending(project: &Project, id: String, status: &str) -> Result<CloudAnswer, Error> {
    let mut tree = known(project, &id, unknown_balancer).await;
    tree.balancer.provisioning_status = status.into();
    Ok(is(tree))
}

async fn tag(
    session: &Session,
    project: &Project,
    of: ResourceType,
    id: String,
    tags: Vec<String>,
) -> Result<CloudAnswer, Error> {
    let tags = session.cloud.set_tags(of.collection(), &id, &tags).await?;
    Ok(match of {
        ResourceType::SecurityGroup => is(SecurityGroup { tags, ..known_group(project, &id).await }),
        ResourceType::Network => {
            is(Network { tags, ..known(project, &id, |id| Network { id, ..Default::default() }).await })
        }
        ResourceType::Subnet => {
            is(Subnet { tags, ..known(project, &id, |id| Subnet { id, ..Default::default() }).await })
        }
        ResourceType::Router => {
            is(Router { tags, ..known(project, &id, |id| Router { id, ..Default::default() }).await })
        }
        ResourceType::FloatingIp => {
            is(FloatingIp { tags, ..known(project, &id, |id| FloatingIp { id, ..Default::default() }).await })
        }
        ResourceType::Trunk => is(Trunk { tags, ..known(project, &id, |id| Trunk { id, ..Default::default() }).await }),
        ResourceType::Port
        | ResourceType::Server
        | ResourceType::LoadBalancer
        | ResourceType::Volume
        | ResourceType::Image => is(Port { tags, ..known(project, &id, |id| Port { id, ..Default::default() }).await }),
    })
}

async fn delete(session: &Session, project: &Project, of: ResourceType, id: String) -> Result<CloudAnswer, Error> {
    let cloud = &session.cloud;
    project.quota.deleted().await;
    let result = match of {
        ResourceType::Port => cloud.delete_port(&id).await,
        ResourceType::SecurityGroup => cloud.delete_security_group(&id).await,
        ResourceType::Network => cloud.delete_network(&id).await,
        ResourceType::Subnet => cloud.delete_subnet(&id).await,
        ResourceType::Router => cloud.delete_router(&id).await,
        ResourceType::FloatingIp => cloud.delete_floating_ip(&id).await,
        ResourceType::Trunk => cloud.delete_trunk(&id).await,
        ResourceType::Server => cloud.delete_server(&id).await,
        ResourceType::LoadBalancer => cloud.delete_load_balancer(&id, true).await,
        ResourceType::Volume => cloud.delete_volume(&id).await,
        ResourceType::Image => cloud.delete_image(&id).await,
    };
    let is_gone = matches!(&result, Err(error) if error.is_not_found());
    tolerate(result)?;
    // Accepted; it takes a while.
    if !is_gone {
        match of {
            ResourceType::Server => {
                if let Some(known) = project.known::<Server>(&id).await {
                    return Ok(is(Server { task_state: Some("deleting".into()), ..Server::clone(&known) }));
                }
            }
            ResourceType::LoadBalancer if project.known::<LoadBalancerTree>(&id).await.is_some() => {
                return pending(project, id, "PENDING_DELETE").await;
            }
            ResourceType::Volume => {
                if let Some(known) = project.known::<Volume>(&id).await {
                    return Ok(is(Volume { status: "deleting".into(), ..Volume::clone(&known) }));
                }
            }
            _ => {}
        }
    }
    Ok(CloudAnswer::Gone(of, id))
}

fn is(resource: impl Into<Resource>) -> CloudAnswer {
    CloudAnswer::Is(resource.into())
}

/// As the lists have it; before a list has come it is only its id.
async fn known<T: Sort + Clone>(project: &Project, id: &str, unknown: impl FnOnce(String) -> T) -> T {
    match project.known::<T>(id).await {
        Some(known) => T::clone(&known),
        None => unknown(id.to_owned()),
    }
}

/// Nova answers with an id only: when it was made is for Nova to say. Two processes that each believe their own clock delete each other's server.
fn new_server(id: String, body: CreateServer) -> Server {
    Server { id, name: body.name, status: "BUILD".into(), metadata: body.metadata, ..Server::default() }
}

async fn known_group(project: &Project, id: &str) -> SecurityGroup {
    known(project, id, |id| SecurityGroup { id, ..SecurityGroup::default() }).await
}

/// What is gone already is what we wanted.
fn tolerate(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
