//! Clusters that make everything themselves: endpoints, bastion, conditions, and the order in which all of it goes.

use serde_json::{Value, json};

use super::*;
use crate::cloud::{PROJECT_ANNOTATION, Resources};
use crate::testing::cloud::settle;
use crate::testing::{Fake, changed, cluster, condition, deleting, merge, object, planned, said};

const INFRA: &str = "infrastructure.cluster.x-k8s.io/v1beta1";

fn of_cluster(hosted: bool) -> Value {
    let (group, kind) = match hosted {
        true => ("controlplane.cluster.x-k8s.io", "KamajiControlPlane"),
        false => ("controlplane.cluster.x-k8s.io", "KubeadmControlPlane"),
    };
    cluster(json!({ "spec": { "controlPlaneRef": { "apiGroup": group, "kind": kind, "name": "p" } } }))
}

fn external() -> Network {
    Network { id: "ext".into(), name: "public".into(), external: true, ..Network::default() }
}

/// A managed network, and whatever else the spec says.
fn world(hosted: bool, spec: &Value) -> World {
    let mut own = object(
        INFRA,
        "OpenStackCluster",
        "i",
        json!({
            "metadata": { "finalizers": [OPENSTACK_CLUSTER_FINALIZER], "labels": { "cluster.x-k8s.io/cluster-name": "c" }, "annotations": { PROJECT_ANNOTATION: "p" } },
            "spec": { "identityRef": { "name": "x", "cloudName": "o" }, "managedSubnets": [{ "cidr": "10.6.0.0/24" }] },
        }),
    );
    merge(&mut own["spec"], spec);
    let mut world: World = crate::testing::world(own, vec![of_cluster(hosted)]);
    world.facts = Facts {
        cloud: Cloud { project: "p".into(), ..Cloud::default() },
        found: Found { external_network: Some(external()), external: Lookup::Found("ext".into()), ..Found::default() },
        zones: vec!["z1".into(), "z2".into()],
        bastion: Resolved {
            flavor: Lookup::Found("flavor".into()),
            image: Lookup::Found("image".into()),
            ..Resolved::default()
        },
        ..Facts::default()
    };
    world
}

fn see(world: &mut World, fake: &Fake) {
    world.facts.cloud.resources = fake.cloud.clone();
}

/// Passes until nothing is on its way any more.
fn converge(world: &mut World, fake: &mut Fake) -> crate::Plan {
    for _ in 0..10 {
        fake.pass(world);
        settle(&mut fake.cloud);
        see(world, fake);
    }
    fake.converge(world)
}

fn endpoint_of(world: &World) -> String {
    let endpoint = world.object().get("/spec/controlPlaneEndpoint");
    match endpoint["host"].as_str() {
        Some(host) => format!("{host}:{}", endpoint["port"]),
        None => "none".into(),
    }
}

