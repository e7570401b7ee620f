//! `cargo xtask bench`: the size of the release binary, and whatever the benchmarks of the product measure.
//!
//! Flows: release build -> size of the file -> the benchmarks that are there; each line that they print as a JSON object is one
//! measurement. Holds: nothing is measured that was not built from this tree.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::run;

/// Where each lies, and how it is run. The measured program is the release build; what measures it need not be, and would have to be
/// compiled once more. Conversion is measured within its own process, so that is compiled for release.
const BENCHMARKS: &[(&str, &[&str])] = &[
    ("crates/hangar/tests/bench.rs", &["test", "--package", "hangar", "--test", "bench"]),
    ("crates/hangar/tests/api_bench.rs", &["test", "--package", "hangar", "--test", "api_bench"]),
    (
        "crates/api/tests/conversion_bench.rs",
        &["test", "--release", "--package", "hangar-api", "--test", "conversion_bench"],
    ),
];

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
        println!("there are no benchmarks: nothing else was measured");
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
    let mut measured = vec![];
    for (file, arguments) in BENCHMARKS {
        if !root.join(file).is_file() {
            continue;
        }
        let mut command = run::cargo(root, &[*arguments, &["--", "--ignored", "--nocapture"]].concat());
        command.env("HANGAR_BINARY", binary(root)?);
        let text = run::output(command)?;
        if !as_json {
            print!("{text}");
        }
        measured.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object));
    }
    Ok((!measured.is_empty()).then_some(measured))
}
