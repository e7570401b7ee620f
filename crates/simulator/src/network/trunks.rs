//! Trunks: one port that carries others.

use hangar_openstack::wire::{CreateTrunk, SubPort, Trunk};
use http::Method;
use serde_json::{Value, json};

use super::{body_of, list, missing, no_route, one, over, ports, read, refuse};
use crate::Simulator;
use crate::ask::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{State, World};

pub(super) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let state = &mut world.state;
    let segments = ask.segments();
    if let ["trunks", id, ..] = segments.as_slice()
        && !state.trunks.get(*id).is_some_and(|trunk| ask.sees(&trunk.project_id))
    {
        return Err(missing("Trunk", id, " could not be found."));
    }
    match (&ask.method, segments.as_slice()) {
        (&Method::GET, ["trunks"]) => {
            list("trunks", state.trunks.values().filter(|trunk| ask.sees(&trunk.project_id)), ask)
        }
        (&Method::GET, ["trunks", id]) => one("trunk", state.trunks.get(*id), no_route),
        (&Method::POST, ["trunks"]) => create(simulator, world, ask),
        (&Method::PUT, ["trunks", id]) => {
            let wanted = body_of(ask, "trunk")?;
            let Some(trunk) = state.trunks.get_mut(id) else { return Err(no_route()) };
            trunk.name = wanted["name"].as_str().map_or_else(|| trunk.name.clone(), str::to_owned);
            trunk.admin_state_up = wanted["admin_state_up"].as_bool().unwrap_or(trunk.admin_state_up);
            trunk.revision_number += 1;
            Ok(Reply::ok(json!({"trunk": trunk})))
        }
        (&Method::DELETE, ["trunks", id]) => delete(state, id),
        (&Method::GET, ["trunks", id, "get_subports"]) => {
            Ok(Reply::ok(json!({"sub_ports": state.trunks.get(*id).map(|trunk| &trunk.sub_ports)})))
        }
        (&Method::PUT, ["trunks", id, "add_subports"]) => add(state, ask, id),
        (&Method::PUT, ["trunks", id, "remove_subports"]) => remove(state, ask, id),
        _ => Err(no_route()),
    }
}

fn carried<'a>(state: &'a State, port: &str) -> Option<&'a Trunk> {
    state.trunks.values().find(|trunk| trunk.port_id == port || trunk.sub_ports.iter().any(|sub| sub.port_id == port))
}

fn create(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let wanted: CreateTrunk = read(&body_of(ask, "trunk")?)?;
    let state = &mut world.state;
    let port = state.ports.get(&wanted.port_id).filter(|port| ask.sees(&port.project_id));
    let port = port.ok_or_else(|| ports::no_port(&wanted.port_id))?;
    if !port.device_id.is_empty() || carried(state, &port.id).is_some() {
        let words = format!("Port {} is currently in use and is not eligible for use as a parent port.", port.id);
        return refuse(409, "ParentPortInUse", words);
    }
    let used = state.trunks.values().filter(|trunk| trunk.project_id == ask.project_id).count();
    over(state, &ask.project_id, "trunk", used)?;
    let now = Some(simulator.now_text());
    let trunk = Trunk {
        id: world.ids.text(),
        name: wanted.name,
        description: wanted.description.unwrap_or_default(),
        port_id: wanted.port_id,
        status: "DOWN".to_owned(),
        admin_state_up: true,
        sub_ports: wanted.sub_ports,
        project_id: ask.project_id.clone(),
        tenant_id: ask.project_id.clone(),
        created_at: now.clone(),
        updated_at: now,
        ..Trunk::default()
    };
    state.trunks.insert(trunk.id.clone(), trunk.clone());
    Ok(Reply::new(201, json!({"trunk": trunk})))
}

fn delete(state: &mut State, id: &str) -> Outcome {
    let parent = state.trunks.get(id).and_then(|trunk| state.ports.get(&trunk.port_id));
    if parent.is_some_and(|port| !port.device_id.is_empty()) {
        return refuse(409, "TrunkInUse", format!("Trunk {id} is currently in use."));
    }
    state.trunks.remove(id);
    Ok(Reply::empty(204))
}

fn sub_ports(ask: &Ask) -> Result<Vec<SubPort>, Refusal> {
    let body: Value = ask.json().map_err(|why| Refusal::neutron(400, "HTTPBadRequest", why))?;
    read(&body["sub_ports"])
}

fn add(state: &mut State, ask: &Ask, id: &str) -> Outcome {
    let more = sub_ports(ask)?;
    for sub in &more {
        state.ports.get(&sub.port_id).ok_or_else(|| ports::no_port(&sub.port_id))?;
        if let Some(trunk) = carried(state, &sub.port_id) {
            let words = format!("Port {} is currently in use by trunk {}.", sub.port_id, trunk.id);
            return refuse(409, "PortInUseAsSubPort", words);
        }
    }
    let Some(trunk) = state.trunks.get_mut(id) else { return Err(no_route()) };
    trunk.sub_ports.extend(more);
    Ok(Reply::ok(json!(trunk)))
}

fn remove(state: &mut State, ask: &Ask, id: &str) -> Outcome {
    let less = sub_ports(ask)?;
    let Some(trunk) = state.trunks.get_mut(id) else { return Err(no_route()) };
    for sub in &less {
        let at = trunk.sub_ports.iter().position(|known| known.port_id == sub.port_id).ok_or_else(|| {
            let words = format!("SubPort {} on trunk {id} could not be found.", sub.port_id);
            Refusal::neutron(404, "SubPortNotFound", words)
        })?;
        trunk.sub_ports.remove(at);
    }
    Ok(Reply::ok(json!(trunk)))
}
