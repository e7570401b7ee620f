//! The ports and the server that a machine's spec asks for: of an OpenStackMachine, or of the bastion of an OpenStackCluster.
//!
//! Flows: spec, and what its names mean in the cloud -> create calls with the owner's key. Holds: what nobody makes yet is refused by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::kinds::{OpenStackMachineSpec, OpenStackServerSpecPort};
use hangar_openstack_types::{AddressPair, CreatePort, CreateServer, FixedIp, Port, ServerNetwork};
use serde_json::Value;

use super::ports::WantedPort;
use super::{KEY_METADATA, Lookup, oldest, server};
use crate::owner_key::OwnerKey;

/// One server to be, with all that it depends on.
pub struct Instance<'a> {
    pub spec: &'a OpenStackMachineSpec,
    pub name: &'a str,
    pub cluster_name: &'a str,
    pub cluster_uid: &'a str,
    pub object_uid: &'a str,
    /// For ports that name no network.
    pub network_id: &'a str,
    /// For ports that name no security group; empty if there is none.
    pub managed_group: &'a str,
    pub zone: &'a str,
    pub user_data: Option<&'a str>,
    pub flavor: &'a Lookup,
    pub image: &'a Lookup,
    /// By position in the spec's ports.
    pub port_networks: &'a [Lookup],
}

impl Instance<'_> {
    fn key(&self, role: &str) -> OwnerKey {
        OwnerKey::new(self.cluster_uid, self.object_uid, role)
    }

    /// The ports that the user wrote, or one on the cluster's network.
    fn specs(&self) -> Vec<OpenStackServerSpecPort> {
        match &self.spec.ports {
            Some(ports) if !ports.is_empty() => ports.clone(),
            _ => vec![OpenStackServerSpecPort::default()],
        }
    }

    /// Each with our key in its description.
    pub fn ports(&self) -> Vec<WantedPort> {
        self.specs().into_iter().enumerate().map(|(index, spec)| self.port(index, spec)).collect()
    }

    fn port(&self, index: usize, spec: OpenStackServerSpecPort) -> WantedPort {
        let resolved = self.port_networks.get(index).and_then(|network| network.id());
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
        let text = || format!("Created by cluster-api-provider-openstack cluster {}", self.cluster_name);
        let text = spec.description.clone().unwrap_or_else(text);
        let create = CreatePort {
            network_id: resolved.unwrap_or(self.network_id).to_owned(),
            name: format!("{}-{suffix}", self.name),
            description: Some(self.key(&role(index)).describe(&text)),
            security_groups: self.security_groups(&spec),
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
    fn security_groups(&self, spec: &OpenStackServerSpecPort) -> Option<Vec<String>> {
        if spec.disable_port_security == Some(true) {
            return Some(vec![]);
        }
        let mut ids: Vec<String> = spec.security_groups.iter().flatten().filter_map(|group| group.id.clone()).collect();
        if ids.is_empty() {
            ids.extend((!self.managed_group.is_empty()).then(|| self.managed_group.to_owned()));
        }
        ids.extend(self.spec.security_groups.iter().flatten().filter_map(|group| group.id.clone()));
        Some(ids).filter(|ids| !ids.is_empty())
    }

    /// The server on the ports that there are, with our key in its metadata.
    pub fn server(&self, ports: &BTreeMap<String, Arc<Port>>) -> CreateServer {
        let spec = self.spec;
        let mut metadata: BTreeMap<String, String> =
            spec.server_metadata.iter().flatten().map(|entry| (entry.key.clone(), entry.value.clone())).collect();
        metadata.insert(KEY_METADATA.into(), self.key(server::ROLE).to_string());
        let ports = (0..self.specs().len()).filter_map(|index| oldest(ports, &role(index)));
        let group = spec.server_group.as_ref().and_then(|group| group.id.clone());
        CreateServer {
            name: self.name.to_owned(),
            flavor_id: self.flavor.id().unwrap_or_default().to_owned(),
            image_id: self.image.id().unwrap_or_default().to_owned(),
            availability_zone: (!self.zone.is_empty()).then(|| self.zone.to_owned()),
            networks: ports.map(|port| ServerNetwork { port: Some(port.id.clone()), uuid: None }).collect(),
            user_data: self.user_data.map(|data| STANDARD.encode(data)),
            tags: spec.tags.clone().unwrap_or_default(),
            metadata,
            config_drive: spec.config_drive,
            key_name: spec.ssh_key_name.clone(),
            scheduler_hints: group.into_iter().map(|group| ("group".to_owned(), group.into())).collect(),
            ..CreateServer::default()
        }
    }

    /// The first of the spec's names that means nothing; `place` is where the spec stands.
    pub fn problem(&self, place: &str) -> Option<String> {
        let flavor = || self.flavor.problem(&format!("{place}.flavor"), "flavor");
        let image = || self.image.problem(&format!("{place}.image.filter"), "image");
        let networks = || {
            let mut all = self.port_networks.iter().enumerate();
            all.find_map(|(index, network)| {
                network.problem(&format!("{place}.ports[{index}].network.filter"), "network")
            })
        };
        flavor().or_else(image).or_else(networks)
    }
}

/// The role of a port in its owner's key.
pub fn role(index: usize) -> String {
    format!("port-{index}")
}

/// What a spec asks for and nobody makes yet; the first of it.
pub fn unsupported(spec: &Value, place: &str) -> Option<String> {
    let set = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
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
        return Some(format!("{what} ({place}{}) are not built yet", pointer.replace('/', ".")));
    }
    let by_filter = |list: &Value| list.as_array().into_iter().flatten().any(|group| set(&group["filter"]));
    if by_filter(&spec["securityGroups"]) {
        return Some(format!("security groups by filter ({place}.securityGroups) are not built yet; name their ids"));
    }
    let ports = spec["ports"].as_array().into_iter().flatten().enumerate();
    ports.into_iter().find_map(|(index, port)| {
        let fields = [("profile", "port profiles"), ("valueSpecs", "value specs"), ("trunk", "trunks")];
        let field = fields.iter().find(|(field, _)| set(&port[*field]));
        if let Some((field, what)) = field {
            return Some(format!("{what} ({place}.ports[{index}].{field}) are not built yet"));
        }
        if by_filter(&port["securityGroups"]) {
            let place = format!("{place}.ports[{index}].securityGroups");
            return Some(format!("security groups by filter ({place}) are not built yet; name their ids"));
        }
        let mut ips = port["fixedIPs"].as_array().into_iter().flatten();
        ips.any(|ip| set(&ip["subnet"]["filter"]))
            .then(|| format!("subnets by filter ({place}.ports[{index}].fixedIPs) are not built yet; name their ids"))
    })
}