#[test]
fn oc6_the_api_answers_where_the_spec_or_the_control_plane_says() {
    let balancer = json!({ "enabled": true });
    for (what, hosted, spec, endpoint, allocated, says) in [
        ("floating IP", false, json!({}), "203.0.113.10:6443", 1, "done"),
        ("floating IP, port", false, json!({ "apiServerPort": 443 }), "203.0.113.10:443", 1, "done"),
        ("a given floating IP", false, json!({ "apiServerFloatingIP": "192.0.2.9" }), "192.0.2.9:6443", 1, "done"),
        ("load balancer", false, json!({ "apiServerLoadBalancer": balancer }), "203.0.113.10:6443", 1, "done"),
        (
            "load balancer inside",
            false,
            json!({ "apiServerLoadBalancer": balancer, "disableAPIServerFloatingIP": true }),
            "10.6.0.5:6443",
            0,
            "done",
        ),
        (
            "load balancer at a fixed address",
            false,
            json!({ "apiServerLoadBalancer": balancer, "disableAPIServerFloatingIP": true, "apiServerFixedIP": "10.6.0.9" }),
            "10.6.0.9:6443",
            0,
            "done",
        ),
        (
            "fixed address",
            false,
            json!({ "disableAPIServerFloatingIP": true, "apiServerFixedIP": "10.6.0.9" }),
            "10.6.0.9:6443",
            0,
            "done",
        ),
        (
            "somebody fills it in",
            false,
            json!({ "disableAPIServerFloatingIP": true, "apiServerFixedIP": "" }),
            "none",
            0,
            "done",
        ),
        (
            "the user's endpoint",
            false,
            json!({ "controlPlaneEndpoint": { "host": "api.example.org", "port": 1 } }),
            "api.example.org:1",
            0,
            "done",
        ),
        (
            "nothing",
            false,
            json!({ "disableAPIServerFloatingIP": true }),
            "none",
            0,
            "blocked NoControlPlaneEndpoint: there is no way to give the API an address: enable apiServerLoadBalancer, allow a floating IP (and have an external network), or set apiServerFixedIP or controlPlaneEndpoint",
        ),
        (
            "seed 003: hosted, no address at all",
            true,
            json!({ "disableAPIServerFloatingIP": true, "apiServerLoadBalancer": { "enabled": false } }),
            "none",
            0,
            "wait WaitingForControlPlaneEndpoint: waiting for the control plane to say where it answers (spec.controlPlaneEndpoint)",
        ),
        (
            "seed 004: hosted, and nothing is switched off",
            true,
            json!({}),
            "none",
            0,
            "wait WaitingForControlPlaneEndpoint: waiting for the control plane to say where it answers (spec.controlPlaneEndpoint)",
        ),
        (
            "hosted, with a load balancer",
            true,
            json!({ "apiServerLoadBalancer": balancer, "apiServerFixedIP": "" }),
            "none",
            0,
            "done",
        ),
        ("seed 000: hosted, filled in", true, json!({ "apiServerFixedIP": "1.2.3.4" }), "1.2.3.4:6443", 0, "done"),
    ] {
        let (mut world, mut fake) = (world(hosted, &spec), Fake::default());
        let plan = converge(&mut world, &mut fake);
        assert_eq!(said(&plan), says, "{what}");
        assert_eq!(endpoint_of(&world), endpoint, "{what}");
        assert_eq!(fake.cloud.floating_ips.len(), allocated, "{what}");
        assert_eq!(plan.status.unwrap()["ready"], says == "done", "{what}");
    }
}

#[test]
fn what_was_allocated_is_used_again_when_the_process_died_before_the_endpoint_was_written() {
    let (mut world, mut fake) = (world(false, &json!({})), Fake::default());
    converge(&mut world, &mut fake);
    let before = fake.done.len();
    let mut forgot = changed(world, |own| {
        own["spec"]["controlPlaneEndpoint"] = json!(null);
        own["metadata"]["annotations"].as_object_mut().unwrap().remove(API_ADDRESS_ANNOTATION);
    });
    converge(&mut forgot, &mut fake);
    assert_eq!(fake.done.len(), before + 1, "{:?}", &fake.done[before..]);
    assert_eq!(endpoint_of(&forgot), "203.0.113.10:6443");
}

/// Upstream deletes it with the machine that holds it (CAPO 1425), and with unrelated ones (CAPO 668).
#[test]
fn oc7_an_address_that_was_handed_out_and_deleted_by_hand_is_asked_for_again_and_no_other() {
    let (mut world, mut fake) = (world(false, &json!({})), Fake::default());
    converge(&mut world, &mut fake);
    fake.cloud.floating_ips.clear();
    see(&mut world, &fake);
    assert_eq!(said(&planned(&world)), "create floating IP 203.0.113.10 in ext");
}

