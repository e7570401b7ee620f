//! A server with its ports, trunks and volumes as a spec describes it: what OpenStackMachines, OpenStackServers and bastions have in common.
//!
//! Flows: spec and what its names mean in the cloud ([`Resolved`]) -> wanted volumes, ports and trunks -> the server's create call. Holds: every create carries the owner's key,
//! and no field that a user may choose freely (metadata, value specs, hints) can replace it.

mod devices;
mod needs;
mod resolved;
mod whole;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::kinds::{OpenStackMachineSpec, OpenStackServerSpecPort};
use hangar_openstack_types::{AddressPair, CreatePort, CreateServer, FixedIp, ServerNetwork};
use serde_json::{Value, json};

use super::ports::WantedPort;
use super::trunks::WantedTrunk;
use super::{KEY_METADATA, Lookup, Resources, oldest, server};
use crate::owner_key::OwnerKey;

pub use resolved::{Resolved, ResolvedPort, Size};
pub use whole::Whole;

/// One server to be, with all that it depends on.
pub struct Instance<'a> {
    pub spec: &'a OpenStackMachineSpec,
    pub resolved: &'a Resolved,
    pub name: &'a str,
    pub cluster_name: &'a str,
    pub cluster_uid: &'a str,
    pub object_uid: &'a str,
    /// For ports that name no network.
    pub network_id: &'a str,
    /// For ports that name no network and no address: where their addresses come from; empty if Neutron may choose.
    pub subnet_ids: Vec<&'a str>,
    /// For ports that name no security group; empty if there is none.
    pub managed_group: &'a str,
    pub zone: &'a str,
    /// Of everything that is made for the cluster.
    pub tags: Vec<String>,
    pub user_data: Option<&'a str>,
    /// What else its metadata says.
    pub note: Option<(&'a str, String)>,
}

