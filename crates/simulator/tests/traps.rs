//! Every trap that a real OpenStack is known to have, by name: each of them has cost somebody a leak, a hang or a night.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

use std::time::Duration;

use hangar_openstack::*;
use hangar_simulator::{FaultAction, FaultRule, Options, Simulator, starter};
use serde_json::{Value, json};
use tower::ServiceExt;

const BASE: &str = "http://cloud.test";

struct Place {
    simulator: Simulator,
    cloud: Cloud,
}

fn place_with(options: Options) -> Place {
    let simulator = Simulator::new(options).unwrap();
    let config = CloudConfig::parse(simulator.clouds_yaml(BASE).as_bytes(), "openstack", None, None).unwrap();
    Place { cloud: Cloud::new(config, simulator.transport()), simulator }
}

fn place() -> Place {
    place_with(Options::default())
}

impl Place {
    fn admin(&self) -> Cloud {
        let yaml = self.simulator.clouds_yaml_of(BASE, &[("admin", starter::ADMIN)], None);
        Cloud::new(CloudConfig::parse(yaml.as_bytes(), "admin", None, None).unwrap(), self.simulator.transport())
    }

    /// One request as it goes over the wire.
    async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> (u16, http::HeaderMap, Value) {
        let mut request = http::Request::builder().method(method).uri(format!("{BASE}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let bytes = if body.is_null() { bytes::Bytes::new() } else { body.to_string().into() };
        let reply = self.simulator.transport().oneshot(request.body(bytes).unwrap()).await.unwrap();
        let (head, body) = reply.into_parts();
        (head.status.as_u16(), head.headers, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn token(&self) -> String {
        let body = json!({"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": starter::USER,
            "domain": {"id": "default"}, "password": starter::PASSWORD}}},
            "scope": {"project": {"name": starter::PROJECT, "domain": {"id": "default"}}}}});
        let (_, headers, _) = self.raw("POST", "/identity/v3/auth/tokens", &[], body).await;
        headers["x-subject-token"].to_str().unwrap().to_owned()
    }

    async fn port(&self, name: &str) -> Port {
        let body = CreatePort { network_id: starter::NETWORK_ID.into(), name: name.into(), ..CreatePort::default() };
        self.cloud.create_port(&body).await.unwrap()
    }

    async fn floating_ip(&self) -> FloatingIp {
        let body =
            CreateFloatingIp { floating_network_id: starter::PUBLIC_NETWORK_ID.into(), ..CreateFloatingIp::default() };
        self.cloud.create_floating_ip(&body).await.unwrap()
    }

    async fn server(&self, port: &str) -> String {
        let body = CreateServer {
            name: "w".into(),
            flavor_id: starter::FLAVORS[0].1.into(),
            image_id: starter::IMAGES[0].1.into(),
            networks: vec![ServerNetwork { port: Some(port.into()), uuid: None }],
            ..CreateServer::default()
        };
        self.cloud.create_server(&body).await.unwrap()
    }

    async fn balancer(&self) -> LoadBalancer {
        let body = CreateLoadBalancer {
            name: "lb".into(),
            vip_subnet_id: Some(starter::SUBNET_ID.into()),
            ..CreateLoadBalancer::default()
        };
        self.cloud.create_load_balancer(&body).await.unwrap()
    }
}

