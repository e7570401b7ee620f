//! Carries out one call to a cloud, as it stands.
//!
//! Holds: what a call made or took away is in the project's lists before anything else can fail; after a call whose fate is unknown those
//! lists are read anew.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_openstack as openstack;
use hangar_planner::OwnerKey;
use hangar_planner::cloud::{CloudAnswer, CloudCall, NewPort, NewServer, SecurityGroup, SecurityGroupRule, Server};
use jiff::Timestamp;

use crate::clouds::{self, Session};

pub async fn carry_out(session: &Session, call: &CloudCall, now: Timestamp) -> Result<CloudAnswer, openstack::Error> {
    let answer = try_out(session, call, now).await;
    if let Err(error) = &answer
        && matches!(
            error.kind,
            openstack::ErrorKind::Server | openstack::ErrorKind::Unreachable | openstack::ErrorKind::Malformed
        )
    {
        session.doubt().await;
    }
    answer
}

async fn try_out(session: &Session, call: &CloudCall, now: Timestamp) -> Result<CloudAnswer, openstack::Error> {
    let cloud = &session.cloud;
    match call {
        CloudCall::CreatePort(new) => create_port(session, new).await,
        CloudCall::CreateServer(new) => create_server(session, new, now).await,
        CloudCall::TagPort { id, tags } => {
            let tags = cloud.set_tags("ports", id, tags).await?;
            session.tag_port(id, &tags).await;
            Ok(CloudAnswer::PortTagged { id: id.clone(), tags })
        }
        CloudCall::DeletePort { id } => {
            tolerate(cloud.delete_port(id).await)?;
            session.remove_port(id).await;
            Ok(CloudAnswer::PortGone { id: id.clone() })
        }
        CloudCall::DeleteServer { id } => {
            tolerate(cloud.delete_server(id).await)?;
            session.mark_deleting(id).await;
            Ok(CloudAnswer::ServerGoing { id: id.clone() })
        }
        CloudCall::CreateSecurityGroup { name, description, .. } => {
            let body = openstack::CreateSecurityGroup {
                name: name.clone(),
                description: Some(description.clone()),
                ..Default::default()
            };
            cloud.create_security_group(&body).await.map(|wire| CloudAnswer::SecurityGroup(group(wire)))
        }
        CloudCall::DeleteSecurityGroup { id } => {
            tolerate(cloud.delete_security_group(id).await)?;
            Ok(CloudAnswer::SecurityGroupGone { id: id.clone() })
        }
        CloudCall::CreateRules { group_id, rules } => {
            let bodies: Vec<_> = rules.iter().map(|rule| new_rule(group_id, rule)).collect();
            let made = cloud.create_security_group_rules(&bodies).await?;
            Ok(CloudAnswer::Rules { group_id: group_id.clone(), rules: made.into_iter().map(rule).collect() })
        }
        CloudCall::DeleteRule { group_id, id } => {
            tolerate(cloud.delete_security_group_rule(id).await)?;
            Ok(CloudAnswer::RuleGone { group_id: group_id.clone(), id: id.clone() })
        }
    }
}

async fn create_port(session: &Session, new: &NewPort) -> Result<CloudAnswer, openstack::Error> {
    let made = session.cloud.create_port(&port_body(new)).await?;
    let port = clouds::port(&made);
    session.add_port(port.clone()).await;
    Ok(CloudAnswer::Port(port))
}

async fn create_server(session: &Session, new: &NewServer, now: Timestamp) -> Result<CloudAnswer, openstack::Error> {
    let server = Server {
        id: session.cloud.create_server(&server_body(new)).await?,
        name: new.name.clone(),
        status: "BUILD".into(),
        key: new.key.clone(),
        created_at: now.to_string(),
        ..Server::default()
    };
    session.add_server(server.clone()).await;
    Ok(CloudAnswer::Server(server))
}

/// What is gone already is what we wanted.
fn tolerate(result: Result<(), openstack::Error>) -> Result<(), openstack::Error> {
    match result {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

fn port_body(new: &NewPort) -> openstack::CreatePort {
    let fixed_ips: Vec<_> = new
        .fixed_ips
        .iter()
        .map(|(subnet, address)| openstack::FixedIp { subnet_id: subnet.clone(), ip_address: address.clone() })
        .collect();
    let pairs: Vec<_> = new
        .allowed_address_pairs
        .iter()
        .map(|(address, mac)| openstack::AddressPair { ip_address: address.clone(), mac_address: mac.clone() })
        .collect();
    openstack::CreatePort {
        network_id: new.network_id.clone(),
        name: new.name.clone(),
        description: Some(new.description.clone()),
        admin_state_up: new.admin_state_up,
        mac_address: new.mac_address.clone(),
        fixed_ips: (!fixed_ips.is_empty()).then_some(fixed_ips),
        security_groups: new.security_groups.clone(),
        allowed_address_pairs: (!pairs.is_empty()).then_some(pairs),
        port_security_enabled: new.port_security,
        propagate_uplink_status: new.propagate_uplink_status,
        vnic_type: new.vnic_type.clone(),
        host_id: new.host_id.clone(),
        ..Default::default()
    }
}

fn server_body(new: &NewServer) -> openstack::CreateServer {
    let hints = new.server_group_id.iter().map(|group| ("group".to_owned(), group.clone().into()));
    openstack::CreateServer {
        name: new.name.clone(),
        flavor_id: new.flavor_id.clone(),
        image_id: new.image_id.clone(),
        availability_zone: new.availability_zone.clone(),
        networks: new
            .port_ids
            .iter()
            .map(|id| openstack::ServerNetwork { port: Some(id.clone()), ..Default::default() })
            .collect(),
        user_data: Some(STANDARD.encode(&new.user_data)),
        tags: new.tags.clone(),
        metadata: new.metadata.clone(),
        config_drive: new.config_drive,
        key_name: new.key_name.clone(),
        scheduler_hints: hints.collect(),
        ..Default::default()
    }
}

/// A group as planners know it.
pub fn group(wire: openstack::SecurityGroup) -> SecurityGroup {
    SecurityGroup {
        key: OwnerKey::find_in(&wire.description),
        rules: wire.security_group_rules.into_iter().map(rule).collect(),
        created_at: wire.created_at.unwrap_or_default(),
        id: wire.id,
        name: wire.name,
    }
}

fn rule(wire: openstack::SecurityGroupRule) -> SecurityGroupRule {
    SecurityGroupRule {
        id: wire.id,
        direction: wire.direction,
        ether_type: wire.ethertype,
        protocol: wire.protocol,
        port_range_min: wire.port_range_min.map(i64::from),
        port_range_max: wire.port_range_max.map(i64::from),
        remote_group_id: wire.remote_group_id,
        remote_ip_prefix: wire.remote_ip_prefix,
        description: wire.description,
    }
}

fn new_rule(group_id: &str, rule: &SecurityGroupRule) -> openstack::CreateSecurityGroupRule {
    openstack::CreateSecurityGroupRule {
        security_group_id: group_id.to_owned(),
        direction: rule.direction.clone(),
        ethertype: Some(rule.ether_type.clone()),
        protocol: rule.protocol.clone(),
        port_range_min: rule.port_range_min.and_then(|port| i32::try_from(port).ok()),
        port_range_max: rule.port_range_max.and_then(|port| i32::try_from(port).ok()),
        remote_group_id: rule.remote_group_id.clone(),
        remote_ip_prefix: rule.remote_ip_prefix.clone(),
        description: Some(rule.description.clone()),
    }
}
