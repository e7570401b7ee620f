//! Glance: images to read.

use http::Method;
use serde_json::{Value, json};

use crate::front::Ask;
use crate::listing;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::World;

const FILTERS: [&str; 5] = ["id", "name", "status", "visibility", "owner"];

pub(crate) fn answer(world: &World, ask: &Ask) -> Outcome {
    match (ask.versioned, &ask.method, ask.segments().as_slice()) {
        (false, &Method::GET, []) => Ok(Reply::new(
            300,
            json!({"versions": [{"id": "v2.9", "status": "CURRENT",
            "links": [{"rel": "self", "href": format!("{}/", ask.root)}]}]}),
        )),
        (true, &Method::GET, ["images"]) => list(world, ask),
        (true, &Method::GET, ["images", id]) => match world.state.images.get(*id) {
            Some(image) => Ok(Reply::ok(json!(image))),
            None => Err(Refusal::glance(404, &format!("Failed to find image {id}"))),
        },
        _ => Err(Refusal::glance(404, "The resource could not be found.")),
    }
}

fn list(world: &World, ask: &Ask) -> Outcome {
    let wanted = |image: &Value| {
        let fields = FILTERS.iter().all(|name| ask.query.first(name).is_none_or(|value| image[*name] == value));
        let tags = |tag| image["tags"].as_array().is_some_and(|tags| tags.iter().any(|own| own == tag));
        fields && ask.query.all("tag").all(tags)
    };
    let images = world.state.images.values().map(|image| json!(image)).filter(wanted).collect();
    let (page, next) = listing::page(images, &ask.query).map_err(|why| Refusal::glance(400, &why))?;
    let mut body = json!({"images": page, "schema": "/v2/schemas/images", "first": "/v2/images"});
    if let Some(next) = next {
        body["next"] = json!(format!("/v2/images?{next}"));
    }
    Ok(Reply::ok(body))
}