impl Instance<'_> {
    pub fn key(&self, role: &str) -> OwnerKey {
        OwnerKey::new(self.cluster_uid, self.object_uid, role)
    }

    /// The ports that the user wrote, or one on the cluster's network.
    fn port_specs(&self) -> Vec<OpenStackServerSpecPort> {
        match &self.spec.ports {
            Some(ports) if !ports.is_empty() => ports.clone(),
            _ => vec![OpenStackServerSpecPort::default()],
        }
    }

    /// Each with our key in its description.
    pub fn ports(&self) -> Vec<WantedPort> {
        self.port_specs().into_iter().enumerate().map(|(index, spec)| self.port(index, spec)).collect()
    }

    fn port(&self, index: usize, spec: OpenStackServerSpecPort) -> WantedPort {
        let resolved = self.resolved.ports.get(index).cloned().unwrap_or_default();
        let pairs: Vec<AddressPair> = spec
            .allowed_address_pairs
            .iter()
            .flatten()
            .map(|pair| AddressPair { ip_address: pair.ip_address.clone(), mac_address: pair.mac_address.clone() })
            .collect();
        let text = spec.description.clone().unwrap_or_else(|| self.description());
        let create = CreatePort {
            network_id: resolved.network.id().unwrap_or(self.network_id).to_owned(),
            name: self.port_name(index, &spec),
            description: Some(self.key(&role(index)).describe(&text)),
            security_groups: self.security_groups(&spec, &resolved),
            admin_state_up: spec.admin_state_up,
            fixed_ips: Some(self.fixed_ips(&spec, &resolved)).filter(|list| !list.is_empty()),
            allowed_address_pairs: Some(pairs).filter(|list| !list.is_empty()),
            port_security_enabled: spec.disable_port_security.map(|disabled| !disabled),
            propagate_uplink_status: spec.propagate_uplink_status,
            profile: profile(&spec),
            value_specs: value_specs(&spec).collect(),
            mac_address: spec.mac_address,
            vnic_type: spec.vnic_type,
            host_id: spec.host_id,
            ..CreatePort::default()
        };
        WantedPort { role: role(index), create, tags: self.all_tags(spec.tags.as_deref().unwrap_or_default()) }
    }

    fn port_name(&self, index: usize, spec: &OpenStackServerSpecPort) -> String {
        let suffix = spec.name_suffix.clone().unwrap_or_else(|| index.to_string());
        format!("{}-{suffix}", self.name)
    }

    fn description(&self) -> String {
        format!("Created by cluster-api-provider-openstack cluster {}", self.cluster_name)
    }

    fn fixed_ips(&self, spec: &OpenStackServerSpecPort, resolved: &ResolvedPort) -> Vec<FixedIp> {
        let subnet = |index: usize| resolved.subnets.get(index).and_then(Lookup::id).map(str::to_owned);
        let written = spec.fixed_ips.iter().flatten().enumerate();
        let list: Vec<FixedIp> = written
            .map(|(index, ip)| FixedIp { subnet_id: subnet(index), ip_address: ip.ip_address.clone() })
            .collect();
        if !list.is_empty() || spec.network.is_some() {
            return list;
        }
        let of_cluster = self.subnet_ids.iter().map(|id| Some((*id).to_owned()));
        of_cluster.map(|subnet_id| FixedIp { subnet_id, ip_address: None }).collect()
    }

    /// `None`: the project's default group.
    fn security_groups(&self, spec: &OpenStackServerSpecPort, resolved: &ResolvedPort) -> Option<Vec<String>> {
        if spec.disable_port_security == Some(true) {
            return Some(vec![]);
        }
        let ids = |list: &[Lookup]| list.iter().filter_map(Lookup::id).map(str::to_owned).collect::<Vec<_>>();
        let mut groups = ids(&resolved.security_groups);
        if groups.is_empty() && !self.managed_group.is_empty() {
            groups.push(self.managed_group.to_owned());
        }
        groups.extend(ids(&self.resolved.security_groups));
        Some(groups).filter(|groups| !groups.is_empty())
    }

    /// A trunk on each port that wants one; what the server says counts for ports that say nothing.
    pub fn trunks(&self) -> Vec<WantedTrunk> {
        let specs = self.port_specs().into_iter().enumerate();
        let wants = |spec: &OpenStackServerSpecPort| spec.trunk.or(self.spec.trunk) == Some(true);
        let trunk = |(index, spec): (usize, OpenStackServerSpecPort)| {
            let trunk_role = format!("trunk-{index}");
            WantedTrunk {
                port: role(index),
                name: self.port_name(index, &spec),
                description: self.key(&trunk_role).describe(&self.description()),
                tags: self.all_tags(spec.tags.as_deref().unwrap_or_default()),
                role: trunk_role,
            }
        };
        specs.filter(|(_, spec)| wants(spec)).map(trunk).collect()
    }

    /// The server's, the cluster's and its own, each once.
    fn all_tags(&self, own: &[String]) -> Vec<String> {
        let mut tags = self.spec.tags.clone().unwrap_or_default();
        for tag in self.tags.iter().chain(own) {
            if !tags.contains(tag) {
                tags.push(tag.clone());
            }
        }
        tags
    }

    /// The server on the ports and volumes that there are, with our key in its metadata.
    pub fn server(&self, there: &Resources) -> CreateServer {
        let (spec, resolved) = (self.spec, self.resolved);
        let mut metadata: BTreeMap<String, String> =
            spec.server_metadata.iter().flatten().map(|entry| (entry.key.clone(), entry.value.clone())).collect();
        metadata.extend(self.note.iter().map(|(name, text)| ((*name).to_owned(), text.clone())));
        metadata.insert(KEY_METADATA.into(), self.key(server::ROLE).to_string());
        let ports = (0..self.port_specs().len()).filter_map(|index| oldest(&there.ports, &role(index)));
        let mut hints: BTreeMap<String, Value> = hints(spec).collect();
        hints.extend(resolved.server_group.id().map(|group| ("group".to_owned(), group.into())));
        let image = resolved.image.id().filter(|_| spec.root_volume.is_none());
        CreateServer {
            name: self.name.to_owned(),
            flavor_id: resolved.flavor.id().unwrap_or_default().to_owned(),
            image_id: image.unwrap_or_default().to_owned(),
            availability_zone: (!self.zone.is_empty()).then(|| self.zone.to_owned()),
            networks: ports.map(|port| ServerNetwork { port: Some(port.id.clone()), uuid: None }).collect(),
            user_data: self.user_data.map(|data| STANDARD.encode(data)),
            tags: self.all_tags(&[]),
            metadata,
            config_drive: spec.config_drive,
            key_name: spec.ssh_key_name.clone().filter(|name| !name.is_empty()),
            block_device_mapping_v2: self.block_devices(there),
            scheduler_hints: hints,
        }
    }

    /// What cannot be done: `place` is where the spec stands.
    pub fn problem(&self, place: &str) -> Option<String> {
        invalid(self.spec, place).or_else(|| self.resolved.problem(place))
    }
}

