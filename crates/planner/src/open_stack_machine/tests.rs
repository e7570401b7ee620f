use std::sync::Arc;

use hangar_openstack_types::{Address, Fault, Port, Server as NovaServer};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cloud::instance::ResolvedPort;
use crate::cloud::{CloudCall, KEY_METADATA, Lookup, PROJECT_ANNOTATION, Resource};
use crate::testing::{
    CORE, Fake, at, changed, cluster, condition, deleting, merge, object, owner, planned, said, shared,
};
use crate::{OwnerKey, Step, plan};

const INFRA: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const BOOT: &str = "bootstrap.cluster.x-k8s.io/v1beta2";

fn machine(fields: Value) -> Value {
    let mut machine = object(
        CORE,
        "Machine",
        "ma",
        json!({ "spec": { "clusterName": "c", "failureDomain": "nova",
        "bootstrap": { "dataSecretName": "m", "configRef": { "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": "m" } } } }),
    );
    merge(&mut machine, &fields);
    machine
}

fn infra(fields: Value) -> Value {
    let mut infra = object(
        INFRA,
        "OpenStackCluster",
        "i",
        json!({ "status": { "initialization": { "provisioned": true },
        "workerSecurityGroup": { "id": "sg", "name": "sg" }, "network": { "id": "net", "name": "net" } } }),
    );
    merge(&mut infra, &fields);
    infra
}

fn secret(owners: Value) -> Value {
    object(
        "v1",
        "Secret",
        "m",
        json!({ "metadata": { "ownerReferences": owners }, "data": { "value": "I2Nsb3VkLWNvbmZpZw==" } }),
    )
}

fn of_cluster() -> Value {
    cluster(
        json!({ "spec": { "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackCluster", "name": "i" } } }),
    )
}

fn others() -> Vec<Value> {
    vec![machine(json!({})), of_cluster(), infra(json!({})), secret(owner(BOOT, "KubeadmConfig", "m"))]
}

fn own(spec: Value) -> Value {
    let mut own = object(
        INFRA,
        "OpenStackMachine",
        "m",
        json!({
            "metadata": { "finalizers": [OPENSTACK_MACHINE_FINALIZER], "labels": { "cluster.x-k8s.io/cluster-name": "c" }, "ownerReferences": owner(CORE, "Machine", "ma"),
                "annotations": { PROJECT_ANNOTATION: "p" } },
            "spec": { "flavor": "m1.small", "image": { "id": "img" }, "ports": [{ "network": { "id": "net" }, "tags": ["blue"] }] },
        }),
    );
    merge(&mut own["spec"], &spec);
    own
}

fn on_network(id: &str) -> ResolvedPort {
    ResolvedPort { network: Lookup::Found(id.into()), ..ResolvedPort::default() }
}

fn facts() -> Facts {
    Facts {
        quota: Quota::default(),
        cloud: Cloud { project: "p".into(), ..Cloud::default() },
        user_data: Some(UserData("#cloud-config".into())),
        floating_ip: None,
        resolved: Resolved {
            flavor: Lookup::Found("f".into()),
            image: Lookup::Found("img".into()),
            ports: vec![on_network("net")],
            ..Resolved::default()
        },
    }
}

fn world_of(own: Value, others: Vec<Value>) -> World {
    let mut world: World = crate::testing::world(own, others);
    world.facts = facts();
    world
}

fn world() -> World {
    world_of(own(json!({})), others())
}

fn server(id: &str, status: &str) -> NovaServer {
    let metadata = [(KEY_METADATA.to_owned(), OwnerKey::new("c-uid", "m-uid", server::ROLE).to_string())].into();
    NovaServer {
        id: id.into(),
        name: "m".into(),
        status: status.into(),
        metadata,
        created: at(0).to_string(),
        ..NovaServer::default()
    }
}

