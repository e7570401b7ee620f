//! `cargo xtask lint`: every rule that a machine can check, each with what to do about it.
//!
//! Holds: all checks run even if an earlier one fails, so that one run shows everything that is to be done.

use std::path::Path;

use anyhow::{Result, bail};

use crate::{behaviour, dependencies, docs, generate, layers, planted, run, sources};

/// Runs every check and fails with the number of those that failed.
pub fn run(root: &Path) -> Result<()> {
    let checks: [(&str, &dyn Fn() -> Result<()>); 9] = [
        ("formatting", &|| run::to_success(run::cargo(root, &["fmt", "--all", "--check"]))),
        ("generated code", &|| generate::run(root, true)),
        ("ledger of behaviour", &|| behaviour::run(root, true)),
        ("layers", &|| none(layers::violations(root)?)),
        ("source files", &|| none(sources::violations(root)?)),
        ("planted bugs", &|| none(planted::violations(root)?)),
        ("dependencies", &|| none(dependencies::violations(root)?)),
        ("links", &|| none(docs::violations(root)?)),
        ("clippy", &|| {
            let arguments = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
            run::to_success(run::cargo(root, &arguments))
        }),
    ];
    let mut failed = vec![];
    for (name, check) in checks {
        match check() {
            Ok(()) => println!("  ok      {name}"),
            Err(error) => {
                println!("  failed  {name}\n{error:#}");
                failed.push(name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("lint found something in: {}", failed.join(", "));
    }
    Ok(())
}

fn none(violations: Vec<String>) -> Result<()> {
    if !violations.is_empty() {
        bail!("{}", violations.join("\n"));
    }
    Ok(())
}