/// The role of a port in its owner's key.
pub fn role(index: usize) -> String {
    format!("port-{index}")
}

/// What the driver of a network card is told.
fn profile(spec: &OpenStackServerSpecPort) -> Option<Value> {
    let profile = spec.profile.as_ref()?;
    let mut value = json!({});
    if profile.ovs_hw_offload == Some(true) {
        value["capabilities"] = json!(["switchdev"]);
    }
    if profile.trusted_vf == Some(true) {
        value["trusted"] = true.into();
    }
    Some(value).filter(|value| *value != json!({}))
}

fn value_specs(spec: &OpenStackServerSpecPort) -> impl Iterator<Item = (String, Value)> {
    spec.value_specs.iter().flatten().map(|entry| (entry.key.clone(), entry.value.clone().into()))
}

fn hints(spec: &OpenStackMachineSpec) -> impl Iterator<Item = (String, Value)> {
    spec.scheduler_hint_additional_properties.iter().flatten().map(|hint| {
        let value = &hint.value;
        let text = || value.string.clone().map_or(Value::Null, Value::from);
        let number = || value.number.map(Value::from);
        (hint.name.clone(), value.bool.map(Value::from).or_else(number).unwrap_or_else(text))
    })
}

/// Fields of a port that Hangar or Neutron sets: a value spec of the same name would replace what they say.
const PORT_FIELDS: [&str; 21] = [
    "network_id",
    "name",
    "description",
    "admin_state_up",
    "mac_address",
    "fixed_ips",
    "security_groups",
    "allowed_address_pairs",
    "device_id",
    "device_owner",
    "port_security_enabled",
    "propagate_uplink_status",
    "binding:vnic_type",
    "binding:host_id",
    "binding:profile",
    "tenant_id",
    "project_id",
    "id",
    "tags",
    "status",
    "trunk_details",
];

/// What in a spec cannot be done whatever the cloud says.
fn invalid(spec: &OpenStackMachineSpec, place: &str) -> Option<String> {
    let mut ports = spec.ports.as_deref().unwrap_or_default().iter().enumerate();
    let value_spec = ports.find_map(|(index, port)| {
        let taken = port.value_specs.iter().flatten().find(|entry| PORT_FIELDS.contains(&entry.key.as_str()))?;
        Some(format!("{place}.ports[{index}].valueSpecs must not set {}: the port has a field for it", taken.key))
    });
    let metadata = || {
        let taken = spec.server_metadata.iter().flatten().any(|entry| entry.key == KEY_METADATA);
        taken.then(|| format!("{place}.serverMetadata must not set {KEY_METADATA}: Hangar finds its servers by it"))
    };
    value_spec.or_else(metadata)
}

#[cfg(test)]
mod tests;
