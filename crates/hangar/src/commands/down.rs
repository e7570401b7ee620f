//! `hangar down`: the background process ends; with `--purge` its home goes too.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use hangar_embedded::{Home, HomeError, HomeLock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::state_path;

const POLL_INTERVAL: Duration = Duration::from_millis(100);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

pub async fn run(home: &Home, purge: bool) -> Result<()> {
    // Held to the end, so that nothing that is started meanwhile is taken for a leftover.
    let (_lock, ended) = acquire(home).await?;
    match clean_up(home).await? || ended {
        true => anstream::println!("stopped"),
        false => anstream::println!("nothing was running in {}", home.path().display()),
    }
    if purge {
        home.remove().with_context(|| format!("could not remove {}", home.path().display()))?;
        anstream::println!("removed {}", home.path().display());
    }
    Ok(())
}

/// The home for ourselves. Whoever works in it is asked to end, and takes its children with it; says whether there was somebody.
async fn acquire(home: &Home) -> Result<(HomeLock, bool)> {
    let (deadline, mut asked) = (Instant::now() + STOP_TIMEOUT, None);
    loop {
        let refused = match home.hold() {
            Ok(lock) => return Ok((lock, asked.is_some())),
            Err(refused @ HomeError::InUse { .. }) => refused,
            Err(broken) => return Err(broken.into()),
        };
        if let Some(pid) = holder(home).filter(|pid| asked != Some(*pid)) {
            terminate(pid)?;
            asked = Some(pid);
        }
        if Instant::now() > deadline {
            let Some(pid) = asked else { return Err(refused.into()) };
            bail!("process {} does not stop; kill it with `kill -9` and run `hangar down` again", pid.as_raw_nonzero());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Nobody, if the home is free, or is just being cleared up or asked about.
fn holder(home: &Home) -> Option<Pid> {
    home.is_held().then(|| home.holder())??.parse().ok().and_then(Pid::from_raw)
}

fn terminate(pid: Pid) -> Result<()> {
    match kill_process(pid, Signal::TERM) {
        // It ended by itself.
        Err(Errno::SRCH) => Ok(()),
        outcome => outcome.context("could not stop the background process"),
    }
}

/// A killed daemon may have left children, addresses on lo, control groups and its state file. Says whether something of it ran.
async fn clean_up(home: &Home) -> Result<bool> {
    let machines = hangar_embedded::end_machines(home.path(), hangar_machine::MARK).await;
    let left = machines + hangar_embedded::end_orphans(home.path()).await;
    if let Err(left) = hangar_node::process::clean_up(home.path()) {
        bail!("{left}; then run `hangar down` again");
    }
    drop(std::fs::remove_file(state_path(home)));
    Ok(left > 0)
}
