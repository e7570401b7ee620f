//! Cinder: volumes that are made, attached, grown and deleted, each a moment after it was asked for.

use std::collections::BTreeMap;

use hangar_openstack::wire::{CreateVolume, Snapshot, Volume, VolumeType};
use http::Method;
use serde_json::{Value, json};

use crate::Simulator;
use crate::ask::Ask;
use crate::listing::{self, BadPage, listed};
use crate::reply::{Outcome, Refusal, Reply};
use crate::starter;
use crate::state::{Effect, State, VolumeToMake, World};

listed! {
    Volume: name, status;
    Snapshot: name, status, volume_id;
}

const HIGHEST: (u16, u16) = (3, 71);
const QUOTAS: [&str; 3] = ["volumes", "gigabytes", "snapshots"];

pub(crate) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let mut segments = ask.segments();
    if segments.is_empty() {
        let version = json!({"id": "v3.0", "status": "CURRENT", "version": "3.71", "min_version": "3.0",
            "updated": "2023-08-31T00:00:00Z", "links": [{"rel": "self", "href": format!("{}/", ask.root)}]});
        return Ok(Reply::new(if ask.versioned { 200 } else { 300 }, json!({"versions": [version]})));
    }
    // Old clients put the project into the path.
    if segments[0].len() == 32 && segments[0].chars().all(|c| c.is_ascii_hexdigit()) {
        segments.remove(0);
    }
    let version = ask.microversion("volume", HIGHEST)?;
    let mut reply = route(simulator, world, ask, &segments)?;
    reply.headers.push(("openstack-api-version", format!("volume {}.{}", version.0, version.1)));
    Ok(reply)
}

fn route(simulator: &Simulator, world: &mut World, ask: &Ask, segments: &[&str]) -> Outcome {
    let state = &world.state;
    match (&ask.method, segments) {
        (&Method::GET, ["volumes"] | ["volumes", "detail"]) => {
            let mut own: Vec<&Volume> =
                state.volumes.values().filter(|volume| listed_for(ask, owner(volume))).collect();
            own.sort_by(|a, b| b.created_at.cmp(&a.created_at));
            list("volumes", own.into_iter(), ask)
        }
        (&Method::POST, ["volumes"]) => create(simulator, world, ask),
        (_, ["volumes", id, ..]) if !state.volumes.get(*id).is_some_and(|volume| ask.sees(owner(volume))) => {
            Err(missing(id))
        }
        (&Method::GET, ["volumes", id]) => Ok(Reply::ok(json!({"volume": state.volumes.get(*id)}))),
        (&Method::PUT, ["volumes", id]) => {
            let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
            if let (Some(volume), Some(name)) = (world.state.volumes.get_mut(id), body["volume"]["name"].as_str()) {
                volume.name = name.to_owned();
            }
            Ok(Reply::ok(json!({"volume": world.state.volumes.get(*id)})))
        }
        (&Method::DELETE, ["volumes", id]) => delete(world, id),
        (&Method::POST, ["volumes", id, "action"]) => action(simulator, world, ask, id),
        (_, ["snapshots", ..]) => snapshots(simulator, world, ask, segments),
        (&Method::GET, ["types"]) => {
            let all: Vec<Value> = state.volume_types.values().map(kind).collect();
            Ok(Reply::ok(json!({"volume_types": all})))
        }
        (&Method::GET, ["types", "default"]) => {
            Ok(Reply::ok(json!({"volume_type": state.volume_types.values().next().map(kind)})))
        }
        (&Method::GET, ["types", id]) => {
            let words = format!("Volume type {id} could not be found.");
            let found = state.volume_types.get(*id).map(kind).ok_or_else(|| Refusal::nova(404, words))?;
            Ok(Reply::ok(json!({"volume_type": found})))
        }
        (&Method::GET, ["os-services"]) if ask.admin => {
            let service = |binary: &str| {
                json!({"binary": binary, "host": "sim", "zone": starter::ZONE, "status": "enabled",
                "state": "up", "updated_at": "2026-01-01T00:00:00.000000", "disabled_reason": null})
            };
            Ok(Reply::ok(json!({"services": [service("cinder-volume"), service("cinder-scheduler")]})))
        }
        (&Method::GET, ["os-services"]) => {
            Err(Refusal::nova(403, "Policy doesn't allow volume_extension:services:index to be performed."))
        }
        (&Method::GET, ["os-availability-zone"]) => {
            let zones: Vec<Value> = state
                .zones
                .values()
                .map(|zone| json!({"zoneName": zone.name, "zoneState": {"available": zone.state.available}}))
                .collect();
            Ok(Reply::ok(json!({"availabilityZoneInfo": zones})))
        }
        (_, ["os-quota-sets", project, ..]) => quotas(&mut world.state, ask, project),
        (&Method::GET, ["limits"]) => {
            Ok(Reply::ok(json!({"limits": {"rate": [], "absolute": limits(state, &ask.project_id)}})))
        }
        _ => Err(Refusal::no_such_path()),
    }
}

