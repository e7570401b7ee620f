//! Every command a contributor needs.
//!
//! Holds: what CI runs is what people run, and cargo alone suffices to run it on a new machine.

mod behaviour;
mod bench;
mod cloud_init;
mod conformance;
mod dependencies;
mod docs;
mod fuzz;
mod generate;
mod layers;
mod lint;
mod openstack_real;
mod planted;
mod run;
mod simulate;
mod soak;
mod sources;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Every command a contributor needs")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the Rust types and the registry from the schemas in crates/api/schemas, and the ledger of behaviour
    Generate {
        /// Change nothing, fail if something is out of date
        #[arg(long)]
        check: bool,
    },
    /// Formatting, clippy, layering, purity of the core, generated code, lengths of files, licences and sources of dependencies, links
    Lint,
    /// What CI runs: lint, components, all tests
    Test(test::Options),
    /// Get the components that the tests run (etcd, kube-apiserver, ...) into the local store
    Fetch,
    /// Build the release binary and measure it
    Bench {
        /// Only this one: cluster, api, conversion, fleet, hollow, planes or scale
        name: Option<String>,
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// Day two with kubectl on the local plane: grow, roll out, drain, break, heal (takes minutes)
    Walk,
    /// Upstream's clusterctl against our objects: describe, get kubeconfig, move to a directory and back (builds clusterctl once)
    Clusterctl,
    /// Convert random objects between all versions, there and back
    Soak(soak::Options),
    /// Whole lives of clusters with people and troubles from many seeds, in memory
    Simulate(simulate::Options),
    /// Change what others write at random, and let everything read it: reviews, manifests, clouds.yaml, user-data, answers, kubeconfigs
    Fuzz(fuzz::Options),
    /// Ask the real cloud-init what it makes of the documents in crates/simulator/tests/cloud_init
    CloudInit {
        /// Write its answers down instead of comparing them
        #[arg(long)]
        record: bool,
    },
    /// A real OpenStack on this machine, and the client's suite against it
    OpenstackReal {
        #[command(subcommand)]
        what: openstack_real::What,
    },
    /// The Kubernetes e2e suite against a plane of its own: what applies to pods that are processes (takes an hour or two)
    Conformance(conformance::Options),
    /// Write the dependency tree of the release binary as a bill of materials (CycloneDX JSON)
    Sbom {
        /// The file (default: target/hangar.cdx.json)
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Check the links of all documents, and build the book if mdbook is installed
    Docs,
}

fn main() -> ExitCode {
    match execute(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // By hand, since the default would add a backtrace where RUST_BACKTRACE is set, and nobody needs one of a lint.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A test that takes too long for CI.
fn ignored(root: &Path, test: &str) -> Result<()> {
    run::to_success(run::cargo(
        root,
        &["test", "--package", "hangar", "--test", test, "--", "--ignored", "--nocapture"],
    ))
}

fn execute(command: Command) -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    match command {
        Command::Generate { check } => generate::run(&root, check).and_then(|()| behaviour::run(&root, check)),
        Command::Lint => lint::run(&root),
        Command::Test(options) => test::run(&root, &options),
        Command::Fetch => test::fetch(&root),
        Command::Bench { name, json } => bench::run(&root, name.as_deref(), json),
        Command::Walk => ignored(&root, "walk"),
        Command::Clusterctl => test::fetch_one(&root, "clusterctl").and_then(|()| ignored(&root, "clusterctl")),
        Command::Simulate(options) => simulate::run(&root, &options),
        Command::Soak(options) => soak::run(&root, &options),
        Command::Fuzz(options) => fuzz::run(&root, &options),
        Command::CloudInit { record } => cloud_init::run(&root, record),
        Command::OpenstackReal { what } => openstack_real::run(&root, &what),
        Command::Conformance(options) => conformance::run(&root, &options),
        Command::Sbom { output } => dependencies::sbom::run(&root, output),
        Command::Docs => docs::run(&root),
    }
}
