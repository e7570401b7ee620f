use hangar_openstack::*;
use serde_json::json;

use crate::place::{Place, kind, until};

#[tokio::test]
async fn networks_are_made_found_and_deleted_in_order() {
    let place = Place::find().await;
    let cloud = &place.demo;
    for needed in [
        "security-group",
        "router",
        "external-net",
        "standard-attr-tag",
        "port-security",
        "trunk",
        "allowed-address-pairs",
    ] {
        assert!(cloud.extensions().await.unwrap().iter().any(|alias| alias == needed), "{needed}");
    }
    let site = place.network("10.91.0.0/24", "203.0.113.0/26").await;
    assert_eq!((site.network.status.as_str(), site.network.external), ("ACTIVE", false));
    assert_eq!(site.subnet.gateway_ip.as_deref(), Some("10.91.0.1"));
    assert_eq!(site.subnet.allocation_pools[0].start, "10.91.0.2");
    assert_eq!(site.router.external_gateway_info.as_ref().unwrap().external_fixed_ips.len(), 1);

    let by_name = NetworkQuery { name: Some(place.name("net")), ..NetworkQuery::default() };
    assert_eq!(cloud.networks(&by_name).await.unwrap()[0].id, site.network.id);
    cloud.set_tags("networks", &site.network.id, &[place.tag.clone(), "b".into()]).await.unwrap();
    let tags = |all: Vec<String>, not_any: Vec<String>| TagFilter { all, not_any, ..TagFilter::default() };
    let both = NetworkQuery { tags: tags(vec![place.tag.clone(), "b".into()], vec![]), ..NetworkQuery::default() };
    assert_eq!(cloud.networks(&both).await.unwrap().len(), 1);
    let none = NetworkQuery { tags: tags(vec![place.tag.clone()], vec!["b".into()]), ..NetworkQuery::default() };
    assert!(cloud.networks(&none).await.unwrap().is_empty());
    let external = NetworkQuery { external: Some(true), ..NetworkQuery::default() };
    assert!(cloud.networks(&external).await.unwrap().iter().any(|network| network.id == site.external.id));

    let subnet = |cidr: &str, ip_version: u8, network: &str| CreateSubnet {
        network_id: network.into(),
        cidr: cidr.into(),
        ip_version,
        ..CreateSubnet::default()
    };
    for wrong in [("10.91.0.0/25", 4), ("10.92.0.0/24", 6), ("nonsense", 4)] {
        assert_eq!(kind(cloud.create_subnet(&subnet(wrong.0, wrong.1, &site.network.id)).await), ErrorKind::BadRequest);
    }
    let nowhere = subnet("10.93.0.0/24", 4, "00000000-0000-4000-8000-000000000000");
    assert_eq!(kind(cloud.create_subnet(&nowhere).await), ErrorKind::NotFound);
    let changed = cloud.update_subnet(&site.subnet.id, &json!({"dns_nameservers": ["192.0.2.1"]})).await.unwrap();
    assert_eq!(changed.dns_nameservers, ["192.0.2.1"]);

    // Nothing goes while something else stands on it.
    assert_eq!(kind(cloud.add_router_interface(&site.router.id, &site.subnet.id).await), ErrorKind::BadRequest);
    assert_eq!(kind(cloud.delete_router(&site.router.id).await), ErrorKind::Conflict);
    assert_eq!(kind(cloud.delete_network(&site.network.id).await), ErrorKind::Conflict);
    assert_eq!(kind(cloud.delete_subnet(&site.subnet.id).await), ErrorKind::Conflict);
    let inside = PortQuery { device_id: Some(site.router.id.clone()), ..PortQuery::default() };
    let interface = cloud.ports(&inside).await.unwrap();
    assert_eq!((interface.len(), interface[0].device_owner.as_str()), (1, "network:router_interface"));
    assert_eq!(kind(cloud.delete_port(&interface[0].id).await), ErrorKind::Conflict);
    place.remove(&site).await;
    assert_eq!(kind(cloud.remove_router_interface(&site.router.id, &site.subnet.id).await), ErrorKind::NotFound);
}

