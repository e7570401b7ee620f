//! `hangar down`: the background process ends; with `--purge` its home goes too.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use hangar_embedded::Home;
use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::state_path;

pub async fn run(home: &Home, purge: bool) -> Result<()> {
    match stop(home).await? {
        true => anstream::println!("stopped"),
        false => anstream::println!("nothing was running in {}", home.path().display()),
    }
    if purge {
        home.remove().with_context(|| format!("could not remove {}", home.path().display()))?;
        anstream::println!("removed {}", home.path().display());
    }
    Ok(())
}

/// Whoever holds the home's lock is asked to end; it takes its children with it.
async fn stop(home: &Home) -> Result<bool> {
    if !home.is_held() {
        // A killed daemon may have left children, addresses on lo, control groups and its state file.
        let left = hangar_embedded::end_leftovers(home.path()).await;
        if let Err(left) = hangar_node::process::clear(home.path()) {
            bail!("{left}; then run `hangar down` again");
        }
        drop(std::fs::remove_file(state_path(home)));
        return Ok(left > 0);
    }
    let pid = home.holder().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    let Some(pid) = pid else { bail!("{} is in use, but it does not say by whom", home.path().display()) };
    kill_process(pid, Signal::TERM).context("the background process could not be asked to end")?;
    for _ in 0..600 {
        if !home.is_held() {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("process {} does not end; end it with kill -9 and run `hangar down` again", pid.as_raw_nonzero())
}
