//! Nova beside servers: flavors, zones, key pairs, server groups, and what administrators look at.

use hangar_openstack::wire::{Flavor, KeyPair, ServerGroup};
use http::Method;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{OwnedKeyPair, State, World};

pub(super) fn answer(world: &mut World, ask: &Ask, segments: &[&str], version: (u16, u16)) -> Outcome {
    match segments {
        ["flavors", ..] => flavors(world, ask, segments, version),
        ["os-keypairs", ..] => key_pairs(world, ask, segments, version),
        ["os-server-groups", ..] => server_groups(world, ask, segments, version),
        ["os-availability-zone"] | ["os-availability-zone", "detail"] => {
            let zone = |name: &str, available: bool| json!({"zoneName": name, "zoneState": {"available": available}, "hosts": null});
            let zones: Vec<Value> =
                world.state.zones.values().map(|zone_| zone(&zone_.name, zone_.state.available)).collect();
            Ok(Reply::ok(json!({"availabilityZoneInfo": zones})))
        }
        ["os-services"] if !ask.admin => Err(policy("os-services:list")),
        ["os-services"] => Ok(Reply::ok(json!({"services": services(&world.state)}))),
        ["os-hypervisors", ..] if !ask.admin => Err(policy("os-hypervisors:list")),
        ["os-hypervisors"] | ["os-hypervisors", "detail"] => {
            let host = super::create::HOST;
            let one = json!({"id": "11111111-1111-4111-8111-111111111111", "hypervisor_hostname": host, "state": "up",
                "status": "enabled", "hypervisor_type": "simulated", "hypervisor_version": 1, "host_ip": "127.0.0.1",
                "service": {"id": "1", "host": host, "disabled_reason": null}, "uptime": null});
            Ok(Reply::ok(json!({"hypervisors": [one]})))
        }
        ["extensions"] => Ok(Reply::ok(json!({"extensions": []}))),
        _ => Err(Refusal::no_such_path()),
    }
}

fn policy(rule: &str) -> Refusal {
    Refusal::nova(403, format!("Policy doesn't allow os_compute_api:{rule} to be performed."))
}

fn services(state: &State) -> Vec<Value> {
    let service = |binary: &str, zone: &str| {
        json!({"binary": binary, "host": super::create::HOST, "id": binary, "zone": zone, "status": "enabled",
            "state": "up", "updated_at": "2026-01-01T00:00:00.000000", "disabled_reason": null, "forced_down": false})
    };
    let zones = state.zones.values().map(|zone| service("nova-compute", &zone.name));
    [service("nova-conductor", "internal"), service("nova-scheduler", "internal")].into_iter().chain(zones).collect()
}

fn flavors(world: &mut World, ask: &Ask, segments: &[&str], version: (u16, u16)) -> Outcome {
    let state = &mut world.state;
    let shown = |flavor: &Flavor| {
        let mut shown = json!(flavor);
        shown["swap"] = if version >= (2, 75) { json!(0) } else { json!("") };
        shown["rxtx_factor"] = json!(1.0);
        shown["OS-FLV-DISABLED:disabled"] = json!(false);
        shown["links"] = json!([{"rel": "self", "href": format!("{}/flavors/{}", ask.root, flavor.id)}]);
        if version >= (2, 61) {
            shown["extra_specs"] = json!({});
        }
        if version >= (2, 55) {
            shown["description"] = Value::Null;
        }
        shown
    };
    let missing = |id: &str| Refusal::nova(404, format!("Flavor {id} could not be found."));
    match (&ask.method, segments) {
        (&Method::GET, ["flavors"] | ["flavors", "detail"]) => {
            let all: Vec<Value> = state.flavors.values().map(shown).collect();
            Ok(Reply::ok(json!({"flavors": all})))
        }
        (&Method::GET, ["flavors", id]) => {
            let flavor = state.flavors.get(*id).ok_or_else(|| missing(id))?;
            Ok(Reply::ok(json!({"flavor": shown(flavor)})))
        }
        (&Method::GET, ["flavors", id, "os-extra_specs"]) if state.flavors.contains_key(*id) => {
            Ok(Reply::ok(json!({"extra_specs": {}})))
        }
        (&Method::POST, ["flavors"]) if !ask.admin => Err(policy("os-flavor-manage:create")),
        (&Method::POST, ["flavors"]) => {
            let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
            let wanted = &body["flavor"];
            let name = wanted["name"].as_str().unwrap_or_default().to_owned();
            if state.flavors.values().any(|known| known.name == name) {
                return Err(Refusal::nova(409, format!("Flavor with name {name} already exists.")));
            }
            let number = |key: &str| wanted[key].as_u64().or_else(|| wanted[key].as_str()?.parse().ok()).unwrap_or(0);
            let id = wanted["id"].as_str().filter(|id| *id != "auto").map_or_else(|| world.ids.text(), str::to_owned);
            let flavor = Flavor {
                id: id.clone(),
                name,
                vcpus: u32::try_from(number("vcpus")).unwrap_or(1),
                ram: number("ram"),
                disk: number("disk"),
                ephemeral: number("OS-FLV-EXT-DATA:ephemeral"),
                is_public: wanted["os-flavor-access:is_public"].as_bool().unwrap_or(true),
            };
            world.state.flavors.insert(id, flavor.clone());
            Ok(Reply::ok(json!({"flavor": shown(&flavor)})))
        }
        (&Method::DELETE, ["flavors", _]) if !ask.admin => Err(policy("os-flavor-manage:delete")),
        (&Method::DELETE, ["flavors", id]) => {
            state.flavors.remove(id).ok_or_else(|| missing(id))?;
            Ok(Reply::empty(202))
        }
        _ => Err(Refusal::no_such_path()),
    }
}

