//! Packs the schemas for the binary: no white space, deflated, one file each, so that a kind is unpacked only when it is asked for.

#![allow(clippy::disallowed_methods, reason = "it is the build that reads and writes files, not the core")]

use std::io::Write as _;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=schemas");
    println!("cargo::rerun-if-changed=build.rs");
    let target = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    for entry in std::fs::read_dir("schemas")? {
        let path = entry?.path();
        let name = path.file_name().ok_or("a schema has a name")?.to_string_lossy().into_owned();
        let facts: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path)?).map_err(|error| format!("schemas/{name}: {error}"))?;
        let mut packed = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(facts.to_string().as_bytes())?;
        std::fs::write(target.join(format!("{name}.z")), packed.finish()?)?;
    }
    Ok(())
}
