//! What a new cloud has: one project with a network, images and flavors, always with the same ids.

use hangar_openstack::wire::{
    AllocationPool, AvailabilityZone, FixedIp, Flavor, Image, KeyPair, Network, Port, Subnet, ZoneState,
};
use serde_json::json;

use crate::security_group;
use crate::state::{Ids, OwnedKeyPair, Project, Router, State, User};

pub const REGION: &str = "RegionOne";
pub const DOMAIN: &str = "default";
pub const PROJECT: &str = "demo";
pub const PROJECT_ID: &str = "5f2b0c1de6a84b3c9d7e1f0a2b4c6d8e";
pub const USER: &str = "demo";
pub const USER_ID: &str = "0c9a7b5d3e1f42608a6c4e2d0b9f7a51";
pub const PASSWORD: &str = "hangar-demo";
pub const PUBLIC_NETWORK: &str = "public";
pub const PUBLIC_NETWORK_ID: &str = "b1a5e0f2-6c3d-4e8a-9f70-1d2c3b4a5e61";
pub const PUBLIC_SUBNET_ID: &str = "c2b6f1a3-7d4e-4f9b-8a81-2e3d4c5b6f72";
pub const NETWORK: &str = "demo-net";
pub const NETWORK_ID: &str = "d3c7a2b4-8e5f-4a0c-9b92-3f4e5d6c7a83";
pub const SUBNET: &str = "demo-subnet";
pub const SUBNET_ID: &str = "e4d8b3c5-9f60-4b1d-8ca3-4a5f6e7d8b94";
pub const ROUTER_ID: &str = "f5e9c4d6-a071-4c2e-9db4-5b6a7f8e9ca5";
pub const ROUTER_PORT_ID: &str = "a6fad5e7-b182-4d3f-8ec5-6c7b8a9fadb6";
pub const DEFAULT_GROUP_ID: &str = "b70be6f8-c293-4e40-9fd6-7d8c9bafbec7";
pub const KEY_PAIR: &str = "demo";
pub const ZONE: &str = "nova";
/// (name, id, Kubernetes version)
pub const IMAGES: [(&str, &str, &str); 2] = [
    ("ubuntu-2204-kube-v1.28.10", "c81cf709-d3a4-4f51-8ae7-8e9daca0cfd8", "v1.28.10"),
    ("ubuntu-2204-kube-v1.34.4", "d92da81a-e4b5-4062-9bf8-9faebdb1dae9", "v1.34.4"),
];
/// (name, id, cores, MiB of memory, GiB of disk)
pub const FLAVORS: [(&str, &str, u32, u64, u64); 3] = [
    ("m1.small", "ea3eb92b-f5c6-4173-8c09-a0bfcec2ebfa", 1, 2048, 20),
    ("m1.medium", "fb4fca3c-06d7-4284-9d1a-b1c0dfd3fc0b", 2, 4096, 40),
    ("m1.large", "0c50db4d-17e8-4395-8e2b-c2d1e0e40d1c", 4, 8192, 80),
];
/// Of nobody: the key that it names was thrown away.
const PUBLIC_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFqNfQ0V2R0Z9o8m3xkD1YJ6sUe7tPq4LwXb5cHn2aKd demo";
const SINCE: &str = "2026-01-01T00:00:00Z";

pub(crate) fn state() -> State {
    let mut state = State {
        projects: vec![Project { id: PROJECT_ID.into(), name: PROJECT.into() }],
        users: vec![User {
            id: USER_ID.into(),
            name: USER.into(),
            password: PASSWORD.into(),
            application_credentials: vec![],
            project_id: PROJECT_ID.into(),
        }],
        zones: vec![AvailabilityZone { name: ZONE.into(), state: ZoneState { available: true } }],
        key_pairs: vec![OwnedKeyPair {
            user_id: USER_ID.into(),
            key_pair: KeyPair {
                name: KEY_PAIR.into(),
                kind: "ssh".into(),
                public_key: PUBLIC_KEY.into(),
                fingerprint: "7e:4b:42:5f:2a:1c:9d:d0:6b:33:8f:51:c4:e8:a7:19".into(),
            },
        }],
        ..State::default()
    };
    images_and_flavors(&mut state);
    networks(&mut state);
    let group = security_group::default_group(&mut Ids(Some(0)), DEFAULT_GROUP_ID, PROJECT_ID, SINCE);
    state.security_groups.insert(group.id.clone(), group);
    state.starter =
        [PUBLIC_NETWORK_ID, PUBLIC_SUBNET_ID, NETWORK_ID, SUBNET_ID, ROUTER_ID, ROUTER_PORT_ID, DEFAULT_GROUP_ID]
            .map(str::to_owned)
            .to_vec();
    state
}