#[tokio::test]
async fn floating_ips_follow_their_binding_and_their_revision() {
    let place = Place::find().await;
    let cloud = &place.demo;
    let site = place.network("10.92.0.0/24", "203.0.113.64/26").await;
    let port = |name: &str| CreatePort {
        network_id: site.network.id.clone(),
        name: place.name(name),
        ..CreatePort::default()
    };
    let one = cloud.create_port(&port("one")).await.unwrap();
    let two = cloud.create_port(&port("two")).await.unwrap();
    let wanted = CreateFloatingIp {
        floating_network_id: site.external.id.clone(),
        description: Some("mine".into()),
        ..CreateFloatingIp::default()
    };
    let ip = cloud.create_floating_ip(&wanted).await.unwrap();
    assert_eq!((ip.status.as_str(), ip.port_id.as_deref(), ip.description.as_str()), ("DOWN", None, "mine"));
    let certain = CreateFloatingIp { floating_ip_address: Some("203.0.113.99".into()), ..wanted.clone() };
    assert_eq!(kind(cloud.create_floating_ip(&certain).await), ErrorKind::Forbidden);
    let inside = CreateFloatingIp { floating_network_id: site.network.id.clone(), ..wanted.clone() };
    assert_eq!(kind(cloud.create_floating_ip(&inside).await), ErrorKind::BadRequest);

    let bound = cloud.bind_floating_ip(&ip.id, Some(&one.id), Some(ip.revision_number)).await.unwrap();
    assert_eq!(bound.fixed_ip_address, one.fixed_ips[0].ip_address);
    assert_eq!(bound.router_id.as_deref(), Some(site.router.id.as_str()));
    // Whoever read it before somebody else changed it does not take it away.
    assert_eq!(
        kind(cloud.bind_floating_ip(&ip.id, Some(&two.id), Some(ip.revision_number)).await),
        ErrorKind::Conflict
    );
    until("ACTIVE", async || (cloud.floating_ip(&ip.id).await.unwrap().status == "ACTIVE").then_some(())).await;
    let by_port = FloatingIpQuery { port_id: Some(one.id.clone()), ..FloatingIpQuery::default() };
    assert_eq!(cloud.floating_ips(&by_port).await.unwrap()[0].id, ip.id);
    let by_address =
        FloatingIpQuery { floating_ip_address: Some(ip.floating_ip_address.clone()), ..FloatingIpQuery::default() };
    assert_eq!(cloud.floating_ips(&by_address).await.unwrap()[0].id, ip.id);
    let second = cloud.create_floating_ip(&wanted).await.unwrap();
    assert_eq!(kind(cloud.bind_floating_ip(&second.id, Some(&one.id), None).await), ErrorKind::Conflict);
    assert_eq!(kind(cloud.remove_router_interface(&site.router.id, &site.subnet.id).await), ErrorKind::Conflict);
    assert_eq!(
        kind(cloud.update_router(&site.router.id, &json!({"external_gateway_info": {}})).await),
        ErrorKind::Conflict
    );

    let free = cloud.bind_floating_ip(&ip.id, None, None).await.unwrap();
    assert_eq!((free.port_id, free.fixed_ip_address), (None, None));
    // A port that goes lets go of its floating IP, and does not take it along.
    cloud.bind_floating_ip(&ip.id, Some(&two.id), None).await.unwrap();
    cloud.delete_port(&two.id).await.unwrap();
    assert_eq!(cloud.floating_ip(&ip.id).await.unwrap().port_id, None);
    cloud.update_router(&site.router.id, &json!({"external_gateway_info": {}})).await.unwrap();
    assert_eq!(kind(cloud.bind_floating_ip(&ip.id, Some(&one.id), None).await), ErrorKind::NotFound);
    for id in [&ip.id, &second.id] {
        cloud.delete_floating_ip(id).await.unwrap();
    }
    cloud.delete_port(&one.id).await.unwrap();
    place.remove(&site).await;
}