fn owner(volume: &Volume) -> &str {
    volume.tenant_id.as_deref().unwrap_or_default()
}

fn listed_for(ask: &Ask, project: &str) -> bool {
    let everybody = ask
        .query
        .first("all_tenants")
        .or(ask.query.first("all_projects"))
        .is_some_and(|value| !matches!(value, "0" | "False" | "false"));
    project == ask.project_id || (ask.admin && everybody)
}

fn list<T: listing::Listed>(collection: &str, items: impl Iterator<Item = T>, ask: &Ask) -> Outcome {
    let query = ask.query.only(&["name", "status", "volume_id", "limit", "marker", "sort_key", "sort_dir"]);
    let page = listing::page(items, &query, |_| true).map_err(|bad| match bad {
        BadPage::Marker(id) => Refusal::nova(404, format!("Volume {id} could not be found.")),
        BadPage::Limit(text) => {
            Refusal::nova(400, format!("Invalid input received: limit must be an integer, not '{text}'"))
        }
    })?;
    Ok(Reply::ok(listing::body(collection, &ask.url(), page)))
}

fn missing(id: &str) -> Refusal {
    Refusal::nova(404, format!("Volume {id} could not be found."))
}

fn kind(kind: &VolumeType) -> Value {
    let mut shown = json!(kind);
    shown["os-volume-type-access:is_public"] = json!(kind.is_public);
    shown
}

fn create(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
    let mut wanted = body["volume"].clone();
    if let Some(fields) = wanted.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let wanted: CreateVolume =
        serde_json::from_value(wanted).map_err(|error| Refusal::nova(400, format!("Invalid input: {error}")))?;
    if wanted.size == 0 && wanted.snapshot_id.is_none() {
        return Err(Refusal::nova(
            400,
            "Invalid input for field/attribute size. Value: 0. 0 is less than the minimum of 1",
        ));
    }
    if let Some(name) = &wanted.volume_type
        && !world.state.volume_types.values().any(|kind| kind.name == *name || kind.id == *name)
    {
        return Err(Refusal::nova(404, format!("Volume type with name {name} could not be found.")));
    }
    if let Some(zone) = wanted.availability_zone.as_ref().filter(|zone| !world.state.zones.contains_key(*zone)) {
        return Err(Refusal::nova(400, format!("Availability zone '{zone}' is invalid.")));
    }
    if wanted.image_id.as_ref().is_some_and(|id| !world.state.images.contains_key(id)) {
        return Err(Refusal::nova(400, "Invalid image identifier or unable to access requested image."));
    }
    room(&world.state, &ask.project_id, wanted.size)?;
    let volume = make(simulator, world, &ask.project_id, &ask.user_id, wanted);
    Ok(Reply::new(202, json!({"volume": volume})))
}

