//! What hangs on a server: network cards and volumes.

use hangar_openstack::wire::{Attachment, CreatePort, InterfaceAttachment, Port, ServerVolume, VolumeAttachment};
use http::Method;
use serde_json::{Value, json};

use super::find;
use crate::Simulator;
use crate::ask::Ask;
use crate::network::ports;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{Effect, World};

pub(super) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str, rest: &[&str]) -> Outcome {
    match (&ask.method, rest) {
        (&Method::GET, ["os-interface"]) => {
            let ports = &find(&world.state, ask, id)?.ports;
            let cards: Vec<InterfaceAttachment> =
                ports.iter().filter_map(|id| world.state.ports.get(id)).map(card).collect();
            Ok(Reply::ok(json!({"interfaceAttachments": cards})))
        }
        (&Method::POST, ["os-interface"]) => plug(simulator, world, ask, id),
        (&Method::DELETE, ["os-interface", port]) => unplug(world, ask, id, port),
        (&Method::GET, ["os-volume_attachments"]) => {
            let volumes = &find(&world.state, ask, id)?.server.volumes;
            let all: Vec<VolumeAttachment> = volumes.iter().map(|volume| attachment(world, id, &volume.id)).collect();
            Ok(Reply::ok(json!({"volumeAttachments": all})))
        }
        (&Method::GET, ["os-volume_attachments", volume]) => {
            let on = find(&world.state, ask, id)?.server.volumes.iter().any(|on| on.id == *volume);
            let words = format!("Instance {id} is not attached to volume {volume}");
            on.then_some(()).ok_or_else(|| Refusal::nova(404, words))?;
            Ok(Reply::ok(json!({"volumeAttachment": attachment(world, id, volume)})))
        }
        (&Method::POST, ["os-volume_attachments"]) => attach(simulator, world, ask, id),
        (&Method::DELETE, ["os-volume_attachments", volume]) => detach(world, ask, id, volume),
        (&Method::GET, ["os-instance-actions"]) => Ok(Reply::ok(json!({"instanceActions": []}))),
        (&Method::GET, ["os-security-groups"]) => {
            let groups = super::groups(&world.state, find(&world.state, ask, id)?);
            Ok(Reply::ok(json!({"security_groups": groups})))
        }
        _ => Err(Refusal::no_such_path()),
    }
}

fn card(port: &Port) -> InterfaceAttachment {
    InterfaceAttachment {
        port_id: port.id.clone(),
        net_id: port.network_id.clone(),
        mac_addr: port.mac_address.clone(),
        port_state: port.status.clone(),
        fixed_ips: port.fixed_ips.clone(),
    }
}

fn plug(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
    let wanted = &body["interfaceAttachment"];
    let port_id = match (wanted["port_id"].as_str(), wanted["net_id"].as_str()) {
        (Some(port), _) => {
            let known = world.state.ports.get(port).filter(|known| ask.sees(&known.project_id));
            let known = known.ok_or_else(|| Refusal::nova(404, format!("Port id {port} could not be found.")))?;
            if !known.device_id.is_empty() {
                return Err(Refusal::nova(400, format!("Port {port} is still in use.")));
            }
            port.to_owned()
        }
        (None, Some(network)) => {
            let wanted = CreatePort { network_id: network.to_owned(), ..CreatePort::default() };
            let port = ports::make(simulator, world, &ask.project_id, wanted)?;
            if let Some(record) = world.state.servers.get_mut(id) {
                record.own_ports.push(port.id.clone());
            }
            port.id
        }
        (None, None) => return Err(Refusal::nova(400, "Either port_id or net_id must be specified")),
    };
    let Some(record) = world.state.servers.get_mut(id) else { return Err(Refusal::no_such_path()) };
    record.ports.push(port_id.clone());
    let zone = record.server.availability_zone.clone().unwrap_or_default();
    world.state.ports.change(&port_id, |port| super::create::bind_port(port, id, &zone, "ACTIVE"));
    Ok(Reply::ok(json!({"interfaceAttachment": world.state.ports.get(&port_id).map(card)})))
}

