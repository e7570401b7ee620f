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
    valid(root)
}

/// Whether what we write is valid by cloud-init's own schema.
fn valid(root: &Path) -> Result<()> {
    let folder = root.join("crates/planner/src/kubeadm_config/snapshots");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let text = std::fs::read_to_string(entry?.path())?;
        // What comes before it is insta's; the template's header is taken off by cloud-init before it looks at the rest.
        let Some((_, body)) = text.split_once("#cloud-config\n") else { continue };
        let file = root.join("target/cloud-config.yaml");
        std::fs::write(&file, format!("#cloud-config\n{body}"))?;
        let mut command = Command::new("cloud-init");
        command.args(["schema", "--config-file"]).arg(&file);
        run::output(command).context("cloud-init does not take what KubeadmConfigs become")?;
        count += 1;
    }
    if count == 0 {
        bail!("there is no cloud-config in {}", folder.display());
    }
    println!("{count} rendered cloud-configs are valid");
    Ok(())
}
