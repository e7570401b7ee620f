use std::sync::Arc;

use hangar_openstack_types::{Address, Fault, Port, Server as NovaServer};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::OwnerKey;
use crate::cloud::{CloudCall, KEY_METADATA, PROJECT_ANNOTATION, Resource};
use crate::testing::{
    CORE, Fake, at, changed, cluster, condition, deleting, merge, object, owner, planned, said, shared,
};
use crate::{Step, plan};

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

fn facts() -> Facts {
    Facts {
        cloud: Cloud { project: "p".into(), ..Cloud::default() },
        user_data: Some(UserData("#cloud-config".into())),
        flavor: Lookup::Found("f".into()),
        image: Lookup::Found("img".into()),
        port_networks: vec![Lookup::Found("net".into())],
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
            lookup(|facts| facts.flavor = Lookup::Missing { wanted: "huge".into(), known: vec!["m1.small".into()] }),
            "blocked InvalidMachineSpec: spec.flavor huge matches no flavor; the cloud has m1.small",
        ),
        (
            "image",
            lookup(|facts| {
                facts.image = Lookup::Ambiguous { wanted: "x".into(), candidates: vec!["a".into(), "b".into()] }
            }),
            "blocked InvalidMachineSpec: spec.image.filter x matches 2 images (a, b); it must match exactly one",
        ),
        (
            "network",
            lookup(|facts| facts.port_networks = vec![Lookup::one("x".into(), vec![])]),
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
fn fields_that_are_not_honoured_yet_say_so() {
    let ports = |port: Value| json!({ "ports": [{ "network": { "id": "net" } }, port] });
    for (what, spec, expected) in [
        ("root volume", json!({ "rootVolume": { "sizeGiB": 10 } }), "volumes (spec.rootVolume) are not built yet"),
        (
            "block devices",
            json!({ "additionalBlockDevices": [{ "name": "a", "sizeGiB": 1, "storage": { "type": "Volume" } }] }),
            "volumes (spec.additionalBlockDevices) are not built yet",
        ),
        (
            "floating IP pool",
            json!({ "floatingIPPoolRef": { "name": "p", "kind": "X", "apiGroup": "y" } }),
            "floating IP pools (spec.floatingIPPoolRef) are not built yet",
        ),
        ("trunk", json!({ "trunk": true }), "trunks (spec.trunk) are not built yet"),
        (
            "image by reference",
            json!({ "image": { "id": null, "imageRef": { "name": "x" } } }),
            "images by reference (spec.image.imageRef) are not built yet",
        ),
        (
            "server group filter",
            json!({ "serverGroup": { "filter": { "name": "g" } } }),
            "server groups by filter (spec.serverGroup.filter) are not built yet",
        ),
        (
            "scheduler hints",
            json!({ "schedulerHintAdditionalProperties": [{ "name": "a", "value": { "type": "String", "string": "x" } }] }),
            "additional scheduler hints (spec.schedulerHintAdditionalProperties) are not built yet",
        ),
        (
            "security group filter",
            json!({ "securityGroups": [{ "filter": { "name": "g" } }] }),
            "security groups by filter (spec.securityGroups) are not built yet; name their ids",
        ),
        (
            "port profile",
            ports(json!({ "profile": { "ovsHWOffload": true } })),
            "port profiles (spec.ports[1].profile) are not built yet",
        ),
        (
            "value specs",
            ports(json!({ "valueSpecs": [{ "name": "a", "key": "b", "value": "c" }] })),
            "value specs (spec.ports[1].valueSpecs) are not built yet",
        ),
        ("port trunk", ports(json!({ "trunk": true })), "trunks (spec.ports[1].trunk) are not built yet"),
        (
            "port security group filter",
            ports(json!({ "securityGroups": [{ "filter": { "name": "g" } }] })),
            "security groups by filter (spec.ports[1].securityGroups) are not built yet; name their ids",
        ),
        (
            "fixed IP subnet filter",
            ports(json!({ "fixedIPs": [{ "subnet": { "filter": { "name": "s" } } }] })),
            "subnets by filter (spec.ports[1].fixedIPs) are not built yet; name their ids",
        ),
    ] {
        let plan = planned(&world_of(own(spec), others()));
        assert_eq!(said(&plan), format!("blocked NotBuiltYet: {expected}"), "{what}");
    }
    for (what, spec) in [
        ("false", json!({ "trunk": false })),
        ("empty", json!({ "additionalBlockDevices": [], "serverGroup": { "filter": {} } })),
    ] {
        assert_eq!(wanted::unsupported(&world_of(own(spec), others())), None, "{what}");
    }
}

#[test]
fn ports_have_what_the_spec_says_and_our_key() {
    let spec = json!({ "securityGroups": [{ "id": "mine" }], "ports": [
        { "network": { "id": "net" } },
        { "network": { "id": "net2" }, "nameSuffix": "extra", "description": "d", "disablePortSecurity": true, "adminStateUp": false, "macAddress": "m",
            "fixedIPs": [{ "subnet": { "id": "sub" }, "ipAddress": "10.0.0.5" }], "allowedAddressPairs": [{ "ipAddress": "10.0.0.6" }], "vnicType": "direct", "hostID": "h" },
        { "securityGroups": [{ "id": "own" }] },
    ] });
    let mut world = world_of(own(spec), others());
    world.facts.port_networks = vec![Lookup::Found("net".into()), Lookup::Found("net2".into()), Lookup::NotAsked];
    let ports = wanted::ports(&world);
    let find = |index: usize| OwnerKey::find_in(ports[index].create.description.as_deref().unwrap());
    assert_eq!(find(0), Some(OwnerKey::new("c-uid", "m-uid", "port-0")));
    assert_eq!(find(1), Some(OwnerKey::new("c-uid", "m-uid", "port-1")));
    let first = &ports[0].create;
    assert_eq!((first.name.as_str(), first.network_id.as_str()), ("m-0", "net"));
    assert_eq!(first.security_groups, Some(vec!["sg".to_owned(), "mine".into()]), "the cluster's and the machine's");
    let second = &ports[1].create;
    assert_eq!(
        (second.name.as_str(), second.network_id.as_str(), second.port_security_enabled),
        ("m-extra", "net2", Some(false))
    );
    assert_eq!(second.security_groups, Some(vec![]), "none without port security");
    assert!(second.description.as_deref().unwrap().starts_with("d [hangar:"));
    assert_eq!(second.fixed_ips.as_ref().unwrap()[0].subnet_id.as_deref(), Some("sub"));
    assert_eq!(
        (second.vnic_type.as_deref(), second.host_id.as_deref(), second.admin_state_up),
        (Some("direct"), Some("h"), Some(false))
    );
    let third = &ports[2].create;
    assert_eq!(
        (third.network_id.as_str(), third.security_groups.clone()),
        ("net", Some(vec!["own".to_owned(), "mine".into()])),
        "the cluster's network"
    );
    let none = world_of(own(json!({ "ports": null })), others());
    assert_eq!(wanted::ports(&none).len(), 1, "one on the cluster's network");
}

#[test]
fn the_server_has_what_the_spec_says_and_our_key() {
    let spec = json!({ "serverMetadata": [{ "key": "a", "value": "b" }], "tags": ["t"], "sshKeyName": "k", "configDrive": true, "serverGroup": { "id": "g" } });
    let world =
        with(world_of(own(spec), others()), vec![port("p0", "port-0", ""), port("foreign", "port-7", "")], vec![]);
    let server = wanted::server(&world);
    assert_eq!(server.metadata[KEY_METADATA], "[hangar:c-uid/m-uid/server]");
    assert_eq!(
        (server.metadata["a"].as_str(), server.name.as_str(), server.flavor_id.as_str(), server.image_id.as_str()),
        ("b", "m", "f", "img")
    );
    assert_eq!(
        (server.availability_zone.as_deref(), server.key_name.as_deref(), server.config_drive),
        (Some("nova"), Some("k"), Some(true))
    );
    assert_eq!(server.networks.iter().map(|network| network.port.as_deref().unwrap()).collect::<Vec<_>>(), ["p0"]);
    assert_eq!(server.scheduler_hints["group"], "g");
    assert_eq!(server.user_data.as_deref(), Some("I2Nsb3VkLWNvbmZpZw=="));
    assert!(!format!("{:?}", world.facts).contains("cloud-config"), "user-data is not shown");
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
