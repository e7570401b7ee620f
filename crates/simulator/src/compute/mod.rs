//! Nova: servers to find, show and delete; creation, actions and everything that is not a server have their own files.

mod actions;
mod attachments;
mod create;
mod extras;
mod quotas;

pub(crate) use attachments::hang;

use std::collections::BTreeMap;

use hangar_openstack::wire::{Address, Server};
use http::Method;
use regex::Regex;
use serde_json::{Value, json};

use crate::Simulator;
use crate::ask::Ask;
use crate::listing::{self, BadPage, Listed};
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{Effect, ServerRecord, State, World};

/// What the newest clients may ask for.
pub(crate) const HIGHEST: (u16, u16) = (2, 96);

pub(crate) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let segments = ask.segments();
    if segments.is_empty() && ask.method == Method::GET {
        let body = if ask.versioned { json!({"version": version(ask)}) } else { json!({"versions": [version(ask)]}) };
        return Ok(Reply::ok(body));
    }
    let version = ask.microversion("compute", HIGHEST)?;
    let mut reply = match segments.as_slice() {
        ["servers", ..] => servers(simulator, world, ask, &segments, version),
        ["os-quota-sets" | "limits", ..] => quotas::answer(world, ask),
        _ => extras::answer(world, ask, &segments, version),
    }?;
    reply.headers.push(("x-openstack-nova-api-version", format!("{}.{}", version.0, version.1)));
    reply.headers.push(("openstack-api-version", format!("compute {}.{}", version.0, version.1)));
    Ok(reply)
}

fn version(ask: &Ask) -> Value {
    json!({"id": "v2.1", "status": "CURRENT", "version": format!("{}.{}", HIGHEST.0, HIGHEST.1), "min_version": "2.1",
        "updated": "2013-07-23T11:33:21Z", "links": [{"rel": "self", "href": format!("{}/", ask.root)}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}]})
}

fn servers(simulator: &Simulator, world: &mut World, ask: &Ask, segments: &[&str], version: (u16, u16)) -> Outcome {
    let state = &world.state;
    match (&ask.method, segments) {
        (&Method::GET, ["servers"]) => list(state, ask, |record| {
            let server = &record.server;
            json!({"id": server.id, "name": server.name, "links": links(ask, &server.id)})
        }),
        (&Method::GET, ["servers", "detail"]) => list(state, ask, |record| shown(state, record, ask, version)),
        (&Method::POST, ["servers"]) => create::create(simulator, world, ask),
        (&Method::GET, ["servers", id]) => {
            Ok(Reply::ok(json!({"server": shown(state, find(state, ask, id)?, ask, version)})))
        }
        (&Method::PUT, ["servers", id]) => {
            find(state, ask, id)?;
            let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
            if let (Some(record), Some(name)) = (world.state.servers.get_mut(id), body["server"]["name"].as_str()) {
                record.server.name = name.to_owned();
            }
            let state = &world.state;
            Ok(Reply::ok(json!({"server": shown(state, find(state, ask, id)?, ask, version)})))
        }
        (&Method::DELETE, ["servers", id]) => delete(simulator, world, ask, id),
        (_, ["servers", id, rest @ ..]) => {
            find(state, ask, id)?;
            match rest {
                ["action"] => actions::answer(simulator, world, ask, id),
                ["metadata", ..] | ["tags", ..] => actions::labels(world, ask, id, rest),
                _ => attachments::answer(simulator, world, ask, id, rest),
            }
        }
        _ => Err(Refusal::no_such_path()),
    }
}

fn links(ask: &Ask, id: &str) -> Value {
    json!([{"rel": "self", "href": format!("{}/servers/{id}", ask.root)},
        {"rel": "bookmark", "href": format!("{}/compute/servers/{id}", ask.base)}])
}

pub(crate) fn find<'a>(state: &'a State, ask: &Ask, id: &str) -> Result<&'a ServerRecord, Refusal> {
    let own = state.servers.get(id).filter(|record| ask.sees(&record.server.tenant_id));
    own.ok_or_else(|| Refusal::nova(404, format!("Instance {id} could not be found.")))
}