fn port(id: &str, role: &str, device: &str) -> Port {
    let description = OwnerKey::new("c-uid", "m-uid", role).describe("x");
    Port {
        id: id.into(),
        name: id.into(),
        description,
        device_id: device.into(),
        tags: vec!["blue".into()],
        ..Port::default()
    }
}

fn with(mut world: World, ports: Vec<Port>, servers: Vec<NovaServer>) -> World {
    for port in ports {
        world.facts.cloud.resources.insert(Resource::Port(Arc::new(port)));
    }
    for server in servers {
        world.facts.cloud.resources.insert(Resource::Server(Arc::new(server)));
    }
    world
}

fn provisioned(mut own: Value) -> Value {
    merge(
        &mut own,
        &json!({ "spec": { "providerID": "openstack:///s" }, "status": { "initialization": { "provisioned": true } } }),
    );
    own
}

#[test]
fn each_phase_of_building_says_what_it_does_or_waits_for() {
    let unready = infra(json!({ "status": { "initialization": { "provisioned": false } } }));
    let lookup = |change: fn(&mut Facts)| {
        let mut world = world();
        change(&mut world.facts);
        world
    };
    for (what, world, expected) in [
        ("no Machine", world_of(own(json!({})), vec![]), "wait WaitingForMachine: no Machine owns it yet"),
        (
            "no Cluster",
            world_of(own(json!({})), vec![machine(json!({}))]),
            "wait WaitingForCluster: its Cluster is not there yet",
        ),
        (
            "no infrastructure",
            world_of(own(json!({})), vec![machine(json!({})), of_cluster(), unready]),
            "wait WaitingForClusterInfrastructure: the cluster's infrastructure is not ready yet",
        ),
        (
            "no data",
            world_of(
                own(json!({})),
                vec![
                    machine(json!({ "spec": { "bootstrap": { "dataSecretName": null } } })),
                    of_cluster(),
                    infra(json!({})),
                ],
            ),
            "wait WaitingForBootstrapData: its bootstrap data is not there yet",
        ),
        (
            "no Secret",
            world_of(own(json!({})), others()[..3].to_vec()),
            "wait WaitingForBootstrapData: its bootstrap data is not there yet",
        ),
        (
            "flavor",
            lookup(|facts| {
                facts.resolved.flavor = Lookup::Missing { wanted: "huge".into(), known: vec!["m1.small".into()] }
            }),
            "blocked InvalidMachineSpec: spec.flavor huge matches no flavor; the cloud has m1.small",
        ),
        (
            "image",
            lookup(|facts| {
                facts.resolved.image =
                    Lookup::Ambiguous { wanted: "x".into(), candidates: vec!["a".into(), "b".into()] }
            }),
            "blocked InvalidMachineSpec: spec.image.filter x matches 2 images (a, b); it must match exactly one",
        ),
        (
            "network",
            lookup(|facts| facts.resolved.ports[0].network = Lookup::one("x".into(), vec![])),
            "blocked InvalidMachineSpec: spec.ports[0].network.filter x matches no network; it must match exactly one",
        ),
        (
            "the project is written down first",
            changed(world(), |own| own["metadata"]["annotations"] = json!(null)),
            r#"patch OpenStackMachine n/m {"metadata":{"annotations":{"hangar.dev/cloud-project":"p"}}}"#,
        ),
        ("port", world(), "create port m-0"),
        ("server", with(world(), vec![port("p0", "port-0", "")], vec![]), "create server m"),
        (
            "building",
            with(world(), vec![port("p0", "port-0", "s")], vec![server("s", "BUILD")]),
            "wait InstanceNotReady: server m is being built",
        ),
        (
            "provider id",
            with(world(), vec![port("p0", "port-0", "s")], vec![server("s", "ACTIVE")]),
            r#"patch OpenStackMachine n/m {"spec":{"providerID":"openstack:///s"}}"#,
        ),
        (
            "done",
            with(
                world_of(provisioned(own(json!({}))), others()),
                vec![port("p0", "port-0", "s")],
                vec![server("s", "ACTIVE")],
            ),
            "done",
        ),
    ] {
        assert_eq!(said(&planned(&world)), expected, "{what}");
    }
}

