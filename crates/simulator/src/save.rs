//! The state file: written beside, then renamed, soon after a change and at shutdown.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::state::State;
use crate::{Simulator, SimulatorError};

/// Changes come in bursts; one write covers a burst.
const PATIENCE: Duration = Duration::from_millis(200);

pub(crate) fn load(path: &Path) -> Result<Option<State>, SimulatorError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(SimulatorError::Load { path: path.to_owned(), source }),
    };
    let read = serde_json::from_slice(&bytes);
    read.map(Some).map_err(|source| SimulatorError::Format { path: path.to_owned(), source })
}

/// Only the owner may read it: it holds passwords and user-data.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

impl Simulator {
    pub(crate) fn save_soon(&self) {
        let here = tokio::runtime::Handle::try_current();
        let (Some(_), Ok(runtime)) = (&self.0.options.state_file, here) else { return };
        if self.0.save_pending.swap(true, Ordering::AcqRel) {
            return;
        }
        let simulator = self.clone();
        runtime.spawn(async move {
            tokio::select! {
                () = simulator.0.closed.cancelled() => return,
                () = tokio::time::sleep(PATIENCE) => {}
            }
            let saved = tokio::task::spawn_blocking(move || simulator.save_now()).await;
            if let Ok(Err(error)) = saved {
                tracing::warn!(%error, "the state of the simulated cloud could not be saved");
            }
        });
    }

    /// At once; nothing to do without a state file.
    pub fn save_now(&self) -> io::Result<()> {
        let _one = self.0.saving.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.closed.is_cancelled() {
            return Ok(());
        }
        self.0.save_pending.store(false, Ordering::Release);
        let Some(path) = &self.0.options.state_file else { return Ok(()) };
        let bytes = serde_json::to_vec(&self.world().state)?;
        write_private(path, &bytes)
    }

    /// Saves for the last time: servers under way stay as they are until the next start.
    pub fn close(&self) -> io::Result<()> {
        let saved = self.save_now();
        self.0.closed.cancel();
        saved
    }
}