fn room(state: &State, project: &str, size: u64) -> Result<(), Refusal> {
    let own = || state.volumes.values().filter(|volume| owner(volume) == project);
    state.room(project, "volumes", own().count(), 1).map_err(|(limit, _)| {
        let words =
            format!("VolumeLimitExceeded: Maximum number of volumes allowed ({limit}) exceeded for quota 'volumes'.");
        Refusal::nova(413, words)
    })?;
    let used: u64 = own().map(|volume| volume.size).sum();
    let (used, more) = (usize::try_from(used).unwrap_or(usize::MAX), usize::try_from(size).unwrap_or(usize::MAX));
    state.room(project, "gigabytes", used, more).map_err(|(limit, used)| {
        let words = format!("VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed gigabytes quota. Requested {size}G, quota is {limit}G and {used}G has been consumed.");
        Refusal::nova(413, words)
    })
}

fn make(simulator: &Simulator, world: &mut World, project: &str, user: &str, wanted: CreateVolume) -> Volume {
    let kind = world.state.volume_types.values().next().map_or(String::new(), |kind| kind.name.clone());
    let volume = Volume {
        id: world.ids.text(),
        name: wanted.name,
        description: wanted.description,
        size: wanted.size,
        status: "creating".to_owned(),
        volume_type: wanted.volume_type.unwrap_or(kind),
        availability_zone: wanted.availability_zone.unwrap_or_else(|| starter::ZONE.to_owned()),
        bootable: if wanted.image_id.is_some() { "true" } else { "false" }.to_owned(),
        metadata: wanted.metadata,
        snapshot_id: wanted.snapshot_id,
        user_id: user.to_owned(),
        tenant_id: Some(project.to_owned()),
        created_at: simulator.now_micros(),
        ..Volume::default()
    };
    world.state.volumes.insert(volume.id.clone(), volume.clone());
    world.effects.push(Effect::Volume(volume.id.clone()));
    volume
}

/// For a server that boots from an image on a volume.
pub(crate) fn make_for_server(
    simulator: &Simulator,
    world: &mut World,
    project: &str,
    user: &str,
    wanted: VolumeToMake,
) -> String {
    let body = CreateVolume {
        size: wanted.size,
        volume_type: wanted.volume_type,
        image_id: wanted.image_id,
        ..CreateVolume::default()
    };
    make(simulator, world, project, user, body).id
}

fn delete(world: &mut World, id: &str) -> Outcome {
    let Some(volume) = world.state.volumes.get_mut(id) else { return Err(missing(id)) };
    if !matches!(
        volume.status.as_str(),
        "available" | "error" | "error_restoring" | "error_extending" | "error_managing"
    ) {
        let words = "Invalid volume: Volume status must be available or error or error_restoring or error_extending or error_managing and must not be migrating, attached, belong to a group, have snapshots, awaiting a transfer, or be disassociated from snapshots after volume transfer.";
        return Err(Refusal::nova(400, words));
    }
    volume.status = "deleting".to_owned();
    world.effects.push(Effect::Volume(id.to_owned()));
    Ok(Reply::empty(202))
}

fn action(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
    let Some(volume) = world.state.volumes.get_mut(id) else { return Err(missing(id)) };
    volume.updated_at = Some(simulator.now_micros());
    if let Some(wanted) = body.get("os-extend") {
        let new = wanted["new_size"].as_u64().unwrap_or(0);
        if new <= volume.size {
            let words = format!(
                "Invalid input received: New size for extend must be greater than current size. (current: {}, extended: {new}).",
                volume.size
            );
            return Err(Refusal::nova(400, words));
        }
        volume.size = new;
    } else if let Some(wanted) = body.get("os-set_bootable") {
        volume.bootable = wanted["bootable"].to_string();
        return Ok(Reply::empty(200));
    } else if let Some(wanted) = body.get("os-reset_status").filter(|_| ask.admin) {
        volume.status = wanted["status"].as_str().unwrap_or("error").to_owned();
    } else {
        let name = body.as_object().and_then(|map| map.keys().next()).cloned().unwrap_or_default();
        return Err(Refusal::nova(400, format!("There is no such action: {name}")));
    }
    Ok(Reply::empty(202))
}

/// The state that a volume was on the way to.
pub(crate) fn settle(world: &mut World, id: &str, now: String) {
    let Some(volume) = world.state.volumes.get_mut(id) else { return };
    volume.updated_at = Some(now);
    match volume.status.as_str() {
        "creating" if volume.attachments.is_empty() => volume.status = "available".to_owned(),
        "creating" | "attaching" => volume.status = "in-use".to_owned(),
        "detaching" => volume.status = if volume.attachments.is_empty() { "available" } else { "in-use" }.to_owned(),
        "deleting" => {
            world.state.volumes.remove(id);
        }
        _ => {}
    }
}

