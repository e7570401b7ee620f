//! What a new cloud has: one project with a network, images and flavors, always with the same ids.

use hangar_openstack::wire::{
    AllocationPool, AvailabilityZone, FixedIp, Flavor, GatewayInfo, Image, KeyPair, Network, Port, Router, Subnet,
    VolumeType, ZoneState,
};

use crate::network::security_groups;
use crate::state::{Ids, OwnedKeyPair, Project, State, User};

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
pub const ADMIN: &str = "admin";
pub const ADMIN_ID: &str = "1d8b6c4e2f0a43519b7d5f3c1e0a8b62";
pub const ADMIN_PROJECT_ID: &str = "6a3c1d2ef7b95c4d0e8f2a1b3c5d7e9f";
/// For clouds whose floating IPs answer on this machine: every address in 127/8 is this machine's.
pub const LOCAL_PUBLIC_CIDR: ipnet::Ipv4Net = ipnet::Ipv4Net::new_assert(std::net::Ipv4Addr::new(127, 24, 4, 0), 24);
pub const PRIVATE_CIDR: ipnet::Ipv4Net = ipnet::Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 6, 0, 0), 24);
pub const PUBLIC_CIDR: ipnet::Ipv4Net = ipnet::Ipv4Net::new_assert(std::net::Ipv4Addr::new(172, 24, 4, 0), 24);
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
/// (name, id) of the only sort of load balancers
pub const LOAD_BALANCER_FLAVOR: (&str, &str) = ("small", "1d61ec5e-28f9-44a6-8c3f-d3e2f1f51e2d");
/// Of nobody: the key that it names was thrown away.
const PUBLIC_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFqNfQ0V2R0Z9o8m3xkD1YJ6sUe7tPq4LwXb5cHn2aKd demo";
const GATEWAY_PORT_ID: &str = "c81cf709-d3a4-4f51-8ae7-8e9daca0cf00";
const ADMIN_GROUP_ID: &str = "b70be6f8-c293-4e40-9fd6-7d8c9bafbe00";
const VOLUME_TYPE_ID: &str = "df8a2420-faa1-47b1-aac0-2d11688f0ec3";
const SINCE: &str = "2026-01-01T00:00:00Z";

/// Users and their projects, a zone and a type of volume: what every cloud has.
pub(crate) fn bare() -> State {
    let mut state = State::default();
    for (name, user, project, admin) in [(USER, USER_ID, PROJECT_ID, false), (ADMIN, ADMIN_ID, ADMIN_PROJECT_ID, true)]
    {
        state.projects.insert(project, Project { id: project.into(), name: name.into() });
        let projects = if admin { vec![project.into(), PROJECT_ID.into()] } else { vec![project.into()] };
        let known = User {
            id: user.into(),
            name: name.into(),
            password: PASSWORD.into(),
            projects,
            admin,
            application_credentials: vec![],
        };
        state.users.insert(user, known);
    }
    state.zones.insert(ZONE, zone(ZONE, true));
    let kind =
        VolumeType { id: VOLUME_TYPE_ID.into(), name: "__DEFAULT__".into(), is_public: true, ..VolumeType::default() };
    state.volume_types.insert(VOLUME_TYPE_ID, kind);
    let mut ids = Ids(Some(0));
    for (id, project) in [(DEFAULT_GROUP_ID, PROJECT_ID), (ADMIN_GROUP_ID, ADMIN_PROJECT_ID)] {
        let group = security_groups::default_group(&mut ids, id, project, SINCE);
        state.security_groups.insert(id, group);
        state.starter.insert(id, true);
    }
    state
}

pub(crate) fn zone(name: &str, available: bool) -> AvailabilityZone {
    AvailabilityZone { name: name.into(), state: ZoneState { available } }
}

pub(crate) fn state(public: ipnet::Ipv4Net, private: ipnet::Ipv4Net) -> State {
    let mut state = bare();
    let key_pair = KeyPair {
        name: KEY_PAIR.into(),
        kind: "ssh".into(),
        public_key: PUBLIC_KEY.into(),
        fingerprint: "7e:4b:42:5f:2a:1c:9d:d0:6b:33:8f:51:c4:e8:a7:19".into(),
    };
    state.key_pairs.insert(format!("{USER_ID}/{KEY_PAIR}"), OwnedKeyPair { user_id: USER_ID.into(), key_pair });
    images_and_flavors(&mut state);
    networks(&mut state, public, private);
    for id in [PUBLIC_NETWORK_ID, PUBLIC_SUBNET_ID, NETWORK_ID, SUBNET_ID, ROUTER_ID, ROUTER_PORT_ID, GATEWAY_PORT_ID] {
        state.starter.insert(id, true);
    }
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
        state.images.insert(id, image);
    }
    for (name, id, vcpus, ram, disk) in FLAVORS {
        let flavor = Flavor { id: id.into(), name: name.into(), vcpus, ram, disk, ephemeral: 0, is_public: true };
        state.flavors.insert(id, flavor);
    }
}

