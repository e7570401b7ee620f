//! `POST servers`: checks in Nova's order and words, then ports are bound and the server is in BUILD.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_openstack::wire::{CreatePort, CreateServer, Flavor, Reference, Server, ServerFlavor};
use serde_json::{Value, json};

use super::attachments;
use crate::ask::Ask;
use crate::network::ports;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{Effect, ServerRecord, VolumeToMake, World};
use crate::{Simulator, starter};

const LARGEST_USER_DATA: usize = 65535;
/// The one hypervisor.
pub(crate) const HOST: &str = "sim-host-1";

pub(crate) fn create(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let mut body = ask.json().map_err(|why| Refusal::nova(400, why))?;
    let server = &mut body["server"];
    if server["networks"].is_string() || server["networks"].is_null() {
        server["networks"] = json!([]);
    }
    let wanted: CreateServer = serde_json::from_value(server.take())
        .map_err(|error| Refusal::nova(400, format!("Invalid input for field/attribute server. {error}")))?;
    let (flavor, user_data) = check(world, ask, &wanted)?;
    let group = server_group(world, ask, body.get("os:scheduler_hints").or(body.get("OS-SCH-HNT:scheduler_hints")))?;
    let (ready, volumes_to_make) = volumes(world, ask, &wanted)?;
    let id = world.ids.text();
    let (ports, own_ports) = bind(simulator, world, ask, &wanted, &id)?;
    if let Some(group) = group.and_then(|group| world.state.server_groups.get_mut(&group)) {
        group.members.push(id.clone());
    }
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
            host_id: format!("{:x}", uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_DNS, HOST.as_bytes()).as_u128()),
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
        ram: flavor.ram,
        user_data,
        volumes_to_make,
        doomed: ask.doom.clone(),
        sequence: world.sequence,
    };
    world.state.servers.insert(id.clone(), record);
    for (number, (volume, with_server)) in ready.into_iter().enumerate() {
        attachments::hang(simulator, world, &volume, &id, number, with_server);
    }
    world.effects.push(Effect::Build(id.clone()));
    let links = json!([{"rel": "self", "href": format!("{}/servers/{id}", ask.root)}]);
    Ok(Reply::new(
        202,
        json!({"server": {"id": id, "links": links, "OS-DCF:diskConfig": "MANUAL",
        "security_groups": [{"name": "default"}], "adminPass": "unused"}}),
    ))
}

