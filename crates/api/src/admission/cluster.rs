//! Clusters and classes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Refusal;
use super::check::{cidrs, upgrade, version};
use crate::object::Object;

pub fn cluster(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    let version_field = "/spec/topology/version";
    if let Some(text) = object.0.pointer_mut(version_field)
        && let Some(bare) = text.as_str().filter(|text| text.starts_with(|letter: char| letter.is_ascii_digit()))
    {
        *text = format!("v{bare}").into();
    }
    let mut refusals = cidrs(object, old, "/spec/clusterNetwork/pods/cidrBlocks");
    refusals.extend(cidrs(object, old, "/spec/clusterNetwork/services/cidrBlocks"));
    refusals.extend(version(object, old, version_field));
    refusals.extend(upgrade(object, old, version_field));
    refusals.extend(topology(object, old));
    refusals
}

fn topology(object: &Object, old: Option<&Object>) -> Vec<Refusal> {
    let (spec, mut refusals) = (object.get("/spec"), vec![]);
    if let Some(old) = old
        && old.get("/spec/topology").is_object()
        && !spec["topology"].is_object()
    {
        refusals.push(Refusal::new(
            "spec.topology",
            "cannot be removed: everything was made from it; delete the cluster instead",
        ));
    }
    for (list, name) in [("machineDeployments", "name"), ("machinePools", "name")] {
        let place = format!("/spec/topology/workers/{list}");
        refusals.extend(twice(object.get(&place), name, &format!("spec.topology.workers.{list}")));
    }
    refusals.extend(twice(&spec["topology"]["variables"], "name", "spec.topology.variables"));
    refusals
}

/// Names that are given to more than one item.
fn twice(list: &Value, key: &str, field: &str) -> Vec<Refusal> {
    let mut seen = BTreeSet::new();
    let names = list
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(|(index, item)| Some((index, item[key].as_str()?)));
    names
        .filter(|(_, name)| !seen.insert(*name))
        .map(|(index, name)| {
            Refusal::new(format!("{field}[{index}].{key}"), format!("{name:?} is there twice; give each its own name"))
        })
        .collect()
}

pub fn cluster_class(object: &mut Object, _old: Option<&Object>) -> Vec<Refusal> {
    let mut refusals = twice(object.get("/spec/variables"), "name", "spec.variables");
    refusals.extend(twice(object.get("/spec/patches"), "name", "spec.patches"));
    for list in ["machineDeployments", "machinePools"] {
        let place = object.get(&format!("/spec/workers/{list}"));
        refusals.extend(twice(place, "class", &format!("spec.workers.{list}")));
    }
    let variables = object.get("/spec/variables").as_array().into_iter().flatten().enumerate();
    let builtin = variables.filter(|(_, variable)| variable["name"] == "builtin");
    refusals.extend(builtin.map(|(index, _)| {
        Refusal::new(
            format!("spec.variables[{index}].name"),
            "\"builtin\" is what Hangar itself fills in; choose another name",
        )
    }));
    let patches = object.get("/spec/patches").as_array().into_iter().flatten().enumerate();
    let both = patches.filter(|(_, patch)| patch["definitions"].is_array() == patch["external"].is_object());
    refusals.extend(both.map(|(index, _)| {
        Refusal::new(
            format!("spec.patches[{index}]"),
            "needs either definitions or external, and not both; keep one of them",
        )
    }));
    refusals
}
