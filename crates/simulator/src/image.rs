//! Glance: images to find, make, fill and delete. What is uploaded is measured and hashed, not kept.

use aws_lc_rs::digest::{Context, SHA512};
use axum::body::Body;
use hangar_openstack::wire::Image;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::Simulator;
use crate::ask::Ask;
use crate::listing::{self, BadPage};
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{Effect, World};

const FILTERS: [&str; 8] =
    ["id", "name", "status", "visibility", "owner", "os_hidden", "disk_format", "container_format"];

/// What is left of a file that was uploaded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Upload {
    pub size: u64,
    pub sha512: String,
}

impl Upload {
    /// `None` if the sender broke off.
    pub(crate) async fn read(mut body: Body) -> Option<Self> {
        let (mut size, mut digest) = (0, Context::new(&SHA512));
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.ok()?.into_data() {
                size += data.len() as u64;
                digest.update(&data);
            }
        }
        Some(Self { size, sha512: hex(digest) })
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut digest = Context::new(&SHA512);
        digest.update(bytes);
        Self { size: bytes.len() as u64, sha512: hex(digest) }
    }
}

fn hex(digest: Context) -> String {
    digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn is_upload(method: &Method, uri: &http::Uri) -> bool {
    let path = uri.path();
    *method == Method::PUT && path.starts_with("/image/") && path.ends_with("/file")
}

pub(crate) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let segments = ask.segments();
    let own = |image: &Image| ask.admin || image.owner == ask.project_id;
    let seen = |image: &&Image| own(image) || matches!(image.visibility.as_str(), "public" | "community");
    let image = |id: &str| world.state.images.get(id).filter(seen).cloned().ok_or_else(|| missing(id));
    match (ask.versioned, &ask.method, segments.as_slice()) {
        (false, &Method::GET, []) => {
            let version = |id: &str, status: &str| json!({"id": id, "status": status, "links": [{"rel": "self", "href": format!("{}/", ask.root)}]});
            Ok(Reply::new(
                300,
                json!({"versions": [version("v2.9", "CURRENT"), version("v2.7", "SUPPORTED"), version("v2.0", "SUPPORTED")]}),
            ))
        }
        (true, &Method::GET, ["images"]) => list(world, ask, seen),
        (true, &Method::POST, ["images"]) => create(simulator, world, ask),
        (true, &Method::GET, ["images", id]) => Ok(Reply::ok(shown(&image(id)?))),
        (true, &Method::GET, ["info", "import"]) => Ok(Reply::ok(json!({"import-methods":
            {"description": "Import methods available.", "type": "array", "value": ["glance-direct", "web-download"]}}))),
        (true, method, ["images", id, rest @ ..]) if method != Method::GET => {
            let found = image(id).map_err(|_| {
                if *method == Method::DELETE {
                    Refusal::glance(404, &format!("Failed to find image {id} to delete"))
                } else {
                    missing(id)
                }
            })?;
            if !own(&found) {
                return Err(Refusal::glance(403, "You are not authorized to complete this action."));
            }
            change(simulator, world, ask, found, rest)
        }
        _ => Err(Refusal::glance(404, "The resource could not be found.")),
    }
}

fn missing(id: &str) -> Refusal {
    Refusal::glance(404, &format!("No image found with ID {id}"))
}

fn shown(image: &Image) -> Value {
    let mut shown = json!(image);
    shown["self"] = json!(format!("/v2/images/{}", image.id));
    shown["file"] = json!(format!("/v2/images/{}/file", image.id));
    shown["schema"] = json!("/v2/schemas/image");
    shown
}

fn list(world: &World, ask: &Ask, seen: impl Fn(&&Image) -> bool) -> Outcome {
    let wanted = |image: &Value| {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let fields = FILTERS.iter().all(|name| {
            ask.query.first(name).is_none_or(|value| {
                text(&image[*name]).eq_ignore_ascii_case(value) || (*name == "visibility" && value == "all")
            })
        });
        let tags = |tag| image["tags"].as_array().is_some_and(|tags| tags.iter().any(|own| own == tag));
        fields && ask.query.all("tag").all(tags)
    };
    let images = world.state.images.values().filter(seen).map(shown);
    let cut = ask.query.only(&["limit", "marker"]);
    let page = listing::page(images.filter(wanted), &cut, |_| true).map_err(|bad| match bad {
        BadPage::Marker(id) => Refusal::glance(400, &format!("No image found with ID {id}")),
        BadPage::Limit(_) => Refusal::glance(400, "limit param must be an integer"),
    })?;
    let next =
        page.next.as_ref().and_then(|_| page.items.last()).and_then(|item| item["id"].as_str().map(str::to_owned));
    let mut body = json!({"images": page.items, "schema": "/v2/schemas/images", "first": "/v2/images"});
    if let Some(marker) = next {
        let limit = cut.first("limit").unwrap_or("1000");
        body["next"] = json!(format!("/v2/images?{}", ask.query.with(&[("limit", limit), ("marker", &marker)])));
    }
    Ok(Reply::ok(body))
}

