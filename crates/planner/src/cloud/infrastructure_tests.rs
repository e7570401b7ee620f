//! Network, router, floating IP and load balancer, apart from the kind that has them.

use std::sync::Arc;

use hangar_openstack_types::{FloatingIp, Network, Port, Router, Subnet};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::cluster_owner::ClusterOwner;
use super::floating_ip::{self, Address};
use super::load_balancer::{self, ApiLoadBalancer, Target};
use super::network::ManagedNetwork;
use super::router::ManagedRouter;
use super::*;
use crate::planner::Part;
use crate::testing::cloud::{called, settle};
use crate::testing::{at, step};

const TAGS: &[String] = &[];

fn owner(tags: &[String]) -> ClusterOwner<'_> {
    ClusterOwner { namespace: "n", cluster_name: "c", cluster_uid: "c-uid", object_uid: "o-uid", tags }
}

fn described(phase: &Phase) -> String {
    match phase {
        Phase::Done => "done".into(),
        Phase::Steps(steps) => steps.iter().map(step).collect::<Vec<_>>().join("; "),
        Phase::Wait(reason) => format!("wait {}: {}", reason.code, reason.message),
        Phase::Blocked(reason) => format!("blocked {}: {}", reason.code, reason.message),
    }
}

/// Carries out what a part asks for until it has nothing more to ask; what that was.
fn run(cloud: &mut Cloud, next: &mut u64, phase: impl Fn(&Cloud) -> Phase) -> Vec<String> {
    let mut done = vec![];
    for _ in 0..20 {
        let Phase::Steps(steps) = phase(cloud) else { return done };
        for step in steps {
            done.push(self::step(&step));
            let Step::Cloud { call, .. } = &step else { panic!("{step:?}") };
            let mut ids = || {
                *next += 1;
                format!("id-{next}")
            };
            let answer = called(&mut cloud.resources, call, at(0), &mut ids);
            cloud.absorb(&Effect::Cloud(answer));
        }
    }
    panic!("no end of steps: {done:#?}")
}

fn subnets(list: Value) -> Value {
    json!({ "managedSubnets": list })
}

fn network<'a>(cloud: &'a Cloud, spec: &'a Value, tags: &'a [String], ports: &'a [Port]) -> ManagedNetwork<'a> {
    ManagedNetwork { cloud, owner: owner(tags), spec, ports }
}