fn check(world: &World, ask: &Ask, wanted: &CreateServer) -> Result<(Flavor, Vec<u8>), Refusal> {
    let state = &world.state;
    let bad = |message: String| Refusal::nova(400, message);
    if wanted.name.is_empty() {
        return Err(bad("Invalid input for field/attribute name. Value: . '' should be non-empty".to_owned()));
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
    let from_volume = wanted.block_device_mapping_v2.iter().any(|device| device.boot_index == 0);
    if wanted.image_id.is_empty() && !from_volume {
        return Err(bad("Invalid imageRef provided.".to_owned()));
    }
    if let Some((key, value)) = wanted.metadata.iter().find(|(key, value)| key.len() > 255 || value.len() > 255) {
        return Err(bad(format!("Invalid input for field/attribute {key}. Value: {value}. '{value}' is too long")));
    }
    if let Some(tag) = wanted.tags.iter().find(|tag| tag.contains([',', '/'])) {
        return Err(bad(format!(
            "Invalid input for field/attribute 0. Value: {tag}. '{tag}' does not match '^[^,/]*$'"
        )));
    }
    let flavor = state.flavors.get(&wanted.flavor_id);
    let flavor = flavor.ok_or_else(|| bad(format!("Flavor {} could not be found.", wanted.flavor_id)))?;
    let image = state.images.get(&wanted.image_id);
    if !wanted.image_id.is_empty() && image.is_none() {
        return Err(bad("Can not find requested image".to_owned()));
    }
    if let Some(image) = image {
        if image.status != "active" {
            return Err(bad(format!("Image {} is not active.", image.id)));
        }
        if image.min_ram > flavor.ram {
            return Err(bad("Flavor's memory is too small for requested image.".to_owned()));
        }
        if image.min_disk > flavor.disk && !from_volume {
            return Err(bad("The created instance's disk would be too small.".to_owned()));
        }
    }
    let known = |name: &String| state.key_pairs.contains_key(&format!("{}/{name}", ask.user_id));
    if !wanted.key_name.as_ref().is_none_or(known) {
        return Err(bad("Invalid key_name provided.".to_owned()));
    }
    let zone = |name: &String| state.zones.values().any(|zone| zone.name == *name && zone.state.available);
    if !wanted.availability_zone.as_ref().is_none_or(zone) {
        return Err(bad("The requested availability zone is not available".to_owned()));
    }
    quotas(world, ask, flavor)?;
    Ok((flavor.clone(), user_data))
}

/// Nova takes ids that look like one, and only those it knows.
fn server_group(world: &World, ask: &Ask, hints: Option<&Value>) -> Result<Option<String>, Refusal> {
    let Some(id) = hints.and_then(|hints| hints["group"].as_str()) else { return Ok(None) };
    if uuid::Uuid::parse_str(id).is_err() {
        let words = format!(
            "Invalid input for field/attribute group. Value: {id}. '{id}' is not valid under any of the given schemas"
        );
        return Err(Refusal::nova(400, words));
    }
    let known = world.state.server_groups.get(id).filter(|group| group.project_id == ask.project_id);
    known
        .map(|group| Some(group.id.clone()))
        .ok_or_else(|| Refusal::nova(400, format!("Instance group {id} could not be found.")))
}

/// A volume's id, and whether it goes with the server.
type Ready = (String, bool);

/// (volumes that are there, volumes that are still to be made)
fn volumes(world: &World, ask: &Ask, wanted: &CreateServer) -> Result<(Vec<Ready>, Vec<VolumeToMake>), Refusal> {
    let (mut ready, mut to_make) = (vec![], vec![]);
    for device in &wanted.block_device_mapping_v2 {
        let bad = |words: String| Refusal::nova(400, format!("Block Device Mapping is Invalid: {words}"));
        match (device.source_type.as_str(), device.destination_type.as_str()) {
            ("volume", "volume") => {
                let id = device.uuid.clone().unwrap_or_default();
                let own =
                    |volume: &&hangar_openstack::wire::Volume| volume.tenant_id.as_deref() == Some(&ask.project_id);
                let volume = world.state.volumes.get(&id).filter(own);
                let volume = volume.ok_or_else(|| bad(format!("failed to get volume {id}.")))?;
                if volume.status != "available" {
                    let words = format!(
                        "Invalid volume: volume {id} status must be available or downloading to reserve, but the current status is {}.",
                        volume.status
                    );
                    return Err(Refusal::nova(400, words));
                }
                if device.boot_index == 0 && volume.bootable != "true" {
                    return Err(bad(format!("Volume {id} is not bootable.")));
                }
                ready.push((id, device.delete_on_termination));
            }
            ("image" | "blank", "volume") => {
                let size = device.volume_size.ok_or_else(|| {
                    bad("Images with destination_type 'volume' need to have a non-zero size specified".to_owned())
                })?;
                to_make.push(VolumeToMake {
                    size,
                    volume_type: device.volume_type.clone(),
                    image_id: device.uuid.clone(),
                    delete_on_termination: device.delete_on_termination,
                });
            }
            _ => {}
        }
    }
    Ok((ready, to_make))
}

fn quotas(world: &World, ask: &Ask, flavor: &Flavor) -> Result<(), Refusal> {
    let state = &world.state;
    // Counting takes a while in a large cloud.
    if ["instances", "cores", "ram"].iter().all(|name| state.limit(&ask.project_id, name) < 0) {
        return Ok(());
    }
    let cores: u32 = state.servers_of(&ask.project_id).map(|record| record.vcpus).sum();
    let ram: u64 = state.servers_of(&ask.project_id).map(|record| record.ram).sum();
    let checks = [
        ("instances", state.servers_of(&ask.project_id).count(), 1),
        ("cores", cores as usize, flavor.vcpus as usize),
        ("ram", usize::try_from(ram).unwrap_or(usize::MAX), usize::try_from(flavor.ram).unwrap_or(usize::MAX)),
    ];
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
                let id = ports::make(simulator, world, &ask.project_id, port)?.id;
                own.push(id.clone());
                id
            }
            (None, None) => return Err(Refusal::nova(400, "Bad networks format: neither port nor uuid")),
        };
        world.state.ports.change(&id, |port| bind_port(port, server_id, zone, "DOWN"));
        ports.push(id);
    }
    Ok((ports, own))
}

pub(crate) fn bind_port(port: &mut hangar_openstack::wire::Port, server: &str, zone: &str, status: &str) {
    port.device_id = server.to_owned();
    port.device_owner = format!("compute:{zone}");
    port.host_id = Some(HOST.to_owned());
    port.vif_type = Some("ovs".to_owned());
    port.vif_details = Some(json!({"port_filter": true, "connectivity": "l2"}));
    port.status = status.to_owned();
    port.revision_number += 1;
}
