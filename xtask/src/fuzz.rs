//! `cargo xtask fuzz`: every fuzz target for as long as one has time.
//!
//! Holds: it is the same test that CI runs for a moment, only longer and with another seed.

use std::path::Path;

use anyhow::Result;

use crate::run;

#[derive(clap::Args)]
pub struct Options {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    time: u64,
    /// Another seed makes other inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only targets whose name contains this
    target: Option<String>,
}

pub fn run(root: &Path, options: &Options) -> Result<()> {
    let arguments = ["test", "--package", "hangar-simulation", "--test", "fuzz", "--", "--nocapture"];
    let mut command = run::cargo(root, &arguments);
    command
        .env("HANGAR_FUZZ_SECONDS", options.time.to_string())
        .env("HANGAR_FUZZ_SEED", options.seed.to_string())
        .env("HANGAR_FUZZ_TARGET", options.target.as_deref().unwrap_or_default());
    run::to_success(command)
}