fn key_pairs(world: &mut World, ask: &Ask, segments: &[&str], version: (u16, u16)) -> Outcome {
    let state = &mut world.state;
    let key = |name: &str| format!("{}/{name}", ask.user_id);
    let missing = |name: &str| Refusal::nova(404, format!("Keypair {name} not found for user {}", ask.user_id));
    match (&ask.method, segments) {
        (&Method::GET, ["os-keypairs"]) => {
            let own = state.key_pairs.values().filter(|owned| owned.user_id == ask.user_id);
            let pairs: Vec<Value> = own.map(|owned| json!({"keypair": owned.key_pair})).collect();
            Ok(Reply::ok(json!({"keypairs": pairs})))
        }
        (&Method::GET, ["os-keypairs", name]) => {
            let owned = state.key_pairs.get(&key(name)).ok_or_else(|| missing(name))?;
            let mut shown = json!(owned.key_pair);
            shown["user_id"] = json!(owned.user_id);
            shown["deleted"] = json!(false);
            shown["id"] = json!(1);
            Ok(Reply::ok(json!({"keypair": shown})))
        }
        (&Method::POST, ["os-keypairs"]) => {
            let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
            let wanted = &body["keypair"];
            let name = wanted["name"].as_str().unwrap_or_default();
            if state.key_pairs.contains_key(&key(name)) {
                return Err(Refusal::nova(409, format!("Key pair '{name}' already exists.")));
            }
            let Some(public_key) = wanted["public_key"].as_str() else {
                // Nova stopped making keys itself with 2.92; this one never began.
                let words = "Invalid input for field/attribute keypair. 'public_key' is a required property";
                return Err(Refusal::nova(400, words));
            };
            let fingerprint = fingerprint(public_key)
                .ok_or_else(|| Refusal::nova(400, "Keypair data is invalid: failed to generate fingerprint"))?;
            let key_pair = KeyPair {
                name: name.to_owned(),
                kind: "ssh".to_owned(),
                public_key: public_key.to_owned(),
                fingerprint,
            };
            state
                .key_pairs
                .insert(key(name), OwnedKeyPair { user_id: ask.user_id.clone(), key_pair: key_pair.clone() });
            let mut shown = json!(key_pair);
            shown["user_id"] = json!(ask.user_id);
            Ok(Reply::new(if version >= (2, 2) { 201 } else { 200 }, json!({"keypair": shown})))
        }
        (&Method::DELETE, ["os-keypairs", name]) => {
            state.key_pairs.remove(&key(name)).ok_or_else(|| missing(name))?;
            Ok(Reply::empty(if version >= (2, 2) { 204 } else { 202 }))
        }
        _ => Err(Refusal::no_such_path()),
    }
}

/// In the colon form that Nova shows, of the key's own bytes. (Nova uses MD5; which bytes they are does not matter to
/// anybody but a person who compares them, and that person has the key.)
fn fingerprint(public_key: &str) -> Option<String> {
    use base64::Engine as _;
    let data = public_key.split_whitespace().nth(1)?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(data).ok()?;
    let digest = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, &bytes);
    Some(digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"))
}

fn server_groups(world: &mut World, ask: &Ask, segments: &[&str], version: (u16, u16)) -> Outcome {
    let state = &mut world.state;
    let new = version >= (2, 64);
    let shown = |group: &ServerGroup| {
        let mut shown = json!(group);
        if new {
            shown["rules"] = json!({});
            shown["policy"] = json!(group.policies.first());
            shown.as_object_mut().map(|fields| fields.remove("policies"));
        } else {
            shown["metadata"] = json!({});
        }
        shown
    };
    let missing = |id: &str| Refusal::nova(404, format!("Instance group {id} could not be found."));
    match (&ask.method, segments) {
        (&Method::GET, ["os-server-groups"]) => {
            let own = state.server_groups.values().filter(|group| group.project_id == ask.project_id);
            Ok(Reply::ok(json!({"server_groups": own.map(shown).collect::<Vec<_>>()})))
        }
        (&Method::GET, ["os-server-groups", id]) => {
            let own =
                state.server_groups.get(*id).filter(|group| ask.sees(&group.project_id)).ok_or_else(|| missing(id))?;
            Ok(Reply::ok(json!({"server_group": shown(own)})))
        }
        (&Method::POST, ["os-server-groups"]) => {
            let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
            let wanted = &body["server_group"];
            let policy = if new { &wanted["policy"] } else { &wanted["policies"][0] };
            let known = ["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"];
            let policy = policy.as_str().filter(|policy| known.contains(policy));
            let policy = policy.ok_or_else(|| Refusal::nova(400, "Invalid input for field/attribute policies."))?;
            let used = state.server_groups.values().filter(|group| group.project_id == ask.project_id).count();
            state
                .room(&ask.project_id, "server_groups", used, 1)
                .map_err(|_| Refusal::nova(403, "Quota exceeded, too many server groups."))?;
            let group = ServerGroup {
                id: world.ids.text(),
                name: wanted["name"].as_str().unwrap_or_default().to_owned(),
                policies: vec![policy.to_owned()],
                project_id: ask.project_id.clone(),
                user_id: ask.user_id.clone(),
                ..ServerGroup::default()
            };
            world.state.server_groups.insert(group.id.clone(), group.clone());
            Ok(Reply::ok(json!({"server_group": shown(&group)})))
        }
        (&Method::DELETE, ["os-server-groups", id]) => {
            state.server_groups.remove(id).ok_or_else(|| missing(id))?;
            Ok(Reply::empty(204))
        }
        _ => Err(Refusal::no_such_path()),
    }
}