/// A user-data Secret of another owner is not used: it holds another machine's token, or anything at all.
#[test]
fn a_user_data_secret_of_another_owner_is_not_used() {
    for (what, owners, bootstrap, used) in [
        ("its own config", owner(BOOT, "KubeadmConfig", "m"), json!({}), true),
        (
            "an older version of the same kind",
            owner("bootstrap.cluster.x-k8s.io/v1beta1", "KubeadmConfig", "m"),
            json!({}),
            true,
        ),
        ("the config of another machine", owner(BOOT, "KubeadmConfig", "other"), json!({}), false),
        ("another kind", owner("example.org/v1", "KubeadmConfig", "m"), json!({}), false),
        ("nobody, though a config makes the data", json!(null), json!({}), false),
        ("nobody, and the user named it", json!(null), json!({ "configRef": null }), true),
    ] {
        let machine = machine(json!({ "spec": { "bootstrap": bootstrap } }));
        let world = world_of(own(json!({})), vec![machine, of_cluster(), infra(json!({})), secret(owners)]);
        assert_eq!(user_data_secret(&world).is_some(), used, "{what}");
        assert_eq!(ready_to_start(&world).is_done(), used, "{what}");
    }
}

#[test]
fn om6_a_floating_ip_is_claimed_early_and_bound_to_the_first_port() {
    const IPAM: &str = "ipam.cluster.x-k8s.io/v1beta2";
    let spec = || json!({ "floatingIPPoolRef": { "name": "p", "kind": "OpenStackFloatingIPPool", "apiGroup": "infrastructure.cluster.x-k8s.io" } });
    let claim = |given: Value| {
        let mut claim = object(IPAM, "IPAddressClaim", "m-floating-ip-address", given);
        claim["metadata"]["ownerReferences"] = json!([{ "apiVersion": INFRA, "kind": "OpenStackMachine", "name": "m", "uid": "m-uid", "controller": true, "blockOwnerDeletion": true }]);
        claim
    };
    let address = object(IPAM, "IPAddress", "x", json!({ "spec": { "address": "9.9.9.1" } }));
    let ip =
        |port: Option<&str>| FloatingIp { id: "f".into(), port_id: port.map(str::to_owned), ..FloatingIp::default() };
    let plan = planned(&world_of(own(spec()), others()));
    let [Step::Create(made)] = &plan.steps[..] else { panic!("{plan:?}") };
    assert_eq!((made.name(), made.text("/spec/poolRef/name")), ("m-floating-ip-address", "p"));
    let mut settled = claim(json!({}));
    merge(&mut settled, &made.0);
    let named = |given: &Value| {
        let mut claim = settled.clone();
        merge(&mut claim, given);
        claim
    };
    let given = named(&json!({ "status": { "addressRef": { "name": "x" } } }));
    for (what, claim, floating_ip, expected) in [
        (
            "no address yet",
            named(&json!({})),
            None,
            "wait WaitingForFloatingIP: waiting for IPAddressClaim n/m-floating-ip-address to be given an address",
        ),
        (
            "of no use in this project",
            given.clone(),
            None,
            "blocked FloatingIPError: the project has no floating IP 9.9.9.1, which IPAddressClaim n/m-floating-ip-address was given",
        ),
        ("free", given.clone(), Some(ip(None)), "bind floating IP f to p0"),
        ("bound", given.clone(), Some(ip(Some("p0"))), "done"),
        (
            "bound elsewhere",
            given,
            Some(ip(Some("other"))),
            "blocked FloatingIPError: floating IP 9.9.9.1 is bound to port other: unbind it, or let the pool give another address",
        ),
    ] {
        let mut all = others();
        all.extend([claim, address.clone()]);
        let world = world_of(provisioned(own(spec())), all);
        let mut world = with(world, vec![port("p0", "port-0", "s")], vec![server("s", "ACTIVE")]);
        world.facts.floating_ip = floating_ip;
        assert_eq!(said(&planned(&world)), expected, "{what}");
    }
    let mut world = world_of(own(spec()), [others(), vec![settled.clone()]].concat());
    world = deleting(world, Some(OPENSTACK_MACHINE_FINALIZER));
    assert_eq!(said(&planned(&world)), "delete IPAddressClaim n/m-floating-ip-address");
}

