//! Tags of Neutron's resources: all at once or one by one.

use http::Method;
use serde_json::json;

use super::{no_route, read, refusal, refuse};
use crate::ask::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::State;

pub(super) fn answer(state: &mut State, ask: &Ask, collection: &str, id: &str, rest: &[&str]) -> Outcome {
    let tags = find(state, ask, collection, id).ok_or_else(|| {
        // Neutron of today answers 500 to this; older ones and its documentation say 404, which clients can use.
        refusal(404, "TagResourceNotFound", format!("Resource {collection} {id} could not be found."))
    })?;
    match (&ask.method, rest) {
        (&Method::GET, []) => return Ok(Reply::ok(json!({"tags": tags}))),
        (&Method::GET, [tag]) => {
            return if tags.iter().any(|known| known == tag) { Ok(Reply::empty(204)) } else { Err(no_tag(tag)) };
        }
        _ => {}
    }
    let mut tags = tags;
    let reply = match (&ask.method, rest) {
        (&Method::PUT, []) => {
            let body = ask.json().map_err(|why| Refusal::neutron(400, "HTTPBadRequest", why))?;
            tags = read(&body["tags"])?;
            tags.sort();
            tags.dedup();
            Reply::ok(json!({"tags": tags}))
        }
        (&Method::PUT, [tag]) => {
            if !tags.iter().any(|known| known == tag) {
                tags.push((*tag).to_owned());
            }
            Reply::new(201, json!(null))
        }
        (&Method::DELETE, []) => {
            tags.clear();
            Reply::empty(204)
        }
        (&Method::DELETE, [tag]) => {
            let at = tags.iter().position(|known| known == tag).ok_or_else(|| no_tag(tag))?;
            tags.remove(at);
            Reply::empty(204)
        }
        _ => return Err(no_route()),
    };
    if tags.iter().any(|tag| tag.is_empty() || tag.len() > 255) {
        return refuse(400, "HTTPBadRequest", "Invalid input for tags. Reason: a tag has 1 to 255 characters.");
    }
    store(state, collection, id, tags);
    Ok(reply)
}

fn no_tag(tag: &str) -> Refusal {
    refusal(404, "TagNotFound", format!("Tag {tag} could not be found."))
}

fn find(state: &State, ask: &Ask, collection: &str, id: &str) -> Option<Vec<String>> {
    let (project, tags) = match collection {
        "ports" => state.ports.get(id).map(|row| (&row.project_id, &row.tags)),
        "networks" => state.networks.get(id).map(|row| (&row.project_id, &row.tags)),
        "subnets" => state.subnets.get(id).map(|row| (&row.project_id, &row.tags)),
        "routers" => state.routers.get(id).map(|row| (&row.project_id, &row.tags)),
        "floatingips" => state.floating_ips.get(id).map(|row| (&row.project_id, &row.tags)),
        "trunks" => state.trunks.get(id).map(|row| (&row.project_id, &row.tags)),
        "security-groups" => state.security_groups.get(id).map(|row| (&row.project_id, &row.tags)),
        _ => None,
    }?;
    ask.sees(project).then(|| tags.clone())
}

fn store(state: &mut State, collection: &str, id: &str, new: Vec<String>) {
    let row = match collection {
        "ports" => {
            state.ports.change(id, |port| {
                port.tags = new;
                port.revision_number += 1;
            });
            return;
        }
        "networks" => state.networks.get_mut(id).map(|row| (&mut row.tags, &mut row.revision_number)),
        "subnets" => state.subnets.get_mut(id).map(|row| (&mut row.tags, &mut row.revision_number)),
        "routers" => state.routers.get_mut(id).map(|row| (&mut row.tags, &mut row.revision_number)),
        "floatingips" => state.floating_ips.get_mut(id).map(|row| (&mut row.tags, &mut row.revision_number)),
        "trunks" => state.trunks.get_mut(id).map(|row| (&mut row.tags, &mut row.revision_number)),
        _ => state.security_groups.get_mut(id).map(|row| (&mut row.tags, &mut row.revision_number)),
    };
    if let Some((tags, revision)) = row {
        *tags = new;
        *revision += 1;
    }
}
