//! The client against the cloud in memory: lookups, creation, deletion in order, every class of error, tokens, pages.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hangar_openstack::*;
use hangar_simulator::{Fault, FaultAction, FaultRule, Options, Simulator, starter};
use serde_json::json;

const BASE: &str = "http://cloud.test";

fn cloud() -> (Simulator, Cloud) {
    let simulator = Simulator::new(Options::default()).unwrap();
    let config = CloudConfig::parse(simulator.clouds_yaml(BASE).as_bytes(), "openstack", None, None).unwrap();
    let cloud = Cloud::new(config, simulator.transport());
    (simulator, cloud)
}

fn port(name: &str) -> CreatePort {
    CreatePort { network_id: starter::NETWORK_ID.into(), name: name.into(), ..CreatePort::default() }
}

fn server(name: &str, port: &str) -> CreateServer {
    CreateServer {
        name: name.into(),
        flavor_id: starter::FLAVORS[1].1.into(),
        image_id: starter::IMAGES[0].1.into(),
        networks: vec![ServerNetwork { port: Some(port.into()), uuid: None }],
        key_name: Some(starter::KEY_PAIR.into()),
        metadata: BTreeMap::from([("hangar.owner".to_owned(), "me".to_owned())]),
        ..CreateServer::default()
    }
}

fn rule(service: &str, method: &str, path: &str, times: u32, action: FaultAction) -> FaultRule {
    FaultRule {
        service: service.into(),
        method: method.into(),
        path_regex: path.into(),
        times: Some(times),
        action,
        ..FaultRule::default()
    }
}

async fn status(cloud: &Cloud, id: &str) -> String {
    cloud.server(id).await.map_or_else(|error| format!("{:?}", error.kind), |server| server.status)
}

