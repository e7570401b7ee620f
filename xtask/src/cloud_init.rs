//! `cargo xtask cloud-init`: the real cloud-init reads the documents that our parser is tested with.
//!
//! Holds: what the tests expect is what the real one says; it is recorded, because not every machine has cloud-init.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

pub fn run(root: &Path, record: bool) -> Result<()> {
    let documents = root.join("crates/simulator/tests/cloud_init");
    let mut python = Command::new("/usr/bin/python3");
    python.arg(root.join("xtask/cloud-init/reference.py")).arg(&documents).env("PYTHONDONTWRITEBYTECODE", "1");
    let said = run::output(python).context("cloud-init cannot be asked: install the package cloud-init")?;
    let expected = documents.join("expected.json");
    if record {
        std::fs::write(&expected, said)?;
        return Ok(());
    }
    if std::fs::read_to_string(&expected)? != said {
        bail!("cloud-init says something else than {}: look at it with --record and git diff", expected.display());
    }
    println!("cloud-init says what the tests expect");
    Ok(())
}
