use std::sync::Arc;

use hangar_openstack_types::{Port, Volume};
use serde_json::json;

use super::*;
use crate::cloud::quota::{Counted, Needs};
use crate::cloud::{Resource, Resources};

fn spec(fields: Value) -> OpenStackMachineSpec {
    let mut spec = json!({ "flavor": "m1.small", "image": { "id": "img" } });
    crate::testing::merge(&mut spec, &fields);
    serde_json::from_value(spec).unwrap()
}

fn found(id: &str) -> Lookup {
    Lookup::Found(id.into())
}

fn instance<'a>(spec: &'a OpenStackMachineSpec, resolved: &'a Resolved) -> Instance<'a> {
    Instance {
        spec,
        resolved,
        name: "m",
        cluster_name: "c",
        cluster_uid: "c-uid",
        object_uid: "m-uid",
        zone: "nova",
        network_id: "net",
        subnet_ids: vec!["sub-a"],
        managed_group: "sg",
        tags: vec!["of-cluster".into()],
        user_data: Some("#cloud-config"),
        note: None,
    }
}

fn ports(fields: Value, resolved: &Resolved) -> Vec<WantedPort> {
    instance(&spec(fields), resolved).ports()
}

#[test]
fn om1_ports_have_what_the_spec_says_and_our_key() {
    let resolved = Resolved {
        security_groups: vec![found("mine")],
        ports: vec![
            ResolvedPort::default(),
            ResolvedPort { network: found("net2"), subnets: vec![found("sub")], ..ResolvedPort::default() },
            ResolvedPort { security_groups: vec![found("own")], ..ResolvedPort::default() },
        ],
        ..Resolved::default()
    };
    let ports = ports(
        json!({ "tags": ["t"], "ports": [
            {},
            { "network": { "id": "net2" }, "nameSuffix": "extra", "description": "d", "disablePortSecurity": true, "adminStateUp": false, "macAddress": "m",
                "fixedIPs": [{ "subnet": { "id": "sub" }, "ipAddress": "10.0.0.5" }], "allowedAddressPairs": [{ "ipAddress": "10.0.0.6" }], "vnicType": "direct", "hostID": "h" },
            { "tags": ["blue", "t"], "securityGroups": [{ "filter": { "name": "own" } }] },
        ] }),
        &resolved,
    );
    for (index, port) in ports.iter().enumerate() {
        let key = OwnerKey::find_in(port.create.description.as_deref().unwrap());
        assert_eq!(key, Some(OwnerKey::new("c-uid", "m-uid", &format!("port-{index}"))));
    }
    let first = &ports[0].create;
    assert_eq!((first.name.as_str(), first.network_id.as_str()), ("m-0", "net"), "the cluster's network");
    assert_eq!(first.security_groups, Some(vec!["sg".to_owned(), "mine".into()]), "the cluster's and the machine's");
    assert_eq!(first.fixed_ips.as_ref().unwrap()[0].subnet_id.as_deref(), Some("sub-a"), "the cluster's subnet");
    let second = &ports[1].create;
    assert_eq!((second.name.as_str(), second.network_id.as_str()), ("m-extra", "net2"));
    assert_eq!((second.port_security_enabled, &second.security_groups), (Some(false), &Some(vec![])));
    assert!(second.description.as_deref().unwrap().starts_with("d [hangar:"));
    let address = &second.fixed_ips.as_ref().unwrap()[0];
    assert_eq!((address.subnet_id.as_deref(), address.ip_address.as_deref()), (Some("sub"), Some("10.0.0.5")));
    assert_eq!((second.vnic_type.as_deref(), second.host_id.as_deref()), (Some("direct"), Some("h")));
    assert_eq!((second.admin_state_up, second.mac_address.as_deref()), (Some(false), Some("m")));
    let third = &ports[2];
    assert_eq!(
        third.create.security_groups,
        Some(vec!["own".to_owned(), "mine".into()]),
        "its own instead of the cluster's"
    );
    assert_eq!(third.tags, ["t", "of-cluster", "blue"], "each once");
}

