//! Keystone: projects, users, roles, services and application credentials.
//!
//! Holds: administrators see and change all of it; others see themselves and manage credentials of their own.

use http::Method;
use serde_json::{Value, json};

use crate::Simulator;
use crate::ask::Ask;
use crate::identity::catalog;
use crate::network::security_groups;
use crate::reply::{Outcome, Refusal, Reply};
use crate::starter::{DOMAIN, PASSWORD, REGION};
use crate::state::{ApplicationCredential, Project, State, User, World};

const ROLES: [&str; 4] = ["admin", "member", "reader", "load-balancer_member"];

impl Simulator {
    /// A project with a user of the same name, who has the starter's password.
    pub fn add_project(&self, name: &str) {
        self.change(|world| {
            let known = new_project(world, name);
            let user = User {
                id: world.ids.uuid().simple().to_string(),
                name: name.to_owned(),
                password: PASSWORD.to_owned(),
                projects: vec![known.id],
                ..User::default()
            };
            world.state.users.insert(user.id.clone(), user);
        });
    }
}

pub(crate) fn answer(world: &mut World, ask: &Ask) -> Outcome {
    let segments = ask.segments();
    match (&ask.method, segments.as_slice()) {
        (&Method::GET, ["auth", "projects"]) => Ok(Reply::ok(json!({"projects": own_projects(&world.state, ask)}))),
        (&Method::GET, ["users", id]) if *id == ask.user_id => one("user", world.state.users.get(*id).map(user), id),
        (&Method::GET, ["users", id, "projects"]) if *id == ask.user_id => {
            Ok(Reply::ok(json!({"projects": own_projects(&world.state, ask)})))
        }
        (_, ["users", id, "application_credentials", rest @ ..]) if *id == ask.user_id => credentials(world, ask, rest),
        (&Method::GET, ["projects", id]) if *id == ask.project_id => {
            one("project", world.state.projects.get(*id).map(project), id)
        }
        (&Method::GET, ["domains", id]) if *id == DOMAIN => Ok(Reply::ok(json!({"domain": domain()}))),
        (_, [collection, ..]) if !ask.admin => {
            let verb = match ask.method {
                Method::GET if segments.len() == 1 => "list",
                Method::GET => "get",
                Method::POST => "create",
                Method::DELETE => "delete",
                _ => "update",
            };
            let thing = if verb == "list" { *collection } else { collection.trim_end_matches('s') };
            let words = format!("You are not authorized to perform the requested action: identity:{verb}_{thing}.");
            Err(Refusal::keystone(403, "Forbidden", words))
        }
        _ => for_administrators(world, ask, &segments),
    }
}

fn for_administrators(world: &mut World, ask: &Ask, segments: &[&str]) -> Outcome {
    let state = &mut world.state;
    match (&ask.method, segments) {
        (&Method::GET, ["projects"]) => list("projects", state.projects.values().map(project), ask),
        (&Method::GET, ["projects", id]) => one("project", state.projects.get(*id).map(project), id),
        (&Method::POST, ["projects"]) => create_project(world, ask),
        (&Method::DELETE, ["projects", id]) => {
            state.projects.remove(id).ok_or_else(|| missing("project", id))?;
            Ok(Reply::empty(204))
        }
        (&Method::GET, ["users"]) => list("users", state.users.values().map(user), ask),
        (&Method::GET, ["users", id]) => one("user", state.users.get(*id).map(user), id),
        (&Method::POST, ["users"]) => create_user(world, ask),
        (&Method::DELETE, ["users", id]) => {
            state.users.remove(id).ok_or_else(|| missing("user", id))?;
            world.tokens.retain(|_, token| token.user_id != *id);
            Ok(Reply::empty(204))
        }
        (&Method::PUT, ["projects", project, "users", user, "roles", role]) => grant(state, project, user, role),
        (&Method::GET, ["roles"]) => list("roles", ROLES.iter().map(|role| named(role)), ask),
        (&Method::GET, ["roles", id]) => one("role", ROLES.contains(id).then(|| named(id)), id),
        (&Method::GET, ["domains"]) => list("domains", std::iter::once(domain()), ask),
        (&Method::GET, ["regions"]) => list("regions", std::iter::once(json!({"id": REGION, "description": ""})), ask),
        (&Method::GET, ["services"]) => {
            let entries = catalog(ask).into_iter();
            let entry = |entry: hangar_openstack::wire::CatalogEntry| json!({"id": entry.id, "type": entry.kind, "name": entry.name, "enabled": true});
            list("services", entries.map(entry), ask)
        }
        (&Method::GET, ["endpoints"]) => {
            let all = catalog(ask).into_iter().flat_map(|entry| {
                entry.endpoints.into_iter().map(move |endpoint| {
                    json!({"id": endpoint.id, "service_id": entry.id, "interface": endpoint.interface, "url": endpoint.url,
                        "region": endpoint.region, "region_id": endpoint.region_id, "enabled": true})
                })
            });
            list("endpoints", all, ask)
        }
        _ => Err(Refusal::keystone(404, "Not Found", "The requested URL was not found on the server.")),
    }
}

