//! `cargo xtask sbom`: the dependency tree of the release binary as a bill of materials (CycloneDX, JSON).
//!
//! Flows: `cargo metadata` and Cargo.lock -> every crate that is linked into `hangar` or runs while it is compiled -> components with package URL, licence and checksum, and
//! who needs whom. Holds: the same Cargo.lock gives the same bytes: no time, no random number, no path of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

const PROGRAM: &str = "hangar";

/// Writes it, to `target/hangar.cdx.json` unless another file is named.
pub fn run(root: &Path, output: Option<PathBuf>) -> Result<()> {
    let metadata = super::metadata(root, &super::rules(root)?, &["--package", PROGRAM, "--edges", "normal,build"])?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let bill = bill(&metadata, &checksums(&lock)).context("the workspace has no package hangar")?;
    let output = output.unwrap_or_else(|| root.join("target/hangar.cdx.json"));
    std::fs::write(&output, format!("{bill:#}\n")).with_context(|| format!("cannot write {}", output.display()))?;
    println!("{}: {} components", output.display(), bill["components"].as_array().map_or(0, Vec::len));
    Ok(())
}

fn bill(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Option<Value> {
    let packages: BTreeMap<&str, &Value> =
        items(&metadata["packages"]).filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let needs: BTreeMap<&str, BTreeSet<&str>> =
        items(&metadata["resolve"]["nodes"]).filter_map(|node| Some((node["id"].as_str()?, needed(node)))).collect();
    let (root, program) =
        packages.iter().find(|(_, package)| package["name"] == PROGRAM && package["source"].is_null())?;
    let (mut found, mut open) = (BTreeSet::from([*root]), vec![*root]);
    while let Some(id) = open.pop() {
        let needed = needs.get(id).into_iter().flatten().filter(|id| packages.contains_key(**id));
        open.extend(needed.filter(|id| found.insert(id)));
    }
    let reference = |id: &&str| packages.get(*id).map(|package| package_url(package));
    let components = found.iter().filter(|id| *id != root).filter_map(|id| packages.get(id));
    let dependencies = found.iter().filter_map(|id| {
        let mut on: Vec<String> = needs.get(id).into_iter().flatten().filter_map(reference).collect();
        on.sort();
        Some(json!({ "ref": reference(id)?, "dependsOn": on }))
    });
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": component(program, "application", checksums) },
        "components": components.map(|package| component(package, "library", checksums)).collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

/// What a package is linked with or compiled by; what only its tests use is left out.
fn needed(node: &Value) -> BTreeSet<&str> {
    let is_needed = |one: &&Value| items(&one["dep_kinds"]).any(|kind| kind["kind"] != "dev");
    items(&node["deps"]).filter(is_needed).filter_map(|one| one["pkg"].as_str()).collect()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn package_url(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}

fn component(package: &Value, kind: &str, checksums: &BTreeMap<(String, String), String>) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let (name, version) = (text("name"), text("version"));
    let mut component = json!({
        "type": kind, "bom-ref": package_url(package), "name": name, "version": version, "purl": package_url(package),
    });
    if !text("license").is_empty() {
        component["licenses"] = json!([{ "expression": text("license").replace(" / ", " OR ").replace('/', " OR ") }]);
    }
    if let Some(checksum) = checksums.get(&(name, version)) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

/// Of every crate that comes from a registry.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |table: &str, key: &str| {
        let line = table.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = ").map(str::to_owned))?;
        Some(line.trim_matches('"').to_owned())
    };
    let tables = lock.split("[[package]]").skip(1);
    tables
        .filter_map(|table| Some(((value(table, "name")?, value(table, "version")?), value(table, "checksum")?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_and_what_only_tests_use_is_not() {
        let package = |name: &str, source: Value| json!({ "id": name, "name": name, "version": "1.0.0", "source": source, "license": "MIT/Apache-2.0" });
        let needs = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                package("hangar", Value::Null), package("a", json!("registry")), package("b", json!("registry")),
                package("only-tests", json!("registry")), package("xtask", Value::Null),
            ],
            "resolve": { "nodes": [
                { "id": "hangar", "deps": [needs("a", Value::Null), needs("only-tests", json!("dev"))] },
                { "id": "a", "deps": [needs("b", json!("build"))] },
                { "id": "b", "deps": [] },
            ] },
        });
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"r\"\nchecksum = \"abc\"\n";
        let bill = bill(&metadata, &checksums(lock)).unwrap();
        let names: Vec<&str> = items(&bill["components"]).map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(bill["components"][0]["hashes"][0]["content"], "abc");
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["metadata"]["component"]["purl"], "pkg:cargo/hangar@1.0.0");
        assert_eq!(bill["dependencies"][0], json!({ "ref": "pkg:cargo/a@1.0.0", "dependsOn": ["pkg:cargo/b@1.0.0"] }));
    }
}