fn create(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let wanted = ask.json().map_err(|why| Refusal::glance(400, &why))?;
    let mut image: Image = serde_json::from_value(wanted).map_err(|error| Refusal::glance(400, &error.to_string()))?;
    if image.visibility == "public" && !ask.admin {
        return Err(Refusal::glance(403, "You are not authorized to complete publicize_image action."));
    }
    if image.id.is_empty() {
        image.id = world.ids.text();
    } else if world.state.images.contains_key(&image.id) {
        return Err(Refusal::glance(409, &format!("Image ID {} already exists!", image.id)));
    }
    if image.visibility.is_empty() {
        image.visibility = "shared".to_owned();
    }
    image.status = "queued".to_owned();
    image.owner.clone_from(&ask.project_id);
    image.created_at = simulator.now_text();
    image.updated_at.clone_from(&image.created_at);
    let shown = shown(&image);
    let mut reply = Reply::new(201, shown);
    reply.headers.push(("location", format!("{}/images/{}", ask.root, image.id)));
    world.state.images.insert(image.id.clone(), image);
    Ok(reply)
}

fn change(simulator: &Simulator, world: &mut World, ask: &Ask, mut image: Image, rest: &[&str]) -> Outcome {
    let id = image.id.clone();
    image.updated_at = simulator.now_text();
    let reply = match (&ask.method, rest) {
        (&Method::DELETE, []) => {
            if image.protected {
                return Err(Refusal::glance(403, &format!("Image {id} is protected and cannot be deleted.")));
            }
            let uses = |record: &crate::state::ServerRecord| {
                record.server.status == "BUILD" && record.server.image.as_ref().is_some_and(|used| used.id == id)
            };
            if world.state.servers.values().any(uses) {
                return Err(Refusal::glance(409, &format!("Image {id} could not be deleted because it is in use.")));
            }
            world.state.images.remove(&id);
            return Ok(Reply::empty(204));
        }
        (&Method::PUT, ["file"]) => {
            if image.status != "queued" {
                return Err(Refusal::glance(
                    409,
                    &format!("Image status transition from {} to saving is not allowed", image.status),
                ));
            }
            let Some(upload) = &ask.upload else { return Err(Refusal::glance(400, "the file was not complete")) };
            image.status = "active".to_owned();
            image.size = Some(upload.size);
            image.virtual_size = image.virtual_size.or(Some(upload.size));
            image.os_hash_algo = Some("sha512".to_owned());
            image.os_hash_value = Some(upload.sha512.clone());
            Reply::empty(204)
        }
        (&Method::POST, ["import"]) => {
            if image.status != "queued" {
                return Err(Refusal::glance(
                    409,
                    &format!("Image with status {} cannot be target for import", image.status),
                ));
            }
            image.status = "importing".to_owned();
            world.effects.push(Effect::Image(id.clone()));
            Reply::empty(202)
        }
        (&Method::PUT, ["tags", tag]) => {
            if !image.tags.iter().any(|own| own == tag) {
                image.tags.push((*tag).to_owned());
            }
            Reply::empty(204)
        }
        (&Method::DELETE, ["tags", tag]) => {
            image.tags.retain(|own| own != tag);
            Reply::empty(204)
        }
        (&Method::PATCH, []) => {
            image = patch(&image, &ask.json().map_err(|why| Refusal::glance(400, &why))?)?;
            Reply::ok(shown(&image))
        }
        _ => return Err(Refusal::glance(404, "The resource could not be found.")),
    };
    world.state.images.insert(id, image);
    Ok(reply)
}

/// JSON patch, one level deep: all that Glance takes.
fn patch(image: &Image, steps: &Value) -> Result<Image, Refusal> {
    let mut fields = json!(image);
    for step in steps.as_array().into_iter().flatten() {
        let name = step["path"].as_str().unwrap_or_default().trim_start_matches('/');
        let read_only = ["id", "status", "owner", "created_at", "updated_at", "size", "checksum", "os_hash_value"];
        if read_only.contains(&name) {
            return Err(Refusal::glance(403, &format!("Attribute '{name}' is read-only.")));
        }
        match (step["op"].as_str(), fields.as_object_mut()) {
            (Some("add" | "replace"), Some(fields)) => {
                fields.insert(name.to_owned(), step["value"].clone());
            }
            (Some("remove"), Some(fields)) => {
                fields.remove(name);
            }
            _ => return Err(Refusal::glance(400, "Operations must be add, replace or remove")),
        }
    }
    serde_json::from_value(fields).map_err(|error| Refusal::glance(400, &error.to_string()))
}

/// What a cloud fetched by itself is there.
pub(crate) fn imported(world: &mut World, id: &str) {
    if let Some(image) = world.state.images.get_mut(id) {
        image.status = "active".to_owned();
        image.size = image.size.or(Some(1 << 30));
    }
}
