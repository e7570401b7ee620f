//! Keystone: version documents, tokens, the catalog. Projects, users and credentials are in [`crate::accounts`].

use std::time::Duration;

use hangar_openstack::wire::{CatalogEntry, Endpoint, Named, Token as WireToken};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::ask::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::starter::{DOMAIN, REGION};
use crate::state::{ApplicationCredential, Token, User, World};
use crate::{Simulator, accounts};

/// Whose token it will be, and for which project if the credential says so.
type Who = (User, Option<String>);

pub(crate) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    match (ask.versioned, &ask.method, ask.segments().as_slice()) {
        (false, &Method::GET, []) => Ok(Reply::new(300, json!({"versions": {"values": [version(ask)]}}))),
        (true, &Method::GET, []) => Ok(Reply::ok(json!({"version": version(ask)}))),
        (true, &Method::POST, ["auth", "tokens"]) => issue(simulator, world, ask),
        (true, &Method::GET, ["auth", "tokens"]) => show(simulator, world, ask),
        (true, &Method::DELETE, ["auth", "tokens"]) => {
            world.tokens.remove(ask.header("x-subject-token").unwrap_or_default());
            Ok(Reply::empty(204))
        }
        (true, &Method::GET, ["auth", "catalog"]) => Ok(Reply::ok(json!({"catalog": catalog(ask)}))),
        (true, ..) => accounts::answer(world, ask),
        _ => Err(Refusal::keystone(404, "Not Found", format!("Could not find: {}", ask.path))),
    }
}

/// Only what is asked for in order to get a token needs none.
pub(crate) fn needs_token(ask: &Ask) -> bool {
    !matches!(ask.segments().as_slice(), [] | ["auth", "tokens" | "catalog"])
}

fn version(ask: &Ask) -> Value {
    json!({"id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": format!("{}/", ask.root)}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}]})
}

fn issue(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let body = ask.json().map_err(|why| Refusal::keystone(400, "Bad Request", why))?;
    let identity = &body["auth"]["identity"];
    let method = identity["methods"][0].as_str().unwrap_or_default().to_owned();
    let (user, bound) = match method.as_str() {
        "password" => by_password(world, &identity["password"]["user"]),
        "token" => by_token(world, identity["token"]["id"].as_str().unwrap_or_default()),
        "application_credential" => by_credential(world, &identity["application_credential"])?,
        _ => None,
    }
    .ok_or_else(Refusal::unauthorized)?;
    let scope = &body["auth"]["scope"];
    let project_id = match (&bound, &scope["project"]) {
        _ if *scope == "unscoped" => String::new(),
        (Some(project), _) => project.clone(),
        (None, Value::Null) => user.projects.first().cloned().unwrap_or_default(),
        (None, wanted) => {
            let known =
                world.state.projects.values().find(|known| wanted["id"] == known.id || wanted["name"] == known.name);
            let known = known.filter(|known| user.projects.contains(&known.id));
            known.map(|known| known.id.clone()).ok_or_else(Refusal::unauthorized)?
        }
    };
    let id = format!("gAAAAA{}{}", world.ids.uuid().simple(), world.ids.uuid().simple());
    let life = simulator.token_life();
    world.tokens.retain(|_, token| Instant::now() < token.expires);
    let token = Token {
        user_id: user.id.clone(),
        project_id: project_id.clone(),
        admin: user.admin,
        method,
        expires: Instant::now() + life,
    };
    let told = describe(simulator, world, ask, &user, &token, life);
    world.tokens.insert(id.clone(), token);
    let mut reply = Reply::new(201, json!({"token": told}));
    reply.headers.push(("x-subject-token", id));
    Ok(reply)
}