/// A server with the addresses its ports have now.
pub(crate) fn show(state: &State, record: &ServerRecord) -> Server {
    Server { addresses: addresses(state, record), ..record.server.clone() }
}

/// The same as this caller may see it at this microversion.
fn shown(state: &State, record: &ServerRecord, ask: &Ask, version: (u16, u16)) -> Value {
    let server = &record.server;
    let mut shown = json!(show(state, record));
    let Some(fields) = shown.as_object_mut() else { return shown };
    fields.insert("links".to_owned(), links(ask, &server.id));
    fields.insert("OS-DCF:diskConfig".to_owned(), json!("MANUAL"));
    fields.insert("accessIPv4".to_owned(), json!(""));
    fields.insert("accessIPv6".to_owned(), json!(""));
    fields.insert("OS-SRV-USG:terminated_at".to_owned(), Value::Null);
    if server.status == "ACTIVE" || server.status == "BUILD" {
        fields.insert("progress".to_owned(), json!(if server.status == "BUILD" { 0 } else { 100 }));
    }
    if server.image.is_none() {
        fields.insert("image".to_owned(), json!(""));
    }
    if version < (2, 47) {
        let href = format!("{}/compute/flavors/{}", ask.base, record.flavor_id);
        let flavor = json!({"id": record.flavor_id, "links": [{"rel": "bookmark", "href": href}]});
        fields.insert("flavor".to_owned(), flavor);
    } else if let Some(flavor) = fields.get_mut("flavor") {
        flavor["ephemeral"] = json!(0);
        flavor["swap"] = json!(0);
        flavor["extra_specs"] = json!({});
    }
    if version < (2, 26) {
        fields.remove("tags");
    }
    if version >= (2, 9) {
        fields.insert("locked".to_owned(), json!(server.locked == Some(true)));
    } else {
        fields.remove("locked");
    }
    if !record.own_ports.is_empty() || !record.ports.is_empty() {
        fields.insert("security_groups".to_owned(), json!(groups(state, record)));
    }
    if ask.admin {
        fields.insert("OS-EXT-SRV-ATTR:host".to_owned(), json!(create::HOST));
        fields.insert("OS-EXT-SRV-ATTR:hypervisor_hostname".to_owned(), json!(create::HOST));
        if version >= (2, 3) {
            use base64::Engine as _;
            let text = base64::engine::general_purpose::STANDARD.encode(&record.user_data);
            let value = if record.user_data.is_empty() { Value::Null } else { json!(text) };
            fields.insert("OS-EXT-SRV-ATTR:user_data".to_owned(), value);
        }
    }
    shown
}

fn groups(state: &State, record: &ServerRecord) -> Vec<Value> {
    let ports = record.ports.iter().filter_map(|id| state.ports.get(id));
    let groups = ports.flat_map(|port| &port.security_groups).filter_map(|id| state.security_groups.get(id));
    groups.map(|group| json!({"name": group.name})).collect()
}

fn addresses(state: &State, record: &ServerRecord) -> BTreeMap<String, Vec<Address>> {
    let mut addresses: BTreeMap<String, Vec<Address>> = BTreeMap::new();
    for port in record.ports.iter().filter_map(|id| state.ports.get(id)) {
        let network = state.networks.get(&port.network_id).map_or(&port.network_id, |network| &network.name);
        let floating = state.floating_ips.values().filter(|ip| ip.port_id.as_deref() == Some(&port.id));
        let fixed = port.fixed_ips.iter().filter_map(|ip| ip.ip_address.as_deref()).map(|addr| (addr, "fixed"));
        let all = fixed.chain(floating.map(|ip| (ip.floating_ip_address.as_str(), "floating")));
        let entry = addresses.entry(network.clone()).or_default();
        entry.extend(all.map(|(addr, kind)| Address {
            addr: addr.to_owned(),
            version: if addr.contains(':') { 6 } else { 4 },
            kind: kind.to_owned(),
            mac_address: port.mac_address.clone(),
        }));
    }
    addresses
}