#[test]
fn oc11_everything_goes_in_an_order_that_the_cloud_accepts_from_any_half_built_state() {
    let spec = json!({
        "apiServerLoadBalancer": { "enabled": true }, "managedSecurityGroups": { "allowAllInClusterTraffic": true },
        "bastion": { "spec": { "flavor": "f", "image": { "id": "i" } } },
    });
    let (mut whole, mut fake) = (world(false, &spec), Fake::default());
    converge(&mut whole, &mut fake);
    let all = fake.cloud.clone();
    assert_eq!((all.servers.len(), all.floating_ips.len(), all.security_groups.len(), all.ports.len()), (1, 2, 3, 2));
    let going = |resources: &Resources| {
        let mut world = deleting(world(false, &spec), Some(OPENSTACK_CLUSTER_FINALIZER));
        let mut fake = Fake { cloud: resources.clone(), ..Fake::default() };
        see(&mut world, &fake);
        for _ in 0..10 {
            fake.pass(&mut world);
            settle(&mut fake.cloud);
            see(&mut world, &fake);
        }
        assert_eq!(said(&planned(&world)), "done", "{:?}", fake.done);
        let left = Resources { subnets: Default::default(), ..fake.cloud.clone() };
        assert_eq!(left, Resources::default(), "{:?}", fake.done);
        fake.done
    };
    let done = going(&all);
    let position =
        |what: &str| done.iter().position(|step| step.starts_with(what)).unwrap_or_else(|| panic!("{what}: {done:?}"));
    let order = [
        "delete Server",
        "delete LoadBalancer",
        "remove interface",
        "delete Router",
        "delete Network",
        "delete SecurityGroup",
    ];
    let positions: Vec<usize> = order.into_iter().map(position).collect();
    assert!(positions.is_sorted(), "{done:?}");
    // Without any one sort of them the rest goes, too.
    let without: [fn(&mut Resources); 7] = [
        |all| all.servers.clear(),
        |all| all.ports.clear(),
        |all| all.load_balancers.clear(),
        |all| all.floating_ips.clear(),
        |all| all.routers.clear(),
        |all| all.networks.clear(),
        |all| all.security_groups.clear(),
    ];
    for take in without {
        let mut half = all.clone();
        take(&mut half);
        going(&half);
    }
}

fn leftover(sort: LeftoverSort, id: &str, blocks: bool) -> Leftover {
    Leftover { sort, id: id.into(), name: id.into(), blocks, pending: false }
}

/// CAPO 842: what controllers in the tenant made keeps a cluster from going, and nobody says so.
#[test]
fn oc14_what_controllers_in_the_tenant_left_is_named_and_deleted_only_if_somebody_asks() {
    let (mut whole, mut fake) = (world(true, &json!({ "apiServerFixedIP": "" })), Fake::default());
    converge(&mut whole, &mut fake);
    let all = [
        leftover(LeftoverSort::LoadBalancer, "kube_service_c_default_web", true),
        leftover(LeftoverSort::FloatingIp, "192.0.2.4", true),
        leftover(LeftoverSort::Volume, "pvc-1", false),
    ];
    let going = |annotation: &str, leftovers: &[Leftover]| {
        let world = deleting(world(true, &json!({})), Some(OPENSTACK_CLUSTER_FINALIZER));
        let mut world = changed(world, |own| own["metadata"]["annotations"][DELETE_ANNOTATION] = annotation.into());
        see(&mut world, &fake);
        world.facts.leftovers = leftovers.to_vec();
        world
    };
    for (annotation, leftovers, expected) in [
        (
            "",
            &all[..],
            "blocked TenantResourcesLeft: controllers in the cluster left load balancer kube_service_c_default_web, floating IP 192.0.2.4 in its network: \
             delete them, or set the annotation hangar.dev/delete-tenant-resources: load-balancers",
        ),
        ("", &all[2..], "remove interface"),
        ("load-balancers", &all[..], "delete LoadBalancer kube_service_c_default_web; delete FloatingIp 192.0.2.4"),
        ("volumes", &all[2..], "delete Volume pvc-1"),
        (
            "load-balancers, volumes",
            &all[..],
            "delete LoadBalancer kube_service_c_default_web; delete FloatingIp 192.0.2.4; delete Volume pvc-1",
        ),
    ] {
        let said = said(&planned(&going(annotation, leftovers)));
        assert!(said.starts_with(expected), "{annotation} {leftovers:?}: {said}");
    }
    // Octavia takes its time; the network waits for it.
    let mut world = going("load-balancers", &all[..1]);
    let mut fake = Fake { cloud: fake.cloud.clone(), ..Fake::default() };
    let plan = fake.pass(&mut world);
    assert_eq!(
        said(&plan),
        "wait WaitingForLoadBalancerDeletion: waiting for load balancer kube_service_c_default_web to be deleted"
    );
}

