//! Files of volumes: replaced all at once, and left alone when nothing changed.
//!
//! Flows: what a volume should hold -> a directory of its own beside the one in use -> the link `..data` is turned to it -> the old one goes. Holds:
//! a reader sees all old or all new files; a watcher of the volume sees the link turn, as in every cluster; what a node that was killed in the midst
//! of it left undone is done the next time. Nobody but the node gets to the directory of a pod, so the modes are those that were asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Component, Path, PathBuf};

/// One file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub content: Vec<u8>,
    pub mode: u32,
    /// Whose it is, if not the node's.
    pub owner: Option<u32>,
}

impl File {
    pub fn new(content: impl Into<Vec<u8>>, mode: u32) -> Self {
        Self { content: content.into(), mode, owner: None }
    }
}

/// By path relative to the volume.
pub(super) type Files = BTreeMap<String, File>;

const DATA: &str = "..data";

pub(super) fn private_directory(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A directory of this mode, whatever the umask says.
pub(super) fn directory(path: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Makes a directory hold these files and no others; `group` may read them.
pub(super) fn write_all(volume: &Path, files: &Files, group: Option<u32>) -> std::io::Result<()> {
    if let Some(name) = files.keys().find(|name| !stays_inside(name)) {
        return Err(std::io::Error::other(format!("path {name} is outside of the volume")));
    }
    directory(volume, 0o755)?;
    let before = std::fs::read_link(volume.join(DATA)).ok();
    let current = match before.filter(|before| holds(&volume.join(before), files)) {
        Some(before) => before,
        None => turn(volume, files, group)?,
    };
    point(volume, files)?;
    sweep(volume, &current)
}

/// Writes the files anew beside those in use, and turns the link.
fn turn(volume: &Path, files: &Files, group: Option<u32>) -> std::io::Result<PathBuf> {
    let now = jiff::Timestamp::now();
    let name = PathBuf::from(format!("..{}.{:09}", now.strftime("%Y_%m_%d_%H_%M_%S"), now.subsec_nanosecond()));
    let next = volume.join(&name);
    directory(&next, 0o755)?;
    for (name, file) in files {
        write(&next, name, file)?;
    }
    if let Some(group) = group {
        give_to_group(&next, group, 0o440)?;
        lchown(volume, None, Some(group))?;
    }
    let turning = volume.join("..data_new");
    let _ = std::fs::remove_file(&turning);
    symlink(&name, &turning)?;
    std::fs::rename(&turning, volume.join(DATA))?;
    Ok(name)
}

/// Takes away what is not in use any more, and what never came to be.
fn sweep(volume: &Path, current: &Path) -> std::io::Result<()> {
    for entry in volume.read_dir()?.flatten() {
        let name = entry.file_name();
        if !name.to_string_lossy().starts_with("..") || name == DATA || name == current {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// What a group needs to use a volume: its files readable (or writable, by `mask`), its directories passable and handed down.
pub(super) fn give_to_group(path: &Path, group: u32, mask: u32) -> std::io::Result<()> {
    let metadata = path.symlink_metadata()?;
    lchown(path, None, Some(group))?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = metadata.permissions().mode() & 0o7777;
    let mask = if metadata.is_dir() { mask | 0o2110 } else { mask };
    std::fs::set_permissions(path, Permissions::from_mode(mode | mask))?;
    if metadata.is_dir() {
        for entry in path.read_dir()? {
            give_to_group(&entry?.path(), group, mask & 0o660)?;
        }
    }
    Ok(())
}

fn write(root: &Path, name: &str, file: &File) -> std::io::Result<()> {
    let path = root.join(name);
    let parents: Vec<&Path> = Path::new(name).ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
    for parent in parents.into_iter().rev() {
        directory(&root.join(parent), 0o755)?;
    }
    std::fs::write(&path, "")?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    std::fs::write(&path, &file.content)?;
    std::fs::set_permissions(&path, Permissions::from_mode(file.mode))?;
    if file.owner.is_some() {
        lchown(&path, file.owner, None)?;
    }
    Ok(())
}

/// Whether a directory holds these contents already.
fn holds(root: &Path, files: &Files) -> bool {
    let same = |name: &String, file: &File| std::fs::read(root.join(name)).is_ok_and(|kept| kept == file.content);
    count(root) == files.len() && files.iter().all(|(name, file)| same(name, file))
}

fn count(directory: &Path) -> usize {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

/// One link for every first part of a path, and none for what is gone. Where another volume is mounted inside of this one there is a directory, which
/// is not ours.
fn point(volume: &Path, files: &Files) -> std::io::Result<()> {
    let first = |name: &String| name.split('/').next().unwrap_or_default().to_owned();
    let wanted: BTreeSet<String> = files.keys().map(first).collect();
    for name in &wanted {
        let link = volume.join(name);
        if std::fs::read_link(&link).is_err() {
            symlink(Path::new(DATA).join(name), link)?;
        }
    }
    for entry in volume.read_dir()?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_symlink() && !name.starts_with("..") && !wanted.contains(&name) {
            std::fs::remove_file(entry.path())?;
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
        entries.iter().map(|(name, content)| ((*name).to_owned(), File::new(*content, 0o640))).collect()
    }

    #[test]
    fn a_volume_holds_what_it_is_told_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path().join("v");
        write_all(&volume, &files(&[("a", "1"), ("deep/b", "2")]), None).unwrap();
        assert_eq!(std::fs::read_to_string(volume.join("deep/b")).unwrap(), "2");
        assert_eq!(volume.join("a").metadata().unwrap().permissions().mode() & 0o777, 0o640);
        let first = std::fs::read_link(volume.join(DATA)).unwrap();
        write_all(&volume, &files(&[("a", "1"), ("deep/b", "2")]), None).unwrap();
        assert_eq!(std::fs::read_link(volume.join(DATA)).unwrap(), first, "nothing changed, nothing is written");
        write_all(&volume, &files(&[("a", "3")]), None).unwrap();
        assert_eq!(std::fs::read_to_string(volume.join("a")).unwrap(), "3");
        assert!(!volume.join("deep").is_symlink() && !volume.join(first).exists());
        std::fs::create_dir(volume.join("mounted-inside")).unwrap();
        write_all(&volume, &files(&[("a", "4")]), None).unwrap();
        assert!(volume.join("mounted-inside").is_dir());
        for bad in ["../a", "/a", ""] {
            assert!(write_all(&volume, &files(&[(bad, "")]), None).is_err(), "{bad}");
        }
    }

    /// At whichever moment a node is killed while it writes a volume, the next one gives it everything.
    #[test]
    fn what_was_left_half_done_is_done_the_next_time() {
        let wanted = files(&[("ca.crt", "1"), ("deep/b", "2"), ("sa.key", "3")]);
        let undone: [fn(&Path); 4] = [
            |volume| std::fs::remove_file(volume.join("sa.key")).unwrap(),
            |volume| std::fs::remove_file(volume.join(DATA)).unwrap(),
            |volume| symlink("..2026_01_01_00_00_00.000000000", volume.join("..data_new")).unwrap(),
            |volume| {
                write(&volume.join("..2026_01_01_00_00_00.000000000"), "deep/half", &File::new("", 0o600)).unwrap()
            },
        ];
        for (moment, undo) in undone.iter().enumerate() {
            let directory = tempfile::tempdir().unwrap();
            write_all(directory.path(), &wanted, None).unwrap();
            undo(directory.path());
            write_all(directory.path(), &wanted, None).unwrap();
            for (name, file) in &wanted {
                assert_eq!(std::fs::read(directory.path().join(name)).unwrap(), file.content, "{moment}: {name}");
            }
            let hidden = directory.path().read_dir().unwrap().flatten();
            let hidden = hidden.filter(|entry| entry.file_name().to_string_lossy().starts_with("..")).count();
            assert_eq!(hidden, 2, "{moment}: the link and what it leads to");
        }
    }

    #[test]
    fn a_group_gets_what_it_needs() {
        let directory = tempfile::tempdir().unwrap();
        let (inner, file) = (directory.path().join("d"), directory.path().join("d/f"));
        super::directory(&inner, 0o700).unwrap();
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        give_to_group(&inner, rustix::process::getegid().as_raw(), 0o660).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&inner), mode(&file)), (0o2770, 0o660));
    }
}