#[tokio::test]
async fn ports_keep_addresses_apart_and_trunks_keep_ports() {
    let place = Place::find().await;
    let cloud = &place.demo;
    let site = place.network("10.93.0.0/24", "203.0.113.128/26").await;
    let address =
        |ip: &str| Some(vec![FixedIp { subnet_id: Some(site.subnet.id.clone()), ip_address: Some(ip.into()) }]);
    let wanted = CreatePort {
        network_id: site.network.id.clone(),
        name: place.name("p"),
        fixed_ips: address("10.93.0.50"),
        allowed_address_pairs: Some(vec![AddressPair { ip_address: "10.93.0.200".into(), mac_address: None }]),
        ..CreatePort::default()
    };
    let port = cloud.create_port(&wanted).await.unwrap();
    assert_eq!(port.fixed_ips[0].ip_address.as_deref(), Some("10.93.0.50"));
    assert_eq!((port.status.as_str(), port.security_groups.len(), port.port_security_enabled), ("DOWN", 1, Some(true)));
    assert_eq!(port.allowed_address_pairs[0].mac_address.as_deref(), Some(port.mac_address.as_str()));
    assert_eq!(kind(cloud.create_port(&wanted).await), ErrorKind::Conflict);
    let plain = CreatePort { allowed_address_pairs: None, ..wanted.clone() };
    assert_eq!(
        kind(cloud.create_port(&CreatePort { fixed_ips: address("10.94.0.1"), ..plain.clone() }).await),
        ErrorKind::BadRequest
    );
    let nowhere =
        CreatePort { network_id: "00000000-0000-4000-8000-000000000000".into(), fixed_ips: None, ..plain.clone() };
    assert_eq!(kind(cloud.create_port(&nowhere).await), ErrorKind::NotFound);
    let strange = CreatePort {
        security_groups: Some(vec!["00000000-0000-4000-8000-000000000000".into()]),
        fixed_ips: None,
        ..plain.clone()
    };
    assert_eq!(kind(cloud.create_port(&strange).await), ErrorKind::NotFound);
    let open = CreatePort { port_security_enabled: Some(false), fixed_ips: None, ..wanted.clone() };
    assert_eq!(kind(cloud.create_port(&open).await), ErrorKind::Conflict);
    let open = cloud
        .create_port(&CreatePort { port_security_enabled: Some(false), fixed_ips: None, ..plain.clone() })
        .await
        .unwrap();
    assert!(open.security_groups.is_empty());

    let renamed =
        cloud.update_port(&port.id, &json!({"name": place.name("q")}), Some(port.revision_number)).await.unwrap();
    assert!(renamed.revision_number > port.revision_number);
    let stale = cloud.update_port(&port.id, &json!({"name": "x"}), Some(port.revision_number)).await;
    assert_eq!(kind(stale), ErrorKind::Conflict);

    let trunk = CreateTrunk { name: place.name("t"), port_id: open.id.clone(), ..CreateTrunk::default() };
    let made = cloud.create_trunk(&trunk).await.unwrap();
    assert_eq!(kind(cloud.create_trunk(&trunk).await), ErrorKind::Conflict);
    let sub = SubPort { port_id: port.id.clone(), segmentation_type: Some("vlan".into()), segmentation_id: Some(7) };
    assert_eq!(cloud.add_sub_ports(&made.id, &[sub]).await.unwrap().sub_ports.len(), 1);
    assert_eq!(kind(cloud.delete_port(&open.id).await), ErrorKind::Conflict);
    assert_eq!(kind(cloud.delete_port(&port.id).await), ErrorKind::Conflict);
    cloud.remove_sub_ports(&made.id, std::slice::from_ref(&port.id)).await.unwrap();
    assert_eq!(kind(cloud.remove_sub_ports(&made.id, std::slice::from_ref(&port.id)).await), ErrorKind::NotFound);
    let by_port = TrunkQuery { port_id: Some(open.id.clone()), ..TrunkQuery::default() };
    assert_eq!(cloud.trunks(&by_port).await.unwrap()[0].id, made.id);
    cloud.delete_trunk(&made.id).await.unwrap();

    // Pages: five ports, two at a time, each once.
    let more = CreatePort { fixed_ips: None, name: place.name("page"), ..plain };
    for _ in 0..3 {
        cloud.create_port(&more).await.unwrap();
    }
    let pages = PortQuery { name: Some(place.name("page")), limit: Some(2), ..PortQuery::default() };
    let mut listed: Vec<String> = cloud.ports(&pages).await.unwrap().into_iter().map(|port| port.id).collect();
    listed.sort();
    listed.dedup();
    assert_eq!(listed.len(), 3);
    for id in listed.iter().chain([&port.id, &open.id]) {
        cloud.delete_port(id).await.unwrap();
    }

    let project = cloud.project_id().await.unwrap();
    place.admin.set_network_quota(&project, "trunk", 0).await.unwrap();
    let port = cloud.create_port(&CreatePort { name: place.name("full"), ..more }).await.unwrap();
    let full = cloud.create_trunk(&CreateTrunk { port_id: port.id.clone(), ..trunk }).await;
    place.admin.set_network_quota(&project, "trunk", -1).await.unwrap();
    assert_eq!(kind(full), ErrorKind::Quota);
    cloud.delete_port(&port.id).await.unwrap();
    place.remove(&site).await;
}