#[test]
fn oc10_each_condition_is_that_of_its_own_phases() {
    let (mut whole, mut fake) = (world(false, &json!({ "disableAPIServerFloatingIP": true })), Fake::default());
    let plan = converge(&mut whole, &mut fake);
    let status =
        |plan: &crate::Plan, kind: &str| condition(plan, kind).map(|(status, reason, _)| format!("{status} {reason}"));
    for (kind, expected) in [
        ("Ready", "False NoControlPlaneEndpoint"),
        ("NetworkReady", "True Ready"),
        ("RouterReady", "True Ready"),
        ("SecurityGroupsReady", "True Ready"),
        ("APIEndpointReady", "False NoControlPlaneEndpoint"),
        ("OpenStackAuthenticationSucceeded", "True Authenticated"),
    ] {
        assert_eq!(status(&plan, kind).as_deref(), Some(expected), "{kind}");
    }
    assert_eq!(condition(&plan, "BastionReady"), None);
    // The credential stops working: what is known of the rest stays.
    let before = plan.status.clone().unwrap();
    let mut away = changed(whole, |own| own["status"] = before.clone());
    away.facts = Facts::default();
    away.facts_error = Some(crate::Reason::retry("OpenStackAuthenticationFailed", "401"));
    let plan = planned(&away);
    assert_eq!(
        status(&plan, "OpenStackAuthenticationSucceeded").as_deref(),
        Some("False OpenStackAuthenticationFailed")
    );
    assert_eq!(status(&plan, "NetworkReady").as_deref(), Some("True Ready"));
    // A router that the cloud refuses is the router's condition.
    let refused = world(false, &json!({}));
    let plan =
        crate::refused(&refused, crate::Reason::retry("QuotaExceeded", "no network left"), crate::testing::at(0));
    assert_eq!(status(&plan, "NetworkReady").as_deref(), Some("False QuotaExceeded"));
    assert_eq!(plan.status.unwrap()["ready"], false);
}

#[test]
fn oc8_nobody_waits_for_a_bastion_and_its_status_is_that_of_its_server() {
    let spec = json!({
        "managedSecurityGroups": { "allowAllInClusterTraffic": true },
        "bastion": { "spec": { "flavor": "f", "image": { "id": "i" }, "sshKeyName": "me" }, "availabilityZone": "z1" },
    });
    let (mut whole, mut fake) = (world(false, &spec), Fake::default());
    let plan = fake.pass(&mut whole);
    assert_eq!(said(&plan), "wait InstanceNotReady: server c-bastion is being built");
    let status = plan.status.clone().unwrap();
    assert_eq!((&status["ready"], &status["bastion"]["state"]), (&json!(true), &json!("BUILD")));
    assert_eq!(condition(&plan, "Ready").unwrap().0, "True");
    assert_eq!(condition(&plan, "BastionReady").unwrap().1, "InstanceNotReady");
    let plan = converge(&mut whole, &mut fake);
    let bastion = &plan.status.unwrap()["bastion"];
    assert_eq!(
        (&bastion["state"], &bastion["floatingIP"], &bastion["sshKeyName"]),
        (&json!("ACTIVE"), &json!("203.0.113.11"), &json!("me"))
    );
    // Another spec: it is made anew, at the same address.
    let before = fake.done.len();
    let mut other = changed(whole, |own| own["spec"]["bastion"]["spec"]["flavor"] = "g".into());
    converge(&mut other, &mut fake);
    let done = &fake.done[before..];
    assert!(
        done[0].starts_with("delete Server") && done.iter().any(|step| step == "create server c-bastion"),
        "{done:?}"
    );
    assert!(!done.iter().any(|step| step.starts_with("create floating IP")), "{done:?}");
    // Switched off: everything of it goes, its group last.
    let before = fake.done.len();
    let mut off = changed(other, |own| own["spec"]["bastion"]["enabled"] = false.into());
    let plan = fake.pass(&mut off);
    assert_eq!(plan.status.unwrap()["ready"], true);
    converge(&mut off, &mut fake);
    assert_eq!((fake.cloud.servers.len(), fake.cloud.ports.len(), fake.cloud.security_groups.len()), (0, 1, 2));
    assert_eq!(fake.cloud.floating_ips.len(), 1, "{:?}", &fake.done[before..]);
    // What its spec asks for and nobody makes is its own affair.
    let pool = json!({ "apiGroup": "a", "kind": "b", "name": "c" });
    let spec = json!({ "flavor": "f", "image": { "id": "i" }, "floatingIPPoolRef": pool });
    let mut nothing = world(false, &json!({ "bastion": { "spec": spec } }));
    let plan = Fake::default().pass(&mut nothing);
    assert!(said(&plan).starts_with("blocked NotBuiltYet: spec.bastion.spec.floatingIPPoolRef"), "{}", said(&plan));
    assert_eq!(plan.status.unwrap()["ready"], true);
}