fn images_and_flavors(state: &mut State) {
    for (name, id, version) in IMAGES {
        let mut image = Image {
            id: id.into(),
            name: name.into(),
            status: "active".into(),
            visibility: "public".into(),
            size: Some(1 << 31),
            disk_format: Some("qcow2".into()),
            container_format: Some("bare".into()),
            created_at: SINCE.into(),
            updated_at: SINCE.into(),
            ..Image::default()
        };
        image.properties.insert("kube_version".into(), version.into());
        image.properties.insert("os_distro".into(), "ubuntu".into());
        state.images.insert(id.into(), image);
    }
    for (name, id, vcpus, ram, disk) in FLAVORS {
        let flavor = Flavor { id: id.into(), name: name.into(), vcpus, ram, disk, ephemeral: 0, is_public: true };
        state.flavors.insert(id.into(), flavor);
    }
}

fn networks(state: &mut State) {
    let mut add = |network: (&str, &str, bool), subnet: (&str, &str), cidr: &str, prefix: &str, owner: &str| {
        let (name, id, external) = network;
        state.networks.insert(
            id.into(),
            Network {
                id: id.into(),
                name: name.into(),
                status: "ACTIVE".into(),
                admin_state_up: true,
                external,
                subnets: vec![subnet.1.into()],
                mtu: Some(1450),
                port_security_enabled: Some(true),
                project_id: owner.into(),
                tenant_id: owner.into(),
                created_at: Some(SINCE.into()),
                ..Network::default()
            },
        );
        state.subnets.insert(
            subnet.1.into(),
            Subnet {
                id: subnet.1.into(),
                name: subnet.0.into(),
                network_id: id.into(),
                ip_version: 4,
                cidr: cidr.into(),
                gateway_ip: Some(format!("{prefix}.1")),
                allocation_pools: vec![AllocationPool { start: format!("{prefix}.2"), end: format!("{prefix}.254") }],
                enable_dhcp: !external,
                project_id: owner.into(),
                tenant_id: owner.into(),
                created_at: Some(SINCE.into()),
                ..Subnet::default()
            },
        );
    };
    add(
        (PUBLIC_NETWORK, PUBLIC_NETWORK_ID, true),
        ("public-subnet", PUBLIC_SUBNET_ID),
        "172.24.4.0/24",
        "172.24.4",
        "",
    );
    add((NETWORK, NETWORK_ID, false), (SUBNET, SUBNET_ID), "10.6.0.0/24", "10.6.0", PROJECT_ID);
    state.routers.insert(
        ROUTER_ID.into(),
        Router {
            id: ROUTER_ID.into(),
            name: "demo-router".into(),
            status: "ACTIVE".into(),
            project_id: PROJECT_ID.into(),
            tenant_id: PROJECT_ID.into(),
            admin_state_up: true,
            external_gateway_info: json!({"network_id": PUBLIC_NETWORK_ID, "enable_snat": true,
                "external_fixed_ips": [{"subnet_id": PUBLIC_SUBNET_ID, "ip_address": "172.24.4.2"}]}),
            tags: vec![],
        },
    );
    state.ports.insert(ROUTER_PORT_ID.into(), router_port());
    state.last_mac = 1;
}

/// A network of the demo project with one IPv4 subnet, for more servers than the starter's has addresses for.
pub(crate) fn add_network(state: &mut State, ids: &mut Ids, name: &str, cidr: ipnet::Ipv4Net) -> String {
    let (id, subnet_id) = (ids.text(), ids.text());
    let mut hosts = cidr.hosts();
    let gateway_ip = hosts.next().map(|first| first.to_string());
    let pool = hosts
        .next()
        .map(|start| AllocationPool { start: start.to_string(), end: hosts.next_back().unwrap_or(start).to_string() });
    let owner = || PROJECT_ID.to_owned();
    let subnet = Subnet {
        id: subnet_id.clone(),
        name: name.to_owned(),
        network_id: id.clone(),
        ip_version: 4,
        cidr: cidr.to_string(),
        gateway_ip,
        allocation_pools: pool.into_iter().collect(),
        enable_dhcp: true,
        project_id: owner(),
        tenant_id: owner(),
        ..Subnet::default()
    };
    let network = Network {
        id: id.clone(),
        name: name.to_owned(),
        status: "ACTIVE".to_owned(),
        admin_state_up: true,
        subnets: vec![subnet_id.clone()],
        project_id: owner(),
        tenant_id: owner(),
        ..Network::default()
    };
    state.starter.extend([id.clone(), subnet_id.clone()]);
    state.subnets.insert(subnet_id, subnet);
    state.networks.insert(id.clone(), network);
    id
}

fn router_port() -> Port {
    Port {
        id: ROUTER_PORT_ID.into(),
        network_id: NETWORK_ID.into(),
        mac_address: "fa:16:3e:00:00:01".into(),
        admin_state_up: true,
        status: "ACTIVE".into(),
        fixed_ips: vec![FixedIp { subnet_id: Some(SUBNET_ID.into()), ip_address: Some("10.6.0.1".into()) }],
        device_id: ROUTER_ID.into(),
        device_owner: "network:router_interface".into(),
        project_id: PROJECT_ID.into(),
        tenant_id: PROJECT_ID.into(),
        created_at: Some(SINCE.into()),
        ..Port::default()
    }
}
