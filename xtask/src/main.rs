//! Every command a contributor needs.

mod generate;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Every command a contributor needs")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the Rust types and the registry from the schemas in crates/api/schemas
    Generate {
        /// Change nothing, fail if something is out of date
        #[arg(long)]
        check: bool,
    },
}

fn main() -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    match Cli::parse().command {
        Command::Generate { check } => generate::run(&root, check),
    }
}