async fn later() {
    tokio::time::sleep(Duration::from_secs(3)).await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_update_takes_a_floating_ip_off_its_port() {
    let place = place();
    let (port, ip, token) = (place.port("p").await, place.floating_ip().await, place.token().await);
    place.cloud.bind_floating_ip(&ip.id, Some(&port.id), None).await.unwrap();
    let path = format!("/network/v2.0/floatingips/{}", ip.id);
    let (status, _, body) = place.raw("PUT", &path, &[("x-auth-token", &token)], json!({"floatingip": {}})).await;
    assert_eq!((status, &body["floatingip"]["port_id"]), (200, &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_floating_ip_follows_its_binding_a_moment_later() {
    let place = place();
    let (port, ip) = (place.port("p").await, place.floating_ip().await);
    assert_eq!(place.cloud.bind_floating_ip(&ip.id, Some(&port.id), None).await.unwrap().status, "DOWN");
    later().await;
    assert_eq!(place.cloud.floating_ip(&ip.id).await.unwrap().status, "ACTIVE");
}

#[tokio::test(start_paused = true)]
async fn a_certain_floating_ip_is_for_administrators() {
    let body = CreateFloatingIp {
        floating_network_id: starter::PUBLIC_NETWORK_ID.into(),
        floating_ip_address: Some("172.24.4.77".into()),
        ..CreateFloatingIp::default()
    };
    let strict = place();
    assert_eq!(strict.cloud.create_floating_ip(&body).await.unwrap_err().kind, ErrorKind::Forbidden);
    assert_eq!(strict.admin().create_floating_ip(&body).await.unwrap().floating_ip_address, "172.24.4.77");
    let lenient = place_with(Options { floating_ip_by_address: true, ..Options::default() });
    assert_eq!(lenient.cloud.create_floating_ip(&body).await.unwrap().floating_ip_address, "172.24.4.77");
    assert_eq!(lenient.cloud.create_floating_ip(&body).await.unwrap_err().kind, ErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn two_writers_cannot_steal_a_floating_ip_from_each_other() {
    let place = place();
    let (one, two, ip) = (place.port("1").await, place.port("2").await, place.floating_ip().await);
    let seen = ip.revision_number;
    place.cloud.bind_floating_ip(&ip.id, Some(&one.id), Some(seen)).await.unwrap();
    let late = place.cloud.bind_floating_ip(&ip.id, Some(&two.id), Some(seen)).await.unwrap_err();
    assert_eq!((late.kind, late.status), (ErrorKind::Conflict, Some(412)));
    assert_eq!(place.cloud.floating_ip(&ip.id).await.unwrap().port_id, Some(one.id));
}

#[tokio::test(start_paused = true)]
async fn a_port_without_a_way_out_gets_no_floating_ip() {
    let place = place();
    let alone = place.simulator.add_network("alone", "10.77.0.0/24".parse().unwrap());
    let port = place.cloud.create_port(&CreatePort { network_id: alone, ..CreatePort::default() }).await.unwrap();
    let ip = place.floating_ip().await;
    let error = place.cloud.bind_floating_ip(&ip.id, Some(&port.id), None).await.unwrap_err();
    assert_eq!(error.status, Some(404));
    assert!(error.message.contains("is not reachable from subnet"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_shows_a_floating_address_as_soon_as_it_is_bound() {
    let place = place();
    let port = place.port("p").await;
    let id = place.server(&port.id).await;
    later().await;
    let ip = place.floating_ip().await;
    place.cloud.bind_floating_ip(&ip.id, Some(&port.id), None).await.unwrap();
    let server = place.cloud.server(&id).await.unwrap();
    let kinds: Vec<&str> = server.addresses[starter::NETWORK].iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(kinds, ["fixed", "floating"]);
}

#[tokio::test(start_paused = true)]
async fn deleting_a_server_frees_its_ports_and_keeps_them() {
    let place = place();
    let port = place.port("p").await;
    let id = place.server(&port.id).await;
    later().await;
    place.cloud.delete_server(&id).await.unwrap();
    // It is still listed, and still has its port.
    assert_eq!(place.cloud.server(&id).await.unwrap().task_state.as_deref(), Some("deleting"));
    later().await;
    assert!(place.cloud.server(&id).await.unwrap_err().is_not_found());
    assert_eq!(place.cloud.port(&port.id).await.unwrap().device_id, "");
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_server_is_looked_for_as_a_regular_expression() {
    let place = place();
    let port = place.port("p").await;
    place.server(&port.id).await;
    let named = |name: &str| ServerQuery { name: Some(name.into()), ..ServerQuery::default() };
    assert_eq!(place.cloud.servers(&named("w")).await.unwrap().len(), 1);
    assert_eq!(place.cloud.servers(&named("^$")).await.unwrap().len(), 0);
    assert_eq!(place.cloud.servers(&named("*")).await.unwrap_err().kind, ErrorKind::BadRequest);
}

#[tokio::test(start_paused = true)]
async fn a_network_takes_its_subnets_along_and_dhcp_does_not_hold_it() {
    let place = place();
    let network =
        place.cloud.create_network(&CreateNetwork { name: "n".into(), ..CreateNetwork::default() }).await.unwrap();
    let subnet = CreateSubnet {
        network_id: network.id.clone(),
        cidr: "10.80.0.0/24".into(),
        ip_version: 4,
        ..CreateSubnet::default()
    };
    let subnet = place.cloud.create_subnet(&subnet).await.unwrap();
    let inside = PortQuery { network_id: Some(network.id.clone()), ..PortQuery::default() };
    let ports = place.cloud.ports(&inside).await.unwrap();
    assert_eq!((ports.len(), ports[0].device_owner.as_str()), (1, "network:dhcp"));
    place.cloud.delete_network(&network.id).await.unwrap();
    assert!(place.cloud.subnet(&subnet.id).await.unwrap_err().is_not_found());
    assert!(place.cloud.ports(&inside).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_new_security_group_already_has_two_rules() {
    let place = place();
    let group = place
        .cloud
        .create_security_group(&CreateSecurityGroup { name: "g".into(), ..Default::default() })
        .await
        .unwrap();
    let rules: Vec<(&str, &str)> =
        group.security_group_rules.iter().map(|rule| (rule.direction.as_str(), rule.ethertype.as_str())).collect();
    assert_eq!(rules, [("egress", "IPv4"), ("egress", "IPv6")]);
    let query = SecurityGroupQuery { name: Some("default".into()), ..SecurityGroupQuery::default() };
    assert_eq!(place.cloud.security_groups(&query).await.unwrap().len(), 1, "and every project has a default group");
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_changes_refuses_every_other_change() {
    let place = place();
    let balancer = place.balancer().await;
    let listener = CreateListener {
        protocol: "TCP".into(),
        protocol_port: 6443,
        loadbalancer_id: Some(balancer.id.clone()),
        ..CreateListener::default()
    };
    let busy = place.cloud.create_listener(&listener).await.unwrap_err();
    assert_eq!((busy.kind, busy.status), (ErrorKind::Conflict, Some(409)));
    assert!(busy.message.contains("immutable"), "{busy}");
    let busy = place.cloud.delete_load_balancer(&balancer.id, true).await.unwrap_err();
    assert!(busy.message.contains("Invalid state PENDING_CREATE"), "{busy}");
    later().await;
    place.cloud.create_listener(&listener).await.unwrap();
    assert_eq!(place.cloud.load_balancer(&balancer.id).await.unwrap().provisioning_status, "PENDING_UPDATE");
}

#[tokio::test(start_paused = true)]
async fn the_virtual_ip_is_a_port_and_goes_with_its_load_balancer() {
    let place = place();
    let balancer = place.balancer().await;
    later().await;
    let port = place.cloud.port(balancer.vip_port_id.as_ref().unwrap()).await.unwrap();
    assert_eq!(
        (port.device_owner.as_str(), port.fixed_ips[0].ip_address.as_ref()),
        ("Octavia", balancer.vip_address.as_ref())
    );
    place.cloud.delete_load_balancer(&balancer.id, false).await.unwrap();
    assert_eq!(place.cloud.load_balancer(&balancer.id).await.unwrap().provisioning_status, "PENDING_DELETE");
    later().await;
    assert!(place.cloud.load_balancer(&balancer.id).await.unwrap_err().is_not_found());
    assert!(place.cloud.port(&port.id).await.unwrap_err().is_not_found());
    assert!(place.simulator.inventory().is_empty());
}

#[tokio::test(start_paused = true)]
async fn some_providers_have_no_health_monitors_and_say_501() {
    let place = place_with(Options { no_health_monitors: true, ..Options::default() });
    let balancer = place.balancer().await;
    later().await;
    let pool = CreatePool {
        protocol: "TCP".into(),
        lb_algorithm: "ROUND_ROBIN".into(),
        loadbalancer_id: Some(balancer.id),
        ..CreatePool::default()
    };
    let pool = place.cloud.create_pool(&pool).await.unwrap();
    later().await;
    let monitor = CreateHealthMonitor {
        pool_id: Some(pool.id),
        kind: "TCP".into(),
        delay: 5,
        timeout: 5,
        max_retries: 3,
        ..CreateHealthMonitor::default()
    };
    assert_eq!(place.cloud.create_health_monitor(&monitor).await.unwrap_err().status, Some(501));
}

#[tokio::test(start_paused = true)]
async fn ovn_knows_one_algorithm() {
    let place = place();
    let body = CreateLoadBalancer {
        provider: Some("ovn".into()),
        vip_subnet_id: Some(starter::SUBNET_ID.into()),
        ..CreateLoadBalancer::default()
    };
    let balancer = place.cloud.create_load_balancer(&body).await.unwrap();
    later().await;
    let pool = CreatePool {
        protocol: "TCP".into(),
        lb_algorithm: "ROUND_ROBIN".into(),
        loadbalancer_id: Some(balancer.id),
        ..CreatePool::default()
    };
    assert_eq!(place.cloud.create_pool(&pool).await.unwrap_err().status, Some(501));
    later().await;
    place.cloud.create_pool(&CreatePool { lb_algorithm: "SOURCE_IP_PORT".into(), ..pool }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn limits_are_403_in_nova_409_in_neutron_and_413_in_cinder() {
    let place = place();
    for name in ["instances", "port", "volumes", "load_balancer"] {
        place.simulator.set_quota(starter::PROJECT, name, 0);
    }
    let port = CreatePort { network_id: starter::NETWORK_ID.into(), ..CreatePort::default() };
    let server = CreateServer {
        name: "w".into(),
        flavor_id: starter::FLAVORS[0].1.into(),
        image_id: starter::IMAGES[0].1.into(),
        ..CreateServer::default()
    };
    let balancer =
        CreateLoadBalancer { vip_subnet_id: Some(starter::SUBNET_ID.into()), ..CreateLoadBalancer::default() };
    let errors = [
        (place.cloud.create_server(&server).await.unwrap_err(), 403),
        (place.cloud.create_port(&port).await.unwrap_err(), 409),
        (place.cloud.create_volume(&CreateVolume { size: 1, ..CreateVolume::default() }).await.unwrap_err(), 413),
        (place.cloud.create_load_balancer(&balancer).await.unwrap_err(), 403),
    ];
    for (error, status) in errors {
        assert_eq!((error.kind, error.status), (ErrorKind::Quota, Some(status)), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_application_credential_is_404_not_401() {
    let place = place();
    let yaml = "clouds: {c: {auth: {auth_url: 'http://cloud.test/identity', application_credential_id: gone, application_credential_secret: s}}}";
    let config = CloudConfig::parse(yaml.as_bytes(), "c", None, None).unwrap();
    let error = Cloud::new(config, place.simulator.transport()).project_id().await.unwrap_err();
    // For whoever asked it is a credential that does not work, whatever Keystone's number for it.
    assert_eq!((error.kind, error.status), (ErrorKind::Unauthorized, Some(404)));
}

#[tokio::test(start_paused = true)]
async fn a_token_without_a_project_is_refused_with_advice() {
    let place = place();
    let body = json!({"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": starter::USER,
        "domain": {"id": "default"}, "password": starter::PASSWORD}}}, "scope": "unscoped"}});
    let (status, _, body) = place.raw("POST", "/identity/v3/auth/tokens", &[], body).await;
    assert_eq!(
        (status, body["token"].get("project"), body["token"]["catalog"].as_array().map(Vec::len)),
        (201, None, Some(0))
    );
}

#[tokio::test(start_paused = true)]
async fn version_documents_have_the_shapes_that_clients_insist_on() {
    let place = place();
    let (status, _, body) = place.raw("GET", "/identity/", &[], Value::Null).await;
    assert_eq!((status, &body["versions"]["values"][0]["status"]), (300, &json!("stable")));
    let (_, _, body) = place.raw("GET", "/compute/v2.1/", &[], Value::Null).await;
    assert!(body["version"]["min_version"].is_string() && body["version"]["version"].is_string());
    for service in ["network", "image", "load-balancer"] {
        let (_, _, body) = place.raw("GET", &format!("/{service}/"), &[], Value::Null).await;
        let versions = body["versions"].as_array().unwrap();
        assert!(
            versions.iter().all(|one| ["CURRENT", "SUPPORTED"].contains(&one["status"].as_str().unwrap())),
            "{service}"
        );
    }
    let (_, _, body) = place.raw("GET", "/load-balancer/", &[], Value::Null).await;
    assert_eq!(
        body["versions"].as_array().unwrap().last().unwrap()["id"],
        "v2.27",
        "the last one is read as the version"
    );
}

#[tokio::test(start_paused = true)]
async fn the_catalog_has_versioned_compute_and_unversioned_network_urls() {
    let place = place();
    let token = place.token().await;
    let headers = [("x-auth-token", token.as_str()), ("x-subject-token", token.as_str())];
    let (_, _, body) = place.raw("GET", "/identity/v3/auth/tokens", &headers, Value::Null).await;
    let url = |kind: &str| {
        let entries = body["token"]["catalog"].as_array().unwrap();
        entries.iter().find(|entry| entry["type"] == kind).unwrap()["endpoints"][0]["url"].as_str().unwrap().to_owned()
    };
    assert!(
        url("compute").ends_with("/v2.1") && url("volumev3").ends_with("/v3") && url("block-storage").ends_with("/v3")
    );
    assert!(url("network").ends_with("/network") && url("image").ends_with("/image"));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_microversion_is_406() {
    let place = place();
    let token = place.token().await;
    let headers = [("x-auth-token", token.as_str()), ("openstack-api-version", "compute 2.999")];
    let (status, _, body) = place.raw("GET", "/compute/v2.1/servers/detail", &headers, Value::Null).await;
    assert_eq!(status, 406);
    assert!(body["computeFault"]["message"].as_str().unwrap().contains("2.999 is not supported"));
}

#[tokio::test(start_paused = true)]
async fn servers_show_tags_and_flavor_values_only_from_their_microversions_on() {
    let place = place();
    let port = place.port("p").await;
    let id = place.server(&port.id).await;
    let token = place.token().await;
    for (version, tags, flavor_id) in [("2.1", false, true), ("2.26", true, true), ("2.47", true, false)] {
        let version = format!("compute {version}");
        let headers = [("x-auth-token", token.as_str()), ("openstack-api-version", version.as_str())];
        let (_, _, body) = place.raw("GET", &format!("/compute/v2.1/servers/{id}"), &headers, Value::Null).await;
        assert_eq!(body["server"].get("tags").is_some(), tags, "{version}");
        assert_eq!(body["server"]["flavor"].get("id").is_some(), flavor_id, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn times_are_written_in_four_ways() {
    let place = place();
    let port = place.port("p").await;
    let id = place.server(&port.id).await;
    let volume = place.cloud.create_volume(&CreateVolume { size: 1, ..CreateVolume::default() }).await.unwrap();
    let balancer = place.balancer().await;
    assert!(place.cloud.server(&id).await.unwrap().created.ends_with('Z'));
    assert!(port.created_at.unwrap().ends_with('Z'));
    assert!(volume.created_at.contains('.') && !volume.created_at.ends_with('Z'));
    assert!(!balancer.created_at.contains('.') && !balancer.created_at.ends_with('Z'));
}

#[tokio::test(start_paused = true)]
async fn user_data_has_a_largest_size() {
    let place = place();
    let body = CreateServer {
        name: "w".into(),
        flavor_id: starter::FLAVORS[0].1.into(),
        image_id: starter::IMAGES[0].1.into(),
        user_data: Some("A".repeat(65536)),
        ..CreateServer::default()
    };
    assert_eq!(place.cloud.create_server(&body).await.unwrap_err().kind, ErrorKind::BadRequest);
    place.cloud.create_server(&CreateServer { user_data: Some("A".repeat(65532)), ..body }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_finds_no_host_ends_in_error_with_a_fault() {
    let place = place();
    let rule = FaultRule {
        service: "compute".into(),
        method: "POST".into(),
        path_regex: "^/servers$".into(),
        times: Some(1),
        action: FaultAction::NoValidHost,
        ..FaultRule::default()
    };
    place.simulator.set_faults(vec![rule]);
    let port = place.port("p").await;
    let id = place.server(&port.id).await;
    later().await;
    let server = place.cloud.server(&id).await.unwrap();
    assert_eq!(server.status, "ERROR");
    assert!(server.fault.unwrap().message.starts_with("No valid host was found"));
}

#[tokio::test(start_paused = true)]
async fn volumes_that_go_with_their_server_go_and_others_stay() {
    let place = place();
    let device = |delete_on_termination: bool, boot_index: i32| BlockDevice {
        boot_index,
        source_type: "image".into(),
        destination_type: "volume".into(),
        uuid: Some(starter::IMAGES[0].1.into()),
        volume_size: Some(2),
        delete_on_termination,
        ..BlockDevice::default()
    };
    let body = CreateServer {
        name: "w".into(),
        flavor_id: starter::FLAVORS[0].1.into(),
        block_device_mapping_v2: vec![device(true, 0), device(false, -1)],
        ..CreateServer::default()
    };
    let id = place.cloud.create_server(&body).await.unwrap();
    later().await;
    assert_eq!(place.cloud.server(&id).await.unwrap().status, "ACTIVE");
    assert_eq!(place.cloud.volumes(None).await.unwrap().len(), 2);
    place.cloud.delete_server(&id).await.unwrap();
    later().await;
    let left = place.cloud.volumes(None).await.unwrap();
    assert_eq!((left.len(), left[0].status.as_str()), (1, "available"));
}

#[tokio::test(start_paused = true)]
async fn glance_speaks_html_and_is_understood() {
    let place = place();
    let error = place.cloud.image("00000000-0000-4000-8000-000000000000").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.message.contains("No image found with ID"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_404_that_no_service_wrote_is_not_taken_for_gone() {
    let place = place();
    let rule = FaultRule {
        service: "network".into(),
        times: Some(1),
        action: FaultAction::ProxyPage(404),
        ..FaultRule::default()
    };
    place.simulator.set_faults(vec![rule]);
    assert_eq!(place.cloud.delete_port("x").await.unwrap_err().kind, ErrorKind::Malformed);
}

#[tokio::test(start_paused = true)]
async fn unbound_port_security_and_groups_exclude_each_other() {
    let place = place();
    let body = CreatePort {
        network_id: starter::NETWORK_ID.into(),
        port_security_enabled: Some(false),
        security_groups: Some(vec![starter::DEFAULT_GROUP_ID.into()]),
        ..CreatePort::default()
    };
    assert_eq!(place.cloud.create_port(&body).await.unwrap_err().kind, ErrorKind::BadRequest);
    let open = place.cloud.create_port(&CreatePort { security_groups: None, ..body }).await.unwrap();
    assert!(open.security_groups.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_interface_of_a_router_goes_only_through_the_router() {
    let place = place();
    let error = place.cloud.delete_port(starter::ROUTER_PORT_ID).await.unwrap_err();
    assert!(
        error.kind == ErrorKind::Conflict && error.message.contains("cannot be deleted directly via the port API"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn zones_that_are_not_available_take_no_servers() {
    let place = place();
    place.simulator.add_zone("broken", false);
    let zones = place.cloud.availability_zones().await.unwrap();
    assert_eq!(zones.iter().filter(|zone| zone.state.available).count(), 1);
    let body = CreateServer {
        name: "w".into(),
        flavor_id: starter::FLAVORS[0].1.into(),
        image_id: starter::IMAGES[0].1.into(),
        availability_zone: Some("broken".into()),
        ..CreateServer::default()
    };
    assert_eq!(place.cloud.create_server(&body).await.unwrap_err().kind, ErrorKind::BadRequest);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_vanishes_is_just_not_found() {
    let place = place();
    let port = place.port("p").await;
    let id = place.server(&port.id).await;
    later().await;
    let rule = FaultRule {
        service: "compute".into(),
        method: "GET".into(),
        path_regex: format!("^/servers/{id}$"),
        times: Some(1),
        action: FaultAction::DeletedElsewhere,
        ..FaultRule::default()
    };
    place.simulator.set_faults(vec![rule]);
    assert!(place.cloud.server(&id).await.unwrap_err().is_not_found());
    assert_eq!(place.cloud.port(&port.id).await.unwrap().device_id, "");
}
