//! Ports: made, changed and deleted; and the table of them, which knows the addresses that are taken.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use hangar_openstack::wire::{CreatePort, Port};
use http::Method;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::addressing::{self, Taken};
use super::{body_of, forbidden, list, missing, no_network, no_route, one, read, refuse, security_groups};
use crate::Simulator;
use crate::ask::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{State, World};
use crate::table::{Rows, Table};

/// Ports by id. Changes go through here, so that `taken` always agrees with the rows.
#[derive(Clone, Default)]
pub(crate) struct Ports {
    table: Table<Port>,
    pub(super) taken: Taken,
}

impl Deref for Ports {
    type Target = BTreeMap<String, Port>;

    fn deref(&self) -> &Self::Target {
        &self.table
    }
}

impl Ports {
    pub(crate) fn insert(&mut self, port: Port) {
        self.taken.add(&port);
        self.table.insert(port.id.clone(), port);
    }

    pub(crate) fn change<R>(&mut self, id: &str, change: impl FnOnce(&mut Port) -> R) -> Option<R> {
        let port = self.table.get_mut(id)?;
        let before = port.clone();
        let result = change(port);
        if before.fixed_ips != port.fixed_ips {
            self.taken.release(&before);
            self.taken.add(port);
        }
        Some(result)
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Port> {
        let port = self.table.remove(id)?;
        self.taken.release(&port);
        Some(port)
    }
}

impl Serialize for Ports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.table.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table: Table<Port> = Table::deserialize(deserializer)?;
        let mut taken = Taken::default();
        table.values().for_each(|port| taken.add(port));
        Ok(Self { table, taken })
    }
}

impl Rows for Ports {
    fn take_changed(&mut self) -> BTreeSet<String> {
        self.table.take_changed()
    }

    fn row(&self, id: &str) -> Option<String> {
        self.table.row(id)
    }

    fn put(&mut self, id: &str, row: Option<&str>) -> Result<(), serde_json::Error> {
        if let Some(old) = self.table.get(id) {
            self.taken.release(&old.clone());
        }
        self.table.put(id, row)?;
        if let Some(new) = self.table.get(id) {
            self.taken.add(new);
        }
        Ok(())
    }
}

pub(super) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let state = &world.state;
    match (&ask.method, ask.segments().as_slice()) {
        (&Method::GET, ["ports"]) => {
            let seen = state.ports.values().filter(|port| ask.sees(&port.project_id));
            if ask.admin { list("ports", seen, ask) } else { list("ports", seen.map(|port| shown(port, ask)), ask) }
        }
        (&Method::GET, ["ports", id]) => {
            let own = state.ports.get(*id).filter(|port| ask.sees(&port.project_id));
            one("port", own.map(|port| shown(port, ask)), || no_port(id))
        }
        (&Method::POST, ["ports"]) => create(simulator, world, ask),
        (&Method::PUT, ["ports", id]) => update(simulator, world, ask, id),
        (&Method::DELETE, ["ports", id]) => delete(world, ask, id),
        _ => Err(no_route()),
    }
}

pub(super) fn no_port(id: &str) -> Refusal {
    missing("Port", id, " could not be found.")
}

/// How and where a port is bound is for administrators.
fn shown(port: &Port, ask: &Ask) -> Value {
    let mut shown = json!(port);
    if !ask.admin
        && let Some(fields) = shown.as_object_mut()
    {
        for hidden in ["binding:host_id", "binding:vif_type", "binding:vif_details", "binding:profile"] {
            fields.remove(hidden);
        }
    }
    shown
}

