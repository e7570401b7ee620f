//! Sees to it that the background process of a home runs.
//!
//! Holds: of several commands that start one at once, one does, and all wait for the same. Only the word of whoever holds the home counts: a process that
//! was killed leaves its last one behind.

use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow};
use hangar_embedded::Home;
use indicatif::{ProgressBar, ProgressStyle};

use super::up::UpOptions;
use crate::cli::Global;
use crate::daemon::{DaemonState, log_path};
use crate::health;

/// The allocator takes memory when it is needed, and gives it back at once: a plane with one cluster has 63 MiB instead of 95, for a part of the CPU time that it saves.
const ALLOCATOR_SETTINGS: [(&str, &str); 3] =
    [("MIMALLOC_ARENA_EAGER_COMMIT", "0"), ("MIMALLOC_EAGER_COMMIT", "0"), ("MIMALLOC_PURGE_DELAY", "0")];

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longer than the longest pause between two starts of a process.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// Starts it unless it runs, and waits until it is ready.
pub async fn start(global: &Global, home: &Home, options: &UpOptions) -> Result<DaemonState> {
    let bar = spinner();
    bar.set_message("starting the management plane");
    let state = loop {
        let child = if home.is_held() { None } else { Some(spawn(global, home, options)?) };
        let is_new = child.is_some();
        let Some(state) = until_ready(home, child, &bar).await? else { continue };
        if is_new {
            break state;
        }
        // One that was just being killed may have looked alive: its lock tells.
        tokio::time::sleep(POLL_INTERVAL).await;
        if let Some(state) = until_it_answers(home, &bar).await? {
            break state;
        }
    };
    bar.finish_and_clear();
    Ok(state)
}

/// One that runs already may be in trouble: a process that ended is on its way back, or never will be. None if it was stopped meanwhile.
async fn until_it_answers(home: &Home, bar: &ProgressBar) -> Result<Option<DaemonState>> {
    let deadline = Instant::now() + ANSWERS_WITHIN;
    while home.is_held() {
        match health::check(home).await {
            Ok(()) => return Ok(DaemonState::now(home).filter(|state| state.ready)),
            Err(error) if Instant::now() > deadline || error.is::<hangar_embedded::disk_space::NotEnoughSpace>() => {
                return Err(error);
            }
            Err(error) => bar.set_message(format!("waiting: {error:#}")),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(None)
}

fn spawn(global: &Global, home: &Home, options: &UpOptions) -> Result<Child> {
    let log = log_path(home);
    let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&log)?;
    let program = std::env::current_exe().context("could not find the hangar executable")?;
    let mut command = std::process::Command::new(program);
    command.arg("daemon").arg("--home").arg(home.path());
    if let Some(version) = &options.kubernetes {
        command.arg("--kubernetes").arg(version.to_string());
    }
    if let Some(when) = options.substitute {
        command.arg(format!("--substitute-versions={}", when.word()));
    }
    command.arg(format!("--guests={}", options.guests.word()));
    if let Some(directory) = &global.components {
        command.arg("--components").arg(std::path::absolute(directory)?);
    }
    if let Some(mirror) = &global.mirror {
        command.arg("--mirror").arg(mirror);
    }
    if global.insecure_mirror {
        command.arg("--insecure-mirror");
    }
    // What somebody has set already stays.
    let unset = ALLOCATOR_SETTINGS.iter().filter(|(name, _)| std::env::var_os(name).is_none());
    command.envs(unset.copied());
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
    command.spawn().context("could not start the background process")
}

/// What the one that holds the home says when it is ready; none if nobody holds it any more, or if somebody else was faster than our child.
async fn until_ready(home: &Home, mut child: Option<Child>, bar: &ProgressBar) -> Result<Option<DaemonState>> {
    loop {
        match DaemonState::now(home) {
            Some(state) if state.ready => return Ok(Some(state)),
            Some(state) => bar.set_message(state.stage),
            None => {}
        }
        let ended = child.as_mut().and_then(|child| child.try_wait().ok().flatten().map(|status| (child.id(), status)));
        match ended {
            Some(_) if home.is_held() => return Ok(None),
            Some((pid, status)) => return Err(why_it_ended(home, pid, status)),
            None if child.is_none() && !home.is_held() => return Ok(None),
            None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

fn why_it_ended(home: &Home, pid: u32, status: ExitStatus) -> Error {
    let log = log_path(home);
    match DaemonState::last(home) {
        Some(DaemonState { error: Some(error), pid: whose, .. }) if whose == pid => {
            anyhow!("the management plane did not start: {error}\n  its log: {}", log.display())
        }
        // Nothing went wrong with it, so its log has nothing to say.
        _ if status.success() || status.signal().is_some() => anyhow!(
            "the management plane was stopped or killed before it was ready ({status}); start it again with `hangar up`"
        ),
        _ => {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let last = text.lines().last().unwrap_or_default();
            anyhow!("the background process ended ({status}): {last}\n  its log: {}", log.display())
        }
    }
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_style(
        ProgressStyle::with_template("{spinner} {msg} ({elapsed})")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}