#[tokio::test(start_paused = true)]
async fn the_starter_is_found_by_every_lookup() {
    let (simulator, cloud) = cloud();
    assert_eq!(cloud.project_id().await.unwrap(), starter::PROJECT_ID);
    let external = NetworkQuery { external: Some(true), ..NetworkQuery::default() };
    assert_eq!(cloud.networks(&external).await.unwrap()[0].name, "public");
    let named = NetworkQuery { name: Some("demo-net".into()), ..NetworkQuery::default() };
    assert_eq!(cloud.networks(&named).await.unwrap()[0].id, starter::NETWORK_ID);
    let subnets = SubnetQuery { network_id: Some(starter::NETWORK_ID.into()), ..SubnetQuery::default() };
    assert_eq!(cloud.subnets(&subnets).await.unwrap()[0].cidr, "10.6.0.0/24");
    let image = ImageQuery { name: Some(starter::IMAGES[0].0.into()), ..ImageQuery::default() };
    assert_eq!(cloud.images(&image).await.unwrap()[0].property("kube_version"), Some("v1.28.10"));
    assert_eq!(cloud.flavors().await.unwrap().len(), 3);
    assert_eq!(cloud.availability_zones().await.unwrap()[0].name, "nova");
    assert_eq!(cloud.key_pairs().await.unwrap()[0].name, "demo");
    let groups = cloud.security_groups(&SecurityGroupQuery::default()).await.unwrap();
    assert_eq!((groups[0].name.as_str(), groups[0].security_group_rules.len()), ("default", 4));
    assert!(simulator.inventory().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_is_built_shown_and_deleted_and_its_port_survives_it() {
    let (simulator, cloud) = cloud();
    let port = cloud.create_port(&port("w-0")).await.unwrap();
    assert_eq!(port.fixed_ips[0].ip_address.as_deref(), Some("10.6.0.2"));
    let id = cloud.create_server(&server("w", &port.id)).await.unwrap();
    assert_eq!(status(&cloud, &id).await, "BUILD");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let found = cloud.servers(&ServerQuery { name: Some("^w$".into()), ..ServerQuery::default() }).await.unwrap();
    assert_eq!(found[0].status, "ACTIVE");
    assert_eq!(found[0].addresses["demo-net"][0].addr, "10.6.0.2");
    assert_eq!(found[0].metadata["hangar.owner"], "me");
    let bound = cloud.ports(&PortQuery { device_id: Some(id.clone()), ..PortQuery::default() }).await.unwrap();
    assert_eq!((bound[0].device_owner.as_str(), bound[0].status.as_str()), ("compute:nova", "ACTIVE"));
    let again = cloud.create_server(&server("v", &port.id)).await.unwrap_err();
    assert_eq!((again.kind, again.message), (ErrorKind::Conflict, format!("Port {} is still in use.", port.id)));

    cloud.delete_server(&id).await.unwrap();
    assert_eq!(cloud.server(&id).await.unwrap().task_state.as_deref(), Some("deleting"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(cloud.server(&id).await.unwrap_err().is_not_found());
    let free = cloud.ports(&PortQuery { id: Some(port.id.clone()), ..PortQuery::default() }).await.unwrap();
    assert_eq!((free[0].device_id.as_str(), free[0].status.as_str()), ("", "DOWN"));
    assert_eq!(simulator.inventory().len(), 1);
    cloud.delete_port(&port.id).await.unwrap();
    assert!(cloud.delete_port(&port.id).await.unwrap_err().is_not_found());
    assert!(simulator.inventory().is_empty());
}

#[tokio::test(start_paused = true)]
async fn security_groups_have_default_egress_bulk_rules_and_are_kept_while_used() {
    let (_, cloud) = cloud();
    let body = CreateSecurityGroup { name: "workers".into(), description: Some("mine".into()), stateful: None };
    let group = cloud.create_security_group(&body).await.unwrap();
    assert_eq!(group.security_group_rules.len(), 2);
    let rule = |port: i32| CreateSecurityGroupRule {
        security_group_id: group.id.clone(),
        direction: "ingress".into(),
        protocol: Some("tcp".into()),
        port_range_min: Some(port),
        port_range_max: Some(port),
        remote_group_id: Some(group.id.clone()),
        ..CreateSecurityGroupRule::default()
    };
    let made = cloud.create_security_group_rules(&[rule(10250), rule(443)]).await.unwrap();
    assert_eq!(made.len(), 2);
    // All or none: the new rule of a refused request is not there either.
    let twice = cloud.create_security_group_rules(&[rule(80), rule(443)]).await.unwrap_err();
    assert_eq!(twice.kind, ErrorKind::Conflict);
    let query = SecurityGroupQuery { name: Some("workers".into()), ..SecurityGroupQuery::default() };
    assert_eq!(cloud.security_groups(&query).await.unwrap()[0].security_group_rules.len(), 4);
    cloud.delete_security_group_rule(&made[0].id).await.unwrap();

    let port =
        cloud.create_port(&CreatePort { security_groups: Some(vec![group.id.clone()]), ..port("p") }).await.unwrap();
    let used = cloud.delete_security_group(&group.id).await.unwrap_err();
    assert_eq!((used.kind, used.message), (ErrorKind::Conflict, format!("Security Group {} in use.", group.id)));
    cloud.delete_port(&port.id).await.unwrap();
    cloud.delete_security_group(&group.id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_does_not_exist_is_refused_in_novas_words() {
    let (_, cloud) = cloud();
    let port = cloud.create_port(&port("p")).await.unwrap();
    let good = server("w", &port.id);
    let table = [
        (CreateServer { flavor_id: "x".into(), ..good.clone() }, "Flavor x could not be found."),
        (CreateServer { image_id: "x".into(), ..good.clone() }, "Can not find requested image"),
        (CreateServer { key_name: Some("x".into()), ..good.clone() }, "Invalid key_name provided."),
        (
            CreateServer { availability_zone: Some("x".into()), ..good.clone() },
            "The requested availability zone is not available",
        ),
        (server("w", "x"), "Port id x could not be found."),
        (
            CreateServer { networks: vec![ServerNetwork { port: None, uuid: Some("x".into()) }], ..good },
            "Network x could not be found.",
        ),
    ];
    for (body, words) in table {
        let error = cloud.create_server(&body).await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::BadRequest, words));
    }
    let unknown = CreatePort { network_id: "x".into(), ..CreatePort::default() };
    assert!(cloud.create_port(&unknown).await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn quotas_are_their_own_kind_of_error() {
    let (simulator, cloud) = cloud();
    simulator.set_quota("demo", "instances", 0);
    let first = cloud.create_port(&port("p")).await.unwrap();
    let error = cloud.create_server(&server("w", &first.id)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Quota);
    assert_eq!(error.message, "Quota exceeded for instances: Requested 1, but already used 0 of 0 instances");
    assert!(error.to_string().starts_with("nova refused POST /servers (403): Quota exceeded"), "{error}");
    simulator.set_quota("demo", "instances", -1);
    simulator.set_quota("demo", "cores", 1);
    let error = cloud.create_server(&server("w", &first.id)).await.unwrap_err();
    assert!(error.message.starts_with("Quota exceeded for cores: Requested 2"), "{error}");
    simulator.set_quota("demo", "ports", 2);
    let error = cloud.create_port(&port("q")).await.unwrap_err();
    assert_eq!((error.kind, error.status), (ErrorKind::Quota, Some(409)));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_calls_by_fifty_callers_need_one_token() {
    let (simulator, cloud) = cloud();
    let callers = (0..50).map(|_| {
        let cloud = cloud.clone();
        tokio::spawn(async move {
            for _ in 0..20 {
                cloud.ports(&PortQuery::default()).await.unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert_eq!(cloud.calls().tokens, 1);
    assert_eq!(cloud.calls().calls["neutron GET ports"], 1000);
    assert_eq!(simulator.journal().iter().filter(|call| call.service == "identity").count(), 1);

    // Revoked: everybody is refused at once, and one of them renews.
    simulator.revoke_tokens();
    let all = (0..50).map(|_| {
        let cloud = cloud.clone();
        tokio::spawn(async move { cloud.flavors().await.unwrap() })
    });
    for caller in all.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert_eq!(cloud.calls().tokens, 2);

    // An hour later it is renewed before it ends, without being refused first.
    simulator.clear_journal();
    tokio::time::sleep(Duration::from_secs(3400)).await;
    cloud.flavors().await.unwrap();
    assert_eq!(cloud.calls().tokens, 3);
    assert!(simulator.journal().iter().all(|call| call.status != 401));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_said_once_to_all_who_wait() {
    let (simulator, cloud) = cloud();
    simulator.set_password("demo", "another");
    // So that all of them are waiting when the answer comes.
    simulator.set_faults(vec![rule("identity", "POST", "", 20, FaultAction::Delay(100))]);
    let all = (0..20).map(|_| {
        let cloud = cloud.clone();
        tokio::spawn(async move { cloud.flavors().await.unwrap_err() })
    });
    for caller in all.collect::<Vec<_>>() {
        let error = caller.await.unwrap();
        assert_eq!(error.kind, ErrorKind::Unauthorized);
        assert_eq!(error.message, "The request you have made requires authentication.");
    }
    assert_eq!(simulator.journal().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pages_are_followed_to_the_end() {
    let (_, cloud) = cloud();
    for number in 0..25 {
        cloud.create_port(&port(&format!("p{number}"))).await.unwrap();
    }
    let before = cloud.calls().calls.get("neutron GET ports").copied().unwrap_or(0);
    let query = PortQuery { limit: Some(10), network_id: Some(starter::NETWORK_ID.into()), ..PortQuery::default() };
    assert_eq!(cloud.ports(&query).await.unwrap().len(), 26);
    assert_eq!(cloud.calls().calls["neutron GET ports"] - before, 3);
    for number in 0..5 {
        let body = CreateServer {
            networks: vec![ServerNetwork { port: None, uuid: Some(starter::NETWORK_ID.into()) }],
            ..server(&format!("s{number}"), "")
        };
        cloud.create_server(&body).await.unwrap();
    }
    let servers = cloud.servers(&ServerQuery { limit: Some(2), ..ServerQuery::default() }).await.unwrap();
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["s4", "s3", "s2", "s1", "s0"]);
}

#[tokio::test(start_paused = true)]
async fn rules_fail_lose_delay_and_doom() {
    let (simulator, cloud) = cloud();
    let busy = FaultAction::Fail { status: 429, body: json!({"retry_after": 9, "message": "slow down"}) };
    simulator.set_faults(vec![
        rule("network", "POST", "^/ports$", 1, busy),
        rule("network", "POST", "^/ports$", 1, FaultAction::LoseReply),
        rule("compute", "POST", "^/servers$", 1, FaultAction::ServerError("No valid host was found. ".into())),
        rule("image", "GET", "", 1, FaultAction::Unauthorized),
        rule("image", "GET", "", 1, FaultAction::Fail { status: 500, body: json!({}) }),
        rule("network", "GET", "^/networks$", 1, FaultAction::Delay(60_000)),
    ]);
    let error = cloud.create_port(&port("p")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooManyRequests { retry_after: Some(Duration::from_secs(9)) });
    // Until then the cloud is left alone.
    tokio::time::sleep(Duration::from_secs(9)).await;
    let lost = cloud.create_port(&port("p")).await.unwrap_err();
    assert_eq!(lost.kind, ErrorKind::Unreachable);
    // It was made all the same: whoever retries must look first.
    let found = cloud.ports(&PortQuery { name: Some("p".into()), ..PortQuery::default() }).await.unwrap();
    assert_eq!(found.len(), 1);

    let id = cloud.create_server(&server("w", &found[0].id)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let broken = cloud.server(&id).await.unwrap();
    assert_eq!((broken.status.as_str(), broken.fault.unwrap().code), ("ERROR", 500));

    // The first 401 is repaired by a new token, and then the 500 shows.
    let error = cloud.images(&ImageQuery::default()).await.unwrap_err();
    assert_eq!((error.kind, cloud.calls().tokens), (ErrorKind::Server, 2));
    let late = cloud.networks(&NetworkQuery::default()).await.unwrap_err();
    assert_eq!((late.kind, late.retryable()), (ErrorKind::Unreachable, true));
}

#[tokio::test(start_paused = true)]
async fn a_hook_loses_requests_before_or_after_they_count() {
    let (simulator, cloud) = cloud();
    cloud.project_id().await.unwrap();
    simulator.set_fault_hook(Arc::new(|call| match (call.path.as_str(), call.number % 2) {
        ("/ports", 1) => Fault::Before,
        ("/ports", _) => Fault::After,
        _ => Fault::None,
    }));
    for _ in 0..2 {
        assert_eq!(cloud.create_port(&port("p")).await.unwrap_err().kind, ErrorKind::Unreachable);
    }
    assert_eq!(simulator.inventory().of_kind("port").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn application_credentials_open_the_cloud_by_id_and_by_name() {
    let (simulator, _) = cloud();
    let id = simulator.add_application_credential("demo", "hangar", "s3cret").unwrap();
    let entry = |auth: &str| {
        format!(
            "clouds: {{openstack: {{auth_type: v3applicationcredential, auth: {{auth_url: '{BASE}/identity', {auth}}}}}}}"
        )
    };
    let table = [
        (format!("application_credential_id: {id}, application_credential_secret: s3cret"), true),
        ("application_credential_name: hangar, application_credential_secret: s3cret, username: demo, user_domain_id: default".into(), true),
        (format!("application_credential_id: {id}, application_credential_secret: wrong"), false),
    ];
    for (auth, opens) in table {
        let config = CloudConfig::parse(entry(&auth).as_bytes(), "openstack", None, None).unwrap();
        let project = Cloud::new(config, simulator.transport()).project_id().await;
        match project {
            Ok(project) => assert!(opens && project == starter::PROJECT_ID),
            Err(error) => assert!(!opens && error.kind == ErrorKind::Unauthorized, "{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_and_calls_make_the_same_cloud() {
    let mut runs = vec![];
    for _ in 0..2 {
        let (simulator, cloud) = cloud();
        simulator.set_seed(7);
        let port = cloud.create_port(&port("p")).await.unwrap();
        cloud.create_server(&server("w", &port.id)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        cloud.servers(&ServerQuery::default()).await.unwrap();
        runs.push((simulator.inventory(), simulator.journal()));
    }
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test(start_paused = true)]
async fn tags_are_replaced_and_filtered_by() {
    let (_, cloud) = cloud();
    let one = cloud.create_port(&port("one")).await.unwrap();
    cloud.create_port(&port("two")).await.unwrap();
    cloud.set_tags("ports", &one.id, &["a".into(), "b".into()]).await.unwrap();
    let count = async |tags: TagFilter| {
        let query = PortQuery { tags, device_id: Some(String::new()), ..PortQuery::default() };
        cloud.ports(&query).await.unwrap().len()
    };
    let of = |tags: &[&str]| tags.iter().map(|&tag| tag.to_owned()).collect::<Vec<_>>();
    assert_eq!(count(TagFilter { all: of(&["a", "b"]), ..TagFilter::default() }).await, 1);
    assert_eq!(count(TagFilter { all: of(&["a", "c"]), ..TagFilter::default() }).await, 0);
    assert_eq!(count(TagFilter { any: of(&["a", "c"]), ..TagFilter::default() }).await, 1);
    assert_eq!(count(TagFilter { not_any: of(&["a"]), ..TagFilter::default() }).await, 1);
    assert!(cloud.set_tags("ports", "x", &[]).await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_servers_fit_into_a_larger_network() {
    let (simulator, cloud) = cloud();
    let network_id = simulator.add_network("large", "10.64.0.0/20".parse().unwrap());
    for number in 0..1001 {
        let networks = vec![ServerNetwork { port: None, uuid: Some(network_id.clone()) }];
        let body = CreateServer { networks, ..server(&format!("s{number}"), "") };
        cloud.create_server(&body).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = cloud.calls().calls.get("nova GET servers").copied().unwrap_or(0);
    let servers = cloud.servers(&ServerQuery::default()).await.unwrap();
    assert_eq!(servers.len(), 1001);
    // The longest page is a thousand.
    assert_eq!(cloud.calls().calls["nova GET servers"] - before, 2);
    let addresses: std::collections::BTreeSet<&str> =
        servers.iter().map(|server| server.addresses["large"][0].addr.as_str()).collect();
    assert_eq!(addresses.len(), 1001);
}