fn snapshots(simulator: &Simulator, world: &mut World, ask: &Ask, segments: &[&str]) -> Outcome {
    let state = &mut world.state;
    let missing = |id: &str| Refusal::nova(404, format!("Snapshot {id} could not be found."));
    match (&ask.method, segments) {
        (&Method::GET, ["snapshots"] | ["snapshots", "detail"]) => {
            list("snapshots", state.snapshots.values().filter(|snapshot| listed_for(ask, &snapshot.project_id)), ask)
        }
        (&Method::GET, ["snapshots", id]) => {
            let found = state
                .snapshots
                .get(*id)
                .filter(|snapshot| ask.sees(&snapshot.project_id))
                .ok_or_else(|| missing(id))?;
            Ok(Reply::ok(json!({"snapshot": found})))
        }
        (&Method::POST, ["snapshots"]) => {
            let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
            let wanted = &body["snapshot"];
            let volume_id = wanted["volume_id"].as_str().unwrap_or_default();
            let volume = state.volumes.get(volume_id).filter(|volume| ask.sees(owner(volume)));
            let volume = volume.ok_or_else(|| Refusal::nova(404, format!("Volume {volume_id} could not be found.")))?;
            let snapshot = Snapshot {
                id: world.ids.text(),
                name: wanted["name"].as_str().unwrap_or_default().to_owned(),
                description: wanted["description"].as_str().map(str::to_owned),
                volume_id: volume.id.clone(),
                size: volume.size,
                status: "available".to_owned(),
                metadata: BTreeMap::new(),
                project_id: ask.project_id.clone(),
                created_at: simulator.now_micros(),
            };
            world.state.snapshots.insert(snapshot.id.clone(), snapshot.clone());
            Ok(Reply::new(202, json!({"snapshot": snapshot})))
        }
        (&Method::DELETE, ["snapshots", id]) => {
            state.snapshots.remove(id).ok_or_else(|| missing(id))?;
            Ok(Reply::empty(202))
        }
        _ => Err(Refusal::no_such_path()),
    }
}

fn quotas(state: &mut State, ask: &Ask, project: &str) -> Outcome {
    match ask.method {
        Method::GET => {}
        _ if !ask.admin => {
            return Err(Refusal::nova(403, "Policy doesn't allow volume_extension:quotas:update to be performed."));
        }
        Method::DELETE => {
            let mut known = state.quotas.get(project).cloned().unwrap_or_default();
            known.retain(|name, _| !QUOTAS.contains(&name.as_str()));
            state.quotas.insert(project, known);
            return Ok(Reply::empty(200));
        }
        _ => {
            let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
            let mut known = state.quotas.get(project).cloned().unwrap_or_default();
            known.extend(
                QUOTAS.iter().filter_map(|name| Some(((*name).to_owned(), body["quota_set"][*name].as_i64()?))),
            );
            state.quotas.insert(project, known);
        }
    }
    let limit = |name: &str| state.limit(project, name);
    let set = json!({"id": project, "volumes": limit("volumes"), "gigabytes": limit("gigabytes"),
        "snapshots": limit("snapshots"), "per_volume_gigabytes": -1, "backups": 10, "backup_gigabytes": 1000, "groups": 10});
    Ok(Reply::ok(json!({"quota_set": set})))
}

fn limits(state: &State, project: &str) -> Value {
    let own = || state.volumes.values().filter(|volume| owner(volume) == project);
    json!({"maxTotalVolumes": state.limit(project, "volumes"), "maxTotalVolumeGigabytes": state.limit(project, "gigabytes"),
        "totalVolumesUsed": own().count(), "totalGigabytesUsed": own().map(|volume| volume.size).sum::<u64>(),
        "maxTotalSnapshots": state.limit(project, "snapshots"), "totalSnapshotsUsed": 0})
}
