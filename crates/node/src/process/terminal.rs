//! A process with a terminal of its own.
//!
//! Holds: the terminal is the controlling one of the process, so that Ctrl-C typed by the client reaches it; when the process is gone, reading
//! ends (the system says so with an error, which is an end here).

use std::io::Error;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitStatus;
use std::sync::Arc;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::fs::File;
use tokio::process::{Child, Command};

pub(super) struct Terminal {
    master: Arc<OwnedFd>,
    child: Child,
}

/// Changes the size of a terminal.
pub(super) struct Sizes(Arc<OwnedFd>);

impl Sizes {
    pub fn set(&self, width: u64, height: u64) {
        let cut = |value: u64| u16::try_from(value).unwrap_or(u16::MAX);
        let size = Winsize { ws_col: cut(width), ws_row: cut(height), ws_xpixel: 0, ws_ypixel: 0 };
        if let Err(error) = tcsetwinsize(self.0.as_fd(), size) {
            tracing::debug!(%error, "could not set the terminal size");
        }
    }
}

impl Terminal {
    /// Starts the command on a new terminal.
    pub fn open(command: Command) -> std::io::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let path = std::path::PathBuf::from(std::ffi::OsString::from(name.to_string_lossy().into_owned()));
        let slave = || std::fs::OpenOptions::new().read(true).write(true).open(&path);
        // setsid makes the terminal on its input the controlling one.
        let inner = command.as_std();
        let mut outer = Command::new("setsid");
        outer.args(["--ctty", "--wait"]).arg(inner.get_program()).args(inner.get_args());
        outer.env_clear();
        outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("TERM", "xterm");
        if let Some(directory) = inner.get_current_dir() {
            outer.current_dir(directory);
        }
        outer.stdin(slave()?).stdout(slave()?).stderr(slave()?).kill_on_drop(true);
        Ok(Self { child: outer.spawn()?, master: Arc::new(master) })
    }

    /// What is shown, and what is typed.
    pub fn halves(&self) -> Result<(File, File), Error> {
        let half = || self.master.try_clone().map(|fd| File::from_std(std::fs::File::from(fd)));
        Ok((half()?, half()?))
    }

    pub fn sizes(&self) -> Sizes {
        Sizes(self.master.clone())
    }

    pub async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }
}
