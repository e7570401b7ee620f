//! Room on disk: how much a plane needs, and what is said when it is not there.

use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
/// What etcd sets aside for its log at the first start, for the plane and for its tenants, and some more.
pub const FOR_NEW_PLANE: u64 = 320 * MIB;
/// Less than this and nothing can be written for long.
pub const TO_RUN: u64 = 16 * MIB;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("only {} MiB are free in the file system of {}, {} MiB are needed: free up space, or choose another directory with --home", free / MIB, path.display(), needed / MIB)]
pub struct NotEnoughSpace {
    pub path: PathBuf,
    pub free: u64,
    pub needed: u64,
}

/// Looks whether so many bytes are free for us where a path lies; a file system that does not say is taken as large enough.
pub fn check(path: &Path, needed: u64) -> Result<(), NotEnoughSpace> {
    let free = rustix::fs::statvfs(path).map_or(u64::MAX, |found| found.f_bavail.saturating_mul(found.f_frsize));
    if free < needed { Err(NotEnoughSpace { path: path.to_owned(), free, needed }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_the_fix() {
        let here = std::env::temp_dir();
        assert_eq!(check(&here, 0), Ok(()));
        let said = check(&here, u64::MAX).unwrap_err().to_string();
        assert!(said.contains(here.to_str().unwrap()) && said.contains("--home"), "{said}");
    }
}