#[test]
fn a_machine_without_ports_has_one_on_the_clusters_network() {
    let ports = ports(json!({ "ports": [] }), &Resolved::default());
    assert_eq!(ports.len(), 1);
    assert_eq!(ports[0].create.network_id, "net");
}

#[test]
fn the_drivers_profile_and_attributes_of_the_cloud_reach_the_call() {
    let ports = ports(
        json!({ "ports": [{ "profile": { "ovsHWOffload": true, "trustedVF": true },
            "valueSpecs": [{ "name": "a", "key": "qos:policy", "value": "gold" }] }, { "profile": { "trustedVF": false } }] }),
        &Resolved::default(),
    );
    let call = |index: usize| serde_json::to_value(&ports[index].create).unwrap();
    assert_eq!(call(0)["binding:profile"], json!({ "capabilities": ["switchdev"], "trusted": true }));
    assert_eq!(call(0)["qos:policy"], "gold");
    assert_eq!(call(1)["binding:profile"], Value::Null);
}

#[test]
fn the_server_has_what_the_spec_says_and_our_key() {
    let spec = spec(json!({
        "serverMetadata": [{ "key": "a", "value": "b" }], "tags": ["t"], "sshKeyName": "k", "configDrive": true,
        "schedulerHintAdditionalProperties": [
            { "name": "query", "value": { "type": "String", "string": "x" } }, { "name": "near", "value": { "type": "Number", "number": 3 } },
            { "name": "strict", "value": { "type": "Bool", "bool": true } }, { "name": "group", "value": { "type": "String", "string": "another" } },
        ],
    }));
    let resolved =
        Resolved { flavor: found("f"), image: found("img"), server_group: found("g"), ..Resolved::default() };
    let mut there = Resources::default();
    for (id, role) in [("p0", "port-0"), ("foreign", "port-7")] {
        let description = OwnerKey::new("c-uid", "m-uid", role).describe("x");
        there.insert(Resource::Port(Arc::new(Port { id: id.into(), description, ..Port::default() })));
    }
    let server = instance(&spec, &resolved).server(&there);
    assert_eq!(server.metadata[KEY_METADATA], "[hangar:c-uid/m-uid/server]");
    assert_eq!((server.metadata["a"].as_str(), server.name.as_str()), ("b", "m"));
    assert_eq!((server.flavor_id.as_str(), server.image_id.as_str()), ("f", "img"));
    assert_eq!((server.availability_zone.as_deref(), server.key_name.as_deref()), (Some("nova"), Some("k")));
    assert_eq!((server.config_drive, server.tags.as_slice()), (Some(true), &["t".to_owned(), "of-cluster".into()][..]));
    assert_eq!(server.networks.iter().map(|network| network.port.as_deref().unwrap()).collect::<Vec<_>>(), ["p0"]);
    assert_eq!(json!(server.scheduler_hints), json!({ "query": "x", "near": 3, "strict": true, "group": "g" }));
    assert_eq!(server.user_data.as_deref(), Some("I2Nsb3VkLWNvbmZpZw=="));
}

#[test]
fn om1_what_would_replace_our_key_is_refused() {
    for (what, fields, expected) in [
        (
            "value spec",
            json!({ "ports": [{}, { "valueSpecs": [{ "name": "a", "key": "description", "value": "x" }] }] }),
            Some("spec.ports[1].valueSpecs must not set description: the port has a field for it"),
        ),
        (
            "metadata",
            json!({ "serverMetadata": [{ "key": "hangar-key", "value": "[hangar:a/b/server]" }] }),
            Some("spec.serverMetadata must not set hangar-key: Hangar finds its servers by it"),
        ),
        (
            "others",
            json!({ "serverMetadata": [{ "key": "a", "value": "b" }], "ports": [{ "valueSpecs": [{ "name": "a", "key": "b", "value": "c" }] }] }),
            None,
        ),
    ] {
        assert_eq!(invalid(&spec(fields), "spec").as_deref(), expected, "{what}");
    }
}