fn project(known: &Project) -> Value {
    json!({"id": known.id, "name": known.name, "description": "", "domain_id": DOMAIN, "parent_id": DOMAIN, "enabled": true,
        "is_domain": false, "tags": [], "options": {}})
}

fn user(known: &User) -> Value {
    json!({"id": known.id, "name": known.name, "domain_id": DOMAIN, "enabled": true, "options": {},
        "default_project_id": known.projects.first()})
}

fn named(name: &str) -> Value {
    json!({"id": name, "name": name, "domain_id": null, "options": {}})
}

fn domain() -> Value {
    json!({"id": DOMAIN, "name": "Default", "enabled": true, "description": "The default domain", "tags": []})
}

fn own_projects(state: &State, ask: &Ask) -> Vec<Value> {
    let own = state.users.get(&ask.user_id).map(|user| user.projects.as_slice()).unwrap_or_default();
    own.iter().filter_map(|id| state.projects.get(id)).map(project).collect()
}

fn missing(kind: &str, id: &str) -> Refusal {
    Refusal::keystone(404, "Not Found", format!("Could not find {kind}: {id}."))
}

fn one(name: &str, item: Option<Value>, id: &str) -> Outcome {
    Ok(Reply::ok(json!({name: item.ok_or_else(|| missing(name, id))?})))
}

fn list(collection: &str, items: impl Iterator<Item = Value>, ask: &Ask) -> Outcome {
    let fits = |item: &Value| {
        ["name", "type", "domain_id", "interface", "service_id"]
            .iter()
            .all(|field| ask.query.first(field).is_none_or(|wanted| item[*field].is_null() || item[*field] == wanted))
    };
    let items: Vec<Value> = items.filter(fits).collect();
    let links = json!({"next": null, "self": ask.url(), "previous": null});
    Ok(Reply::ok(json!({collection: items, "links": links})))
}

fn body_of(ask: &Ask, name: &str) -> Result<Value, Refusal> {
    let bad = |why: String| Refusal::keystone(400, "Bad Request", why);
    let body = ask.json().map_err(bad)?;
    body.get(name).cloned().ok_or_else(|| bad(format!("'{name}' is a required property")))
}

fn create_project(world: &mut World, ask: &Ask) -> Outcome {
    let wanted = body_of(ask, "project")?;
    let name = wanted["name"].as_str().unwrap_or_default().to_owned();
    if world.state.projects.values().any(|known| known.name == name) {
        let words = format!(
            "Conflict occurred attempting to store project - it is not permitted to have two projects with the same name in the same domain : {name}."
        );
        return Err(Refusal::keystone(409, "Conflict", words));
    }
    let known = new_project(world, &name);
    Ok(Reply::new(201, json!({"project": project(&known)})))
}

/// With its default security group.
fn new_project(world: &mut World, name: &str) -> Project {
    let known = Project { id: world.ids.uuid().simple().to_string(), name: name.to_owned() };
    let group = world.ids.text();
    let group = security_groups::default_group(&mut world.ids, &group, &known.id, "2026-01-01T00:00:00Z");
    world.state.security_groups.insert(group.id.clone(), group);
    world.state.projects.insert(known.id.clone(), known.clone());
    known
}

