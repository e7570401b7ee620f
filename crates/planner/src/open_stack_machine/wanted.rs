//! The ports and the server that a machine wants, from its spec and what its names mean in the cloud.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::Object;
use hangar_api::kinds::OpenStackServerSpecPort;
use hangar_openstack_types::{AddressPair, CreatePort, CreateServer, FixedIp, ServerNetwork};

use super::{World, infrastructure, key, machine};
use crate::cloud::ports::WantedPort;
use crate::cloud::{KEY_METADATA, oldest, server};

/// The ports that the user wrote, or one on the cluster's network.
fn specs(world: &World) -> Vec<OpenStackServerSpecPort> {
    match &world.typed().spec.ports {
        Some(ports) if !ports.is_empty() => ports.clone(),
        _ => vec![OpenStackServerSpecPort::default()],
    }
}

/// Each with our key in its description.
pub fn ports(world: &World) -> Vec<WantedPort> {
    specs(world).into_iter().enumerate().map(|(index, spec)| port(world, index, spec)).collect()
}

fn role(index: usize) -> String {
    format!("port-{index}")
}

fn port(world: &World, index: usize, spec: OpenStackServerSpecPort) -> WantedPort {
    let resolved = world.facts.port_networks.get(index).and_then(|network| network.id());
    let cluster_network = infrastructure(world).map_or("", |cluster| cluster.text("/status/network/id"));
    let fixed_ips: Vec<FixedIp> = spec
        .fixed_ips
        .iter()
        .flatten()
        .map(|ip| FixedIp {
            subnet_id: ip.subnet.as_ref().and_then(|subnet| subnet.id.clone()),
            ip_address: ip.ip_address.clone(),
        })
        .collect();
    let pairs: Vec<AddressPair> = spec
        .allowed_address_pairs
        .iter()
        .flatten()
        .map(|pair| AddressPair { ip_address: pair.ip_address.clone(), mac_address: pair.mac_address.clone() })
        .collect();
    let suffix = spec.name_suffix.clone().unwrap_or_else(|| index.to_string());
    let cluster = world.cluster().map_or("", Object::name);
    let text = || format!("Created by cluster-api-provider-openstack cluster {cluster}");
    let text = spec.description.clone().unwrap_or_else(text);
    let create = CreatePort {
        network_id: resolved.unwrap_or(cluster_network).to_owned(),
        name: format!("{}-{suffix}", world.object().name()),
        description: Some(key(world, &role(index)).describe(&text)),
        security_groups: security_groups(world, &spec),
        admin_state_up: spec.admin_state_up,
        mac_address: spec.mac_address,
        fixed_ips: Some(fixed_ips).filter(|list| !list.is_empty()),
        allowed_address_pairs: Some(pairs).filter(|list| !list.is_empty()),
        port_security_enabled: spec.disable_port_security.map(|disabled| !disabled),
        propagate_uplink_status: spec.propagate_uplink_status,
        vnic_type: spec.vnic_type,
        host_id: spec.host_id,
        ..CreatePort::default()
    };
    WantedPort { role: role(index), create, tags: spec.tags.unwrap_or_default() }
}

/// `None`: the project's default group.
fn security_groups(world: &World, spec: &OpenStackServerSpecPort) -> Option<Vec<String>> {
    if spec.disable_port_security == Some(true) {
        return Some(vec![]);
    }
    let mut ids: Vec<String> = spec.security_groups.iter().flatten().filter_map(|group| group.id.clone()).collect();
    if ids.is_empty() {
        let managed = infrastructure(world).map_or("", |cluster| cluster.text("/status/workerSecurityGroup/id"));
        ids.extend((!managed.is_empty()).then(|| managed.to_owned()));
    }
    ids.extend(world.typed().spec.security_groups.iter().flatten().filter_map(|group| group.id.clone()));
    Some(ids).filter(|ids| !ids.is_empty())
}

/// The server, with our key in its metadata.
pub fn server(world: &World) -> CreateServer {
    let (spec, facts) = (&world.typed().spec, &world.facts);
    let mut metadata: std::collections::BTreeMap<String, String> =
        spec.server_metadata.iter().flatten().map(|entry| (entry.key.clone(), entry.value.clone())).collect();
    metadata.insert(KEY_METADATA.into(), key(world, server::ROLE).to_string());
    let zone = machine(world).map_or("", |machine| machine.text("/spec/failureDomain"));
    let ports = (0..specs(world).len()).filter_map(|index| oldest(&facts.cloud.resources.ports, &role(index)));
    let group = spec.server_group.as_ref().and_then(|group| group.id.clone());
    CreateServer {
        name: world.object().name().to_owned(),
        flavor_id: facts.flavor.id().unwrap_or_default().to_owned(),
        image_id: facts.image.id().unwrap_or_default().to_owned(),
        availability_zone: (!zone.is_empty()).then(|| zone.to_owned()),
        networks: ports.map(|port| ServerNetwork { port: Some(port.id.clone()), uuid: None }).collect(),
        user_data: facts.user_data.as_ref().map(|data| STANDARD.encode(&data.0)),
        tags: spec.tags.clone().unwrap_or_default(),
        metadata,
        config_drive: spec.config_drive,
        key_name: spec.ssh_key_name.clone(),
        scheduler_hints: group.into_iter().map(|group| ("group".to_owned(), group.into())).collect(),
        ..CreateServer::default()
    }
}

/// What the spec asks for and nobody makes yet; the first of it.
pub fn unsupported(world: &World) -> Option<String> {
    let spec = world.object().get("/spec");
    let set = |value: &serde_json::Value| match value {
        serde_json::Value::Null | serde_json::Value::Bool(false) => false,
        serde_json::Value::Array(list) => !list.is_empty(),
        serde_json::Value::Object(fields) => !fields.is_empty(),
        _ => true,
    };
    let whole = [
        ("/rootVolume", "volumes"),
        ("/additionalBlockDevices", "volumes"),
        ("/floatingIPPoolRef", "floating IP pools"),
        ("/trunk", "trunks"),
        ("/image/imageRef", "images by reference"),
        ("/serverGroup/filter", "server groups by filter"),
        ("/schedulerHintAdditionalProperties", "additional scheduler hints"),
    ];
    let of_machine = whole.iter().find(|(pointer, _)| spec.pointer(pointer).is_some_and(set));
    if let Some((pointer, what)) = of_machine {
        return Some(format!("{what} (spec{}) are not built yet", pointer.replace('/', ".")));
    }
    let by_filter = |list: &serde_json::Value| list.as_array().into_iter().flatten().any(|group| set(&group["filter"]));
    if by_filter(&spec["securityGroups"]) {
        return Some("security groups by filter (spec.securityGroups) are not built yet; name their ids".to_owned());
    }
    let ports = spec["ports"].as_array().into_iter().flatten().enumerate();
    ports.into_iter().find_map(|(index, port)| {
        let fields = [("profile", "port profiles"), ("valueSpecs", "value specs"), ("trunk", "trunks")];
        let field = fields.iter().find(|(field, _)| set(&port[*field]));
        if let Some((field, what)) = field {
            return Some(format!("{what} (spec.ports[{index}].{field}) are not built yet"));
        }
        if by_filter(&port["securityGroups"]) {
            let place = format!("spec.ports[{index}].securityGroups");
            return Some(format!("security groups by filter ({place}) are not built yet; name their ids"));
        }
        let mut ips = port["fixedIPs"].as_array().into_iter().flatten();
        ips.any(|ip| set(&ip["subnet"]["filter"]))
            .then(|| format!("subnets by filter (spec.ports[{index}].fixedIPs) are not built yet; name their ids"))
    })
}
