//! Small files that others rely on, each written beside its place and renamed.
//!
//! Holds: a reader finds the content before or the one after, whole, and only the owner may read it; what is [`keep`]t does not depend on whether
//! the power stays on.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Result, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Writes what must be there after a power cut. An unchanged file is left alone.
pub fn keep(path: &Path, content: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|kept| kept == content) {
        return Ok(());
    }
    put(path, content, true)?;
    // The new name is in the directory, and only there.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// Writes what is true only while this process runs, or can be found out again.
pub fn note(path: &Path, content: &[u8]) -> Result<()> {
    put(path, content, false)
}

fn put(path: &Path, content: &[u8], lasting: bool) -> Result<()> {
    let beside = beside(path);
    // One that a killed process left may belong to others or be open to them.
    let _ = std::fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    if lasting {
        file.sync_all()?;
    }
    std::fs::rename(&beside, path)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_is_its_owners_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.key");
        // What is left of somebody who was killed: readable for all, and longer.
        std::fs::write(beside(&path), "a longer text than the new one").unwrap();
        std::fs::set_permissions(beside(&path), std::fs::Permissions::from_mode(0o644)).unwrap();
        for write in [keep, note] {
            write(&path, b"key").unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"key");
            assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
            assert!(!beside(&path).exists());
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn an_unchanged_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let number = || path.metadata().unwrap().ino();
        keep(&path, b"{}").unwrap();
        let first = number();
        keep(&path, b"{}").unwrap();
        assert_eq!(number(), first);
        keep(&path, b"{ }").unwrap();
        assert_ne!(number(), first);
    }
}
