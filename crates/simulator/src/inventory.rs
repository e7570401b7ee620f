//! What tenants have made and not yet taken away: the question after every deletion.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::state::State;

/// By project name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    pub projects: BTreeMap<String, Vec<Item>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// `server`, `port`, `security-group`, `volume`, `floating-ip`, ...
    pub kind: String,
    pub id: String,
    pub name: String,
    /// Who it says it belongs to: the description; of a server the metadata that names an owner, or else all of it.
    pub owner: String,
}

impl Inventory {
    pub(crate) fn of(state: &State) -> Self {
        let mut inventory = Self::default();
        let mut add = |project: &str, kind: &str, id: &str, name: &str, owner: &str| {
            if state.starter.contains_key(id) || project.is_empty() {
                return;
            }
            let known = state.projects.get(project);
            let project = known.map_or(project, |known| known.name.as_str()).to_owned();
            let item = Item { kind: kind.into(), id: id.into(), name: name.into(), owner: owner.into() };
            inventory.projects.entry(project).or_default().push(item);
        };
        for record in state.servers.values() {
            let server = &record.server;
            add(&server.tenant_id, "server", &server.id, &server.name, &owner(&server.metadata));
        }
        for port in state.ports.values().filter(|port| port.device_owner != "network:dhcp") {
            add(&port.project_id, "port", &port.id, &port.name, &port.description);
        }
        for group in state.security_groups.values().filter(|group| group.name != "default") {
            add(&group.project_id, "security-group", &group.id, &group.name, &group.description);
        }
        for network in state.networks.values() {
            add(&network.project_id, "network", &network.id, &network.name, &network.description);
        }
        for subnet in state.subnets.values() {
            add(&subnet.project_id, "subnet", &subnet.id, &subnet.name, &subnet.description);
        }
        for router in state.routers.values() {
            add(&router.project_id, "router", &router.id, &router.name, &router.description);
        }
        for ip in state.floating_ips.values() {
            add(&ip.project_id, "floating-ip", &ip.id, &ip.floating_ip_address, &ip.description);
        }
        for trunk in state.trunks.values() {
            add(&trunk.project_id, "trunk", &trunk.id, &trunk.name, &trunk.description);
        }
        for volume in state.volumes.values() {
            let said = volume.description.as_deref().filter(|text| !text.is_empty());
            let project = volume.tenant_id.as_deref().unwrap_or_default();
            add(
                project,
                "volume",
                &volume.id,
                &volume.name,
                &said.map_or_else(|| owner(&volume.metadata), str::to_owned),
            );
        }
        for snapshot in state.snapshots.values() {
            add(&snapshot.project_id, "snapshot", &snapshot.id, &snapshot.name, &owner(&snapshot.metadata));
        }
        for group in state.server_groups.values() {
            add(&group.project_id, "server-group", &group.id, &group.name, "");
        }
        for balancer in state.load_balancers.values() {
            add(&balancer.project_id, "load-balancer", &balancer.id, &balancer.name, &balancer.description);
        }
        for image in state.images.values() {
            add(&image.owner, "image", &image.id, &image.name, "");
        }
        inventory
    }

    pub fn is_empty(&self) -> bool {
        self.projects.values().all(Vec::is_empty)
    }

    pub fn len(&self) -> usize {
        self.projects.values().map(Vec::len).sum()
    }

    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Item> {
        self.projects.values().flatten().filter(move |item| item.kind == kind)
    }
}

fn owner(metadata: &BTreeMap<String, String>) -> String {
    let named = metadata.iter().find(|(key, _)| key.to_ascii_lowercase().contains("owner"));
    let all = || metadata.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
    named.map_or_else(all, |(_, value)| value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_server_is_in_its_metadata() {
        let of =
            |pairs: &[(&str, &str)]| owner(&pairs.iter().map(|&(key, value)| (key.into(), value.into())).collect());
        assert_eq!(of(&[("a", "b"), ("hangar.owner", "c/m/worker")]), "c/m/worker");
        assert_eq!(of(&[("a", "b"), ("c", "d")]), "a=b,c=d");
        assert_eq!(of(&[]), "");
    }
}
