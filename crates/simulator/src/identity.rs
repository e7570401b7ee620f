//! Keystone: version documents, tokens, the catalog.

use std::time::Duration;

use hangar_openstack::wire::{CatalogEntry, Endpoint, Named, Token as WireToken};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Simulator;
use crate::front::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::starter::{DOMAIN, REGION};
use crate::state::{ApplicationCredential, Token, User, World};

const TOKEN_LIFE: Duration = Duration::from_secs(3600);

pub(crate) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    match (ask.versioned, &ask.method, ask.segments().as_slice()) {
        (false, &Method::GET, []) => Ok(Reply::new(300, json!({"versions": {"values": [version(ask)]}}))),
        (true, &Method::GET, []) => Ok(Reply::ok(json!({"version": version(ask)}))),
        (true, &Method::POST, ["auth", "tokens"]) => issue(simulator, world, ask),
        (true, &Method::GET, ["auth", "tokens"]) => show(simulator, world, ask),
        (true, &Method::GET, ["auth", "catalog"]) => Ok(Reply::ok(json!({"catalog": catalog(ask)}))),
        _ => Err(Refusal::keystone(404, "Not Found", format!("Could not find: {}", ask.path))),
    }
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
    let user = match method.as_str() {
        "password" => by_password(world, &identity["password"]["user"]),
        "token" => by_token(world, identity["token"]["id"].as_str().unwrap_or_default()),
        "application_credential" => by_credential(world, &identity["application_credential"]),
        _ => None,
    };
    let user = user.ok_or_else(Refusal::unauthorized)?;
    let scope = &body["auth"]["scope"]["project"];
    let project_id = match scope {
        Value::Null => user.project_id.clone(),
        wanted => {
            let known =
                world.state.projects.iter().find(|known| wanted["id"] == known.id || wanted["name"] == known.name);
            known.map(|known| known.id.clone()).filter(|id| *id == user.project_id).ok_or_else(Refusal::unauthorized)?
        }
    };
    let id = format!("gAAAAA{}{}", world.ids.uuid().simple(), world.ids.uuid().simple());
    let expires = Instant::now() + TOKEN_LIFE;
    world.tokens.retain(|_, token| Instant::now() < token.expires);
    world.tokens.insert(id.clone(), Token { user_id: user.id.clone(), project_id: project_id.clone(), expires });
    let token = describe(simulator, world, ask, &user, &project_id, &method, TOKEN_LIFE);
    let mut reply = Reply::new(201, json!({"token": token}));
    reply.headers.push(("x-subject-token", id));
    Ok(reply)
}

fn by_password(world: &World, wanted: &Value) -> Option<User> {
    let named = |user: &&User| wanted["id"] == user.id || wanted["name"] == user.name;
    let domain = &wanted["domain"];
    let here = wanted["id"].is_string()
        || domain["id"] == DOMAIN
        || domain["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(DOMAIN));
    world.state.users.iter().find(named).filter(|user| here && wanted["password"] == user.password).cloned()
}

fn by_credential(world: &World, wanted: &Value) -> Option<User> {
    let named = |user: &User| wanted["user"]["id"] == user.id || wanted["user"]["name"] == user.name;
    world.state.users.iter().find_map(|user| {
        let fits = |known: &&ApplicationCredential| {
            let called = wanted["id"] == known.id || (named(user) && wanted["name"] == known.name);
            called && wanted["secret"] == known.secret
        };
        user.application_credentials.iter().find(fits).map(|_| user.clone())
    })
}

fn by_token(world: &World, id: &str) -> Option<User> {
    let token = world.tokens.get(id).filter(|token| Instant::now() < token.expires)?;
    world.state.users.iter().find(|user| user.id == token.user_id).cloned()
}

fn show(simulator: &Simulator, world: &World, ask: &Ask) -> Outcome {
    let header = |name: &str| ask.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let known = |id: &str| world.tokens.get(id).filter(|token| Instant::now() < token.expires);
    known(header("x-auth-token")).ok_or_else(Refusal::unauthorized)?;
    let subject = header("x-subject-token");
    let missing = || Refusal::keystone(404, "Not Found", "This is not a recognized Fernet token");
    let token = known(subject).ok_or_else(missing)?;
    let user = world.state.users.iter().find(|user| user.id == token.user_id).ok_or_else(missing)?;
    let left = token.expires.saturating_duration_since(Instant::now());
    let mut reply =
        Reply::ok(json!({"token": describe(simulator, world, ask, user, &token.project_id, "password", left)}));
    reply.headers.push(("x-subject-token", subject.to_owned()));
    Ok(reply)
}

fn describe(
    simulator: &Simulator,
    world: &World,
    ask: &Ask,
    user: &User,
    project_id: &str,
    method: &str,
    left: Duration,
) -> WireToken {
    let domain = || Some(Box::new(Named { id: DOMAIN.to_owned(), name: "Default".to_owned(), domain: None }));
    let project = world.state.projects.iter().find(|project| project.id == project_id);
    let moment = |at: jiff::Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let now = simulator.now();
    let expires = now.checked_add(left).unwrap_or(now);
    let issued = expires.checked_sub(TOKEN_LIFE).unwrap_or(now);
    WireToken {
        methods: vec![method.to_owned()],
        issued_at: moment(issued),
        expires_at: moment(expires),
        user: Named { id: user.id.clone(), name: user.name.clone(), domain: domain() },
        project: project.map(|project| Named { id: project.id.clone(), name: project.name.clone(), domain: domain() }),
        roles: vec![Named { id: "member".to_owned(), name: "member".to_owned(), domain: None }],
        catalog: catalog(ask),
    }
}

/// Built from how the client reached us, so any address works.
fn catalog(ask: &Ask) -> Vec<CatalogEntry> {
    let services = [
        ("identity", "keystone", "/identity"),
        ("compute", "nova", "/compute/v2.1"),
        ("network", "neutron", "/network"),
        ("image", "glance", "/image"),
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