fn create(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let body = ask.json().map_err(|why| Refusal::neutron(400, "HTTPBadRequest", why))?;
    if let Some(many) = body.get("ports") {
        let wanted: Vec<CreatePort> = read(many)?;
        // All or none.
        let (before, effects) = (world.state.clone(), world.effects.len());
        let made: Result<Vec<Port>, Refusal> =
            wanted.into_iter().map(|port| make(simulator, world, &ask.project_id, port)).collect();
        let made = made.inspect_err(|_| {
            world.state = before;
            world.effects.truncate(effects);
        })?;
        let shown: Vec<Value> = made.iter().map(|port| shown(port, ask)).collect();
        return Ok(Reply::new(201, json!({"ports": shown})));
    }
    let wanted: CreatePort = read(&body_of(ask, "port")?)?;
    if wanted.network_id.is_empty() {
        return refuse(400, "HTTPBadRequest", "Failed to parse request. Required attribute 'network_id' not specified");
    }
    let network = world.state.networks.get(&wanted.network_id);
    let usable =
        |network: &hangar_openstack::wire::Network| ask.sees(&network.project_id) || network.shared || network.external;
    if !network.is_some_and(usable) {
        return Err(no_network(&wanted.network_id));
    }
    if (wanted.host_id.is_some() || wanted.profile.is_some()) && !ask.admin {
        return Err(forbidden("(rule:create_port and rule:create_port:binding:host_id)"));
    }
    let project =
        body_of(ask, "port")?["project_id"].as_str().filter(|_| ask.admin).unwrap_or(&ask.project_id).to_owned();
    let port = make(simulator, world, &project, wanted)?;
    Ok(Reply::new(201, json!({"port": shown(&port, ask)})))
}

pub(crate) fn make(
    simulator: &Simulator,
    world: &mut World,
    project: &str,
    wanted: CreatePort,
) -> Result<Port, Refusal> {
    let state = &mut world.state;
    let network = state.networks.get(&wanted.network_id).ok_or_else(|| no_network(&wanted.network_id))?;
    let secured = wanted.port_security_enabled.or(network.port_security_enabled).unwrap_or(true);
    // Counting takes a while in a large cloud.
    if state.limit(project, "port") >= 0 {
        let used = state.ports.values().filter(|port| port.project_id == project).count();
        let full = |_| Refusal::neutron(409, "OverQuota", "Quota exceeded for resources: ['port'].");
        state.room(project, "port", used, 1).map_err(full)?;
    }
    let groups = groups(state, project, secured, wanted.security_groups, wanted.device_owner.as_deref())?;
    if !secured && wanted.allowed_address_pairs.as_ref().is_some_and(|pairs| !pairs.is_empty()) {
        let words = "Port Security must be enabled in order to have allowed address pairs on a port.";
        return refuse(409, "AddressPairAndPortSecurityRequired", words);
    }
    let fixed_ips = addressing::choose(state, &wanted.network_id, wanted.fixed_ips)?;
    let [.., a, b, c] = state.count_up("mac").to_be_bytes();
    let mac_address = wanted.mac_address.unwrap_or_else(|| format!("fa:16:3e:{a:02x}:{b:02x}:{c:02x}"));
    let mut pairs = wanted.allowed_address_pairs.unwrap_or_default();
    for pair in &mut pairs {
        pair.mac_address.get_or_insert_with(|| mac_address.clone());
    }
    let now = Some(simulator.now_text());
    let port = Port {
        id: world.ids.text(),
        name: wanted.name,
        description: wanted.description.unwrap_or_default(),
        network_id: wanted.network_id,
        mac_address,
        admin_state_up: wanted.admin_state_up.unwrap_or(true),
        status: "DOWN".to_owned(),
        fixed_ips,
        security_groups: groups,
        allowed_address_pairs: pairs,
        device_id: wanted.device_id.unwrap_or_default(),
        device_owner: wanted.device_owner.unwrap_or_default(),
        vnic_type: Some(wanted.vnic_type.unwrap_or_else(|| "normal".to_owned())),
        host_id: Some(wanted.host_id.unwrap_or_default()),
        vif_type: Some("unbound".to_owned()),
        vif_details: Some(json!({})),
        profile: Some(wanted.profile.unwrap_or_else(|| json!({}))),
        port_security_enabled: Some(secured),
        propagate_uplink_status: wanted.propagate_uplink_status,
        project_id: project.to_owned(),
        tenant_id: project.to_owned(),
        revision_number: 1,
        created_at: now.clone(),
        updated_at: now,
        tags: vec![],
    };
    world.state.ports.insert(port.clone());
    Ok(port)
}