#[test]
fn om4_names_that_match_nothing_or_too_much_are_named_with_their_place() {
    let ambiguous = || Lookup::Ambiguous { wanted: "x".into(), candidates: vec!["a".into(), "b".into()] };
    let port = |change: fn(&mut ResolvedPort, Lookup)| {
        let mut second = ResolvedPort::default();
        change(&mut second, ambiguous());
        Resolved { ports: vec![ResolvedPort::default(), second], ..Resolved::default() }
    };
    for (resolved, expected) in [
        (Resolved::default(), None),
        (Resolved { flavor: ambiguous(), ..Resolved::default() }, Some("spec.flavor x matches 2 flavors")),
        (
            Resolved { server_group: ambiguous(), ..Resolved::default() },
            Some("spec.serverGroup.filter x matches 2 server groups"),
        ),
        (
            Resolved { security_groups: vec![found("a"), ambiguous()], ..Resolved::default() },
            Some("spec.securityGroups[1].filter x matches 2 security groups"),
        ),
        (port(|port, it| port.network = it), Some("spec.ports[1].network.filter x matches 2 networks")),
        (port(|port, it| port.subnets = vec![it]), Some("spec.ports[1].fixedIPs[0].subnet.filter x matches 2 subnets")),
        (
            port(|port, it| port.security_groups = vec![it]),
            Some("spec.ports[1].securityGroups[0].filter x matches 2 security groups"),
        ),
    ] {
        let expected = expected.map(|text| format!("{text} (a, b); it must match exactly one"));
        assert_eq!(resolved.problem("spec"), expected);
    }
}

#[test]
fn om2_disks_are_volumes_with_our_key_or_local() {
    let spec = spec(json!({
        "rootVolume": { "sizeGiB": 20, "type": "fast", "availabilityZone": { "from": "Machine" } },
        "additionalBlockDevices": [
            { "name": "etcd", "sizeGiB": 5, "storage": { "type": "Volume", "volume": { "availabilityZone": { "from": "Name", "name": "cinder" } } } },
            { "name": "scratch", "sizeGiB": 7, "storage": { "type": "Local" } },
        ],
    }));
    let resolved = Resolved { flavor: found("f"), image: found("img"), ..Resolved::default() };
    let instance = instance(&spec, &resolved);
    let wanted = instance.volumes();
    assert_eq!(wanted.len(), 2, "local disks are no volumes");
    let (root, etcd) = (&wanted[0].create, &wanted[1].create);
    assert_eq!((root.name.as_str(), root.size, root.image_id.as_deref()), ("m-root", 20, Some("img")));
    assert_eq!((root.volume_type.as_deref(), root.availability_zone.as_deref()), (Some("fast"), Some("nova")));
    assert_eq!((etcd.name.as_str(), etcd.image_id.as_deref(), etcd.volume_type.as_deref()), ("m-etcd", None, None));
    assert_eq!(etcd.availability_zone.as_deref(), Some("cinder"));
    assert_eq!(etcd.metadata[KEY_METADATA], "[hangar:c-uid/m-uid/volume-etcd]");

    let mut there = Resources::default();
    for (id, volume) in [("v-root", root), ("v-etcd", etcd)] {
        let metadata = volume.metadata.clone();
        there.insert(Resource::Volume(Arc::new(Volume { id: id.into(), metadata, ..Volume::default() })));
    }
    let server = instance.server(&there);
    assert_eq!(server.image_id, "", "it boots from its volume");
    assert_eq!(
        json!(server.block_device_mapping_v2),
        json!([
            { "boot_index": 0, "source_type": "volume", "destination_type": "volume", "uuid": "v-root", "delete_on_termination": true },
            { "boot_index": -1, "source_type": "volume", "destination_type": "volume", "uuid": "v-etcd", "delete_on_termination": true, "tag": "etcd" },
            { "boot_index": -1, "source_type": "blank", "destination_type": "local", "volume_size": 7, "delete_on_termination": true, "tag": "scratch" },
        ])
    );
}

