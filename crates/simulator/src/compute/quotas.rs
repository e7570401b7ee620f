//! Nova's quotas and limits.

use http::Method;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{State, World};

const NAMES: [&str; 4] = ["instances", "cores", "ram", "server_groups"];

pub(super) fn answer(world: &mut World, ask: &Ask) -> Outcome {
    let state = &mut world.state;
    match (&ask.method, ask.segments().as_slice()) {
        (&Method::GET, ["limits"]) => {
            let of = ask.query.first("tenant_id").filter(|_| ask.admin).unwrap_or(&ask.project_id).to_owned();
            Ok(Reply::ok(json!({"limits": {"rate": [], "absolute": limits(state, &of)}})))
        }
        (&Method::GET, ["os-quota-sets", project, ..]) => {
            Ok(Reply::ok(json!({"quota_set": quota_set(state, project)})))
        }
        (_, ["os-quota-sets", ..]) if !ask.admin => {
            Err(Refusal::nova(403, "Policy doesn't allow os_compute_api:os-quota-sets:update to be performed."))
        }
        (&Method::PUT, ["os-quota-sets", project]) => {
            let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
            let mut known = state.quotas.get(*project).cloned().unwrap_or_default();
            for name in NAMES {
                let Some(limit) = body["quota_set"][name].as_i64() else { continue };
                let used = used(state, project, name);
                if limit >= 0 && limit < used && body["quota_set"]["force"] != true {
                    let words = format!(
                        "Quota limit {limit} for {name} must be greater than or equal to already used and reserved {used}."
                    );
                    return Err(Refusal::nova(400, words));
                }
                known.insert(name.to_owned(), limit);
            }
            state.quotas.insert(*project, known);
            Ok(Reply::ok(json!({"quota_set": quota_set(state, project)})))
        }
        (&Method::DELETE, ["os-quota-sets", project]) => {
            let mut known = state.quotas.get(*project).cloned().unwrap_or_default();
            known.retain(|name, _| !NAMES.contains(&name.as_str()));
            state.quotas.insert(*project, known);
            Ok(Reply::empty(202))
        }
        _ => Err(Refusal::no_such_path()),
    }
}

fn quota_set(state: &State, project: &str) -> Value {
    let limit = |name: &str| state.limit(project, name);
    json!({"id": project, "instances": limit("instances"), "cores": limit("cores"), "ram": limit("ram"),
        "server_groups": limit("server_groups"), "key_pairs": 100, "metadata_items": 128, "server_group_members": 10})
}

fn used(state: &State, project: &str, name: &str) -> i64 {
    let servers = || state.servers_of(project);
    match name {
        "instances" => i64::try_from(servers().count()).unwrap_or(i64::MAX),
        "cores" => servers().map(|record| i64::from(record.vcpus)).sum(),
        "ram" => servers().map(|record| i64::try_from(record.ram).unwrap_or(0)).sum(),
        _ => 0,
    }
}

fn limits(state: &State, project: &str) -> Value {
    json!({"maxTotalInstances": state.limit(project, "instances"), "totalInstancesUsed": used(state, project, "instances"),
        "maxTotalCores": state.limit(project, "cores"), "totalCoresUsed": used(state, project, "cores"),
        "maxTotalRAMSize": state.limit(project, "ram"), "totalRAMUsed": used(state, project, "ram"),
        "maxTotalKeypairs": 100, "maxServerMeta": 128, "maxServerGroups": state.limit(project, "server_groups"),
        "maxServerGroupMembers": 10})
}
