//! What a home has outside of its own directory: addresses on `lo`, control groups, volumes in memory.
//!
//! Holds: what a killed process left goes with the next `down`, and nothing is left once the home itself is removed. Volumes in memory stay as
//! long as their pods do, as those on disk.

use std::path::Path;

use super::memory::Memory;

/// Takes back what a process of this home left when it was killed; its children must have ended.
pub fn clean_up(home: &Path) -> Result<(), String> {
    Memory::find(home).remove_groups();
    super::lo::clear(home)
}

/// Removes pods' directories and what they have in memory.
pub fn remove_pods(pods_dir: &Path) -> std::io::Result<()> {
    for entry in pods_dir.read_dir().into_iter().flatten().flatten() {
        remove_pod(&entry.path())?;
    }
    Ok(())
}

pub(super) fn remove_pod(directory: &Path) -> std::io::Result<()> {
    super::empty_dir::give_back(directory);
    remove_tree(directory)
}

/// Removes a directory with everything in it, if it is there.
pub fn remove_tree(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(path) {
        // Layers leave directories that not even their owner may look into, until he says so.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            open_up(path);
            std::fs::remove_dir_all(path)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Makes every directory below one its owner's own. What is not his stays as it is, and is found when it is removed.
fn open_up(directory: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    drop(std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)));
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.for_each(|entry| open_up(&entry.path()));
}
