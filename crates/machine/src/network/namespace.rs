//! Namespaces of networks, and work inside of them.
//!
//! Holds: a namespace lives as long as somebody has it open. Work inside is done on a thread of its own, since each thread may be in another one; a
//! socket that is made there stays there, wherever it is used afterwards.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use nix::sched::{CloneFlags, setns, unshare};

use super::links::{Links, NetworkError};

const OF_THIS_THREAD: &str = "/proc/thread-self/ns/net";

/// A network of its own, open.
#[derive(Debug)]
pub struct NetNamespace(OwnedFd);

impl AsFd for NetNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl NetNamespace {
    /// A new one, in which nothing is up.
    pub fn create() -> Result<Self> {
        on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Self::open(OF_THIS_THREAD)
        })
    }

    /// The one that the calling thread is in.
    pub fn current() -> Result<Self> {
        Self::open(OF_THIS_THREAD)
    }

    pub fn of_process(pid: u32) -> Result<Self> {
        Self::open(format!("/proc/{pid}/ns/net"))
    }

    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self(File::open(path)?.into()))
    }

    pub(super) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// What `work` returns, done inside.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        on_a_thread(|| {
            setns(&self.0, CloneFlags::CLONE_NEWNET)?;
            work()
        })
    }

    /// Work on its links, addresses and routes.
    pub fn configure<T: Send>(
        &self,
        work: impl AsyncFnOnce(&Links) -> std::result::Result<T, NetworkError> + Send,
    ) -> std::result::Result<T, NetworkError> {
        self.inside(|| Ok(Links::run(work)))?
    }
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("network".into()).spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|_| Err(Error::other("the work in a namespace panicked")))
    })
}