fn networks(state: &mut State, public: ipnet::Ipv4Net, private: ipnet::Ipv4Net) {
    network(
        state,
        (PUBLIC_NETWORK, PUBLIC_NETWORK_ID, true),
        ("public-subnet", PUBLIC_SUBNET_ID),
        public,
        ADMIN_PROJECT_ID,
    );
    network(state, (NETWORK, NETWORK_ID, false), (SUBNET, SUBNET_ID), private, PROJECT_ID);
    let outside = public.hosts().nth(1).map(|address| address.to_string());
    let outside = FixedIp { subnet_id: Some(PUBLIC_SUBNET_ID.into()), ip_address: outside };
    state.routers.insert(
        ROUTER_ID,
        Router {
            id: ROUTER_ID.into(),
            name: "demo-router".into(),
            status: "ACTIVE".into(),
            project_id: PROJECT_ID.into(),
            tenant_id: PROJECT_ID.into(),
            admin_state_up: true,
            external_gateway_info: Some(GatewayInfo {
                network_id: PUBLIC_NETWORK_ID.into(),
                enable_snat: Some(true),
                external_fixed_ips: vec![outside.clone()],
            }),
            ..Router::default()
        },
    );
    let inside = FixedIp {
        subnet_id: Some(SUBNET_ID.into()),
        ip_address: private.hosts().next().map(|address| address.to_string()),
    };
    state.ports.insert(router_port(ROUTER_PORT_ID, NETWORK_ID, inside, "network:router_interface", PROJECT_ID));
    state.ports.insert(router_port(GATEWAY_PORT_ID, PUBLIC_NETWORK_ID, outside, "network:router_gateway", ""));
    state.counters.insert("mac", 1);
}

/// (name, id, whether it is external), (name and id of its subnet)
fn network(state: &mut State, network: (&str, &str, bool), subnet: (&str, &str), cidr: ipnet::Ipv4Net, owner: &str) {
    let (name, id, external) = network;
    let mut hosts = cidr.hosts();
    let gateway_ip = hosts.next().map(|first| first.to_string());
    let pool = hosts
        .next()
        .map(|start| AllocationPool { start: start.to_string(), end: hosts.next_back().unwrap_or(start).to_string() });
    let made = Subnet {
        id: subnet.1.into(),
        name: subnet.0.into(),
        network_id: id.into(),
        ip_version: 4,
        cidr: cidr.to_string(),
        gateway_ip,
        allocation_pools: pool.into_iter().collect(),
        enable_dhcp: !external,
        project_id: owner.into(),
        tenant_id: owner.into(),
        created_at: Some(SINCE.into()),
        ..Subnet::default()
    };
    state.subnets.insert(subnet.1, made);
    let made = Network {
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
    };
    state.networks.insert(id, made);
}

/// A network of the demo project with one IPv4 subnet, for more servers than the starter's has addresses for.
pub(crate) fn add_network(state: &mut State, ids: &mut Ids, name: &str, cidr: ipnet::Ipv4Net) -> String {
    let (id, subnet_id) = (ids.text(), ids.text());
    network(state, (name, &id, false), (name, &subnet_id), cidr, PROJECT_ID);
    state.starter.insert(id.clone(), true);
    state.starter.insert(subnet_id, true);
    id
}

fn router_port(id: &str, network: &str, address: FixedIp, owner: &str, project: &str) -> Port {
    Port {
        id: id.into(),
        network_id: network.into(),
        mac_address: if project.is_empty() { "fa:16:3e:00:00:00".into() } else { "fa:16:3e:00:00:01".into() },
        admin_state_up: true,
        status: "ACTIVE".into(),
        fixed_ips: vec![address],
        device_id: ROUTER_ID.into(),
        device_owner: owner.into(),
        project_id: project.into(),
        tenant_id: project.into(),
        created_at: Some(SINCE.into()),
        ..Port::default()
    }
}
