//! `cargo xtask bench`: the size of the release binary, and whatever the benchmarks of the product measure.
//!
//! Flows: release build -> size of the file -> the benchmarks; each line that they print as a JSON object is one measurement. Holds: nothing is measured that was not built from this tree.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::run;

/// Name and how it is run. The measured program is the release build; what measures it need not be, and would have to be compiled once
/// more. Conversion and scale are measured within their own process, so they are compiled for release and need no binary.
const BENCHMARKS: &[(&str, &[&str])] = &[
    ("cluster", &["test", "--package", "hangar", "--test", "bench"]),
    ("api", &["test", "--package", "hangar", "--test", "api_bench"]),
    ("conversion", &["test", "--release", "--package", "hangar-api", "--test", "conversion_bench"]),
    ("fleet", &["test", "--release", "--package", "hangar", "--test", "bench_fleet"]),
    ("hollow", &["test", "--package", "hangar", "--test", "bench_hollow"]),
    ("planes", &["test", "--package", "hangar", "--test", "bench_planes"]),
    ("scale", &["test", "--release", "--package", "hangar-simulation", "--test", "bench_scale"]),
];

/// Builds, measures and prints; all benchmarks, or the one that is named.
pub fn run(root: &Path, name: Option<&str>, as_json: bool) -> Result<()> {
    let chosen: Vec<_> = BENCHMARKS.iter().filter(|(known, _)| name.is_none_or(|name| name == *known)).collect();
    if chosen.is_empty() {
        let known: Vec<&str> = BENCHMARKS.iter().map(|(known, _)| *known).collect();
        bail!("there is no benchmark {}; there are {}", name.unwrap_or_default(), known.join(", "));
    }
    // What is itself compiled for release measures itself.
    let needs_binary = chosen.iter().any(|(_, arguments)| !arguments.contains(&"--release"));
    let size = if needs_binary { Some(build(root)?) } else { None };
    let mut measured = vec![];
    for (_, arguments) in chosen {
        measured.extend(measure(root, arguments, as_json)?);
    }
    if as_json {
        println!("{}", json!({ "binaryBytes": size, "measurements": measured }));
    } else if let Some(size) = size {
        println!("release binary: {:.1} MiB", size as f64 / f64::from(1 << 20));
    }
    Ok(())
}

/// The release binary; its size in bytes.
fn build(root: &Path) -> Result<u64> {
    run::to_success(run::cargo(root, &["build", "--release", "--package", "hangar"]))?;
    Ok(std::fs::metadata(binary(root)?).context("the release binary is not where cargo said")?.len())
}

fn binary(root: &Path) -> Result<std::path::PathBuf> {
    let text = run::output(run::cargo(root, &["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let target = metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(Path::new(target).join("release").join(format!("hangar{}", std::env::consts::EXE_SUFFIX)))
}

/// What one benchmark printed as JSON.
fn measure(root: &Path, arguments: &[&str], as_json: bool) -> Result<Vec<Value>> {
    let mut command = run::cargo(root, &[arguments, &["--", "--ignored", "--nocapture"]].concat());
    command.env("HANGAR_BINARY", binary(root)?);
    let text = run::output(command)?;
    if !as_json {
        print!("{text}");
    }
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect())
}