fn by_password(world: &World, wanted: &Value) -> Option<Who> {
    let named = |user: &&User| wanted["id"] == user.id || wanted["name"] == user.name;
    let domain = &wanted["domain"];
    let here = wanted["id"].is_string()
        || domain["id"] == DOMAIN
        || domain["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(DOMAIN));
    let user = world.state.users.values().find(named).filter(|user| here && wanted["password"] == user.password)?;
    Some((user.clone(), None))
}

/// A credential that is gone is a 404, not a 401: clients that retry only on 401 must know.
fn by_credential(world: &World, wanted: &Value) -> Result<Option<Who>, Refusal> {
    let named = |user: &User| wanted["user"]["id"] == user.id || wanted["user"]["name"] == user.name;
    let found = world.state.users.values().find_map(|user| {
        let fits = |known: &&ApplicationCredential| {
            wanted["id"] == known.id || (wanted["id"].is_null() && named(user) && wanted["name"] == known.name)
        };
        user.application_credentials.iter().find(fits).map(|known| (user, known))
    });
    let Some((user, known)) = found else {
        let called = wanted["id"].as_str().or(wanted["name"].as_str()).unwrap_or_default();
        let words = format!("Could not find Application Credential: {called}.");
        return Err(Refusal::keystone(404, "Not Found", words));
    };
    let good = wanted["secret"] == known.secret;
    Ok(good.then(|| (user.clone(), Some(known.project_id.clone()))))
}

fn by_token(world: &World, id: &str) -> Option<Who> {
    let token = world.tokens.get(id).filter(|token| Instant::now() < token.expires)?;
    Some((world.state.users.get(&token.user_id)?.clone(), None))
}

fn show(simulator: &Simulator, world: &World, ask: &Ask) -> Outcome {
    let known = |name: &str| {
        let token = world.tokens.get(ask.header(name).unwrap_or_default());
        token.filter(|token| Instant::now() < token.expires)
    };
    known("x-auth-token").ok_or_else(Refusal::unauthorized)?;
    let missing = || Refusal::keystone(404, "Not Found", "This is not a recognized Fernet token");
    let token = known("x-subject-token").ok_or_else(missing)?;
    let user = world.state.users.get(&token.user_id).ok_or_else(missing)?;
    let left = token.expires.saturating_duration_since(Instant::now());
    let mut reply = Reply::ok(json!({"token": describe(simulator, world, ask, user, token, left)}));
    reply.headers.push(("x-subject-token", ask.header("x-subject-token").unwrap_or_default().to_owned()));
    Ok(reply)
}

fn describe(simulator: &Simulator, world: &World, ask: &Ask, user: &User, token: &Token, left: Duration) -> WireToken {
    let domain = || Some(Box::new(Named { id: DOMAIN.to_owned(), name: "Default".to_owned(), domain: None }));
    let project = world.state.projects.get(&token.project_id);
    let moment = |at: jiff::Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let now = simulator.now();
    let expires = now.checked_add(left).unwrap_or(now);
    let issued = expires.checked_sub(simulator.token_life()).unwrap_or(now);
    let roles: &[&str] =
        if user.admin { &["admin", "member", "reader"] } else { &["member", "load-balancer_member", "reader"] };
    let role = |name: &&str| Named { id: (*name).to_owned(), name: (*name).to_owned(), domain: None };
    WireToken {
        methods: vec![token.method.clone()],
        issued_at: moment(issued),
        expires_at: moment(expires),
        user: Named { id: user.id.clone(), name: user.name.clone(), domain: domain() },
        project: project.map(|project| Named { id: project.id.clone(), name: project.name.clone(), domain: domain() }),
        roles: roles.iter().map(role).collect(),
        catalog: if project.is_some() { catalog(ask) } else { vec![] },
    }
}

/// Built from how the client reached us, so any address works.
pub(crate) fn catalog(ask: &Ask) -> Vec<CatalogEntry> {
    let services = [
        ("identity", "keystone", "/identity"),
        ("compute", "nova", "/compute/v2.1"),
        ("network", "neutron", "/network"),
        ("image", "glance", "/image"),
        ("block-storage", "cinder", "/volume/v3"),
        ("volumev3", "cinderv3", "/volume/v3"),
        ("load-balancer", "octavia", "/load-balancer"),
    ];
    let endpoint = |interface: &str, path: &str| Endpoint {
        id: format!("{interface}{}", path.replace('/', "-")),
        interface: interface.to_owned(),
        region: REGION.to_owned(),
        region_id: REGION.to_owned(),
        url: format!("{}{path}", ask.base),
    };
    services
        .map(|(kind, name, path)| CatalogEntry {
            id: name.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            endpoints: ["public", "internal", "admin"].map(|interface| endpoint(interface, path)).to_vec(),
        })
        .to_vec()
}
