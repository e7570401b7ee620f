//! One local process: started in its own process group, with its home written into its environment, ended gently and then for sure.
//!
//! Holds: every process carries `HANGAR_HOME` and `HANGAR_CHILD=1`, so that a later start finds what a killed hangar left behind;
//! Ctrl-C on the terminal does not reach it; it inherits no environment but what is given.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use super::log::{LIMIT, LogFormat, RotatingLog, collect};

/// What is to be run.
#[derive(Clone)]
pub struct Run {
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub directory: PathBuf,
    pub log: PathBuf,
    pub log_format: LogFormat,
    pub home: PathBuf,
}

/// A started process.
pub struct Child {
    inner: tokio::process::Child,
    pid: u32,
    log: tokio::task::JoinHandle<()>,
}

impl Child {
    pub async fn start(run: &Run) -> std::io::Result<Self> {
        Self::start_with(run, Stdio::null()).await
    }

    /// Starts a command that tells on its input how far it came: `ok` once it is about to become the program, or else what went wrong.
    pub async fn start_confirmed(run: &Run) -> std::io::Result<Self> {
        let (told, tell) = std::io::pipe()?;
        let mut child = Self::start_with(run, Stdio::from(tell)).await?;
        let mut said = String::new();
        tokio::net::unix::pipe::Receiver::from_owned_fd(told.into())?.read_to_string(&mut said).await?;
        if said.trim_end() == "ok" || said.ends_with("\nok\n") {
            return Ok(child);
        }
        child.end(Duration::ZERO).await;
        Err(std::io::Error::other(said.trim().replace('\n', "; ")))
    }

    async fn start_with(run: &Run, input: Stdio) -> std::io::Result<Self> {
        let log = RotatingLog::open(&run.log, LIMIT).await?;
        let mut command = Command::new(&run.program);
        command.args(&run.args).env_clear().envs(base_env()).envs(&run.env).envs(markers(&run.home));
        command.current_dir(&run.directory).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let mut inner = command.spawn()?;
        let pid = inner.id().ok_or_else(|| std::io::Error::other("the process ended before it had an id"))?;
        let (out, err) = (inner.stdout.take(), inner.stderr.take());
        let log_format = run.log_format;
        let log = tokio::spawn(async move {
            if let (Some(out), Some(err)) = (out, err) {
                collect(log, out, err, log_format).await;
            }
        });
        Ok(Self { inner, pid, log })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for the end. Safe to drop and call again.
    pub async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        let status = self.inner.wait().await?;
        // A grandchild may hold the pipe open for as long as it likes; the log of the process itself is complete by then.
        let _ = tokio::time::timeout(Duration::from_secs(1), &mut self.log).await;
        Ok(status)
    }

    /// SIGTERM to the whole group, then SIGKILL after `grace`.
    pub async fn end(&mut self, grace: Duration) -> Option<ExitStatus> {
        signal_group(self.pid, Signal::TERM);
        if let Ok(status) = tokio::time::timeout(grace, self.inner.wait()).await {
            signal_group(self.pid, Signal::KILL);
            return status.ok();
        }
        signal_group(self.pid, Signal::KILL);
        self.inner.wait().await.ok()
    }
}

/// As shells and kubelets count: 128 and the signal for one that was killed.
pub fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().unwrap_or(128 + status.signal().unwrap_or(9))
}

/// The two variables by which a process is known to belong to a home.
pub fn markers(home: &Path) -> [(String, String); 2] {
    [("HANGAR_HOME".into(), home.display().to_string()), ("HANGAR_CHILD".into(), "1".into())]
}

pub fn base_env() -> BTreeMap<String, String> {
    ["PATH", "HOME", "TMPDIR", "LANG", "TZ"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
        .collect()
}

fn signal_group(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // The group may be gone already, which is what was wanted.
        let _ = kill_process_group(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(directory: &Path, script: &str) -> Run {
        Run {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: BTreeMap::new(),
            directory: directory.to_owned(),
            log: directory.join("log"),
            log_format: LogFormat::Raw,
            home: directory.to_owned(),
        }
    }

    #[tokio::test]
    async fn a_process_knows_its_home_and_its_words_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Child::start(&run(directory.path(), "echo $HANGAR_CHILD $HANGAR_HOME; exit 3")).await.unwrap();
        assert_eq!(child.wait().await.unwrap().code(), Some(3));
        let text = std::fs::read_to_string(directory.path().join("log")).unwrap();
        assert_eq!(text, format!("1 {}\n", directory.path().display()));
    }

    #[tokio::test]
    async fn a_process_that_ignores_the_gentle_signal_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let script = "trap '' TERM; echo up; while :; do sleep 60; done";
        let mut child = Child::start(&run(directory.path(), script)).await.unwrap();
        let status = child.end(Duration::from_millis(50)).await.unwrap();
        assert_eq!(status.code(), None);
    }
}