#[test]
fn oc3_the_external_network_is_named_the_only_one_or_none() {
    let ambiguous = || Lookup::Ambiguous { wanted: String::new(), candidates: vec!["a 1".into(), "b 2".into()] };
    let missing = |wanted: &str| Lookup::Missing { wanted: wanted.into(), known: vec![] };
    for (what, lookup, spec, expected) in [
        (
            "several",
            ambiguous(),
            json!({}),
            "blocked NetworkNotFound: the cloud has 2 external networks (a 1, b 2): name one of them in spec.externalNetwork",
        ),
        (
            "a wrong name",
            missing("x"),
            json!({ "externalNetwork": { "id": "x" } }),
            "blocked NetworkNotFound: spec.externalNetwork x matches no external network; it must match exactly one",
        ),
        (
            "none, and an address is needed",
            missing(""),
            json!({}),
            "blocked NoControlPlaneEndpoint: there is no way to give the API an address: enable apiServerLoadBalancer, allow a floating IP (and have an external network), or set apiServerFixedIP or controlPlaneEndpoint",
        ),
        (
            "none, and none is needed",
            missing(""),
            json!({ "apiServerFixedIP": "", "disableAPIServerFloatingIP": true }),
            "done",
        ),
    ] {
        let (mut world, mut fake) = (world(false, &spec), Fake::default());
        (world.facts.found.external, world.facts.found.external_network) = (lookup, None);
        assert_eq!(said(&fake.pass(&mut world)), expected, "{what}");
        assert!(fake.cloud.routers.is_empty(), "{what}");
    }
}

#[test]
fn oc9_zones_are_for_the_control_plane_as_the_spec_says() {
    for (spec, z1, z2) in [
        (json!({}), true, true),
        (json!({ "controlPlaneAvailabilityZones": [] }), true, true),
        (json!({ "controlPlaneAvailabilityZones": ["z2"] }), false, true),
        (json!({ "controlPlaneOmitAvailabilityZone": true }), false, false),
    ] {
        let (mut world, mut fake) = (world(false, &spec), Fake::default());
        let status = converge(&mut world, &mut fake).status.unwrap();
        let domains = &status["failureDomains"];
        assert_eq!(
            (&domains["z1"]["controlPlane"], &domains["z2"]["controlPlane"]),
            (&json!(z1), &json!(z2)),
            "{spec}"
        );
    }
}

