//! Nova: everything but the creation of a server.

use std::collections::BTreeMap;

use hangar_openstack::wire::{Address, Server};
use http::Method;
use regex::Regex;
use serde_json::{Value, json};

use crate::front::Ask;
use crate::listing;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{Effect, ServerRecord, State, World};
use crate::{Simulator, server_create};

pub(crate) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let state = &world.state;
    match (&ask.method, ask.segments().as_slice()) {
        (&Method::GET, []) => Ok(Reply::ok(json!({"version": {"id": "v2.1", "status": "CURRENT", "version": "2.90",
            "min_version": "2.1", "links": [{"rel": "self", "href": format!("{}/", ask.root)}]}}))),
        (&Method::GET, ["servers", "detail"]) => list(state, ask),
        (&Method::POST, ["servers"]) => server_create::create(simulator, world, ask),
        (&Method::GET, ["servers", id]) => Ok(Reply::ok(json!({"server": show(state, find(state, ask, id)?)}))),
        (&Method::DELETE, ["servers", id]) => delete(simulator, world, ask, id),
        (&Method::POST, ["servers", id, "action"]) => action(world, ask, id),
        (&Method::GET, ["flavors", "detail"]) => {
            Ok(Reply::ok(json!({"flavors": state.flavors.values().collect::<Vec<_>>()})))
        }
        (&Method::GET, ["flavors", id]) => match state.flavors.get(*id) {
            Some(flavor) => Ok(Reply::ok(json!({"flavor": flavor}))),
            None => Err(Refusal::nova(404, format!("Flavor {id} could not be found."))),
        },
        (&Method::GET, ["os-availability-zone"]) => {
            let zone = |name: &str, available: bool| json!({"zoneName": name, "zoneState": {"available": available}, "hosts": null});
            let zones: Vec<Value> = state.zones.iter().map(|known| zone(&known.name, known.state.available)).collect();
            Ok(Reply::ok(json!({"availabilityZoneInfo": zones})))
        }
        (&Method::GET, ["os-keypairs"]) => {
            let own = state.key_pairs.iter().filter(|owned| owned.user_id == ask.user_id);
            let pairs: Vec<Value> = own.map(|owned| json!({"keypair": owned.key_pair})).collect();
            Ok(Reply::ok(json!({"keypairs": pairs})))
        }
        (&Method::GET, ["os-server-groups"]) => Ok(Reply::ok(json!({"server_groups": []}))),
        (&Method::GET, ["limits"]) => Ok(Reply::ok(json!({"limits": {"rate": [], "absolute": limits(state, ask)}}))),
        _ => Err(Refusal::nova(404, "The resource could not be found.")),
    }
}

fn limits(state: &State, ask: &Ask) -> Value {
    let limit =
        |name: &str| state.quotas.get(&ask.project_id).and_then(|quotas| quotas.get(name)).copied().unwrap_or(-1);
    let cores: u32 = state.servers_of(&ask.project_id).map(|record| record.vcpus).sum();
    json!({"maxTotalInstances": limit("instances"), "totalInstancesUsed": state.servers_of(&ask.project_id).count(),
        "maxTotalCores": limit("cores"), "totalCoresUsed": cores})
}

pub(crate) fn find<'a>(state: &'a State, ask: &Ask, id: &str) -> Result<&'a ServerRecord, Refusal> {
    let own = state.servers.get(id).filter(|record| record.server.tenant_id == ask.project_id);
    own.ok_or_else(|| Refusal::nova(404, format!("Instance {id} could not be found.")))
}

/// A server with the addresses its ports have now.
pub(crate) fn show(state: &State, record: &ServerRecord) -> Server {
    Server { addresses: addresses(state, record), ..record.server.clone() }
}

fn addresses(state: &State, record: &ServerRecord) -> BTreeMap<String, Vec<Address>> {
    let mut addresses: BTreeMap<String, Vec<Address>> = BTreeMap::new();
    for port in record.ports.iter().filter_map(|id| state.ports.get(id)) {
        let network = state.networks.get(&port.network_id).map_or(&port.network_id, |network| &network.name);
        for addr in port.fixed_ips.iter().filter_map(|ip| ip.ip_address.clone()) {
            let version = if addr.contains(':') { 6 } else { 4 };
            let mac_address = port.mac_address.clone();
            addresses.entry(network.clone()).or_default().push(Address {
                addr,
                version,
                kind: "fixed".into(),
                mac_address,
            });
        }
    }
    addresses
}

fn list(state: &State, ask: &Ask) -> Outcome {
    let pattern = ask.query.first("name").map(Regex::new).transpose();
    let pattern = pattern.map_err(|_| Refusal::nova(400, "Invalid filter pattern for name"))?;
    let wanted = |record: &&ServerRecord| {
        let server = &record.server;
        pattern.as_ref().is_none_or(|pattern| pattern.is_match(&server.name))
            && ask.query.first("status").is_none_or(|status| server.status.eq_ignore_ascii_case(status))
            && ask
                .query
                .first("tags")
                .is_none_or(|tags| tags.split(',').all(|tag| server.tags.iter().any(|own| own == tag)))
    };
    let mut records: Vec<&ServerRecord> = state.servers_of(&ask.project_id).filter(wanted).collect();
    records.sort_by_key(|record| std::cmp::Reverse(record.sequence));
    let items = records.into_iter().map(|record| json!(show(state, record))).collect();
    let (page, next) = listing::page(items, &ask.query).map_err(|why| Refusal::nova(400, why))?;
    Ok(Reply::ok(listing::body("servers", &ask.url(), page, next)))
}

fn delete(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    find(&world.state, ask, id)?;
    if let Some(record) = world.state.servers.get_mut(id)
        && record.server.task_state.as_deref() != Some("deleting")
    {
        record.server.task_state = Some("deleting".to_owned());
        record.server.updated = simulator.now_text();
        world.effects.push(Effect::Remove(id.to_owned()));
    }
    Ok(Reply::empty(204))
}

fn action(world: &World, ask: &Ask, id: &str) -> Outcome {
    find(&world.state, ask, id)?;
    let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
    let Some(wanted) = body.get("os-getConsoleOutput") else {
        return Err(Refusal::nova(400, "There is no such action: only os-getConsoleOutput is known here"));
    };
    let text = world.consoles.get(id).map(crate::Console::text).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let length = wanted["length"].as_u64().and_then(|length| usize::try_from(length).ok()).unwrap_or(lines.len());
    let output = lines[lines.len().saturating_sub(length)..].join("\n");
    Ok(Reply::ok(json!({"output": output})))
}
