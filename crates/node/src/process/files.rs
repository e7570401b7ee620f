//! Files of volumes: readable by their user alone, replaced as a whole, and left alone when nothing changed.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path};

/// Content and whether it may be executed, by path relative to the volume.
pub(super) type Files = BTreeMap<String, (Vec<u8>, bool)>;

pub(super) fn private_directory(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a directory hold these files and no others.
pub(super) fn write_all(directory: &Path, files: &Files) -> std::io::Result<()> {
    private_directory(directory)?;
    for (name, (content, executable)) in files {
        if !stays_inside(name) {
            return Err(std::io::Error::other(format!("the path {name} leads out of the volume")));
        }
        write(&directory.join(name), content, *executable)?;
    }
    remove_others(directory, directory, files)
}

fn write(path: &Path, content: &[u8], executable: bool) -> std::io::Result<()> {
    if std::fs::read(path).is_ok_and(|kept| kept == content) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        private_directory(parent)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".hangar-new");
    let _ = std::fs::remove_file(&beside);
    let mode = if executable { 0o700 } else { 0o600 };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?.write_all(content)?;
    std::fs::rename(beside, path)
}

fn remove_others(root: &Path, directory: &Path, files: &Files) -> std::io::Result<()> {
    for entry in directory.read_dir()?.flatten() {
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_others(root, &path, files)?;
            // Only goes if it is empty.
            let _ = std::fs::remove_dir(&path);
        } else if path.strip_prefix(root).is_ok_and(|name| !files.contains_key(&*name.to_string_lossy())) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn stays_inside(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, &str)]) -> Files {
        entries.iter().map(|(name, content)| ((*name).to_owned(), (content.as_bytes().to_vec(), false))).collect()
    }

    #[test]
    fn a_volume_holds_what_it_is_told_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path().join("v");
        write_all(&volume, &files(&[("a", "1"), ("deep/b", "2")])).unwrap();
        assert_eq!(std::fs::read_to_string(volume.join("deep/b")).unwrap(), "2");
        write_all(&volume, &files(&[("a", "3")])).unwrap();
        assert_eq!(std::fs::read_to_string(volume.join("a")).unwrap(), "3");
        assert!(!volume.join("deep").exists());
        for bad in ["../a", "/a", ""] {
            assert!(write_all(&volume, &files(&[(bad, "")])).is_err(), "{bad}");
        }
    }
}