#[test]
fn oc3_oc16_a_network_has_its_subnets_name_servers_pools_and_tags_and_changes_them_in_place() {
    let (mut cloud, mut next) = (Cloud::default(), 0);
    let tags = ["blue".to_owned()];
    let mut spec = subnets(json!([
        { "cidr": "10.6.0.0/24", "dnsNameservers": ["1.1.1.1"], "allocationPools": [{ "start": "10.6.0.10", "end": "10.6.0.20" }] },
        { "cidr": "fd00::/64" },
    ]));
    spec["networkMTU"] = 1400.into();
    spec["disablePortSecurity"] = true.into();
    let build = |cloud: &Cloud, spec: &Value| network(cloud, spec, &tags, &[]).build(at(0));
    let done = run(&mut cloud, &mut next, |cloud| build(cloud, &spec));
    assert_eq!(
        done,
        [
            "create network k8s-clusterapi-cluster-n-c",
            "create subnet k8s-clusterapi-cluster-n-c 10.6.0.0/24",
            "create subnet k8s-clusterapi-cluster-n-c fd00::/64",
            "tag Network id-1 blue",
            "tag Subnet id-2 blue",
            "tag Subnet id-3 blue",
        ]
    );
    let made = super::network::of(&cloud).unwrap();
    assert_eq!((made.mtu, made.port_security_enabled), (Some(1400), Some(false)));
    let versions: Vec<u8> = super::network::subnets_of(&cloud).iter().map(|subnet| subnet.ip_version).collect();
    assert_eq!(versions, [4, 6]);
    assert_eq!(described(&build(&cloud, &spec)), "done");
    let mut changed = (*cloud.resources.networks["id-1"]).clone();
    (changed.admin_state_up, changed.mtu, changed.port_security_enabled) = (false, Some(1500), Some(true));
    cloud.resources.insert(changed.into());
    assert_eq!(
        run(&mut cloud, &mut next, |cloud| build(cloud, &spec)),
        [r#"update network id-1 {"admin_state_up":true,"mtu":1400,"port_security_enabled":false}"#]
    );
    spec["managedSubnets"][0]["dnsNameservers"] = json!(["9.9.9.9"]);
    assert_eq!(
        run(&mut cloud, &mut next, |cloud| build(cloud, &spec)),
        [r#"update subnet id-2 {"dns_nameservers":["9.9.9.9"]}"#]
    );
    // Somebody takes the tags away, and adds one: it stays.
    let changed = Network { tags: vec!["theirs".into()], ..(*cloud.resources.networks["id-1"]).clone() };
    cloud.resources.insert(changed.into());
    assert_eq!(run(&mut cloud, &mut next, |cloud| build(cloud, &spec)), ["tag Network id-1 theirs,blue"]);
    let going = run(&mut cloud, &mut next, |cloud| network(cloud, &spec, &tags, &[]).delete(at(0)));
    assert_eq!(going, ["delete Network id-1"], "Neutron takes the subnets with it");
    assert_eq!(cloud.resources, Resources::default());
}

#[test]
fn oc15_what_of_others_keeps_a_network_is_named_and_neutrons_own_ports_are_not() {
    let (mut cloud, mut next) = (Cloud::default(), 0);
    let spec = subnets(json!([{ "cidr": "10.6.0.0/24" }]));
    run(&mut cloud, &mut next, |cloud| network(cloud, &spec, TAGS, &[]).build(at(0)));
    let port = |id: &str, name: &str, owner: &str| Port {
        id: id.into(),
        name: name.into(),
        device_owner: owner.into(),
        network_id: "id-1".into(),
        ..Port::default()
    };
    let dhcp = port("d", "", "network:dhcp");
    for (ports, expected) in [
        (vec![dhcp.clone()], "delete Network id-1"),
        (
            vec![dhcp, port("a", "vm", "compute:nova"), port("b", "", "")],
            "blocked NetworkInUse: network k8s-clusterapi-cluster-n-c is kept by 2 ports of others (vm of compute:nova, b of not attached): delete them",
        ),
    ] {
        assert_eq!(described(&network(&cloud, &spec, TAGS, &ports).delete(at(0))), expected);
    }
}

fn external() -> Network {
    Network { id: "ext".into(), name: "public".into(), ..Network::default() }
}

fn subnet() -> Subnet {
    Subnet {
        id: "sub".into(),
        network_id: "net".into(),
        cidr: "10.6.0.0/24".into(),
        gateway_ip: Some("10.6.0.1".into()),
        ..Subnet::default()
    }
}

#[test]
fn oc3_oc12_a_router_has_a_gateway_and_an_interface_with_our_key_and_comes_back_part_by_part() {
    let (mut cloud, mut next) = (Cloud::default(), 0);
    let (external, subnet) = (external(), subnet());
    let part = |cloud: &Cloud| {
        let router = ManagedRouter {
            cloud,
            owner: owner(TAGS),
            external: Some(&external),
            existing: None,
            external_ips: vec![],
            subnets: vec![&subnet],
        };
        router.build(at(0))
    };
    let done = run(&mut cloud, &mut next, part);
    let name = "k8s-clusterapi-cluster-n-c";
    assert_eq!(
        done,
        [format!("create router {name}"), format!("create port {name}"), "add interface id-2 to id-1".into()]
    );
    assert_eq!(cloud.resources.ports["id-2"].fixed_ips[0].ip_address.as_deref(), Some("10.6.0.1"));
    // The gateway is taken away.
    let bare = Router { external_gateway_info: None, ..(*cloud.resources.routers["id-1"]).clone() };
    cloud.resources.insert(bare.into());
    assert_eq!(
        run(&mut cloud, &mut next, part),
        [r#"update router id-1 {"external_gateway_info":{"network_id":"ext"}}"#]
    );
    // The interface is taken away, with its port.
    cloud.resources.remove(ResourceType::Port, "id-2");
    assert_eq!(run(&mut cloud, &mut next, part), [format!("create port {name}"), "add interface id-3 to id-1".into()]);
    // An answer was lost, and the younger router has the interface: it stays, since floating IPs may lead through it.
    let mut twin = (*cloud.resources.routers["id-1"]).clone();
    (twin.id, twin.created_at) = ("twin".into(), Some(at(9).to_string()));
    cloud.resources.insert(twin.into());
    let moved = Port { device_id: "twin".into(), ..(*cloud.resources.ports["id-3"]).clone() };
    cloud.resources.insert(moved.into());
    assert_eq!(run(&mut cloud, &mut next, part), ["delete Router id-1"]);
    let gone = run(&mut cloud, &mut next, |cloud| {
        let router = ManagedRouter {
            cloud,
            owner: owner(TAGS),
            external: None,
            existing: None,
            external_ips: vec![],
            subnets: vec![],
        };
        router.delete(at(0))
    });
    assert_eq!(gone, ["remove interface id-3 from twin", "delete Router twin"]);
}

#[test]
fn a_router_of_the_users_gets_an_interface_and_is_never_changed_or_deleted() {
    let (mut cloud, mut next) = (Cloud::default(), 0);
    let (external, subnet) = (external(), subnet());
    let theirs = Router { id: "theirs".into(), ..Router::default() };
    let part = |cloud: &Cloud, build: bool| {
        let router = ManagedRouter {
            cloud,
            owner: owner(TAGS),
            external: Some(&external),
            existing: Some(&theirs),
            external_ips: vec![],
            subnets: vec![&subnet],
        };
        if build { router.build(at(0)) } else { router.delete(at(0)) }
    };
    let name = "k8s-clusterapi-cluster-n-c";
    assert_eq!(
        run(&mut cloud, &mut next, |cloud| part(cloud, true)),
        [format!("create port {name}"), "add interface id-1 to theirs".into()]
    );
    assert_eq!(run(&mut cloud, &mut next, |cloud| part(cloud, false)), ["remove interface id-1 from theirs"]);
    let none = ManagedRouter {
        cloud: &cloud,
        owner: owner(TAGS),
        external: None,
        existing: None,
        external_ips: vec![],
        subnets: vec![&subnet],
    };
    assert_eq!(described(&none.build(at(0))), "done", "without an external network there is no router");
}

fn ip(id: &str, address: &str, created: i64, port: Option<&str>, key: bool) -> FloatingIp {
    let description = if key { owner(TAGS).description(floating_ip::API) } else { String::new() };
    FloatingIp {
        id: id.into(),
        floating_ip_address: address.into(),
        port_id: port.map(str::to_owned),
        description,
        created_at: Some(at(created).to_string()),
        revision_number: 3,
        ..FloatingIp::default()
    }
}

#[test]
fn oc7_a_floating_ip_is_found_bound_and_never_moved() {
    struct Case<'a> {
        what: &'a str,
        there: Vec<FloatingIp>,
        given: &'a str,
        before: &'a str,
        port: Option<&'a str>,
        expected: &'a str,
    }
    let case = |what, there, given, before, port, expected| Case { what, there, given, before, port, expected };
    let cases = [
        case("none", vec![], "", "", None, "create floating IP in ext"),
        case("one with a certain address", vec![], "192.0.2.9", "", None, "create floating IP 192.0.2.9 in ext"),
        case("what was handed out was deleted", vec![], "", "192.0.2.7", None, "create floating IP 192.0.2.7 in ext"),
        case("ours", vec![ip("a", "1", 0, None, true)], "", "", None, "done"),
        case("it is bound", vec![ip("a", "1", 0, None, true)], "", "", Some("p"), "bind floating IP a to p"),
        case("it is there", vec![ip("a", "1", 0, Some("p"), true)], "", "", Some("p"), "done"),
        case(
            "it leads elsewhere",
            vec![ip("a", "1", 0, Some("q"), true)],
            "",
            "",
            Some("p"),
            "blocked FloatingIPInUse: floating IP 1 leads to port q, not to p: disassociate it",
        ),
        case(
            "nobody answers there",
            vec![ip("a", "1", 0, Some("gone"), true)],
            "",
            "",
            Some("p"),
            "bind floating IP a to p",
        ),
        case("nobody else answers", vec![ip("a", "1", 0, Some("gone"), true)], "", "", None, "done"),
        case("somebody else's", vec![ip("a", "1", 0, None, false)], "", "", None, "create floating IP in ext"),
        case(
            "the user's",
            vec![ip("a", "192.0.2.9", 0, None, false)],
            "192.0.2.9",
            "",
            Some("p"),
            "bind floating IP a to p",
        ),
        case(
            "an answer was lost",
            vec![ip("a", "1", 0, None, true), ip("b", "2", 1, None, true)],
            "",
            "",
            None,
            "delete FloatingIp b",
        ),
        case(
            "the younger one was handed out",
            vec![ip("a", "1", 0, None, true), ip("b", "2", 1, None, true)],
            "",
            "2",
            None,
            "delete FloatingIp a",
        ),
    ];
    for case in cases {
        let mut cloud = Cloud::default();
        case.there.into_iter().for_each(|ip| cloud.resources.insert(ip.into()));
        let address = Address {
            cloud: &cloud,
            owner: owner(TAGS),
            role: floating_ip::API,
            given: case.given,
            known: None,
            before: case.before,
            network_id: "ext",
            port_id: case.port,
            leaves: vec!["gone"],
        };
        assert_eq!(described(&address.build(at(0))), case.expected, "{}", case.what);
    }
}

#[test]
fn oc7_a_floating_ip_that_the_user_gave_is_never_deleted() {
    for (given, expected) in [
        ("", "delete FloatingIp a; delete FloatingIp b"),
        ("1", "delete FloatingIp b"),
        ("9", "delete FloatingIp a; delete FloatingIp b"),
    ] {
        let mut cloud = Cloud::default();
        let there = [ip("a", "1", 0, Some("p"), true), ip("b", "2", 1, None, true), ip("theirs", "3", 0, None, false)];
        there.into_iter().for_each(|ip| cloud.resources.insert(ip.into()));
        let address = Address {
            cloud: &cloud,
            owner: owner(TAGS),
            role: floating_ip::API,
            given,
            known: None,
            before: "",
            network_id: "ext",
            port_id: None,
            leaves: vec![],
        };
        assert_eq!(described(&address.delete(at(0))), expected, "{given}");
    }
}

fn balancer<'a>(cloud: &'a Cloud, spec: &'a Value, ports: &[u16], targets: &[&str]) -> ApiLoadBalancer<'a> {
    let cidrs = spec["allowedCIDRs"].as_array();
    let target = |address: &&str| Target { name: format!("m{address}"), address: (*address).to_owned() };
    ApiLoadBalancer {
        cloud,
        owner: owner(TAGS),
        spec,
        ports: ports.to_vec(),
        network_id: None,
        subnet_id: Some("sub"),
        member_subnet_id: None,
        address: "",
        flavor_id: None,
        allowed: cidrs.map(|all| all.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
        targets: targets.iter().map(target).collect(),
    }
}

fn now() -> Timestamp {
    at(0)
}

#[test]
fn oc5_a_load_balancer_comes_whole_is_waited_for_and_is_changed_one_thing_at_a_time() {
    let (mut cloud, mut next) = (Cloud::default(), 0);
    let mut spec = json!({ "enabled": true });
    let name = "k8s-clusterapi-cluster-n-c-kubeapi";
    let done = run(&mut cloud, &mut next, |cloud| balancer(cloud, &spec, &[6443], &[]).build(now()));
    assert_eq!(done, [format!("create load balancer {name}")]);
    assert_eq!(
        described(&balancer(&cloud, &spec, &[6443], &[]).build(now())),
        format!("wait WaitingForLoadBalancer: waiting for load balancer {name}, which is PENDING_CREATE")
    );
    settle(&mut cloud.resources);
    assert_eq!(described(&balancer(&cloud, &spec, &[6443], &[]).build(now())), "done");
    // One change, then Octavia has to finish.
    let mut change = |cloud: &mut Cloud, spec: &Value, ports: &[u16], targets: &[&str]| {
        let done = run(cloud, &mut next, |cloud| balancer(cloud, spec, ports, targets).build(now()));
        settle(&mut cloud.resources);
        done
    };
    let [listener, pool, monitor] = ["id-4", "id-2", "id-3"];
    spec["allowedCIDRs"] = json!(["192.0.2.0/24"]);
    assert_eq!(
        change(&mut cloud, &spec, &[6443], &[]),
        [format!(r#"update listener {listener} {{"allowed_cidrs":["192.0.2.0/24"]}} of id-1"#)]
    );
    spec["monitor"] = json!({ "delay": 20, "timeout": 0 });
    assert_eq!(
        change(&mut cloud, &spec, &[6443], &[]),
        [format!(
            r#"update monitor {monitor} {{"delay":20,"max_retries":5,"max_retries_down":3,"timeout":5}} of id-1"#
        )]
    );
    for (targets, expected) in [
        (&["10.6.0.7", "10.6.0.8"][..], format!("set members 10.6.0.7:6443,10.6.0.8:6443 of pool {pool} of id-1")),
        (&["10.6.0.8"], format!("set members 10.6.0.8:6443 of pool {pool} of id-1")),
    ] {
        assert_eq!(change(&mut cloud, &spec, &[6443], targets), [expected]);
    }
    assert_eq!(
        change(&mut cloud, &spec, &[6443, 8132], &["10.6.0.8"]),
        [format!("create listener {name}-8132 of id-1")]
    );
    assert_eq!(
        change(&mut cloud, &spec, &[6443, 8132], &["10.6.0.8"]),
        [format!("set members 10.6.0.8:8132 of pool {} of id-1", cloud_pool(&cloud, 8132))],
    );
    assert_eq!(change(&mut cloud, &spec, &[6443, 8132], &["10.6.0.8"]), [] as [String; 0]);
}

fn cloud_pool(cloud: &Cloud, port: u16) -> String {
    let tree = load_balancer::of(cloud).unwrap();
    let listener = tree.listeners.iter().find(|listener| listener.protocol_port == port).unwrap();
    listener.default_pool_id.clone().unwrap()
}

#[test]
fn oc5_a_load_balancer_in_trouble_is_named_and_one_that_goes_is_waited_for() {
    let (mut cloud, mut next) = (Cloud::default(), 0);
    let spec = json!({ "enabled": true });
    run(&mut cloud, &mut next, |cloud| balancer(cloud, &spec, &[6443], &[]).build(now()));
    let name = "k8s-clusterapi-cluster-n-c-kubeapi";
    for (status, build, delete) in [
        (
            "ERROR",
            format!(
                "blocked LoadBalancerError: load balancer {name} is in ERROR: ask the operators of the cloud for its failover, or delete it to have it made again"
            ),
            "delete LoadBalancer id-1".to_owned(),
        ),
        (
            "PENDING_UPDATE",
            format!("wait WaitingForLoadBalancer: waiting for load balancer {name}, which is PENDING_UPDATE"),
            format!(
                "wait WaitingForLoadBalancerDeletion: waiting for load balancer {name} to be deleted, which is PENDING_UPDATE"
            ),
        ),
        (
            "PENDING_DELETE",
            format!("wait WaitingForLoadBalancer: waiting for load balancer {name}, which is PENDING_DELETE"),
            format!(
                "wait WaitingForLoadBalancerDeletion: waiting for load balancer {name} to be deleted, which is PENDING_DELETE"
            ),
        ),
        ("ACTIVE", "done".into(), "delete LoadBalancer id-1".into()),
    ] {
        for tree in cloud.resources.load_balancers.values_mut() {
            Arc::make_mut(tree).balancer.provisioning_status = status.into();
        }
        assert_eq!(described(&balancer(&cloud, &spec, &[6443], &[]).build(now())), build, "{status}");
        assert_eq!(described(&load_balancer::gone(&cloud, now())), delete, "{status}");
    }
}

#[test]
fn oc5_the_longer_a_load_balancer_takes_the_less_often_it_is_looked_at() {
    let (mut cloud, mut next) = (Cloud::default(), 0);
    let spec = json!({ "enabled": true });
    run(&mut cloud, &mut next, |cloud| balancer(cloud, &spec, &[6443], &[]).build(now()));
    let waits = |second| match balancer(&cloud, &spec, &[6443], &[]).build(at(second)) {
        Phase::Wait(reason) => reason.wake,
        other => panic!("{other:?}"),
    };
    let after = |ms| crate::Wake::After(std::time::Duration::from_millis(ms));
    assert_eq!([0, 40, 600].map(waits), [after(1_000), after(5_000), after(15_000)]);
}

#[test]
fn oc5_what_is_missing_below_a_load_balancer_comes_back_unless_its_provider_has_none() {
    let (mut cloud, mut next) = (Cloud::default(), 0);
    let spec = json!({ "enabled": true });
    run(&mut cloud, &mut next, |cloud| balancer(cloud, &spec, &[6443], &[]).build(now()));
    settle(&mut cloud.resources);
    let name = "k8s-clusterapi-cluster-n-c-kubeapi-6443";
    for (what, take, expected) in [
        ("monitor", 0, format!("create monitor {name} of id-1")),
        ("pool", 1, format!("create pool {name} of id-1")),
        ("listener", 2, format!("create listener {name} of id-1")),
    ] {
        let mut without = cloud.clone();
        let tree = Arc::make_mut(without.resources.load_balancers.values_mut().next().unwrap());
        match take {
            0 => {
                tree.monitors.clear();
                tree.pools[0].healthmonitor_id = None;
            }
            1 => tree.pools.clear(),
            _ => tree.listeners.clear(),
        }
        assert_eq!(described(&balancer(&without, &spec, &[6443], &[]).build(now())), expected, "{what}");
        if take == 0 {
            Arc::make_mut(without.resources.load_balancers.values_mut().next().unwrap()).no_monitors = true;
            assert_eq!(described(&balancer(&without, &spec, &[6443], &[]).build(now())), "done");
        }
    }
}
