//! `POST servers`: checks in Nova's order and words, then ports are bound and the server is in BUILD.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_openstack::wire::{CreatePort, CreateServer, Flavor, Reference, Server, ServerFlavor};
use serde_json::json;

use crate::front::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{Effect, ServerRecord, World};
use crate::{Simulator, network, starter};

const LARGEST_USER_DATA: usize = 65535;

pub(crate) fn create(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
    let wanted: CreateServer = serde_json::from_value(body["server"].clone())
        .map_err(|error| Refusal::nova(400, format!("Invalid input for field/attribute server. {error}")))?;
    let (flavor, user_data) = check(world, ask, &wanted)?;
    let id = world.ids.text();
    let (ports, own_ports) = bind(simulator, world, ask, &wanted, &id)?;
    world.sequence += 1;
    let now = simulator.now_text();
    let zone = wanted.availability_zone.clone().unwrap_or_else(|| starter::ZONE.to_owned());
    let record = ServerRecord {
        server: Server {
            id: id.clone(),
            name: wanted.name,
            status: "BUILD".to_owned(),
            tenant_id: ask.project_id.clone(),
            user_id: ask.user_id.clone(),
            created: now.clone(),
            updated: now,
            metadata: wanted.metadata,
            key_name: wanted.key_name,
            flavor: ServerFlavor {
                id: None,
                original_name: Some(flavor.name),
                vcpus: Some(flavor.vcpus),
                ram: Some(flavor.ram),
                disk: Some(flavor.disk),
            },
            image: Some(Reference { id: wanted.image_id }).filter(|image| !image.id.is_empty()),
            tags: wanted.tags,
            availability_zone: Some(zone),
            task_state: Some("spawning".to_owned()),
            vm_state: Some("building".to_owned()),
            power_state: Some(0),
            config_drive: if wanted.config_drive == Some(true) { "True".to_owned() } else { String::new() },
            ..Server::default()
        },
        ports,
        own_ports,
        flavor_id: flavor.id,
        vcpus: flavor.vcpus,
        user_data,
        doomed: ask.doom.clone(),
        sequence: world.sequence,
    };
    world.state.servers.insert(id.clone(), record);
    world.effects.push(Effect::Build(id.clone()));
    let links = json!([{"rel": "self", "href": format!("{}/servers/{id}", ask.root)}]);
    Ok(Reply::new(202, json!({"server": {"id": id, "links": links, "OS-DCF:diskConfig": "MANUAL"}})))
}

fn check(world: &World, ask: &Ask, wanted: &CreateServer) -> Result<(Flavor, Vec<u8>), Refusal> {
    let state = &world.state;
    let bad = |message: String| Refusal::nova(400, message);
    if wanted.name.is_empty() {
        return Err(bad("Invalid input for field/attribute name. Value: . '' is too short".to_owned()));
    }
    let user_data = match &wanted.user_data {
        Some(text) if text.len() > LARGEST_USER_DATA => {
            return Err(bad(format!(
                "Invalid input for field/attribute user_data. '...' is too long (maximum {LARGEST_USER_DATA})"
            )));
        }
        Some(text) => STANDARD.decode(text).map_err(|_| bad("Userdata content cannot be decoded".to_owned()))?,
        None => vec![],
    };
    let volume = wanted.block_device_mapping_v2.iter().any(|device| device.destination_type == "volume");
    if volume {
        return Err(bad("Block Device Mapping is Invalid: this cloud has no volume service".to_owned()));
    }
    if wanted.image_id.is_empty() {
        return Err(bad("Invalid imageRef provided.".to_owned()));
    }
    let flavor = state.flavors.get(&wanted.flavor_id);
    let flavor = flavor.ok_or_else(|| bad(format!("Flavor {} could not be found.", wanted.flavor_id)))?;
    if !state.images.contains_key(&wanted.image_id) {
        return Err(bad("Can not find requested image".to_owned()));
    }
    let known =
        |name: &String| state.key_pairs.iter().any(|own| own.user_id == ask.user_id && own.key_pair.name == *name);
    if !wanted.key_name.as_ref().is_none_or(known) {
        return Err(bad("Invalid key_name provided.".to_owned()));
    }
    let zone = |name: &String| state.zones.iter().any(|zone| zone.name == *name && zone.state.available);
    if !wanted.availability_zone.as_ref().is_none_or(zone) {
        return Err(bad("The requested availability zone is not available".to_owned()));
    }
    quotas(world, ask, flavor)?;
    Ok((flavor.clone(), user_data))
}

fn quotas(world: &World, ask: &Ask, flavor: &Flavor) -> Result<(), Refusal> {
    let state = &world.state;
    let cores: u32 = state.servers_of(&ask.project_id).map(|record| record.vcpus).sum();
    let checks =
        [("instances", state.servers_of(&ask.project_id).count(), 1), ("cores", cores as usize, flavor.vcpus as usize)];
    for (name, used, more) in checks {
        state.room(&ask.project_id, name, used, more).map_err(|(limit, used)| {
            Refusal::nova(
                403,
                format!("Quota exceeded for {name}: Requested {more}, but already used {used} of {limit} {name}"),
            )
        })?;
    }
    Ok(())
}

/// (all ports, those made here). Nothing is bound unless everything can be.
fn bind(
    simulator: &Simulator,
    world: &mut World,
    ask: &Ask,
    wanted: &CreateServer,
    server_id: &str,
) -> Result<(Vec<String>, Vec<String>), Refusal> {
    for id in wanted.networks.iter().filter_map(|network| network.port.as_ref()) {
        let port = world.state.ports.get(id).filter(|port| port.project_id == ask.project_id);
        let port = port.ok_or_else(|| Refusal::nova(400, format!("Port id {id} could not be found.")))?;
        if !port.device_id.is_empty() {
            return Err(Refusal::nova(409, format!("Port {id} is still in use.")));
        }
    }
    for id in
        wanted.networks.iter().filter(|network| network.port.is_none()).filter_map(|network| network.uuid.as_ref())
    {
        if !world.state.networks.contains_key(id) {
            return Err(Refusal::nova(400, format!("Network {id} could not be found.")));
        }
    }
    let zone = wanted.availability_zone.as_deref().unwrap_or(starter::ZONE);
    let (mut ports, mut own) = (vec![], vec![]);
    for network in &wanted.networks {
        let id = match (&network.port, &network.uuid) {
            (Some(id), _) => id.clone(),
            (None, Some(network_id)) => {
                let port = CreatePort { network_id: network_id.clone(), ..CreatePort::default() };
                let id = network::make_port(simulator, world, ask, port)?.id;
                own.push(id.clone());
                id
            }
            (None, None) => return Err(Refusal::nova(400, "Bad networks format: neither port nor uuid")),
        };
        if let Some(port) = world.state.ports.get_mut(&id) {
            port.device_id = server_id.to_owned();
            port.device_owner = format!("compute:{zone}");
            port.host_id = Some("sim-host-1".to_owned());
            port.revision_number += 1;
        }
        ports.push(id);
    }
    Ok((ports, own))
}
