//! What is done to a server that exists: power, console, locks, metadata and tags.

use http::Method;
use serde_json::{Value, json};

use super::find;
use crate::Simulator;
use crate::ask::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{Effect, World};

pub(super) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask, id: &str) -> Outcome {
    if ask.method != Method::POST {
        return Err(Refusal::no_such_path());
    }
    let body = ask.json().map_err(|why| Refusal::nova(400, why))?;
    let (name, wanted) = body
        .as_object()
        .and_then(|map| map.iter().next())
        .ok_or_else(|| Refusal::nova(400, "Malformed request body"))?;
    match name.as_str() {
        "os-getConsoleOutput" => console(world, ask, id, wanted),
        "os-stop" => power(simulator, world, ask, id, "ACTIVE", "stop", "powering-off", "SHUTOFF"),
        "os-start" => power(simulator, world, ask, id, "SHUTOFF", "start", "powering-on", "ACTIVE"),
        "reboot" => power(simulator, world, ask, id, "ACTIVE", "reboot", "rebooting", "ACTIVE"),
        "lock" | "unlock" => {
            if let Some(record) = world.state.servers.get_mut(id) {
                record.server.locked = Some(name == "lock");
            }
            Ok(Reply::empty(202))
        }
        "os-resetState" if ask.admin => {
            let state = wanted["state"].as_str().unwrap_or("error").to_uppercase();
            if let Some(record) = world.state.servers.get_mut(id) {
                record.server.vm_state = Some(state.to_lowercase());
                record.server.status = state;
                record.server.task_state = None;
            }
            Ok(Reply::empty(202))
        }
        other => Err(Refusal::nova(400, format!("There is no such action: {other}"))),
    }
}

fn console(world: &World, ask: &Ask, id: &str, wanted: &Value) -> Outcome {
    let record = find(&world.state, ask, id)?;
    if matches!(record.server.status.as_str(), "BUILD" | "ERROR") && !world.consoles.contains_key(id) {
        return Err(Refusal::nova(409, format!("Instance {id} is not ready")));
    }
    let text = world.consoles.get(id).map(crate::Console::text).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let length = wanted["length"].as_u64().or_else(|| wanted["length"].as_str()?.parse().ok());
    let length = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(lines.len());
    let output = lines[lines.len().saturating_sub(length)..].join("\n");
    Ok(Reply::ok(json!({"output": output})))
}

#[expect(clippy::too_many_arguments, reason = "one row of the table of actions")]
fn power(
    simulator: &Simulator,
    world: &mut World,
    ask: &Ask,
    id: &str,
    from: &str,
    verb: &str,
    task: &str,
    to: &'static str,
) -> Outcome {
    let server = &find(&world.state, ask, id)?.server;
    if server.locked == Some(true) && !ask.admin {
        return Err(Refusal::nova(409, format!("Instance {id} is locked")));
    }
    if server.status != from || server.task_state.is_some() {
        let state = server.vm_state.as_deref().unwrap_or("building");
        let words = match &server.task_state {
            Some(task) => format!("Cannot '{verb}' instance {id} while it is in task_state {task}"),
            None => format!("Cannot '{verb}' instance {id} while it is in vm_state {state}"),
        };
        return Err(Refusal::nova(409, words));
    }
    if let Some(record) = world.state.servers.get_mut(id) {
        record.server.task_state = Some(task.to_owned());
        record.server.updated = simulator.now_text();
        world.effects.push(Effect::Power(id.to_owned(), to));
    }
    Ok(Reply::empty(202))
}

/// `metadata` and `tags` below a server.
pub(super) fn labels(world: &mut World, ask: &Ask, id: &str, rest: &[&str]) -> Outcome {
    let body = || ask.json().map_err(|why| Refusal::nova(400, why));
    let Some(record) = world.state.servers.get_mut(id) else { return Err(Refusal::no_such_path()) };
    let server = &mut record.server;
    match (&ask.method, rest) {
        (&Method::GET, ["metadata"]) => {}
        (&Method::POST | &Method::PUT, ["metadata"]) => {
            if ask.method == Method::PUT {
                server.metadata.clear();
            }
            for (key, value) in body()?["metadata"].as_object().into_iter().flatten() {
                server.metadata.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
            }
        }
        (&Method::DELETE, ["metadata", key]) => {
            server.metadata.remove(*key).ok_or_else(|| Refusal::nova(404, "Metadata item was not found"))?;
            return Ok(Reply::empty(204));
        }
        (&Method::GET, ["tags"]) => return Ok(Reply::ok(json!({"tags": server.tags}))),
        (&Method::PUT, ["tags"]) => {
            let tags = body()?["tags"].as_array().cloned().unwrap_or_default();
            server.tags = tags.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            return Ok(Reply::ok(json!({"tags": server.tags})));
        }
        (&Method::PUT, ["tags", tag]) => {
            let known = server.tags.iter().any(|own| own == tag);
            if !known {
                server.tags.push((*tag).to_owned());
            }
            return Ok(Reply::empty(if known { 204 } else { 201 }));
        }
        (&Method::DELETE, ["tags"]) => {
            server.tags.clear();
            return Ok(Reply::empty(204));
        }
        (&Method::DELETE, ["tags", tag]) => {
            let words = format!("Server {id} has no tag '{tag}'");
            let at = server.tags.iter().position(|own| own == tag).ok_or_else(|| Refusal::nova(404, words))?;
            server.tags.remove(at);
            return Ok(Reply::empty(204));
        }
        _ => return Err(Refusal::no_such_path()),
    }
    Ok(Reply::ok(json!({"metadata": server.metadata})))
}
