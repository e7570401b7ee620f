//! What the background process says about itself, in a file that stays small.
//!
//! Holds: its standard error is that file too and stays open, so the file is turned over in place: what was said so far becomes `NAME.1`,
//! and the file begins anew. A turn that fails, as on a full disk, never keeps a line from being written.

use std::io::{self, Write};
use std::path::PathBuf;

/// Writes to standard error, which is the file at this path.
pub struct LogFile {
    path: PathBuf,
    limit: u64,
}

impl LogFile {
    pub fn new(path: PathBuf) -> Self {
        Self { path, limit: hangar_node::process::LOG_LIMIT }
    }

    fn rotate_before(&self, line: &[u8]) -> io::Result<()> {
        let size = std::fs::metadata(&self.path)?.len();
        if size == 0 || size + line.len() as u64 <= self.limit {
            return Ok(());
        }
        std::fs::copy(&self.path, hangar_node::process::older_log(&self.path))?;
        std::fs::OpenOptions::new().write(true).open(&self.path)?.set_len(0)
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        drop(self.rotate_before(line));
        io::stderr().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_begins_anew_and_keeps_the_part_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("own.log");
        let older = hangar_node::process::older_log(&path);
        let log = LogFile { path: path.clone(), limit: 10 };
        log.rotate_before(b"no file yet").unwrap_err();
        let mut open = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        open.write_all(b"12345678").unwrap();
        log.rotate_before(b"9\n").unwrap();
        assert!(!older.exists());
        log.rotate_before(b"90\n").unwrap();
        open.write_all(b"90\n").unwrap();
        assert_eq!(std::fs::read(&older).unwrap(), b"12345678");
        assert_eq!(std::fs::read(&path).unwrap(), b"90\n", "whoever has it open goes on at its beginning");
    }
}
