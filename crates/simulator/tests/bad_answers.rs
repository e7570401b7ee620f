//! Bad input from every side: wrong credentials, wrong files, wrong answers. Clear errors, no panic, no endless retry; and
//! how little a cloud is asked.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

use std::time::Duration;

use hangar_openstack::*;
use hangar_simulator::{FaultAction, FaultRule, Options, Simulator, Tls, starter};
use tokio_util::sync::CancellationToken;

const BASE: &str = "http://cloud.test";

fn cloud_of(simulator: &Simulator, yaml: &str) -> Cloud {
    Cloud::new(CloudConfig::parse(yaml.as_bytes(), "openstack", None, None).unwrap(), simulator.transport())
}

fn cloud() -> (Simulator, Cloud) {
    let simulator = Simulator::new(Options::default()).unwrap();
    let yaml = simulator.clouds_yaml(BASE);
    let cloud = cloud_of(&simulator, &yaml);
    (simulator, cloud)
}

fn rule(service: &str, action: FaultAction) -> FaultRule {
    FaultRule { service: service.into(), action, ..FaultRule::default() }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_calls_of_fifty_callers_need_one_token() {
    let (simulator, cloud) = cloud();
    // A slow Keystone, so that everybody waits for it at once.
    simulator.set_faults(vec![rule("identity", FaultAction::Delay(200))]);
    let callers = (0..50).map(|_| {
        let cloud = cloud.clone();
        tokio::spawn(async move {
            for _ in 0..20 {
                cloud.flavors().await.unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let asked = |service: &str| simulator.journal().iter().filter(|call| call.service == service).count();
    assert_eq!((asked("identity"), asked("compute")), (1, 1000));
    assert_eq!((cloud.calls().tokens, cloud.calls().total()), (1, 1000));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_servers_and_ports_cost_their_pages() {
    let (simulator, cloud) = cloud();
    let network = simulator.add_network("large", "10.50.0.0/16".parse().unwrap());
    for number in 0..1000 {
        let server = CreateServer {
            name: format!("w-{number}"),
            flavor_id: starter::FLAVORS[0].1.into(),
            image_id: starter::IMAGES[0].1.into(),
            networks: vec![ServerNetwork { port: None, uuid: Some(network.clone()) }],
            ..CreateServer::default()
        };
        cloud.create_server(&server).await.unwrap();
    }
    simulator.clear_journal();
    assert_eq!(cloud.servers(&ServerQuery::default()).await.unwrap().len(), 1000);
    assert_eq!(
        cloud.ports(&PortQuery { network_id: Some(network), ..PortQuery::default() }).await.unwrap().len(),
        1000
    );
    assert_eq!(simulator.journal().len(), 2, "one page each");
    simulator.clear_journal();
    assert_eq!(cloud.servers(&ServerQuery { limit: Some(100), ..ServerQuery::default() }).await.unwrap().len(), 1000);
    assert_eq!(simulator.journal().len(), 10, "no page is asked for that is not there");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_asked_for_once_and_said() {
    let (simulator, _) = cloud();
    let wrong = cloud_of(&simulator, &simulator.clouds_yaml(BASE).replace(starter::PASSWORD, "wrong"));
    let error = wrong.flavors().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    assert!(
        error.to_string().starts_with(
            "keystone refused POST /auth/tokens (401): The request you have made requires authentication. [req-"
        ),
        "{error}"
    );
    assert_eq!(simulator.journal().len(), 1);
    assert!(!format!("{error:?}{wrong:?}").contains("wrong\""));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_ends_in_the_middle_is_renewed_once() {
    let (simulator, cloud) = cloud();
    cloud.flavors().await.unwrap();
    simulator.revoke_tokens();
    cloud.flavors().await.unwrap();
    assert_eq!(cloud.calls().tokens, 2);
    // A cloud that refuses every token is not asked for ever.
    simulator.clear_journal();
    simulator.set_faults(vec![rule("compute", FaultAction::Unauthorized)]);
    assert_eq!(cloud.flavors().await.unwrap_err().kind, ErrorKind::Unauthorized);
    assert_eq!(
        simulator.journal().iter().map(|call| call.service.as_str()).collect::<Vec<_>>(),
        ["compute", "identity", "compute"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_old_token_is_renewed_before_it_ends() {
    let (simulator, cloud) = cloud();
    cloud.flavors().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3400)).await;
    cloud.flavors().await.unwrap();
    assert_eq!(cloud.calls().tokens, 2);
    assert!(simulator.journal().iter().all(|call| call.status < 400), "nothing was refused on the way");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_asks_for_patience_gets_it() {
    let (simulator, cloud) = cloud();
    for action in [FaultAction::TooManyRequests(7), FaultAction::OverLimit(7)] {
        simulator.clear_journal();
        simulator.set_faults(vec![FaultRule { times: Some(1), ..rule("compute", action) }]);
        let first = cloud.flavors().await.unwrap_err();
        assert_eq!(first.retry_after(), Some(Duration::from_secs(7)));
        let second = cloud.flavors().await.unwrap_err();
        assert!(second.retry_after().is_some_and(|left| left <= Duration::from_secs(7)), "{second}");
        cloud.networks(&NetworkQuery::default()).await.unwrap();
        assert_eq!(simulator.journal().iter().filter(|call| call.service == "compute").count(), 1);
        tokio::time::sleep(Duration::from_secs(7)).await;
        cloud.flavors().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_make_no_sense_are_named_and_not_repeated() {
    let (simulator, cloud) = cloud();
    cloud.flavors().await.unwrap();
    let table = [
        (FaultAction::ProxyPage(502), ErrorKind::Server, "not from an OpenStack service"),
        (FaultAction::ProxyPage(200), ErrorKind::Malformed, "invalid response"),
        (FaultAction::HalfAnswer, ErrorKind::Malformed, "invalid response"),
        (
            FaultAction::Fail { status: 200, body: serde_json::json!({"other": []}) },
            ErrorKind::Malformed,
            "no flavors in it",
        ),
        (
            FaultAction::Fail { status: 200, body: serde_json::json!({"flavors": 7}) },
            ErrorKind::Malformed,
            "invalid type",
        ),
        (FaultAction::LoseReply, ErrorKind::Unreachable, "connection closed"),
        (FaultAction::Drop, ErrorKind::Unreachable, "connection closed"),
        (FaultAction::Endless, ErrorKind::Unreachable, "timeout after 30 s"),
        (FaultAction::Status(500), ErrorKind::Server, "Internal Server Error"),
        (FaultAction::Status(503), ErrorKind::Server, "Service Unavailable"),
        (FaultAction::Status(404), ErrorKind::NotFound, "Not Found"),
        (FaultAction::Status(409), ErrorKind::Conflict, "Conflict"),
        (FaultAction::Quota, ErrorKind::Quota, "Quota exceeded for instances"),
        (FaultAction::FailAfter { status: 500 }, ErrorKind::Server, "trouble on order"),
    ];
    for (action, kind, words) in table {
        simulator.clear_journal();
        simulator.set_faults(vec![rule("compute", action.clone())]);
        let error = cloud.flavors().await.unwrap_err();
        assert_eq!(error.kind, kind, "{action:?}: {error}");
        assert!(error.to_string().contains(words), "{action:?}: {error}");
        assert_eq!(simulator.journal().len(), 1, "{action:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_points_to_itself_does_not_go_round_for_ever() {
    let (simulator, cloud) = cloud();
    let body =
        serde_json::json!({"flavors": [], "flavors_links": [{"rel": "next", "href": "http://cloud.test/x?marker=1"}]});
    simulator.set_faults(vec![rule("compute", FaultAction::Fail { status: 200, body })]);
    let error = cloud.flavors().await.unwrap_err();
    assert!(error.kind == ErrorKind::Malformed && error.message.contains("the same page"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_the_catalog_does_not_have_is_named() {
    let (simulator, _) = cloud();
    let yaml = simulator.clouds_yaml(BASE).replace("region_name: RegionOne", "region_name: elsewhere");
    let error = cloud_of(&simulator, &yaml).volumes(None).await.unwrap_err();
    assert!(
        error.to_string().contains("no public endpoint of type block-storage in region elsewhere: check region_name"),
        "{error}"
    );
    let token = serde_json::json!({"token": {"issued_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T01:00:00Z", "project": {"id": "p", "name": "p"}, "catalog": []}});
    simulator.set_faults(vec![rule("identity", FaultAction::Fail { status: 201, body: token })]);
    let error = cloud_of(&simulator, &simulator.clouds_yaml(BASE)).flavors().await.unwrap_err();
    assert!(error.to_string().contains("no X-Subject-Token"), "{error}");
}

#[test]
fn files_that_are_wrong_are_named_with_what_is_wrong() {
    let (simulator, dir) = (Simulator::new(Options::default()).unwrap(), tempfile::tempdir().unwrap());
    let good = simulator.clouds_yaml(BASE);
    let path = dir.path().join("clouds.yaml");
    let read = |text: &str, cloud: &str| {
        std::fs::write(&path, text).unwrap();
        CloudConfig::from_file(&path, cloud, None).map(drop).unwrap_err().to_string()
    };
    let cacert = |name: &str| good.replace("    auth:\n", &format!("    cacert: {name}\n    auth:\n"));
    std::fs::write(dir.path().join("junk.pem"), "junk").unwrap();
    let table = [
        (good.replace("    auth:", "\tauth:"), "openstack", "cannot be read"),
        (good.clone(), "other", "has no cloud named other, only openstack"),
        (cacert("missing.pem"), "openstack", "missing.pem: No such file"),
        (cacert("junk.pem"), "openstack", "junk.pem: no certificate in it"),
        ("[]".to_owned(), "openstack", "has no top-level key `clouds`"),
        (good.replace("auth_url: http", "auth_url: ftp"), "openstack", "is not an http or https URL"),
    ];
    for (text, cloud, words) in table {
        let error = read(&text, cloud);
        assert!(error.contains(words), "{error}");
    }
    let none = CloudConfig::from_file(&dir.path().join("none"), "openstack", None).unwrap_err().to_string();
    assert!(none.contains("none: No such file"), "{none}");
    assert!(CloudConfig::from_env([]).unwrap_err().to_string().contains("OS_AUTH_URL"));
}

#[tokio::test]
async fn the_environment_and_a_file_say_the_same() {
    let (simulator, _) = cloud();
    let variables = [
        ("OS_AUTH_URL", "http://cloud.test/identity"),
        ("OS_USERNAME", starter::USER),
        ("OS_PASSWORD", starter::PASSWORD),
        ("OS_PROJECT_NAME", starter::PROJECT),
        ("OS_USER_DOMAIN_NAME", "Default"),
        ("OS_PROJECT_DOMAIN_ID", "default"),
        ("OS_REGION_NAME", starter::REGION),
        ("OS_INTERFACE", "public"),
        ("OS_IDENTITY_API_VERSION", "3"),
        ("HOME", "/"),
    ];
    let config = CloudConfig::from_env(variables.map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap();
    assert!(config.verify() && config.region() == Some(starter::REGION));
    let cloud = Cloud::new(config, simulator.transport());
    assert_eq!(cloud.flavors().await.unwrap().len(), starter::FLAVORS.len());
    let text = cloud.metrics();
    assert!(text.contains("capo_openstack_api_requests_total{request=\"flavor_list\"} 1"), "{text}");
}

#[tokio::test]
async fn over_https_only_the_right_authority_is_believed() {
    let now = jiff::Timestamp::now();
    let keys = hangar_pki::SystemKeys;
    let authority = hangar_pki::Authority::create(&keys, "cloud", now).unwrap();
    let other = hangar_pki::Authority::create(&keys, "other", now).unwrap();
    let leaf = authority.issue(&keys, &hangar_pki::Leaf::server("cloud", ["127.0.0.1".to_owned()]), now).unwrap();
    let simulator = Simulator::new(Options::default()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let (serving, tls) = (simulator.clone(), Tls::new(&leaf.certificate_pem, &leaf.key_pem).unwrap());
    tokio::spawn(async move { serving.serve_tls(listener, tls, stop).await });
    let open = |extra: &str, ca: Option<&str>| {
        let yaml = simulator.clouds_yaml(&base).replace("    auth:\n", &format!("{extra}    auth:\n"));
        let config = CloudConfig::parse(yaml.as_bytes(), "openstack", ca.map(str::as_bytes), None).unwrap();
        let transport = transport_for(&config, &HostPolicy::everything()).unwrap();
        Cloud::new(config, transport)
    };
    open("", Some(authority.certificate_pem())).flavors().await.unwrap();
    open("    verify: false\n", None).flavors().await.unwrap();
    for ca in [None, Some(other.certificate_pem())] {
        let error = open("", ca).flavors().await.unwrap_err();
        assert!(error.kind == ErrorKind::Unreachable && error.message.contains("certificate"), "{error}");
    }
}

#[tokio::test]
async fn a_journal_tells_who_asked_what_and_what_became_of_it() {
    let (simulator, cloud) = cloud();
    cloud.flavors().await.unwrap();
    simulator.set_faults(vec![FaultRule {
        times: Some(1),
        project: Some("demo".into()),
        ..rule("compute", FaultAction::LoseReply)
    }]);
    cloud.flavors().await.unwrap_err();
    let told: Vec<(String, u16, String)> =
        simulator.journal().into_iter().map(|call| (call.caller, call.status, call.outcome)).collect();
    let told: Vec<(&str, u16, &str)> =
        told.iter().map(|(caller, status, outcome)| (caller.as_str(), *status, outcome.as_str())).collect();
    assert_eq!(told, [("", 201, "answered"), ("demo@demo", 200, "answered"), ("demo@demo", 0, "lost")]);
}

#[tokio::test]
async fn what_was_answered_is_still_true_after_a_sudden_death() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { state_file: Some(dir.path().join("cloud.json")), ..Options::default() };
    let simulator = Simulator::new(options.clone()).unwrap();
    let cloud = cloud_of(&simulator, &simulator.clouds_yaml(BASE));
    let port = CreatePort { network_id: starter::NETWORK_ID.into(), name: "p".into(), ..CreatePort::default() };
    let kept = cloud.create_port(&port).await.unwrap();
    let gone = cloud.create_port(&port).await.unwrap();
    cloud.delete_port(&gone.id).await.unwrap();
    // No goodbye: nothing is closed or saved here, as when the process is killed.
    let again = Simulator::new(options).unwrap();
    let cloud = cloud_of(&again, &again.clouds_yaml(BASE));
    assert_eq!(cloud.port(&kept.id).await.unwrap(), kept);
    assert!(cloud.port(&gone.id).await.unwrap_err().is_not_found());
    let next = cloud.create_port(&port).await.unwrap();
    assert_ne!(next.mac_address, gone.mac_address, "and no address is given twice");
    assert_ne!(next.fixed_ips, kept.fixed_ips);
}

#[tokio::test]
async fn a_request_that_a_proxy_repeats_is_done_twice() {
    let (simulator, cloud) = cloud();
    simulator.set_faults(vec![FaultRule {
        method: "POST".into(),
        times: Some(1),
        ..rule("network", FaultAction::Twice)
    }]);
    let port = CreatePort { network_id: starter::NETWORK_ID.into(), name: "p".into(), ..CreatePort::default() };
    cloud.create_port(&port).await.unwrap();
    assert_eq!(simulator.inventory().of_kind("port").count(), 2);
}

#[tokio::test]
async fn addresses_of_the_cloud_lead_to_what_stands_behind_them() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let options = Options { forward: true, public_cidr: starter::LOCAL_PUBLIC_CIDR, speed: 50.0, ..Options::default() };
    let simulator = Simulator::new(options).unwrap();
    let cloud = cloud_of(&simulator, &simulator.clouds_yaml(BASE));
    // What stands behind: something that says which one it is.
    let mut behind = vec![];
    for word in ["one", "two"] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        behind.push(listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(word.as_bytes()).await;
            }
        });
    }
    let says = async |at: &str| {
        let mut text = String::new();
        tokio::net::TcpStream::connect(at).await.unwrap().read_to_string(&mut text).await.unwrap();
        text
    };
    let opened = async |address: String, port: u16| {
        let mut watch = simulator.forwards_watch();
        let found =
            watch.wait_for(|all| all.iter().any(|one| one.address == address && one.port == port)).await.unwrap();
        found.iter().find(|one| one.address == address).unwrap().clone()
    };

    // A free port of this machine, since the address of a floating IP answers as itself.
    let port_number = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = CreatePort { network_id: starter::NETWORK_ID.into(), ..CreatePort::default() };
    let port = cloud.create_port(&port).await.unwrap();
    let fixed = port.fixed_ips[0].ip_address.clone().unwrap();
    simulator.set_backend(&fixed, port_number, Some(&behind[0].to_string()));
    let ip = CreateFloatingIp {
        floating_network_id: starter::PUBLIC_NETWORK_ID.into(),
        port_id: Some(port.id.clone()),
        ..CreateFloatingIp::default()
    };
    let ip = cloud.create_floating_ip(&ip).await.unwrap();
    let forward = opened(ip.floating_ip_address.clone(), port_number).await;
    assert_eq!(forward.local, format!("{}:{port_number}", ip.floating_ip_address), "{forward:?}");
    assert_eq!(says(&forward.local).await, "one");

    // A load balancer of the tenant's network: its address is not this machine's, so it answers where it says.
    let member = |name: &str, at: std::net::SocketAddr| CreateMember {
        name: name.into(),
        address: at.ip().to_string(),
        protocol_port: at.port(),
        ..CreateMember::default()
    };
    let pool = CreatePool {
        protocol: "TCP".into(),
        lb_algorithm: "ROUND_ROBIN".into(),
        members: vec![member("a", behind[0]), member("b", behind[1])],
        ..CreatePool::default()
    };
    let listener = CreateListener {
        protocol: "TCP".into(),
        protocol_port: 6443,
        default_pool: Some(Box::new(pool)),
        ..CreateListener::default()
    };
    let balancer = CreateLoadBalancer {
        vip_subnet_id: Some(starter::SUBNET_ID.into()),
        listeners: vec![listener],
        ..CreateLoadBalancer::default()
    };
    let balancer = cloud.create_load_balancer(&balancer).await.unwrap();
    let forward = opened(balancer.vip_address.clone().unwrap(), 6443).await;
    let mut heard = vec![says(&forward.local).await, says(&forward.local).await];
    heard.sort();
    assert_eq!(heard, ["one", "two"]);
    cloud.delete_floating_ip(&ip.id).await.unwrap();
    simulator.forwards_watch().wait_for(|all| all.len() == 1).await.unwrap();
    assert!(tokio::net::TcpStream::connect((ip.floating_ip_address.as_str(), port_number)).await.is_err());
}
