//! Keeps one process of the plane running: started again with a growing pause, its log kept, ended when told to.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hangar_node::process::{Child, Run};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A process that ran for so long is taken as healthy, and its next end is met without a long pause.
const HEALTHY: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(15);

/// What is known about a supervised process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessStatus {
    pub name: String,
    /// None between an end and the next start.
    pub pid: Option<u32>,
    pub restarts: u32,
    /// When it was last started, or ended if it does not run.
    pub since: Timestamp,
}

/// A process that is started again whenever it ends.
pub(crate) struct Supervised {
    status: Arc<Mutex<ProcessStatus>>,
    run: Run,
    stop: CancellationToken,
    restart: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

impl Supervised {
    pub fn start(name: &str, run: Run) -> Self {
        let status = ProcessStatus { name: name.to_owned(), pid: None, restarts: 0, since: Timestamp::now() };
        let status = Arc::new(Mutex::new(status));
        let stop = CancellationToken::new();
        let restart = Arc::new(Notify::new());
        let task = tokio::spawn(keep_running(run.clone(), status.clone(), stop.clone(), restart.clone()));
        Self { status, run, stop, restart, task }
    }

    pub fn status(&self) -> Option<ProcessStatus> {
        Some(self.status.lock().ok()?.clone())
    }

    pub fn program(&self) -> &std::path::Path {
        &self.run.program
    }

    pub fn log(&self) -> &std::path::Path {
        &self.run.log
    }

    pub fn is(&self, name: &str) -> bool {
        self.status.lock().is_ok_and(|status| status.name == name)
    }

    /// Ends the process, and starts it again at once.
    pub fn restart(&self) {
        self.restart.notify_one();
    }

    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

async fn keep_running(run: Run, status: Arc<Mutex<ProcessStatus>>, stop: CancellationToken, restart: Arc<Notify>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let started = Instant::now();
        match Child::start(&run).await {
            Ok(mut child) => {
                note(&status, |status| status.pid = Some(child.pid()));
                tokio::select! {
                    ended = child.wait() => tracing::warn!(program = %run.program.display(), ?ended, log = %run.log.display(), "exited unexpectedly"),
                    () = restart.notified() => {
                        child.end(GRACE).await;
                        note(&status, |status| status.pid = None);
                        continue;
                    }
                    () = stop.cancelled() => {
                        child.end(GRACE).await;
                        note(&status, |status| status.pid = None);
                        return;
                    }
                }
            }
            Err(error) => tracing::error!(program = %run.program.display(), %error, "could not start"),
        }
        note(&status, |status| (status.pid, status.restarts) = (None, status.restarts + 1));
        if started.elapsed() > HEALTHY {
            pause = FIRST_PAUSE;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            () = stop.cancelled() => return,
        }
    }
}

fn note(status: &Mutex<ProcessStatus>, change: impl FnOnce(&mut ProcessStatus)) {
    if let Ok(mut status) = status.lock() {
        change(&mut status);
        status.since = Timestamp::now();
    }
}