#[tokio::test]
async fn security_groups_have_rules_that_are_not_doubled() {
    let place = Place::find().await;
    let cloud = &place.demo;
    let body = CreateSecurityGroup { name: place.name("group"), description: Some("d".into()), stateful: None };
    let group = cloud.create_security_group(&body).await.unwrap();
    assert_eq!(group.security_group_rules.iter().filter(|rule| rule.direction == "egress").count(), 2);
    let rule = CreateSecurityGroupRule {
        security_group_id: group.id.clone(),
        direction: "ingress".into(),
        protocol: Some("4".into()),
        remote_group_id: Some(group.id.clone()),
        ..CreateSecurityGroupRule::default()
    };
    let made = cloud.create_security_group_rules(std::slice::from_ref(&rule)).await.unwrap();
    // As it was said, not as a name: `4`, not `ipip`.
    assert_eq!((made[0].protocol.as_deref(), made[0].ethertype.as_str()), (Some("4"), "IPv4"));
    assert_eq!(kind(cloud.create_security_group_rules(std::slice::from_ref(&rule)).await), ErrorKind::Conflict);
    let ports = |min, max| CreateSecurityGroupRule {
        protocol: Some("tcp".into()),
        port_range_min: Some(min),
        port_range_max: Some(max),
        ..rule.clone()
    };
    let wrong = [
        ports(9, 3),
        CreateSecurityGroupRule { protocol: Some("bogus".into()), ..rule.clone() },
        CreateSecurityGroupRule { protocol: None, ..ports(3, 3) },
        CreateSecurityGroupRule { direction: "sideways".into(), ..rule.clone() },
        CreateSecurityGroupRule {
            remote_group_id: None,
            remote_ip_prefix: Some("2001:db8::/32".into()),
            ethertype: Some("IPv4".into()),
            ..rule.clone()
        },
    ];
    for wrong in wrong {
        assert_eq!(kind(cloud.create_security_group_rules(&[wrong]).await), ErrorKind::BadRequest);
    }
    let strange = CreateSecurityGroupRule { security_group_id: "00000000-0000-4000-8000-000000000000".into(), ..rule };
    assert_eq!(kind(cloud.create_security_group_rules(&[strange]).await), ErrorKind::NotFound);
    let default = CreateSecurityGroup { name: "default".into(), ..CreateSecurityGroup::default() };
    assert_eq!(kind(cloud.create_security_group(&default).await), ErrorKind::Conflict);
    cloud.delete_security_group_rule(&made[0].id).await.unwrap();
    cloud.set_tags("security-groups", &group.id, std::slice::from_ref(&place.tag)).await.unwrap();
    let tagged = SecurityGroupQuery {
        tags: TagFilter { any: vec![place.tag.clone()], ..TagFilter::default() },
        ..SecurityGroupQuery::default()
    };
    assert_eq!(cloud.security_groups(&tagged).await.unwrap()[0].id, group.id);

    let network =
        cloud.create_network(&CreateNetwork { name: place.name("n"), ..CreateNetwork::default() }).await.unwrap();
    let port = CreatePort {
        network_id: network.id.clone(),
        security_groups: Some(vec![group.id.clone()]),
        ..CreatePort::default()
    };
    let port = cloud.create_port(&port).await.unwrap();
    assert_eq!(kind(cloud.delete_security_group(&group.id).await), ErrorKind::Conflict);
    cloud.delete_port(&port.id).await.unwrap();
    cloud.delete_network(&network.id).await.unwrap();
    cloud.delete_security_group(&group.id).await.unwrap();
}
