//! The layering of the crates, and the purity of the lowest two, read off `cargo metadata`.
//!
//! Holds: dependencies point downwards only; `api` and `planner` link nothing that reads a clock, draws randomness or does I/O.
//! Dev-dependencies are free, because tests stand above everything.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::run;

/// Each crate with the crates of ours that it may depend on; `hangar` wires all of them together.
const LAYERS: &[(&str, &[&str])] = &[
    ("hangar-api", &[]),
    ("hangar-pki", &[]),
    ("hangar-openstack-types", &[]),
    ("hangar-planner", &["hangar-api", "hangar-openstack-types"]),
    ("hangar-openstack", &["hangar-api", "hangar-openstack-types", "hangar-pki"]),
    ("hangar-engine", &["hangar-api", "hangar-pki", "hangar-planner"]),
    ("hangar-controllers", &["hangar-api", "hangar-engine", "hangar-openstack", "hangar-pki", "hangar-planner"]),
    ("hangar-views", &["hangar-api"]),
    ("hangar-node", &["hangar-api", "hangar-pki"]),
    ("hangar-kubesim", &["hangar-api"]),
    ("hangar-machine", &["hangar-api", "hangar-node"]),
    ("hangar-simulator", &["hangar-api", "hangar-machine", "hangar-node", "hangar-openstack", "hangar-pki"]),
    (
        "hangar-simulation",
        &[
            "hangar-api",
            "hangar-controllers",
            "hangar-engine",
            "hangar-kubesim",
            "hangar-openstack",
            "hangar-pki",
            "hangar-planner",
            "hangar-simulator",
        ],
    ),
    ("hangar-embedded", &["hangar-api", "hangar-node", "hangar-pki"]),
    ("xtask", &[]),
];
const TOP: &str = "hangar";

/// The crates that decide, and never do.
const PURE: &[&str] = &["hangar-api", "hangar-openstack-types", "hangar-planner"];

/// What a pure crate may link: data, formats and arithmetic, in memory. jiff is here for its types; clippy.toml forbids its clock.
const PURE_LIBRARIES: &[&str] = &[
    "base64",
    "flate2",
    "ipnet",
    "jiff",
    "k8s-openapi",
    "semver",
    "serde",
    "serde-saphyr",
    "serde_json",
    "thiserror",
    "yaml_serde",
];

/// Everything that is wrong, in words.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let text = run::output(run::cargo(root, &["metadata", "--no-deps", "--format-version", "1"]))?;
    Ok(judge(&serde_json::from_str(&text)?))
}

fn judge(metadata: &Value) -> Vec<String> {
    let mut violations = vec![];
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let allowed = LAYERS.iter().find(|(layer, _)| *layer == name).map(|(_, allowed)| *allowed);
        if allowed.is_none() && name != TOP {
            violations.push(format!("crate {name} has no place in the layers: add it to xtask/src/layers.rs"));
            continue;
        }
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        // A dependency without a kind is a normal one.
        for dependency in dependencies.filter(|dependency| dependency["kind"].is_null()) {
            let on = dependency["name"].as_str().unwrap_or_default();
            if dependency["path"].is_string() {
                if allowed.is_some_and(|allowed| !allowed.contains(&on)) {
                    violations.push(format!("crate {name} must not depend on {on}: see the layers in ARCHITECTURE.md"));
                }
            } else if PURE.contains(&name) && !PURE_LIBRARIES.contains(&on) {
                violations
                    .push(format!("crate {name} must stay pure but depends on {on}: do the I/O in another crate"));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dependencies_point_downwards_and_the_core_is_pure() {
        let ours = |name: &str| json!({ "name": name, "kind": null, "path": "somewhere" });
        let library = |name: &str| json!({ "name": name, "kind": null });
        let dev = |name: &str| json!({ "name": name, "kind": "dev", "path": "somewhere" });
        let table = [
            ("hangar-planner", ours("hangar-api"), None),
            ("hangar-planner", library("serde"), None),
            ("hangar-planner", dev("hangar-simulator"), None),
            ("hangar-engine", library("tokio"), None),
            ("hangar", ours("hangar-simulator"), None),
            ("hangar-planner", library("tokio"), Some("must stay pure but depends on tokio")),
            ("hangar-api", ours("hangar-planner"), Some("must not depend on hangar-planner")),
            ("hangar-engine", ours("hangar"), Some("must not depend on hangar:")),
            ("hangar-baremetal", ours("hangar-api"), Some("has no place in the layers")),
        ];
        for (name, dependency, expected) in table {
            let found = judge(&json!({ "packages": [{ "name": name, "dependencies": [dependency] }] }));
            match expected {
                None => assert_eq!(found, Vec::<String>::new()),
                Some(part) => assert!(found.len() == 1 && found[0].contains(part), "{found:?}"),
            }
        }
    }
}
