//! Neutron's quotas: read by everybody, changed by administrators.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use super::{body_of, forbidden, no_route, refuse};
use crate::ask::Ask;
use crate::reply::{Outcome, Reply};
use crate::state::{State, World};

const NAMES: [&str; 8] =
    ["network", "subnet", "port", "router", "floatingip", "security_group", "security_group_rule", "trunk"];

pub(super) fn answer(world: &mut World, ask: &Ask) -> Outcome {
    let state = &mut world.state;
    match (&ask.method, ask.segments().as_slice()) {
        (&Method::GET, ["quotas", project]) if ask.sees(project) => {
            Ok(Reply::ok(json!({"quota": limits(state, project)})))
        }
        (&Method::GET, ["quotas", _, "default" | "default.json"]) => Ok(Reply::ok(json!({"quota": limits(state, "")}))),
        (&Method::GET, ["quotas", project, "details" | "details.json"]) if ask.sees(project) => {
            let detail = |name: &str| json!({"limit": state.limit(project, name), "used": used(state, project, name), "reserved": 0});
            let all: BTreeMap<&str, Value> = NAMES.iter().map(|name| (*name, detail(name))).collect();
            Ok(Reply::ok(json!({"quota": all})))
        }
        (&Method::PUT, ["quotas", _]) if !ask.admin => Err(forbidden("rule:update_quota")),
        (&Method::PUT, ["quotas", project]) => {
            let wanted = body_of(ask, "quota")?;
            let mut known = state.quotas.get(*project).cloned().unwrap_or_default();
            for name in NAMES {
                let Some(limit) = wanted[name].as_i64() else { continue };
                let used = used(state, project, name);
                if limit >= 0 && limit < used {
                    let words =
                        format!("Quota limit {limit} for {name} must be greater than or equal to already used {used}");
                    return refuse(400, "HTTPBadRequest", words);
                }
                known.insert(name.to_owned(), limit);
            }
            state.quotas.insert(*project, known);
            Ok(Reply::ok(json!({"quota": limits(state, project)})))
        }
        (&Method::DELETE, ["quotas", project]) if ask.admin => {
            let mut known = state.quotas.get(*project).cloned().unwrap_or_default();
            let before = known.len();
            known.retain(|name, _| !NAMES.contains(&name.as_str()));
            if known.len() == before {
                return refuse(404, "TenantQuotaNotFound", format!("Quota for project {project} could not be found."));
            }
            state.quotas.insert(*project, known);
            Ok(Reply::empty(204))
        }
        _ => Err(no_route()),
    }
}

fn limits(state: &State, project: &str) -> BTreeMap<&'static str, i64> {
    NAMES.iter().map(|name| (*name, state.limit(project, name))).collect()
}

fn used(state: &State, project: &str, name: &str) -> i64 {
    let own = |id: &String| id == project;
    let count = match name {
        "network" => state.networks.values().filter(|row| own(&row.project_id)).count(),
        "subnet" => state.subnets.values().filter(|row| own(&row.project_id)).count(),
        "port" => state.ports.values().filter(|row| own(&row.project_id)).count(),
        "router" => state.routers.values().filter(|row| own(&row.project_id)).count(),
        "floatingip" => state.floating_ips.values().filter(|row| own(&row.project_id)).count(),
        "security_group" => state.groups_of(project).count(),
        "security_group_rule" => state.groups_of(project).map(|group| group.security_group_rules.len()).sum(),
        "trunk" => state.trunks.values().filter(|row| own(&row.project_id)).count(),
        _ => 0,
    };
    i64::try_from(count).unwrap_or(i64::MAX)
}
