//! Does what the user-data says, as cloud-init would.
//!
//! Flows: user-data -> `bootcmd` at every start; files, `runcmd` and scripts once for each instance -> output in `/var/log/cloud-init-output.log` and on
//! the console. Holds: a command that fails does not keep the next from running; what failed, and how, is on the console.

use std::io::Result;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use super::console;
use super::services::Services;
use crate::cloud_init::{self, Prepared, WrittenFile};
use crate::guest::GuestSpec;

const OUTPUT: &str = "/var/log/cloud-init-output.log";
const INSTANCES: &str = "/var/lib/cloud/instances";
/// What was written before the end is there soon after it.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// What a login shell of root has.
const SCRIPT: &str = "#!/bin/sh\n";

pub async fn run(spec: GuestSpec, services: Arc<Services>) {
    let directory = Path::new(INSTANCES).join(&spec.id);
    let done = directory.join("boot-finished");
    let prepared = match cloud_init::prepare(&spec.instance) {
        Ok(prepared) => prepared,
        Err(error) => return console(&error.to_string()),
    };
    if let Err(error) = apply(&prepared, &directory, done.exists()).await {
        console(&format!("cloud-init: {error}"));
    }
    let _ = std::fs::write(&done, "");
    console(&format!("cloud-init: {} finished", spec.instance.name));
    services.start_enabled().await;
}

async fn apply(prepared: &Prepared, directory: &Path, is_done: bool) -> Result<()> {
    std::fs::create_dir_all(directory.join("scripts"))?;
    run_script("bootcmd", &lines(&prepared.boot_commands), &directory.join("scripts/bootcmd")).await?;
    if is_done {
        return Ok(());
    }
    for file in &prepared.written {
        if let Err(error) = write(file) {
            console(&format!("cloud-init: could not write {}: {error}", file.path));
        }
    }
    run_script("runcmd", &lines(&prepared.run_commands), &directory.join("scripts/runcmd")).await?;
    for (number, script) in prepared.whole_scripts.iter().enumerate() {
        let name = format!("part-{:03}", number + 1);
        run_script(&name, script, &directory.join("scripts").join(&name)).await?;
    }
    Ok(())
}

fn lines(commands: &[String]) -> String {
    if commands.is_empty() { String::new() } else { format!("{SCRIPT}{}\n", commands.join("\n")) }
}

fn write(file: &WrittenFile) -> Result<()> {
    let path = Path::new("/").join(&file.path);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.create(true).write(true).append(file.append).truncate(!file.append);
    std::io::Write::write_all(&mut options.open(&path)?, &file.content)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(file.mode))
}

async fn run_script(name: &str, text: &str, path: &Path) -> Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    let path: PathBuf = path.to_owned();
    let (reader, writer) = std::io::pipe()?;
    let mut command = Command::new(&path);
    command.current_dir("/").stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    command.env("INSTANCE_ID", path.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default());
    let mut child = command.spawn()?;
    drop(command);
    let log = tokio::fs::OpenOptions::new().create(true).append(true).open(OUTPUT).await?;
    let mut copying = tokio::spawn(copy(tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into())?, log));
    let status = child.wait().await?;
    // Something that stays in the background holds the pipe for as long as it likes.
    let _ = tokio::time::timeout(LAST_WORDS, &mut copying).await;
    if !status.success() {
        console(&format!("cloud-init: {name} failed: {status}; its output is in {OUTPUT}"));
    }
    Ok(())
}

async fn copy(from: tokio::net::unix::pipe::Receiver, mut log: tokio::fs::File) -> Result<()> {
    let mut output = BufReader::new(from).lines();
    while let Some(line) = output.next_line().await? {
        console(&line);
        log.write_all(format!("{line}\n").as_bytes()).await?;
        log.flush().await?;
    }
    Ok(())
}
