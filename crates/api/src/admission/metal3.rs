//! Metal3's clusters, machines, data templates and pools.

use std::net::IpAddr;

use serde_json::Value;

use super::Refusal;
use super::check::{FIXED, changed, default};
use crate::object::Object;

pub fn cluster(object: &mut Object, _old: Option<&Object>) -> Vec<Refusal> {
    if object.get("/spec/controlPlaneEndpoint").is_object() {
        default(&mut object.0["spec"], &["controlPlaneEndpoint"], "port", 6443);
    }
    vec![]
}

pub fn machine(object: &mut Object, _old: Option<&Object>) -> Vec<Refusal> {
    image(object.get("/spec"), "spec")
}

pub fn machine_template(object: &mut Object, _old: Option<&Object>) -> Vec<Refusal> {
    image(object.get("/spec/template/spec"), "spec.template.spec")
}

fn image(spec: &Value, field: &str) -> Vec<Refusal> {
    let image = &spec["image"];
    if !image.is_object() {
        if spec["customDeploy"].is_object() {
            return vec![];
        }
        return vec![Refusal::new(
            format!("{field}.image"),
            "neither image nor customDeploy is given; write one of them",
        )];
    }
    let (url, checksum) = (image["url"].as_str().unwrap_or_default(), image["checksum"].as_str().unwrap_or_default());
    if url.starts_with("oci://") {
        return match checksum {
            "" => vec![],
            _ => vec![Refusal::new(
                format!("{field}.image.checksum"),
                "an oci:// image is checked by its own digest; leave it out",
            )],
        };
    }
    let mut refusals = vec![];
    if !url.contains("://") {
        refusals.push(Refusal::new(
            format!("{field}.image.url"),
            format!("{url:?} is not a URL; write it as https://host/image.raw"),
        ));
    }
    if checksum.is_empty() && image["diskFormat"] != "live-iso" {
        refusals.push(Refusal::new(
            format!("{field}.image.checksum"),
            "is needed: without it a broken download is not noticed",
        ));
    }
    refusals
}

/// Hosts that were rendered from it keep their data.
pub fn data_template(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    if old.is_none() {
        return vec![];
    }
    let parts = [("/spec/metaData", "spec.metaData"), ("/spec/networkData", "spec.networkData")];
    let changed = parts.into_iter().filter(|(pointer, _)| changed(object, old, pointer));
    changed.map(|(_, field)| Refusal::new(field, FIXED)).collect()
}

pub fn ip_pool(object: &mut Object, _old: Option<&Object>) -> Vec<Refusal> {
    let mut refusals = vec![];
    let mut ranges: Vec<(IpAddr, IpAddr)> = vec![];
    for (index, pool) in object.get("/spec/pools").as_array().into_iter().flatten().enumerate() {
        let field = format!("spec.pools[{index}]");
        let address = |name: &str| pool[name].as_str().and_then(|text| text.parse::<IpAddr>().ok());
        match (address("start"), address("end")) {
            (Some(start), Some(end)) if start > end => {
                refusals.push(Refusal::new(field, format!("start {start} is after end {end}; exchange them")));
            }
            (Some(start), Some(end)) => ranges.push((start, end)),
            _ if pool["subnet"].is_null() && pool["start"].is_null() => {
                refusals.push(Refusal::new(field, "names neither a start nor a subnet; write one of them"));
            }
            _ => {}
        }
    }
    let kept = object.get("/spec/preAllocations").as_object().into_iter().flatten();
    let outside = kept.filter_map(|(claim, address)| Some((claim, address.as_str()?.parse::<IpAddr>().ok()?))).filter(
        |(_, address)| {
            // Only where every range has both ends can it be said.
            ranges.len() == object.get("/spec/pools").as_array().map_or(0, Vec::len)
                && !ranges.iter().any(|(start, end)| start <= address && address <= end)
        },
    );
    refusals.extend(outside.map(|(claim, address)| {
        Refusal::new(
            format!("spec.preAllocations[{claim}]"),
            format!("{address} is in none of spec.pools; add it to one"),
        )
    }));
    refusals
}