#[test]
fn on_the_way_out_the_server_goes_before_its_ports_and_nothing_without_our_key() {
    let dying = || NovaServer { task_state: Some("deleting".into()), ..server("s", "ACTIVE") };
    for (what, ports, servers, expected) in [
        ("server", vec![port("p0", "port-0", "s")], vec![server("s", "ACTIVE")], "delete Server s"),
        (
            "server goes",
            vec![port("p0", "port-0", "s")],
            vec![dying()],
            "wait WaitingForServerDeletion: waiting for server m to be deleted",
        ),
        ("ports", vec![port("p0", "port-0", ""), port("p1", "port-1", "")], vec![], "delete Port p0; delete Port p1"),
        ("nothing left", vec![], vec![], r#"patch OpenStackMachine n/m {"metadata":{"finalizers":[]}}"#),
    ] {
        assert_eq!(
            said(&planned(&deleting(with(world(), ports, servers), Some(OPENSTACK_MACHINE_FINALIZER)))),
            expected,
            "{what}"
        );
    }
}

#[test]
fn a_machine_that_never_tried_a_create_can_go_without_its_cloud() {
    // Finalizer and project come with the first create, in one request; before it nothing of ours holds the object.
    let bare = || {
        changed(world(), |own| {
            own["metadata"] = json!({ "name": "m", "namespace": "n", "uid": "m-uid", "resourceVersion": "1",
        "labels": { "cluster.x-k8s.io/cluster-name": "c" }, "ownerReferences": owner(CORE, "Machine", "ma") })
        })
    };
    let plan = planned(&bare());
    let [Step::Patch { fields, .. }] = &plan.steps[..] else { panic!("{plan:?}") };
    assert_eq!(fields["metadata"]["finalizers"], json!([OPENSTACK_MACHINE_FINALIZER]));
    assert_eq!(fields["metadata"]["annotations"][PROJECT_ANNOTATION], "p");
    for (what, world, finalizer, expected) in [
        ("never tried", bare(), None, "done"),
        ("tried", world(), Some(OPENSTACK_MACHINE_FINALIZER), "blocked CloudUnreachable: connection refused"),
    ] {
        let mut world = deleting(world, finalizer);
        world.facts_error = Some(crate::Reason::retry("CloudUnreachable", "connection refused"));
        assert_eq!(said(&planned(&world)), expected, "{what}");
    }
}

#[test]
fn a_switch_of_identity_within_the_project_changes_nothing_and_to_another_one_is_refused() {
    let refused = "blocked CloudProjectChanged: its resources are in project p, spec.identityRef now leads to project q: name a credential of the former project";
    let switched = json!({ "identityRef": { "name": "another", "cloudName": "openstack" } });
    for (what, project, leaves, expected) in [
        ("the same project", "p", false, "done"),
        ("another project", "q", false, refused),
        ("another project on the way out", "q", true, refused),
    ] {
        let mut world = with(
            world_of(provisioned(own(switched.clone())), others()),
            vec![port("p0", "port-0", "s")],
            vec![server("s", "ACTIVE")],
        );
        world.facts.cloud.project = project.into();
        if leaves {
            world = deleting(world, Some(OPENSTACK_MACHINE_FINALIZER));
        }
        assert_eq!(said(&planned(&world)), expected, "{what}");
    }
}

#[test]
fn the_status_says_what_the_cloud_says_and_keeps_it_while_the_cloud_is_silent() {
    let address = |addr: &str, version: u8, kind: &str| Address {
        addr: addr.into(),
        version,
        kind: kind.into(),
        ..Address::default()
    };
    let mut active = server("s", "ACTIVE");
    active.addresses = [(
        "net".to_owned(),
        vec![address("fd00::1", 6, "fixed"), address("10.0.0.5", 4, "fixed"), address("1.2.3.4", 4, "floating")],
    )]
    .into();
    let plan =
        planned(&with(world_of(provisioned(own(json!({}))), others()), vec![port("p0", "port-0", "s")], vec![active]));
    let status = plan.status.clone().unwrap();
    assert_eq!(
        (&status["ready"], &status["instanceID"], &status["instanceState"]),
        (&json!(true), &json!("s"), &json!("ACTIVE"))
    );
    assert_eq!(
        status["addresses"],
        json!([{ "type": "InternalIP", "address": "10.0.0.5" }, { "type": "ExternalIP", "address": "1.2.3.4" },
        { "type": "InternalIP", "address": "fd00::1" }, { "type": "InternalDNS", "address": "m" }])
    );
    assert_eq!(plan.recheck, Some(DRIFT));
    let mut silent = changed(world(), |own| {
        own["status"] = status;
        own["spec"]["providerID"] = "openstack:///s".into();
    });
    silent.facts_error = Some(crate::Reason::retry("CloudUnreachable", "connection refused"));
    silent.facts = Facts::default();
    let plan = planned(&silent);
    let status = plan.status.clone().unwrap();
    assert_eq!(
        (&status["instanceID"], &status["initialization"]["provisioned"], &status["ready"]),
        (&json!("s"), &json!(true), &json!(false))
    );
    assert_eq!(status["addresses"][0]["address"], "10.0.0.5");
    assert_eq!(
        condition(&plan, "InstanceReady").unwrap(),
        ("False".into(), "CloudUnreachable".into(), "connection refused".into())
    );
}

#[test]
fn a_server_that_failed_before_it_ran_is_replaced_and_says_why_until_then() {
    let failed = || NovaServer {
        fault: Some(Fault { message: "No valid host".into(), ..Fault::default() }),
        ..server("s", "ERROR")
    };
    let world = || with(world(), vec![port("p0", "port-0", "s")], vec![failed()]);
    assert_eq!(
        said(&plan(&world(), at(29))),
        "blocked InstanceStateError: server m failed: No valid host; it will be replaced"
    );
    assert_eq!(said(&plan(&world(), at(30))), "delete Server s");
    let ran = with(world_of(provisioned(own(json!({}))), others()), vec![port("p0", "port-0", "s")], vec![failed()]);
    assert_eq!(said(&plan(&ran, at(3000))), "blocked InstanceStateError: server m failed: No valid host");
}

/// A fault that stays must not cost a server every half minute for ever.
#[test]
fn om9_a_server_that_fails_again_and_again_is_replaced_ever_less_often() {
    let mut made = vec![0];
    let mut now = 0;
    while now < 20_000 {
        let failed = NovaServer { created: at(*made.last().unwrap()).to_string(), ..server("s", "ERROR") };
        let mut own = own(json!({}));
        own["metadata"]["creationTimestamp"] = at(0).to_string().into();
        let world = with(world_of(own, others()), vec![port("p0", "port-0", "s")], vec![failed]);
        match said(&plan(&world, at(now))).as_str() {
            "delete Server s" => made.push(now),
            _ => now += 1,
        }
    }
    assert_eq!(made[..5], [0, 30, 60, 90, 135]);
    let pauses: Vec<i64> = made.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses.iter().max(), Some(&1800), "{pauses:?}");
    assert!(made.len() < 30, "{made:?}");
}