/// Without a word about it a port is in the project's default group; ports of the network's own machinery are in none.
fn groups(
    state: &State,
    project: &str,
    secured: bool,
    wanted: Option<Vec<String>>,
    owner: Option<&str>,
) -> Result<Vec<String>, Refusal> {
    match wanted {
        Some(groups) => {
            if !secured && !groups.is_empty() {
                let words =
                    "Port security must be enabled and port must have an IP address in order to use security groups.";
                return refuse(400, "PortSecurityAndIPRequiredForSecurityGroups", words);
            }
            let unknown = |id: &&String| state.security_groups.get(*id).is_none_or(|group| group.project_id != project);
            groups.iter().find(unknown).map_or(Ok(()), |id| Err(security_groups::no_group(id)))?;
            Ok(groups)
        }
        None if !secured || owner.is_some_and(|owner| owner.starts_with("network:")) => Ok(vec![]),
        None => {
            Ok(state.groups_of(project).filter(|group| group.name == "default").map(|group| group.id.clone()).collect())
        }
    }
}

fn update(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let wanted = body_of(ask, "port")?;
    let state = &mut world.state;
    let port = state.ports.get(id).filter(|port| ask.sees(&port.project_id)).ok_or_else(|| no_port(id))?.clone();
    let secured = wanted["port_security_enabled"].as_bool().unwrap_or(port.port_security_enabled != Some(false));
    let mut new = port.clone();
    new.port_security_enabled = Some(secured);
    if let Some(list) = wanted.get("security_groups") {
        new.security_groups = groups(state, &port.project_id, secured, Some(read(list)?), None)?;
    } else if !secured && !port.security_groups.is_empty() {
        let words = "Port has security group associated. Cannot disable port security or IP address until security group is removed";
        return refuse(409, "PortSecurityPortHasSecurityGroup", words);
    }
    if let Some(list) = wanted.get("fixed_ips") {
        state.ports.change(id, |port| port.fixed_ips.clear());
        let chosen = addressing::choose(state, &port.network_id, Some(read(list)?));
        state.ports.change(id, |row| row.fixed_ips.clone_from(&port.fixed_ips));
        new.fixed_ips = chosen?;
    }
    if let Some(list) = wanted.get("allowed_address_pairs") {
        new.allowed_address_pairs = read(list)?;
        for pair in &mut new.allowed_address_pairs {
            pair.mac_address.get_or_insert_with(|| port.mac_address.clone());
        }
    }
    let text = |field: &mut String, name: &str| {
        if let Some(value) = wanted[name].as_str() {
            *field = value.to_owned();
        }
    };
    text(&mut new.name, "name");
    text(&mut new.description, "description");
    text(&mut new.device_id, "device_id");
    text(&mut new.device_owner, "device_owner");
    new.admin_state_up = wanted["admin_state_up"].as_bool().unwrap_or(new.admin_state_up);
    new.revision_number += 1;
    new.updated_at = Some(simulator.now_text());
    state.ports.change(id, |port| port.clone_from(&new));
    Ok(Reply::ok(json!({"port": shown(&new, ask)})))
}

fn delete(world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let port = world.state.ports.get(id).filter(|port| ask.sees(&port.project_id)).ok_or_else(|| no_port(id))?;
    let owner = port.device_owner.clone();
    if owner.starts_with("network:router") || owner == "network:floatingip" {
        let words = format!("Port {id} cannot be deleted directly via the port API: has device owner {owner}.");
        return refuse(409, "ServicePortInUse", words);
    }
    for trunk in world.state.trunks.values() {
        if trunk.port_id == id {
            let words = format!("Port {id} is currently a parent port for trunk {}.", trunk.id);
            return refuse(409, "PortInUseAsTrunkParent", words);
        }
        if trunk.sub_ports.iter().any(|sub| sub.port_id == id) {
            let words = format!("Port {id} is currently a subport for trunk {}.", trunk.id);
            return refuse(409, "PortInUseAsSubPort", words);
        }
    }
    super::floating_ips::unbind_port(world, id);
    world.state.ports.remove(id);
    Ok(Reply::empty(204))
}
