//! `cargo xtask openstack-real`: a real OpenStack on this machine, and against it the client's suite, and what the controllers make of upstream's templates.
//!
//! Holds: what is run against the real cloud is the same binary of tests that runs against the simulator every day.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use clap::Subcommand;

use crate::run;

#[derive(Subcommand)]
pub enum What {
    /// Install it (PyPI, MariaDB, RabbitMQ) and start it; what is there already is left alone
    Up,
    /// Start it if it does not run, and run the suite against it
    Test,
    /// Start it if it does not run, and let the controllers make and delete what upstream's templates describe
    Templates,
    /// One line per process
    Status,
    /// End its processes; its files stay
    Down,
}

pub fn run(root: &Path, what: &What) -> Result<()> {
    match what {
        What::Up => cloud(root, "up"),
        What::Status => cloud(root, "status"),
        What::Down => cloud(root, "down"),
        What::Test => suite(root, &["test", "--package", "hangar-simulator", "--test", "both_clouds"]),
        // One after the other: they share a project, and would see each other's resources.
        What::Templates => {
            let arguments = ["--test", "templates", "--", "--test-threads", "1"];
            suite(root, &[&["test", "--package", "hangar-simulation"][..], &arguments].concat())
        }
    }
}

fn suite(root: &Path, arguments: &[&str]) -> Result<()> {
    cloud(root, "up")?;
    let mut suite = run::cargo(root, arguments);
    suite.env("HANGAR_TEST_CLOUDS", state(root).join("clouds.yaml"));
    run::to_success(suite)
}

/// Beside what cargo builds, so that `cargo clean` takes it away.
fn state(root: &Path) -> PathBuf {
    root.join("target").join("openstack-real")
}

fn cloud(root: &Path, command: &str) -> Result<()> {
    let mut python = Command::new("python3");
    python.arg(root.join("xtask").join("openstack-real").join("cloud.py")).arg(command).arg(state(root));
    run::to_success(python)
}