/// Runs passes over a cloud that forgets nothing; before and after each step the process may die.
fn live(world: &mut World, fake: &mut Fake, mut dies: impl FnMut() -> Option<bool>) {
    for now in 0..120 {
        fake.now = now;
        // Observation hands over only what carries our key.
        world.facts.cloud.resources = fake.cloud.clone();
        'pass: loop {
            let plan = plan(world, at(now));
            if plan.steps.is_empty() {
                break;
            }
            for step in &plan.steps {
                let fate = dies();
                if fate == Some(false) {
                    break 'pass;
                }
                fake.carry_out(world, step);
                if fate == Some(true) {
                    break 'pass;
                }
            }
        }
        let servers: Vec<NovaServer> = fake.cloud.servers.values().map(|server| (**server).clone()).collect();
        for mut server in servers {
            if server.task_state.is_some() {
                fake.cloud.remove(crate::cloud::ResourceType::Server, &server.id);
            } else if server.status == "BUILD" {
                server.status = "ACTIVE".into();
                fake.cloud.insert(Resource::Server(Arc::new(server)));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    /// Whatever is lost, and wherever the process dies: in the end there is one of each, and after deletion nothing.
    #[test]
    fn any_sequence_of_losses_ends_in_the_same_world(losses in prop::collection::vec(prop::option::weighted(0.5, any::<bool>()), 0..40)) {
        let bare = json!({ "metadata": { "finalizers": null, "annotations": null } });
        let mut start = own(json!({}));
        merge(&mut start, &bare);
        let (mut world, mut fake) = (world_of(start, others()), Fake::default());
        let mut fates = losses.clone().into_iter();
        live(&mut world, &mut fake, || fates.next().flatten());
        prop_assert_eq!((fake.cloud.ports.len(), fake.cloud.servers.len()), (1, 1), "{:?}", fake.done);
        prop_assert_eq!(said(&plan(&world, at(300))), "done");
        prop_assert_eq!(world.object().finalizers(), [OPENSTACK_MACHINE_FINALIZER]);
        let mut world = changed(world, |own| own["metadata"]["deletionTimestamp"] = at(0).to_string().into());
        let mut fates = losses.into_iter();
        live(&mut world, &mut fake, || fates.next().flatten());
        prop_assert_eq!((fake.cloud.ports.len(), fake.cloud.servers.len()), (0, 0), "{:?}", fake.done);
        prop_assert!(world.object().finalizers().is_empty());
    }
}

#[test]
fn every_create_carries_the_key_of_this_machine() {
    let (mut world, mut fake) = (world(), Fake::default());
    world.objects.insert(shared(machine(json!({}))));
    for step in planned(&world).steps {
        let Step::Cloud { call: CloudCall::CreatePort(port), .. } = &step else { panic!("{step:?}") };
        assert!(port.description.as_deref().unwrap().ends_with("[hangar:c-uid/m-uid/port-0]"));
        fake.carry_out(&mut world, &step);
    }
    fake.pass(&mut world);
    assert_eq!(fake.done, ["create port m-0", "tag Port id-0001 blue", "create server m"]);
}

#[test]
fn om1_control_plane_machines_are_in_the_control_planes_group() {
    let planes = json!({ "status": { "controlPlaneSecurityGroup": { "id": "sg-planes", "name": "x" } } });
    for (labels, expected) in [(json!({}), "sg"), (json!({ "cluster.x-k8s.io/control-plane": "" }), "sg-planes")] {
        let machine = machine(json!({ "metadata": { "labels": labels } }));
        let others = vec![machine, of_cluster(), infra(planes.clone()), secret(owner(BOOT, "KubeadmConfig", "m"))];
        let world = world_of(own(json!({ "ports": [{}] })), others);
        let port = wanted::instance(&world).ports().remove(0);
        assert_eq!(port.create.security_groups, Some(vec![expected.to_owned()]), "{labels}");
    }
}