fn list(state: &State, ask: &Ask, show: impl Fn(&ServerRecord) -> Value) -> Outcome {
    let query = &ask.query;
    let pattern = query.first("name").map(Regex::new).transpose();
    let name = query.first("name").unwrap_or_default();
    let words = format!("Invalid input for query parameters name. Value: {name}. '{name}' is not a 'regex'");
    let pattern = pattern.map_err(|_| Refusal::nova(400, words))?;
    let everybody = ask.admin
        && query
            .first("all_tenants")
            .or(query.first("all_projects"))
            .is_some_and(|value| !matches!(value, "0" | "False" | "false"));
    let has = |server: &Server, list: &str, all: bool| {
        let own = |tag: &str| server.tags.iter().any(|known| known == tag);
        if all { list.split(',').all(own) } else { list.split(',').any(own) }
    };
    let wanted = |record: &&ServerRecord| {
        let server = &record.server;
        (everybody || server.tenant_id == ask.project_id)
            && query
                .first("project_id")
                .or(query.first("tenant_id"))
                .is_none_or(|id| !ask.admin || server.tenant_id == id)
            && pattern.as_ref().is_none_or(|pattern| pattern.is_match(&server.name))
            && query.first("status").is_none_or(|status| server.status.eq_ignore_ascii_case(status))
            && query.first("uuid").is_none_or(|id| server.id == id)
            && query.first("flavor").is_none_or(|id| record.flavor_id == id)
            && query.first("image").is_none_or(|id| server.image.as_ref().is_some_and(|image| image.id == id))
            && query.first("tags").is_none_or(|tags| has(server, tags, true))
            && query.first("tags-any").is_none_or(|tags| has(server, tags, false))
            && query.first("not-tags").is_none_or(|tags| !has(server, tags, true))
            && query.first("not-tags-any").is_none_or(|tags| !has(server, tags, false))
            && query.first("changes-since").is_none_or(|since| server.updated.as_str() >= since)
    };
    let mut records: Vec<&ServerRecord> = state.servers.values().filter(wanted).collect();
    records.sort_by_key(|record| std::cmp::Reverse(record.sequence));
    // Nova's filters are done: only the page is left to be cut.
    let cut = query.only(&["limit", "marker"]);
    let ids = records.into_iter().map(|record| Cut { record });
    let mut page = listing::page(ids, &cut, |_| true).map_err(|bad| match bad {
        BadPage::Marker(id) => Refusal::nova(400, format!("marker [{id}] not found")),
        BadPage::Limit(text) => Refusal::nova(
            400,
            format!("Invalid input for query parameters limit. Value: {text}. '{text}' does not match '^[0-9]*$'"),
        ),
    })?;
    for item in &mut page.items {
        if let Some(record) = item["id"].as_str().and_then(|id| state.servers.get(id)) {
            *item = show(record);
        }
    }
    page.next = page.next.map(|_| {
        let last = page.items.last().map(|item| item.id().to_owned()).unwrap_or_default();
        query.with(&[("limit", cut.first("limit").unwrap_or("1000")), ("marker", &last)])
    });
    Ok(Reply::ok(listing::body("servers", &ask.url(), page)))
}

/// A server on a page before it is shown.
struct Cut<'a> {
    record: &'a ServerRecord,
}

impl serde::Serialize for Cut<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json!({"id": self.record.server.id}).serialize(serializer)
    }
}

impl Listed for Cut<'_> {
    fn id(&self) -> &str {
        &self.record.server.id
    }

    fn text(&self, _: &str) -> Option<&str> {
        None
    }
}

fn delete(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    if find(&world.state, ask, id)?.server.locked == Some(true) && !ask.admin {
        return Err(Refusal::nova(409, format!("Instance {id} is locked")));
    }
    if let Some(record) = world.state.servers.get_mut(id)
        && record.server.task_state.as_deref() != Some("deleting")
    {
        record.server.task_state = Some("deleting".to_owned());
        record.server.updated = simulator.now_text();
        world.effects.push(Effect::Remove(id.to_owned()));
    }
    Ok(Reply::empty(204))
}
