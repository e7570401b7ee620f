//! `cargo xtask soak`: the laws of conversion with as many random objects as one has time for.
//!
//! Holds: it is the same test that CI runs, only with another number and another seed.

use std::path::Path;

use anyhow::Result;

use crate::run;

#[derive(clap::Args)]
pub struct Options {
    /// Objects for each pair of versions of each kind
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// Another seed draws other objects
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(root: &Path, options: &Options) -> Result<()> {
    let arguments = ["test", "--package", "hangar-api", "--test", "round_trip", "there_and_back", "--", "--nocapture"];
    let mut command = run::cargo(root, &arguments);
    command.env("HANGAR_SOAK_COUNT", options.count.to_string()).env("HANGAR_SOAK_SEED", options.seed.to_string());
    run::to_success(command)
}
