//! Resources, ports and servers, apart from the kinds that have them.

use std::sync::Arc;

use hangar_openstack_types::{CreatePort, CreateServer, Port, Server};
use jiff::Timestamp;

use super::ports::{Ports, WantedPort};
use super::*;
use crate::owner_key::OwnerKey;
use crate::planner::Part;
use crate::testing::{at, step};

pub fn described(phase: Phase) -> String {
    match phase {
        Phase::Done => "done".into(),
        Phase::Steps(steps) => steps.iter().map(step).collect::<Vec<_>>().join("; "),
        Phase::Wait(reason) => format!("wait {}: {}", reason.code, reason.message),
        Phase::Blocked(reason) => format!("blocked {}: {}", reason.code, reason.message),
    }
}

fn port(id: &str, role: &str, created: i64, device: &str) -> Resource {
    let description = OwnerKey::new("c", "o", role).describe("x");
    Resource::Port(Arc::new(Port {
        id: id.into(),
        description,
        created_at: Some(at(created).to_string()),
        device_id: device.into(),
        ..Port::default()
    }))
}

fn server(id: &str, created: i64, status: &str, task: Option<&str>) -> Resource {
    let metadata = [(KEY_METADATA.to_owned(), OwnerKey::new("c", "o", server::ROLE).to_string())].into();
    Resource::Server(Arc::new(Server {
        id: id.into(),
        name: "s".into(),
        metadata,
        status: status.into(),
        // A server of which only the answer to its create is known has no time.
        created: if created < 0 { String::new() } else { at(created).to_string() },
        task_state: task.map(str::to_owned),
        ..Server::default()
    }))
}

pub fn cloud(resources: Vec<Resource>) -> Cloud {
    let mut cloud = Cloud::default();
    resources.into_iter().for_each(|resource| cloud.resources.insert(resource));
    cloud
}

#[test]
fn of_several_resources_with_one_role_the_oldest_counts() {
    let cloud = cloud(vec![
        port("b", "port-0", 5, ""),
        port("a", "port-0", 7, ""),
        port("c", "port-1", 1, ""),
        port("d", "port-0", 5, ""),
    ]);
    assert_eq!(
        oldest(&cloud.resources.ports, "port-0").map(|port| port.id.as_str()),
        Some("b"),
        "ids tell apart what came in the same second"
    );
    assert_eq!(oldest(&cloud.resources.ports, "port-9"), None);
    let foreign = Port { id: "x".into(), description: "somebody's".into(), ..Port::default() };
    assert_eq!(foreign.owner_key(), None);
}

#[test]
fn an_answer_says_this_is_it_or_it_is_gone() {
    let mut cloud = Cloud::default();
    cloud.absorb(&Effect::Cloud(CloudAnswer::Is(port("a", "port-0", 0, ""))));
    assert_eq!(cloud.resources.ports.len(), 1);
    cloud.absorb(&Effect::Cloud(CloudAnswer::Is(port("a", "port-0", 0, "s"))));
    assert_eq!((cloud.resources.ports.len(), cloud.resources.ports["a"].device_id.as_str()), (1, "s"));
    for of in [ResourceType::Server, ResourceType::SecurityGroup, ResourceType::Port] {
        cloud.absorb(&Effect::Cloud(CloudAnswer::Gone(of, "a".into())));
        assert_eq!(cloud.resources.ports.is_empty(), of == ResourceType::Port);
    }
}