fn unplug(world: &mut World, ask: &Ask, id: &str, port: &str) -> Outcome {
    if !find(&world.state, ask, id)?.ports.iter().any(|own| own == port) {
        return Err(Refusal::nova(404, format!("Instance {id} does not have a port with id {port}.")));
    }
    let Some(record) = world.state.servers.get_mut(id) else { return Err(Refusal::no_such_path()) };
    record.ports.retain(|own| own != port);
    let own = record.own_ports.iter().any(|own| own == port);
    record.own_ports.retain(|own| own != port);
    crate::lifecycle::release_port(world, port, id, own);
    Ok(Reply::empty(202))
}

fn attachment(world: &World, server: &str, volume: &str) -> VolumeAttachment {
    let on = world.state.volumes.get(volume).and_then(|volume| volume.attachments.first());
    let device = on.and_then(|on| on.device.clone());
    VolumeAttachment { id: Some(volume.to_owned()), volume_id: volume.to_owned(), server_id: server.to_owned(), device }
}

fn attach(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
    let volume_id = body["volumeAttachment"]["volumeId"].as_str().unwrap_or_default().to_owned();
    let server = &find(&world.state, ask, id)?.server;
    if !matches!(server.status.as_str(), "ACTIVE" | "SHUTOFF") {
        let state = server.vm_state.as_deref().unwrap_or("building");
        return Err(Refusal::nova(
            409,
            format!("Cannot 'attach_volume' instance {id} while it is in vm_state {state}"),
        ));
    }
    let number = server.volumes.len() + 1;
    let volume =
        world.state.volumes.get(&volume_id).filter(|volume| ask.sees(volume.tenant_id.as_deref().unwrap_or_default()));
    let volume = volume.ok_or_else(|| Refusal::nova(404, format!("Volume {volume_id} could not be found.")))?;
    if volume.status != "available" && !volume.multiattach {
        let words = format!(
            "Invalid volume: volume {volume_id} status must be available or downloading to reserve, but the current status is {}.",
            volume.status
        );
        return Err(Refusal::nova(400, words));
    }
    hang(simulator, world, &volume_id, id, number, false);
    if let Some(volume) = world.state.volumes.get_mut(&volume_id) {
        volume.status = "attaching".to_owned();
    }
    world.effects.push(Effect::Volume(volume_id.clone()));
    Ok(Reply::ok(json!({"volumeAttachment": attachment(world, id, &volume_id)})))
}

/// The volume in the server and the server in the volume.
pub(crate) fn hang(
    simulator: &Simulator,
    world: &mut World,
    volume: &str,
    server: &str,
    number: usize,
    with_server: bool,
) {
    let letter = char::from(b'a' + u8::try_from(number.min(25)).unwrap_or(25));
    let attachment = Attachment {
        id: volume.to_owned(),
        attachment_id: world.ids.text(),
        volume_id: volume.to_owned(),
        server_id: server.to_owned(),
        device: Some(format!("/dev/vd{letter}")),
        host_name: None,
        attached_at: Some(simulator.now_micros()),
    };
    if let Some(row) = world.state.volumes.get_mut(volume) {
        row.attachments.push(attachment);
        row.status = "in-use".to_owned();
    }
    if let Some(record) = world.state.servers.get_mut(server) {
        record.server.volumes.push(ServerVolume { id: volume.to_owned(), delete_on_termination: with_server });
    }
}

fn detach(world: &mut World, ask: &Ask, id: &str, volume: &str) -> Outcome {
    if !world.state.volumes.contains_key(volume) {
        return Err(Refusal::nova(404, format!("Volume {volume} could not be found.")));
    }
    if !find(&world.state, ask, id)?.server.volumes.iter().any(|on| on.id == volume) {
        return Err(Refusal::nova(404, format!("Instance {id} is not attached to volume {volume}")));
    }
    if let Some(record) = world.state.servers.get_mut(id) {
        record.server.volumes.retain(|on| on.id != volume);
    }
    if let Some(row) = world.state.volumes.get_mut(volume) {
        row.status = "detaching".to_owned();
        row.attachments.retain(|on| on.server_id != id);
    }
    world.effects.push(Effect::Volume(volume.to_owned()));
    Ok(Reply::new(202, Value::Null)).map(|reply| Reply { body: None, ..reply })
}