fn create_user(world: &mut World, ask: &Ask) -> Outcome {
    let wanted = body_of(ask, "user")?;
    let text = |key: &str| wanted[key].as_str().unwrap_or_default().to_owned();
    if world.state.users.values().any(|known| known.name == text("name")) {
        let words = format!(
            "Conflict occurred attempting to store user - Duplicate entry found with name {} at domain ID default.",
            text("name")
        );
        return Err(Refusal::keystone(409, "Conflict", words));
    }
    let known = User {
        id: world.ids.uuid().simple().to_string(),
        name: text("name"),
        password: text("password"),
        projects: wanted["default_project_id"].as_str().map(str::to_owned).into_iter().collect(),
        ..User::default()
    };
    world.state.users.insert(known.id.clone(), known.clone());
    Ok(Reply::new(201, json!({"user": user(&known)})))
}

fn grant(state: &mut State, project: &str, user: &str, role: &str) -> Outcome {
    if !state.projects.contains_key(project) {
        return Err(missing("project", project));
    }
    if !ROLES.contains(&role) {
        return Err(missing("role", role));
    }
    let known = state.users.get_mut(user).ok_or_else(|| missing("user", user))?;
    if !known.projects.iter().any(|own| own == project) {
        known.projects.push(project.to_owned());
    }
    known.admin = known.admin || role == "admin";
    Ok(Reply::empty(204))
}

fn credentials(world: &mut World, ask: &Ask, rest: &[&str]) -> Outcome {
    let gone = |id: &str| Refusal::keystone(404, "Not Found", format!("Could not find Application Credential: {id}."));
    let World { state, ids, .. } = world;
    let own = state.users.get_mut(&ask.user_id).ok_or_else(Refusal::unauthorized)?;
    let admin = own.admin;
    let known = &mut own.application_credentials;
    match (&ask.method, rest) {
        (&Method::GET, []) => {
            let all: Vec<Value> = known
                .iter()
                .filter(|known| ask.query.first("name").is_none_or(|name| known.name == name))
                .map(|known| credential(known, admin))
                .collect();
            Ok(Reply::ok(
                json!({"application_credentials": all, "links": {"next": null, "self": ask.url(), "previous": null}}),
            ))
        }
        (&Method::GET, [id]) => {
            let found = known.iter().find(|known| known.id == *id).ok_or_else(|| gone(id))?;
            Ok(Reply::ok(json!({"application_credential": credential(found, admin)})))
        }
        (&Method::POST, []) => {
            let wanted = body_of(ask, "application_credential")?;
            let name = wanted["name"].as_str().unwrap_or_default().to_owned();
            if known.iter().any(|known| known.name == name) {
                let words = format!(
                    "Conflict occurred attempting to store application_credential - Duplicate entry found with name {name}."
                );
                return Err(Refusal::keystone(409, "Conflict", words));
            }
            let made = ApplicationCredential {
                id: ids.uuid().simple().to_string(),
                name,
                secret: wanted["secret"].as_str().map_or_else(|| ids.uuid().simple().to_string(), str::to_owned),
                project_id: ask.project_id.clone(),
                description: wanted["description"].as_str().map(str::to_owned),
            };
            known.push(made.clone());
            let mut shown = credential(&made, admin);
            // Shown once, and never again.
            shown["secret"] = json!(made.secret);
            Ok(Reply::new(201, json!({"application_credential": shown})))
        }
        (&Method::DELETE, [id]) => {
            let at = known.iter().position(|known| known.id == *id).ok_or_else(|| gone(id))?;
            known.remove(at);
            Ok(Reply::empty(204))
        }
        _ => Err(Refusal::keystone(405, "Method Not Allowed", "The method is not allowed for the requested URL.")),
    }
}

fn credential(known: &ApplicationCredential, admin: bool) -> Value {
    let roles: &[&str] = if admin { &["admin", "member"] } else { &["member"] };
    let roles: Vec<Value> = roles.iter().map(|role| named(role)).collect();
    json!({"id": known.id, "name": known.name, "description": known.description, "project_id": known.project_id,
        "expires_at": null, "unrestricted": false, "system": null, "roles": roles})
}
