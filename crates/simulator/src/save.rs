//! The state file and its log: every change is written down before it is answered.
//!
//! Flows: change -> one line per row in `FILE.log` (`["ports","id",{...}]`, `null` when it is gone) -> answer; now and then,
//! and at the end, the whole state goes to `FILE` (written beside, then renamed) and the log is begun anew.
//! Holds: what was answered survives the death of this process, however it dies; a log that is replayed twice gives the
//! same state, so it does not matter at which step of all this the process died. Lines are handed to the kernel, not to the
//! disk: a power failure may lose the last ones.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use serde_json::value::RawValue;

use crate::state::{State, World};
use crate::table::Change;
use crate::{CloudWrite, Simulator, SimulatorError};

/// A log longer than this, and than the state itself, is folded into the state.
const LONGEST_LOG: u64 = 8 << 20;

/// An open log.
pub(crate) struct Log {
    file: fs::File,
    length: u64,
    /// How long the state was when it was last written as a whole.
    base: u64,
}

fn log_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".log");
    name.into()
}

/// `None` if there is neither a state nor a log.
pub(crate) fn load(path: &Path) -> Result<Option<State>, SimulatorError> {
    let failed = |source| SimulatorError::Load { path: path.to_owned(), source };
    let format = |source| SimulatorError::Format { path: path.to_owned(), source };
    let state = read(path).map_err(failed)?.map(|bytes| serde_json::from_slice::<State>(&bytes));
    let log = read(&log_path(path)).map_err(failed)?;
    if state.is_none() && log.is_none() {
        return Ok(None);
    }
    let mut state = state.transpose().map_err(format)?.unwrap_or_default();
    replay(&mut state, &log.unwrap_or_default()).map_err(format)?;
    Ok(Some(state))
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The last line may be half a line: whoever wrote it died before it was answered.
fn replay(state: &mut State, log: &[u8]) -> Result<(), serde_json::Error> {
    let whole = log.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    for line in log[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let (table, id, row): (String, String, Option<&RawValue>) = serde_json::from_slice(line)?;
        if let Some((_, rows)) = state.tables().into_iter().find(|(name, _)| *name == table) {
            rows.put(&id, row.map(RawValue::get))?;
        }
    }
    Ok(())
}

/// Only the owner may read it: it holds passwords and user-data.
fn private(path: &Path, append: bool) -> io::Result<fs::File> {
    fs::OpenOptions::new().write(true).create(true).append(append).truncate(!append).mode(0o600).open(path)
}

impl Simulator {
    /// Writes down what changed since the last time, and tells observers; called with the lock held, so that changes are in order.
    pub(crate) fn record(&self, world: &mut World, by: &str) {
        let observers = self.0.observers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let shown = !observers.is_empty() || self.0.options.state_file.is_some();
        let mut changes: Vec<(&str, Vec<Change>)> = vec![];
        for (name, rows) in world.state.tables() {
            let changed = rows.take_changed();
            if changed.is_empty() {
                continue;
            }
            if matches!(name, "floating_ips" | "load_balancers" | "listeners" | "pools" | "members") {
                self.0.plumbing.send_modify(|count| *count += 1);
            }
            if matches!(name, "ports" | "security_groups" | "servers") {
                self.0.security.send_modify(|count| *count += 1);
            }
            // Nobody reads them otherwise, and a server's row is long.
            if shown {
                changes.push((
                    name,
                    changed.into_iter().map(|id| (rows.row(&id), id)).map(|(row, id)| (id, row)).collect(),
                ));
            }
        }
        for (table, rows) in &changes {
            for (id, row) in rows {
                let row = row.as_deref().and_then(|text| serde_json::from_str(text).ok());
                let write = CloudWrite { by, table, id, row: row.as_ref() };
                observers.iter().for_each(|observer| observer(&write));
            }
        }
        let Some(path) = &self.0.options.state_file else { return };
        if self.0.closed.is_cancelled() || changes.is_empty() {
            return;
        }
        let mut lines = String::new();
        for (table, rows) in changes {
            for (id, row) in rows {
                let id = serde_json::Value::from(id);
                lines.push_str(&format!("[\"{table}\",{id},{}]\n", row.as_deref().unwrap_or("null")));
            }
        }
        let mut log = self.0.log.lock().unwrap_or_else(PoisonError::into_inner);
        let written = append(&mut log, path, lines.as_bytes());
        let fold = log.as_ref().is_some_and(|log| log.length > LONGEST_LOG.max(log.base));
        let written = if fold { written.and_then(|()| write_all(&mut log, path, &world.state)) } else { written };
        if let Err(error) = written {
            tracing::error!(%error, path = %path.display(), "the state of the simulated cloud could not be saved");
        }
    }

    /// The whole state at once; nothing to do without a state file.
    pub fn save_now(&self) -> io::Result<()> {
        let Some(path) = &self.0.options.state_file else { return Ok(()) };
        let world = self.world();
        let mut log = self.0.log.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.closed.is_cancelled() {
            return Ok(());
        }
        write_all(&mut log, path, &world.state)
    }

    /// Saves for the last time: servers under way stay as they are until the next start.
    pub fn close(&self) -> io::Result<()> {
        let saved = self.save_now();
        self.0.closed.cancel();
        saved
    }
}

fn append(log: &mut Option<Log>, path: &Path, lines: &[u8]) -> io::Result<()> {
    let log = match log {
        Some(log) => log,
        None => {
            let base = fs::metadata(path).map_or(0, |data| data.len());
            let file = private(&log_path(path), true)?;
            let length = file.metadata()?.len();
            log.insert(Log { file, length, base })
        }
    };
    log.file.write_all(lines)?;
    log.length += lines.len() as u64;
    Ok(())
}

fn write_all(log: &mut Option<Log>, path: &Path, state: &State) -> io::Result<()> {
    let bytes = serde_json::to_vec(state)?;
    hangar_node::small_file::keep(path, &bytes)?;
    let file = private(&log_path(path), false)?;
    *log = Some(Log { file, length: 0, base: bytes.len() as u64 });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Project;

    #[test]
    fn a_log_is_replayed_over_the_state_and_a_half_line_is_left_out() {
        let mut state = State::default();
        state.projects.insert("old", Project { id: "old".into(), name: "old".into() });
        let log = "[\"projects\",\"old\",null]\n[\"projects\",\"p\",{\"id\":\"p\",\"name\":\"n\"}]\n[\"unknown\",\"x\",1]\n[\"projects\",\"q\",{\"i";
        for _ in 0..2 {
            replay(&mut state, log.as_bytes()).unwrap();
            assert_eq!(state.projects.keys().collect::<Vec<_>>(), ["p"]);
        }
        assert!(replay(&mut state, b"nonsense\n").is_err());
    }
}