/// Seed 001, as `clusterctl` of 2020 wrote it.
#[test]
fn oc17_a_cluster_of_v1alpha3_gets_network_router_groups_and_an_address() {
    let old = hangar_api::Object(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha3", "kind": "OpenStackCluster",
        "metadata": { "name": "i", "namespace": "n" },
        "spec": {
            "cloudName": "openstack", "cloudsSecret": { "name": "x", "namespace": "n" }, "externalNetworkId": "ext",
            "nodeCidr": "10.6.0.0/24", "dnsNameservers": ["1.1.1.1"], "useOctavia": true, "managedSecurityGroups": true,
            "managedAPIServerLoadBalancer": false, "disablePortSecurity": true, "disableServerTags": true,
        },
    }));
    let hub = hangar_api::conversion::convert(&old, "v1beta1").unwrap();
    let (mut world, mut fake) = (world(false, &json!({})), Fake::default());
    world = changed(world, |own| own["spec"] = hub.get("/spec").clone());
    converge(&mut world, &mut fake);
    assert_eq!(endpoint_of(&world), "203.0.113.10:6443");
    assert!(fake.cloud.load_balancers.is_empty(), "useOctavia alone asks for none");
    let network = fake.cloud.networks.values().next().unwrap();
    assert_eq!(network.port_security_enabled, Some(false));
    let subnet = fake.cloud.subnets.values().next().unwrap();
    assert_eq!((subnet.cidr.as_str(), &subnet.dns_nameservers[..]), ("10.6.0.0/24", &["1.1.1.1".to_owned()][..]));
    assert_eq!((fake.cloud.routers.len(), fake.cloud.security_groups.len()), (1, 2));
    // With a load balancer of the old field.
    let old = hangar_api::Object({
        let mut with = old.0.clone();
        with["spec"]["managedAPIServerLoadBalancer"] = true.into();
        with["spec"]["apiServerLoadBalancerAdditionalPorts"] = json!([8132]);
        with
    });
    let hub = hangar_api::conversion::convert(&old, "v1beta1").unwrap();
    let (mut balanced, mut fake) =
        (changed(self::world(false, &json!({})), |own| own["spec"] = hub.get("/spec").clone()), Fake::default());
    converge(&mut balanced, &mut fake);
    let tree = fake.cloud.load_balancers.values().next().unwrap();
    let ports: Vec<u16> = tree.listeners.iter().map(|listener| listener.protocol_port).collect();
    assert_eq!(ports, [6443, 8132]);
}

/// A control plane machine with a port and an address.
fn plane(name: &str, ready: bool) -> Value {
    object(
        INFRA,
        "OpenStackMachine",
        name,
        json!({
            "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": "c", "cluster.x-k8s.io/control-plane": "" } },
            "spec": { "flavor": "f", "image": { "id": "i" } },
            "status": {
                "ready": ready, "resources": { "ports": [{ "id": format!("port-{name}") }] },
                "addresses": [{ "type": "InternalIP", "address": format!("10.6.0.{name}") }],
            },
        }),
    )
}

fn with_planes(mut world: World, planes: &[(&str, bool)]) -> World {
    planes.iter().for_each(|(name, ready)| world.objects.insert(crate::testing::shared(plane(name, *ready))));
    world
}

#[test]
fn oc5_oc7_control_plane_machines_are_members_or_hold_the_address() {
    // Members of the load balancer are those that are there.
    let (world, mut fake) = (world(false, &json!({ "apiServerLoadBalancer": { "enabled": true } })), Fake::default());
    let mut world = with_planes(world, &[("7", true), ("8", false)]);
    converge(&mut world, &mut fake);
    let tree = fake.cloud.load_balancers.values().next().unwrap();
    let members: Vec<&str> = tree.members.values().flatten().map(|member| member.address.as_str()).collect();
    assert_eq!(members, ["10.6.0.7", "10.6.0.8"]);
    // Without one the address leads to one that is ready, and moves only when that one no longer is.
    let (world, mut fake) = (self::world(false, &json!({})), Fake::default());
    let mut world = with_planes(world, &[]);
    converge(&mut world, &mut fake);
    let bound = |fake: &Fake| fake.cloud.floating_ips.values().next().unwrap().port_id.clone().unwrap_or_default();
    assert_eq!(bound(&fake), "", "there is nobody yet");
    for (planes, expected) in [
        (&[("7", false), ("8", true)][..], "port-8"),
        (&[("7", true), ("8", true)], "port-8"),
        (&[("7", true), ("8", false)], "port-7"),
        (&[("7", true), ("8", true)], "port-7"),
        (&[("7", false), ("8", false)], "port-7"),
    ] {
        world = with_planes(world, planes);
        converge(&mut world, &mut fake);
        assert_eq!(bound(&fake), expected, "{planes:?}");
    }
    assert_eq!(fake.cloud.floating_ips.len(), 1);
}
