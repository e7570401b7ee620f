//! `cargo xtask bench`: the size of the release binary, and whatever the benchmarks of the product measure.
//!
//! Flows: release build -> size of the file -> `crates/hangar/tests/bench.rs`, if it is there; each line that it prints as a JSON
//! object is one measurement. Holds: nothing is measured that was not built from this tree.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::run;

const BENCHMARKS: &str = "crates/hangar/tests/bench.rs";

/// Builds, measures and prints.
pub fn run(root: &Path, as_json: bool) -> Result<()> {
    run::to_success(run::cargo(root, &["build", "--release", "--package", "hangar"]))?;
    let size = std::fs::metadata(binary(root)?).context("the release binary is not where cargo said")?.len();
    let measurements = measure(root, as_json)?;
    if as_json {
        println!("{}", json!({ "binaryBytes": size, "measurements": measurements }));
        return Ok(());
    }
    println!("release binary: {:.1} MiB", size as f64 / f64::from(1 << 20));
    if measurements.is_none() {
        println!("{BENCHMARKS} does not exist: nothing else was measured");
    }
    Ok(())
}

fn binary(root: &Path) -> Result<std::path::PathBuf> {
    let text = run::output(run::cargo(root, &["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let target = metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(Path::new(target).join("release").join(format!("hangar{}", std::env::consts::EXE_SUFFIX)))
}

/// What the benchmarks printed as JSON, or nothing if there are none.
fn measure(root: &Path, as_json: bool) -> Result<Option<Vec<Value>>> {
    if !root.join(BENCHMARKS).is_file() {
        return Ok(None);
    }
    // The measured program is the release build; what measures it need not be, and would have to be compiled once more.
    let mut command =
        run::cargo(root, &["test", "--package", "hangar", "--test", "bench", "--", "--ignored", "--nocapture"]);
    command.env("HANGAR_BINARY", binary(root)?);
    let text = run::output(command)?;
    if !as_json {
        print!("{text}");
    }
    let objects = text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object);
    Ok(Some(objects.collect()))
}