#[test]
fn a_server_from_an_image_names_it_only_if_it_has_other_disks() {
    let resolved = Resolved { image: found("img"), ..Resolved::default() };
    let plain = spec(json!({}));
    assert_eq!(instance(&plain, &resolved).server(&Resources::default()).block_device_mapping_v2, vec![]);
    let more =
        spec(json!({ "additionalBlockDevices": [{ "name": "a", "sizeGiB": 1, "storage": { "type": "Local" } }] }));
    let server = instance(&more, &resolved).server(&Resources::default());
    assert_eq!((server.image_id.as_str(), server.block_device_mapping_v2[0].uuid.as_deref()), ("img", Some("img")));
}

#[test]
fn om3_trunks_are_on_the_ports_that_want_one() {
    for (what, fields, expected) in [
        ("none", json!({ "ports": [{}, {}] }), vec![]),
        (
            "all but one",
            json!({ "trunk": true, "ports": [{}, { "trunk": false }, { "nameSuffix": "x" }] }),
            vec!["trunk-0 port-0 m-0", "trunk-2 port-2 m-x"],
        ),
        ("one", json!({ "ports": [{}, { "trunk": true }] }), vec!["trunk-1 port-1 m-1"]),
        ("without ports", json!({ "trunk": true }), vec!["trunk-0 port-0 m-0"]),
    ] {
        let trunks = instance(&spec(fields), &Resolved::default()).trunks();
        let said: Vec<String> = trunks.iter().map(|it| format!("{} {} {}", it.role, it.port, it.name)).collect();
        assert_eq!(said, expected, "{what}");
        assert!(trunks.iter().all(|it| OwnerKey::find_in(&it.description).unwrap().role == it.role));
    }
}

#[test]
fn oc19_what_a_server_needs_of_the_quota_is_what_is_not_there_yet() {
    let spec = spec(json!({
        "ports": [{}, {}], "rootVolume": { "sizeGiB": 20 },
        "additionalBlockDevices": [
            { "name": "a", "sizeGiB": 5, "storage": { "type": "Volume" } }, { "name": "b", "sizeGiB": 7, "storage": { "type": "Local" } },
        ],
    }));
    let resolved = Resolved { size: Some(Size { cores: 2, memory_mib: 4096 }), ..Resolved::default() };
    let instance = instance(&spec, &resolved);
    let mut there = Resources::default();
    let all = [
        (Counted::Servers, 1),
        (Counted::Cores, 2),
        (Counted::Memory, 4096),
        (Counted::Ports, 2),
        (Counted::Volumes, 2),
        (Counted::Gigabytes, 25),
    ];
    assert_eq!(instance.needs(&there), Needs::from(all));
    let description = OwnerKey::new("c-uid", "m-uid", "port-1").describe("x");
    there.insert(Resource::Port(Arc::new(Port { id: "p".into(), description, ..Port::default() })));
    let metadata = [(KEY_METADATA.to_owned(), OwnerKey::new("c-uid", "m-uid", "volume-root").to_string())].into();
    there.insert(Resource::Volume(Arc::new(Volume { id: "v".into(), metadata, ..Volume::default() })));
    let left = instance.needs(&there);
    assert_eq!((left.of(Counted::Ports), left.of(Counted::Volumes), left.of(Counted::Gigabytes)), (1, 1, 5));
    let metadata = [(KEY_METADATA.to_owned(), OwnerKey::new("c-uid", "m-uid", "server").to_string())].into();
    let server = hangar_openstack_types::Server { id: "s".into(), metadata, ..Default::default() };
    there.insert(Resource::Server(Arc::new(server)));
    assert!(instance.needs(&there).is_empty(), "what a server has lost is not made anew");
}