#[test]
fn surplus_ports_go_missing_ones_are_made_and_then_tagged() {
    let wanted = || {
        ["port-0", "port-1"]
            .map(|role| WantedPort {
                role: role.into(),
                create: CreatePort { name: role.into(), ..CreatePort::default() },
                tags: vec!["blue".into()],
            })
            .to_vec()
    };
    for (what, present, status, expected) in [
        ("none", vec![], None, "create port port-0; create port port-1"),
        ("one", vec![port("a", "port-0", 0, "")], None, "create port port-1"),
        ("all", vec![port("a", "port-0", 0, ""), port("b", "port-1", 0, "")], None, "tag Port a blue; tag Port b blue"),
        (
            "a twin, and one that nobody wants",
            vec![port("a", "port-0", 0, ""), port("a2", "port-0", 1, ""), port("z", "port-7", 0, "")],
            None,
            "delete Port a2; delete Port z",
        ),
        (
            "what is attached is never taken away",
            vec![port("a", "port-0", 0, "s"), port("z", "port-7", 0, "s"), port("b", "port-1", 0, "s")],
            Some("ACTIVE"),
            "tag Port a blue; tag Port b blue",
        ),
        (
            "the server has the younger twin",
            vec![port("a", "port-0", 0, ""), port("a2", "port-0", 1, "s"), port("b", "port-1", 0, "s")],
            Some("ACTIVE"),
            "delete Port a",
        ),
        (
            "another server, which goes, has the older twin",
            vec![port("a", "port-0", 0, "t"), port("a2", "port-0", 1, "s"), port("b", "port-1", 0, "s")],
            Some("ACTIVE"),
            "tag Port a2 blue; tag Port b blue",
        ),
        (
            "a server may take either twin while it is built",
            vec![port("a", "port-0", 0, ""), port("a2", "port-0", 1, ""), port("b", "port-1", 0, "s")],
            Some("BUILD"),
            "tag Port a blue; tag Port b blue",
        ),
        (
            "a port of a server was deleted",
            vec![port("a", "port-0", 0, "s")],
            Some("ACTIVE"),
            "blocked PortDeleted: port port-1 of server s was deleted in the cloud; delete the Machine to have it replaced",
        ),
    ] {
        let cloud = cloud(present);
        let server = status.map(|status| Server {
            id: "s".into(),
            name: "s".into(),
            status: str::to_owned(status),
            ..Server::default()
        });
        let ports = Ports { cloud: &cloud, server: server.as_ref(), wanted: wanted() };
        assert_eq!(described(ports.build(Timestamp::UNIX_EPOCH)), expected, "{what}");
    }
    let cloud = cloud(vec![port("a", "port-0", 0, ""), port("z", "port-7", 0, "s")]);
    let ports = Ports { cloud: &cloud, server: None, wanted: vec![] };
    assert_eq!(described(ports.delete(Timestamp::UNIX_EPOCH)), "delete Port a; delete Port z");
}

#[test]
fn a_server_is_made_once_and_never_anew_when_it_was_in_use() {
    for (what, present, was_ready, now, expected) in [
        ("none", vec![], false, 0, "create server s"),
        (
            "it was there",
            vec![],
            true,
            0,
            "blocked InstanceDeleted: its server was deleted in the cloud; delete the Machine to have it replaced",
        ),
        ("building", vec![server("a", 0, "BUILD", None)], false, 0, "wait InstanceNotReady: server s is being built"),
        ("active", vec![server("a", 0, "ACTIVE", None)], false, 0, "done"),
        ("twins", vec![server("b", 1, "ACTIVE", None), server("a", 0, "BUILD", None)], false, 0, "delete Server b"),
        (
            "a twin, and the cloud has not said yet which is older",
            vec![server("b", 1, "ACTIVE", None), server("a", -1, "BUILD", None)],
            false,
            0,
            "wait InstanceNotReady: waiting for the cloud to say which server s is the older one",
        ),
        (
            "only the answer to the create",
            vec![server("a", -1, "BUILD", None)],
            false,
            0,
            "wait InstanceNotReady: server s is being built",
        ),
        (
            "a twin that goes already",
            vec![server("b", 1, "ACTIVE", Some("deleting")), server("a", 0, "ACTIVE", None)],
            false,
            0,
            "done",
        ),
        (
            "failed",
            vec![server("a", 0, "ERROR", None)],
            false,
            5,
            "blocked InstanceStateError: server s failed: the cloud gave no reason; it will be replaced",
        ),
        ("failed for a while", vec![server("a", 0, "ERROR", None)], false, 30, "delete Server a"),
        (
            "failed after it ran",
            vec![server("a", 0, "ERROR", None)],
            true,
            30,
            "blocked InstanceStateError: server s failed: the cloud gave no reason",
        ),
        (
            "stopped",
            vec![server("a", 0, "SHUTOFF", None)],
            true,
            0,
            "blocked InstanceNotReady: server s is SHUTOFF; start it",
        ),
        (
            "going",
            vec![server("a", 0, "ERROR", Some("deleting"))],
            false,
            90,
            "wait WaitingForServerDeletion: waiting for server s to be deleted",
        ),
    ] {
        let cloud = cloud(present);
        let part = server::Server {
            cloud: &cloud,
            was_ready,
            wanted_since: None,
            create: || CreateServer { name: "s".into(), ..CreateServer::default() },
        };
        assert_eq!(described(part.build(at(now))), expected, "{what}");
    }
}

#[test]
fn a_server_is_gone_when_the_cloud_no_longer_shows_it() {
    for (what, present, expected) in [
        ("none", vec![], "done"),
        (
            "twins",
            vec![server("a", 0, "ACTIVE", None), server("b", 1, "ERROR", None)],
            "delete Server a; delete Server b",
        ),
        (
            "going",
            vec![server("a", 0, "ACTIVE", Some("deleting"))],
            "wait WaitingForServerDeletion: waiting for server s to be deleted",
        ),
        (
            "DELETED",
            vec![server("a", 0, "DELETED", None)],
            "wait WaitingForServerDeletion: waiting for server s to be deleted",
        ),
    ] {
        let cloud = cloud(present);
        let part = server::Server { cloud: &cloud, was_ready: true, wanted_since: None, create: CreateServer::default };
        assert_eq!(described(part.delete(at(0))), expected, "{what}");
    }
}

