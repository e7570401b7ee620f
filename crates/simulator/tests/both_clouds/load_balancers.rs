use hangar_openstack::*;
use serde_json::json;

use crate::place::{Place, kind, until};

async fn active(cloud: &Cloud, id: &str) {
    until("ACTIVE", async || {
        let status = cloud.load_balancer(id).await.unwrap().provisioning_status;
        assert_ne!(status, "ERROR");
        (status == "ACTIVE").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_load_balancer_changes_one_thing_at_a_time_and_goes_with_all_below() {
    let place = Place::find().await;
    let cloud = &place.demo;
    let site = place.network("10.96.0.0/24", "203.0.113.0/26").await;
    assert!(cloud.load_balancer_providers().await.unwrap().iter().any(|provider| provider.name == "amphora"));
    let wanted = CreateLoadBalancer {
        name: place.name("lb"),
        description: Some("mine".into()),
        vip_subnet_id: Some(site.subnet.id.clone()),
        tags: vec![place.tag.clone()],
        ..CreateLoadBalancer::default()
    };
    assert_eq!(
        kind(cloud.create_load_balancer(&CreateLoadBalancer { vip_subnet_id: None, ..wanted.clone() }).await),
        ErrorKind::BadRequest
    );
    assert_eq!(
        kind(cloud.create_load_balancer(&CreateLoadBalancer { provider: Some("nope".into()), ..wanted.clone() }).await),
        ErrorKind::BadRequest
    );
    let balancer = cloud.create_load_balancer(&wanted).await.unwrap();
    assert_eq!(balancer.provisioning_status, "PENDING_CREATE");
    let listener = CreateListener {
        name: place.name("listener"),
        protocol: "TCP".into(),
        protocol_port: 6443,
        loadbalancer_id: Some(balancer.id.clone()),
        allowed_cidrs: Some(vec!["10.0.0.0/8".into()]),
        ..CreateListener::default()
    };
    // One change at a time.
    assert_eq!(kind(cloud.create_listener(&listener).await), ErrorKind::Conflict);
    assert_eq!(kind(cloud.delete_load_balancer(&balancer.id, true).await), ErrorKind::Conflict);
    active(cloud, &balancer.id).await;
    let vip = cloud.port(balancer.vip_port_id.as_ref().unwrap()).await.unwrap();
    assert_eq!((vip.device_owner.as_str(), &vip.fixed_ips[0].ip_address), ("Octavia", &balancer.vip_address));
    assert_eq!(cloud.load_balancers(Some(&place.name("lb"))).await.unwrap()[0].id, balancer.id);

    let made = cloud.create_listener(&listener).await.unwrap();
    assert_eq!(made.allowed_cidrs, Some(vec!["10.0.0.0/8".to_owned()]));
    active(cloud, &balancer.id).await;
    assert_eq!(kind(cloud.create_listener(&listener).await), ErrorKind::Conflict);
    let bad = CreateListener { protocol_port: 80, allowed_cidrs: Some(vec!["nonsense".into()]), ..listener.clone() };
    assert_eq!(kind(cloud.create_listener(&bad).await), ErrorKind::BadRequest);
    let pool = CreatePool {
        name: place.name("pool"),
        protocol: "TCP".into(),
        lb_algorithm: "ROUND_ROBIN".into(),
        listener_id: Some(made.id.clone()),
        ..CreatePool::default()
    };
    let pool = cloud.create_pool(&pool).await.unwrap();
    active(cloud, &balancer.id).await;
    assert_eq!(
        cloud.listeners(Some(&place.name("listener"))).await.unwrap()[0].default_pool_id.as_ref(),
        Some(&pool.id)
    );
    let monitor = CreateHealthMonitor {
        name: place.name("monitor"),
        pool_id: Some(pool.id.clone()),
        kind: "TCP".into(),
        delay: 10,
        timeout: 5,
        max_retries: 5,
        max_retries_down: Some(3),
    };
    let watching = cloud.create_health_monitor(&monitor).await.unwrap();
    active(cloud, &balancer.id).await;
    assert_eq!(kind(cloud.create_health_monitor(&monitor).await), ErrorKind::Conflict);
    cloud.update_health_monitor(&watching.id, &json!({"delay": 20})).await.unwrap();
    active(cloud, &balancer.id).await;
    assert_eq!(cloud.health_monitors(Some(&place.name("monitor"))).await.unwrap()[0].delay, 20);

    let member = |address: &str| CreateMember {
        name: place.name("member"),
        address: address.into(),
        protocol_port: 6443,
        ..CreateMember::default()
    };
    let first = cloud.create_member(&pool.id, &member("10.96.0.50")).await.unwrap();
    active(cloud, &balancer.id).await;
    assert_eq!(kind(cloud.create_member(&pool.id, &member("10.96.0.50")).await), ErrorKind::Conflict);
    assert_eq!(kind(cloud.create_member(&pool.id, &member("nonsense")).await), ErrorKind::BadRequest);
    cloud.set_members(&pool.id, &[member("10.96.0.51"), member("10.96.0.52")]).await.unwrap();
    active(cloud, &balancer.id).await;
    let mut addresses: Vec<String> =
        cloud.members(&pool.id, None).await.unwrap().into_iter().map(|member| member.address).collect();
    addresses.sort();
    assert_eq!(addresses, ["10.96.0.51", "10.96.0.52"]);
    assert_eq!(kind(cloud.delete_member(&pool.id, &first.id).await), ErrorKind::NotFound);
    cloud.set_allowed_cidrs(&made.id, &["192.0.2.0/24".into()]).await.unwrap();
    active(cloud, &balancer.id).await;

    let ip = CreateFloatingIp {
        floating_network_id: site.external.id.clone(),
        port_id: balancer.vip_port_id.clone(),
        ..CreateFloatingIp::default()
    };
    let ip = cloud.create_floating_ip(&ip).await.unwrap();
    assert_eq!(ip.fixed_ip_address, balancer.vip_address);
    assert_eq!(kind(cloud.delete_load_balancer(&balancer.id, false).await), ErrorKind::BadRequest);
    cloud.delete_load_balancer(&balancer.id, true).await.unwrap();
    until("not found", async || {
        cloud.load_balancer(&balancer.id).await.is_err_and(|error| error.is_not_found()).then_some(())
    })
    .await;
    assert!(cloud.load_balancers(Some(&place.name("lb"))).await.unwrap().is_empty());
    assert!(cloud.pools(Some(&place.name("pool"))).await.unwrap().is_empty());
    assert_eq!(cloud.floating_ip(&ip.id).await.unwrap().port_id, None);
    cloud.delete_floating_ip(&ip.id).await.unwrap();
    until("the VIP's port gone", async || {
        cloud.port(&vip.id).await.is_err_and(|error| error.is_not_found()).then_some(())
    })
    .await;

    // A whole tree in one request, as the cloud controller of Kubernetes makes it.
    let whole = CreateLoadBalancer {
        listeners: vec![CreateListener {
            loadbalancer_id: None,
            default_pool: Some(Box::new(CreatePool {
                name: place.name("pool"),
                protocol: "TCP".into(),
                lb_algorithm: "ROUND_ROBIN".into(),
                members: vec![member("10.96.0.60")],
                healthmonitor: Some(CreateHealthMonitor { pool_id: None, ..monitor }),
                ..CreatePool::default()
            })),
            ..listener
        }],
        ..wanted
    };
    let balancer = cloud.create_load_balancer(&whole).await.unwrap();
    active(cloud, &balancer.id).await;
    let pool = &cloud.pools(Some(&place.name("pool"))).await.unwrap()[0];
    assert_eq!(cloud.members(&pool.id, None).await.unwrap().len(), 1);
    cloud.delete_load_balancer(&balancer.id, true).await.unwrap();
    until("not found", async || {
        cloud.load_balancer(&balancer.id).await.is_err_and(|error| error.is_not_found()).then_some(())
    })
    .await;
    until("the network free", async || {
        let left = PortQuery {
            network_id: Some(site.network.id.clone()),
            device_owner: Some("Octavia".into()),
            ..PortQuery::default()
        };
        cloud.ports(&left).await.unwrap().is_empty().then_some(())
    })
    .await;
    place.remove(&site).await;
}
