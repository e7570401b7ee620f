//! What the root of every container is made of: the machine's own directories, each with a layer of its own on top.
//!
//! Flows: the entries of `/` and the machine's mounts, read once -> what becomes of each in a container. Holds: one layer per directory and not
//! one over `/`, since a user may not look behind the mounts below it; `/dev` and `/run` are the container's own; a directory with other file
//! systems below it stays the machine's real one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What becomes of an entry of `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootEntry {
    Link(PathBuf),
    /// The machine's, with the container's own layer on top.
    Overlay,
    /// The machine's as it is.
    Bind,
    /// The container's alone.
    Private,
    /// Its owner's alone, and kept when the rest goes: a directory of `own` beside the root.
    Own,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostRoot {
    pub entries: BTreeMap<String, RootEntry>,
    /// A namespace of a user's own: nobody there is really root.
    pub user: bool,
    /// Layers are never written out, since they go with their container: an unmount else waits for the whole disk. From Linux 5.10 on.
    pub volatile: bool,
}

impl HostRoot {
    pub fn read(user: bool) -> std::io::Result<Self> {
        let mounts = mount_points(&std::fs::read_to_string("/proc/self/mountinfo")?);
        let mut entries = BTreeMap::new();
        for entry in Path::new("/").read_dir()? {
            let entry = entry?;
            let (name, kind) = (entry.file_name().to_string_lossy().into_owned(), entry.file_type()?);
            if kind.is_symlink() {
                entries.insert(name, RootEntry::Link(std::fs::read_link(entry.path())?));
            } else if kind.is_dir()
                && let Some(kind) = entry_of(&name, &mounts, user)
            {
                entries.insert(name, kind);
            }
        }
        // Every machine that runs containers has them, and so has every container.
        for own in ["dev", "run", "tmp"] {
            entries.entry(own.to_owned()).or_insert(RootEntry::Private);
        }
        Ok(Self { entries, user, volatile: true })
    }
}

fn entry_of(name: &str, mounts: &[String], user: bool) -> Option<RootEntry> {
    let below = format!("/{name}/");
    let has_mounts = mounts.iter().any(|mount| mount.starts_with(&below));
    Some(match name {
        "lost+found" => return None,
        "proc" | "sys" => RootEntry::Bind,
        "dev" | "run" => RootEntry::Private,
        // Full of mounts of container runtimes that no container should see; but a user may not look behind them.
        "var" if !user => RootEntry::Overlay,
        _ if has_mounts => RootEntry::Bind,
        _ => RootEntry::Overlay,
    })
}

/// The fifth field of each line; spaces are written as `\040`.
fn mount_points(mountinfo: &str) -> Vec<String> {
    let field = |line: &str| Some(line.split(' ').nth(4)?.replace("\\040", " "));
    mountinfo.lines().filter_map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_a_directory_follows_from_the_mounts_below_it() {
        let mountinfo = "\
            27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            28 27 0:1 / /proc rw - proc proc rw\n\
            30 27 0:2 / /home rw - ext4 /dev/vdb rw\n\
            31 27 0:3 / /boot/efi\\040part rw - vfat /dev/vdc rw\n\
            32 27 0:4 / /var/lib/docker rw - ext4 /dev/vdd rw\n";
        let mounts = mount_points(mountinfo);
        assert!(mounts.contains(&"/boot/efi part".to_owned()));
        let rows = [
            ("etc", false, Some(RootEntry::Overlay)),
            ("home", true, Some(RootEntry::Overlay)),
            ("boot", false, Some(RootEntry::Bind)),
            ("var", false, Some(RootEntry::Overlay)),
            ("var", true, Some(RootEntry::Bind)),
            ("proc", false, Some(RootEntry::Bind)),
            ("dev", false, Some(RootEntry::Private)),
            ("lost+found", false, None),
        ];
        for (name, user, expected) in rows {
            assert_eq!(entry_of(name, &mounts, user), expected, "{name}, user: {user}");
        }
    }
}
