//! `cargo xtask simulate`: people and troubles from many seeds, with the real controllers in memory; a failing seed is made shorter and printed.
//!
//! Holds: it is the same test that CI runs with fixed seeds, only compiled for release and with other numbers.

use std::path::Path;

use anyhow::Result;

use crate::{planted, run};

#[derive(clap::Args)]
pub struct Options {
    /// How many seeds
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Clusters in each world
    #[arg(long, default_value_t = 5)]
    clusters: u64,
    /// This seed alone, with a log of every step
    #[arg(long)]
    seed: Option<u64>,
    /// Plant known bugs one by one into a copy of the tree, and count the seeds that find each; with a text, only those whose name contains it
    #[arg(long, num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["seed", "first"], value_name = "TEXT")]
    planted: Option<String>,
}

pub fn run(root: &Path, options: &Options) -> Result<()> {
    if let Some(filter) = &options.planted {
        return planted::run(root, filter, options.seeds, options.clusters);
    }
    const TEST: &str = "whatever_people_do_and_whatever_fails_no_law_is_broken";
    let arguments =
        ["test", "--release", "--package", "hangar-simulation", "--test", "people", TEST, "--", "--nocapture"];
    let mut command = run::cargo(root, &arguments);
    command.env("HANGAR_SEEDS", options.seeds.to_string()).env("HANGAR_FIRST_SEED", options.first.to_string());
    command.env("HANGAR_CLUSTERS", options.clusters.to_string());
    if let Some(seed) = options.seed {
        command.env("HANGAR_SEED", seed.to_string());
    }
    run::to_success(command)
}
