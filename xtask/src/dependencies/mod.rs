//! What we depend on: whether it may be used, and what it is.
//!
//! Flows: `cargo metadata`, and `cargo tree` for what of it is compiled for the targets in deny.toml -> rules of deny.toml -> everything that is wrong, in words; or, for the tree of the release binary, a bill of
//! materials. Holds: the rules are those of `cargo deny check`, read from the same file, so that both agree; nothing has to be installed.

mod deny_rules;
mod licence;
pub mod sbom;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::run;
use deny_rules::DenyRules;

/// Everything that is wrong; what is only to be known is printed.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let rules = rules(root)?;
    let judged = judge(&metadata(root, &rules, &["--workspace", "--edges", "normal,build,dev"])?, &rules);
    judged.notes.iter().for_each(|note| println!("  note    {note}"));
    Ok(judged.violations)
}

fn rules(root: &Path) -> Result<DenyRules> {
    let path = root.join("deny.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    DenyRules::read(&text)
}

/// The packages that are compiled, in the form of `cargo metadata`, which lists optional ones that nobody switched on as well.
fn metadata(root: &Path, rules: &DenyRules, tree: &[&str]) -> Result<Value> {
    let mut arguments = vec!["metadata", "--format-version", "1", "--locked"];
    arguments.extend(rules.targets.iter().flat_map(|target| ["--filter-platform", target]));
    let mut metadata: Value = serde_json::from_str(&run::output(run::cargo(root, &arguments))?)?;
    let mut arguments = vec!["tree", "--locked", "--prefix", "none", "--format", "{p}"];
    arguments.extend(tree);
    arguments.extend(rules.targets.iter().flat_map(|target| ["--target", target]));
    let tree = run::output(run::cargo(root, &arguments))?;
    let compiled: BTreeSet<(&str, &str)> = tree.lines().filter_map(name_and_version).collect();
    if let Some(packages) = metadata["packages"].as_array_mut() {
        let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
        packages.retain(|package| compiled.contains(&(&*text(package, "name"), &*text(package, "version"))));
    }
    Ok(metadata)
}

/// Of a line such as `serde v1.0.0 (proc-macro)`.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

#[derive(Debug, Default, PartialEq)]
struct Judged {
    violations: Vec<String>,
    notes: Vec<String>,
}

fn judge(metadata: &Value, rules: &DenyRules) -> Judged {
    let mut judged = Judged::default();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let (name, version) = (text("name"), text("version"));
        versions.entry(name).or_default().push(version);
        if package["source"].is_null() {
            judged.violations.extend(wildcards(package, rules));
            continue;
        }
        if let Some(reason) = rules.banned.get(name) {
            judged.violations.push(format!("{name} {version} must not be used: {reason}"));
        }
        if !rules.allows_source(text("source")) {
            judged
                .violations
                .push(format!("{name} {version} comes from {}: only the public registry is allowed", text("source")));
        }
        match licence::is_allowed(text("license"), &rules.licences) {
            Ok(true) => {}
            Ok(false) => judged.violations.push(format!(
                "{name} {version} has the licence {}, which deny.toml does not allow: replace it, or add the licence there with a reason",
                text("license")
            )),
            Err(why) => judged.violations.push(format!("{name} {version}: licence {:?}: {why}", text("license"))),
        }
    }
    for (name, versions) in versions.into_iter().filter(|(_, versions)| versions.len() > 1) {
        let words = format!("{name} is there in {} versions: {}", versions.len(), versions.join(", "));
        match rules.multiple_versions.as_str() {
            "deny" => judged.violations.push(words),
            "warn" => judged.notes.push(words),
            _ => {}
        }
    }
    judged
}

/// Dependencies of ours that take any version; those on crates of the workspace have none.
fn wildcards(package: &Value, rules: &DenyRules) -> Vec<String> {
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let any = dependencies.filter(|one| one["req"] == "*" && rules.denies_wildcards && !one["path"].is_string());
    any.map(|one| format!("{} takes any version of {}: name one", package["name"], one["name"])).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

    fn deny_toml() -> DenyRules {
        DenyRules::read(include_str!("../../../deny.toml")).unwrap()
    }

    #[test]
    fn the_rules_are_those_of_deny_toml() {
        let rules = deny_toml();
        assert!(rules.licences.contains("Apache-2.0") && rules.licences.contains("Unicode-3.0"), "{rules:?}");
        assert!(!rules.licences.contains("GPL-3.0"));
        assert!(rules.banned["ring"].contains("aws-lc-rs") && rules.banned.contains_key("openssl-sys"));
        assert_eq!(rules.targets, ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]);
        assert_eq!((rules.multiple_versions.as_str(), rules.denies_wildcards), ("warn", true));
    }

    #[test]
    fn what_may_not_be_used_is_named() {
        let package = |name: &str, source: &str, licence: &str| json!({ "name": name, "version": "1.0.0", "source": source, "license": licence });
        let rows = [
            (package("good", CRATES_IO, "MIT OR GPL-3.0"), None),
            (package("ring", CRATES_IO, "MIT"), Some("ring 1.0.0 must not be used: cryptography is aws-lc-rs")),
            (
                package("copyleft", CRATES_IO, "GPL-3.0-only"),
                Some("licence GPL-3.0-only, which deny.toml does not allow"),
            ),
            (package("unlicensed", CRATES_IO, ""), Some("unlicensed 1.0.0: licence \"\"")),
            (package("forked", "git+https://example.org/x#1", "MIT"), Some("comes from git+https://example.org/x#1")),
            (package("private", "registry+https://example.org/index", "MIT"), Some("only the public registry")),
            (
                json!({ "name": "ours", "source": null, "dependencies": [{ "name": "x", "req": "*" }, { "name": "y", "req": "*", "path": "y" }] }),
                Some("takes any version of \"x\""),
            ),
        ];
        for (package, expected) in rows {
            let found = judge(&json!({ "packages": [package] }), &deny_toml()).violations;
            match expected {
                None => assert_eq!(found, Vec::<String>::new()),
                Some(words) => assert!(found.len() == 1 && found[0].contains(words), "{found:?}"),
            }
        }
    }

    #[test]
    fn a_line_of_the_tree_is_a_name_and_a_version() {
        assert_eq!(name_and_version("serde_derive v1.0.2 (proc-macro) (*)"), Some(("serde_derive", "1.0.2")));
        assert_eq!(name_and_version(""), None);
    }

    #[test]
    fn two_versions_are_shown() {
        let package = |version: &str| json!({ "name": "a", "version": version, "source": CRATES_IO, "license": "MIT" });
        let judged = judge(&json!({ "packages": [package("1.0.0"), package("2.0.0")] }), &deny_toml());
        assert_eq!(judged.notes, ["a is there in 2 versions: 1.0.0, 2.0.0"]);
        assert_eq!(judged.violations, Vec::<String>::new());
    }
}