#[test]
fn a_lookup_must_match_exactly_one() {
    let names = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
    for (found, expected) in [
        (names(1), None),
        (names(0), Some("spec.x w matches no thing; it must match exactly one".to_owned())),
        (names(2), Some("spec.x w matches 2 things (0, 1); it must match exactly one".into())),
        (names(9), Some("spec.x w matches 9 things (0, 1, 2, 3, 4, 5, 6, 7, ...); it must match exactly one".into())),
    ] {
        assert_eq!(Lookup::one("w".into(), found.clone()).problem("spec.x", "thing"), expected, "{found:?}");
    }
}

#[test]
fn an_identity_is_read_from_its_reference() {
    let reference = serde_json::json!({ "name": "creds", "cloudName": "openstack", "region": "" });
    let identity = CloudIdentity::of("n", &reference);
    assert_eq!(
        (identity.namespace.as_str(), identity.name.as_str(), identity.cloud.as_str(), identity.region),
        ("n", "creds", "openstack", None)
    );
}

#[test]
fn every_sort_of_resource_says_whose_it_is_and_comes_and_goes() {
    use hangar_openstack_types::{
        CreateFloatingIp, CreateLoadBalancer, CreateNetwork, CreatePort, CreateRouter, CreateSecurityGroup,
        CreateSubnet, CreateTrunk, CreateVolume,
    };
    let key = OwnerKey::new("c", "o", "r");
    let (description, metadata) = (Some(key.describe("x")), [(KEY_METADATA.to_owned(), key.to_string())]);
    let metadata: std::collections::BTreeMap<_, _> = metadata.into();
    let calls = [
        CloudCall::CreateServer(Box::new(CreateServer { metadata: metadata.clone(), ..CreateServer::default() })),
        CloudCall::CreatePort(Box::new(CreatePort { description: description.clone(), ..CreatePort::default() })),
        CloudCall::CreateSecurityGroup(CreateSecurityGroup {
            description: description.clone(),
            ..CreateSecurityGroup::default()
        }),
        CloudCall::CreateNetwork(Box::new(CreateNetwork {
            description: description.clone(),
            ..CreateNetwork::default()
        })),
        CloudCall::CreateSubnet(Box::new(CreateSubnet { description: description.clone(), ..CreateSubnet::default() })),
        CloudCall::CreateRouter(Box::new(CreateRouter { description: description.clone(), ..CreateRouter::default() })),
        CloudCall::CreateFloatingIp(Box::new(CreateFloatingIp {
            description: description.clone(),
            ..CreateFloatingIp::default()
        })),
        CloudCall::CreateLoadBalancer(Box::new(CreateLoadBalancer {
            description: description.clone(),
            ..CreateLoadBalancer::default()
        })),
        CloudCall::CreateVolume(Box::new(CreateVolume { metadata, ..CreateVolume::default() })),
        CloudCall::CreateTrunk(Box::new(CreateTrunk { description, ..CreateTrunk::default() })),
    ];
    let (mut there, mut next) = (Resources::default(), 0);
    for call in &calls {
        crate::testing::cloud::settle(&mut there);
        let mut ids = || {
            next += 1;
            format!("id-{next}")
        };
        let mut seen = Cloud::default();
        let answer = crate::testing::cloud::called(&mut there, call, at(0), &mut ids);
        seen.absorb(&Effect::Cloud(answer.clone()));
        assert_eq!(seen.resources.of_roles(|role| role == "r"), seen.resources, "{call:?}");
        assert_eq!(seen.resources.of_roles(|role| role != "r"), Resources::default(), "{call:?}");
        assert_ne!(seen.resources, Resources::default(), "{call:?}");
        let CloudAnswer::Is(resource) = answer else { panic!("{call:?}") };
        let (of, id) = resource.place();
        seen.absorb(&Effect::Cloud(CloudAnswer::Gone(of, id.to_owned())));
        assert_eq!(seen.resources, Resources::default(), "{call:?}");
    }
}

#[test]
fn capo_2618_a_server_that_is_kept_for_a_while_after_its_deletion_is_gone() {
    let server = |status: &str, vm_state: Option<&str>| hangar_openstack_types::Server {
        status: status.into(),
        vm_state: vm_state.map(str::to_owned),
        ..Default::default()
    };
    assert!(crate::cloud::server::is_gone(&server("SOFT_DELETED", None)));
    assert!(crate::cloud::server::is_gone(&server("DELETED", Some("soft-delete"))));
    assert!(!crate::cloud::server::is_gone(&server("ACTIVE", Some("active"))));
}
