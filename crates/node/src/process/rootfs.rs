//! A container's own view of the file system: the machine's programs below, a writable layer that goes with the container, and volumes at
//! the very paths where the pod wants them.
//!
//! Flows: what the container wants to see ([`RootfsSpec`]) -> directories, empty mount points and a table of mounts on disk -> `mount -a` reads that
//! table in a mount namespace of the container. Holds: nothing of the machine is written to except volumes; all mount points are made
//! beforehand in the layer, with the modes of what they cover; a path is taken as the machine resolves it (`/var/run` is `/run`).

use std::collections::BTreeMap;
use std::io::{Error, Result};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use super::ImageFile;
use super::host_root::{HostRoot, RootEntry};

/// One thing that is to be seen at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    pub from: PathBuf,
    pub at: PathBuf,
    pub read_only: bool,
}

/// What a container wants to see.
#[derive(Debug, Clone, Default)]
pub struct RootfsSpec {
    pub hostname: String,
    /// Volumes and single files.
    pub binds: Vec<Bind>,
    /// Files that belong to the container from its start.
    pub files: Vec<ImageFile>,
    pub read_only_root: bool,
}

/// A view as it lies on disk, ready to be mounted.
#[derive(Debug, Clone)]
pub struct Rootfs {
    pub directory: PathBuf,
}

const DEVICES: [&str; 7] = ["null", "zero", "full", "random", "urandom", "tty", "ptmx"];

impl Rootfs {
    /// Lays everything out in an empty directory.
    pub fn build(host_root: &HostRoot, directory: &Path, wanted: &RootfsSpec) -> Result<Self> {
        let text = directory.display().to_string();
        if text.contains([',', ':', '\\']) {
            return Err(Error::other(format!("{text}: overlay mounts allow no comma, colon or backslash in paths")));
        }
        let mut builder = Builder { host_root, directory, table: vec![], binds: vec![], layer: String::new() };
        let (user, volatile) =
            (if host_root.user { ",userxattr" } else { "" }, if host_root.volatile { ",volatile" } else { "" });
        builder.layer = format!("{user}{volatile}{}", read_only(wanted.read_only_root));
        builder.base(wanted.read_only_root)?;
        builder.devices()?;
        builder.own_files(&wanted.hostname)?;
        for file in &wanted.files {
            builder.own_file(&file.at, &file.content)?;
        }
        let mut binds = wanted.binds.clone();
        // What lies inside another mount comes after it.
        binds.sort_by_key(|bind| bind.at.components().count());
        for bind in &binds {
            builder.bind(bind)?;
        }
        std::fs::write(directory.join("fstab"), builder.table.concat())?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// The layer goes, and everything that was written into it.
    pub fn remove(&self) {
        if let Err(error) = super::cleanup::remove_tree(&self.directory) {
            tracing::debug!(path = %self.directory.display(), %error, "could not remove a root file system");
        }
    }
}

struct Builder<'a> {
    host_root: &'a HostRoot,
    directory: &'a Path,
    table: Vec<String>,
    /// Where mounts are that others may lie in, by path.
    binds: Vec<(PathBuf, PathBuf)>,
    /// Options of every layer.
    layer: String,
}

impl Builder<'_> {
    fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    fn line(&mut self, from: &Path, at: &Path, kind: &str, options: &str) {
        self.table.push(format!("{} {} {kind} {options} 0 0\n", escaped(from), escaped(at)));
    }

    fn base(&mut self, read_only_root: bool) -> Result<()> {
        let root = self.root();
        std::fs::create_dir_all(&root)?;
        self.line(&root, &root, "none", &format!("bind{}", read_only(read_only_root)));
        let entries: BTreeMap<String, RootEntry> = self.host_root.entries.clone();
        for (name, entry) in &entries {
            let (real, at) = (Path::new("/").join(name), root.join(name));
            if let RootEntry::Link(to) = entry {
                symlink(to, &at)?;
                continue;
            }
            std::fs::create_dir(&at)?;
            match entry {
                RootEntry::Bind => self.line(&real, &at, "none", "rbind"),
                RootEntry::Own => {
                    let own = self.directory.join("own").join(name);
                    std::fs::create_dir_all(&own)?;
                    self.line(&own, &at, "none", "bind");
                }
                RootEntry::Overlay => {
                    let (up, work) = (self.directory.join("up").join(name), self.directory.join("work").join(name));
                    std::fs::create_dir_all(&up)?;
                    std::fs::create_dir_all(&work)?;
                    copy_owner_and_mode(&real, &up)?;
                    let options = format!(
                        "lowerdir={},upperdir={},workdir={}{}",
                        escaped(&real),
                        escaped(&up),
                        escaped(&work),
                        self.layer
                    );
                    self.line(Path::new("overlay"), &at, "overlay", &options);
                }
                _ => std::fs::set_permissions(
                    &at,
                    std::fs::Permissions::from_mode(if name == "tmp" { 0o1777 } else { 0o755 }),
                )?,
            }
        }
        Ok(())
    }

    fn devices(&mut self) -> Result<()> {
        let dev = self.root().join("dev");
        for name in DEVICES {
            std::fs::write(dev.join(name), "")?;
            self.line(&Path::new("/dev").join(name), &dev.join(name), "none", "bind");
        }
        for name in ["pts", "shm"] {
            std::fs::create_dir(dev.join(name))?;
            let real = Path::new("/dev").join(name);
            if real.is_dir() {
                self.line(&real, &dev.join(name), "none", "rbind");
            }
        }
        for (name, to) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
            symlink(format!("/proc/self/fd{to}"), dev.join(name))?;
        }
        Ok(())
    }

    fn own_files(&self, hostname: &str) -> Result<()> {
        if self.host_root.entries.get("etc") == Some(&RootEntry::Bind) {
            return Ok(());
        }
        self.own_file(Path::new("/etc/hostname"), format!("{hostname}\n").as_bytes())?;
        self.own_file(Path::new("/etc/resolv.conf"), &std::fs::read("/etc/resolv.conf").unwrap_or_default())
    }

    /// A file that is written once and then belongs to the container.
    fn own_file(&self, at: &Path, content: &[u8]) -> Result<()> {
        let above = resolved(at.parent().unwrap_or(at))?;
        let at = above.join(at.file_name().unwrap_or_default());
        let backing = self.backing(&at)?;
        self.directories(&above, backing.parent().unwrap_or(&backing))?;
        std::fs::write(&backing, content)?;
        std::fs::set_permissions(&backing, std::fs::Permissions::from_mode(0o644))
    }

    fn bind(&mut self, bind: &Bind) -> Result<()> {
        let at = resolved(&bind.at)?;
        let inside = self.binds.iter().rev().find_map(|(path, from)| Some((at.strip_prefix(path).ok()?, from)));
        let backing = match inside {
            Some((rest, from)) if rest.as_os_str().is_empty() => from.clone(),
            Some((rest, from)) => from.join(rest),
            None => self.backing(&at)?,
        };
        let missing = |error: Error| Error::other(format!("cannot mount at {}: {error}", bind.at.display()));
        if bind.from.is_dir() {
            self.directories(&at, &backing).map_err(missing)?;
        } else if !backing.exists() {
            self.directories(at.parent().unwrap_or(&at), backing.parent().unwrap_or(&backing)).map_err(missing)?;
            std::fs::write(&backing, "").map_err(missing)?;
        }
        let relative = at.strip_prefix("/").unwrap_or(&at);
        let target = self.root().join(relative);
        let depth = if bind.from.is_dir() { "rbind" } else { "bind" };
        self.line(&bind.from, &target, "none", &format!("{depth}{}", read_only(bind.read_only)));
        self.binds.push((at, bind.from.clone()));
        Ok(())
    }

    /// Where something has to be made so that it is seen at a path.
    fn backing(&self, at: &Path) -> Result<PathBuf> {
        let first = at.components().nth(1).ok_or_else(|| Error::other("cannot mount over /"))?;
        let place = match self.host_root.entries.get(&*first.as_os_str().to_string_lossy()) {
            Some(RootEntry::Overlay) => self.directory.join("up"),
            Some(RootEntry::Own) => self.directory.join("own"),
            Some(RootEntry::Bind) => PathBuf::from("/"),
            _ => self.root(),
        };
        Ok(place.join(at.strip_prefix("/").unwrap_or(at)))
    }

    /// Makes the directories of a mount point; those that cover one of the machine's look like it.
    fn directories(&self, at: &Path, backing: &Path) -> Result<()> {
        let mut missing = vec![];
        let (mut at, mut backing) = (Some(at), Some(backing));
        while let (Some(path), Some(place)) = (at, backing)
            && !place.exists()
        {
            missing.push((path, place));
            (at, backing) = (path.parent(), place.parent());
        }
        for (path, place) in missing.into_iter().rev() {
            std::fs::create_dir(place)?;
            match path.is_dir() {
                true => copy_owner_and_mode(path, place)?,
                false => std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755))?,
            }
        }
        Ok(())
    }
}

fn read_only(yes: bool) -> &'static str {
    if yes { ",ro" } else { "" }
}

/// Mode and owner; only root may give something away, and for others everything is their own.
fn copy_owner_and_mode(real: &Path, own: &Path) -> Result<()> {
    let metadata = real.metadata()?;
    let _ = std::os::unix::fs::chown(own, Some(metadata.uid()), Some(metadata.gid()));
    std::fs::set_permissions(own, std::fs::Permissions::from_mode(metadata.mode() & 0o7777))
}

/// As the machine resolves it: links are followed as far as the path exists.
fn resolved(path: &Path) -> Result<PathBuf> {
    let clean: PathBuf = path.components().filter(|entry| !matches!(entry, Component::CurDir)).collect();
    if !clean.is_absolute() || clean.components().any(|entry| entry == Component::ParentDir) {
        return Err(Error::other(format!("{} is not an absolute path without `..`", path.display())));
    }
    for ancestor in clean.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            let rest = clean.strip_prefix(ancestor).map_err(Error::other)?;
            return Ok(if rest.as_os_str().is_empty() { real } else { real.join(rest) });
        }
    }
    Ok(clean)
}

/// As fstab(5) wants it.
fn escaped(path: &Path) -> String {
    path.display()
        .to_string()
        .replace('\\', "\\134")
        .replace(' ', "\\040")
        .replace('\t', "\\011")
        .replace('\n', "\\012")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_made_in_the_layer_and_nested_ones_in_their_volume() {
        let directory = tempfile::tempdir().unwrap();
        let rootfs = directory.path().join("view");
        let volume = directory.path().join("a volume");
        std::fs::create_dir(&volume).unwrap();
        let entries = [
            ("etc", RootEntry::Overlay),
            ("dev", RootEntry::Private),
            ("run", RootEntry::Private),
            ("proc", RootEntry::Bind),
        ];
        let entries = entries.map(|(name, entry)| (name.to_owned(), entry)).into();
        let host_root = HostRoot { entries, user: false, volatile: true };
        let bind = |from: &Path, at: &str| Bind { from: from.to_owned(), at: at.into(), read_only: at.ends_with("x") };
        let binds = vec![
            bind(&volume, "/etc/pki/deep/x"),
            bind(&volume, "/etc/pki"),
            bind(&volume, "/brand-new"),
            bind(Path::new("/etc/passwd"), "/dev/termination-log"),
            bind(Path::new("/etc/passwd"), "/program"),
        ];
        let wanted = RootfsSpec { hostname: "h".into(), binds, ..RootfsSpec::default() };
        Rootfs::build(&host_root, &rootfs, &wanted).unwrap();
        assert!(rootfs.join("root/program").is_file(), "what is new in the root is made there");
        assert!(rootfs.join("up/etc/pki").is_dir() && rootfs.join("root/brand-new").is_dir());
        assert!(volume.join("deep/x").is_dir(), "a mount inside of a volume needs a place there");
        assert_eq!(std::fs::read_to_string(rootfs.join("up/etc/hostname")).unwrap(), "h\n");
        let table = std::fs::read_to_string(rootfs.join("fstab")).unwrap();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines.iter().any(|line| line.contains("lowerdir=/etc,")), "{table}");
        let volume = volume.display().to_string().replace(' ', "\\040");
        let last = format!("{volume} {}/root/etc/pki/deep/x none rbind,ro 0 0", rootfs.display());
        assert_eq!(lines.last(), Some(&last.as_str()), "outer mounts come first");
        for bad in ["/", "/../x", "relative"] {
            let binds = vec![bind(Path::new("/etc"), bad)];
            let other = directory.path().join("bad");
            let _ = std::fs::remove_dir_all(&other);
            assert!(
                Rootfs::build(&host_root, &other, &RootfsSpec { binds, ..RootfsSpec::default() }).is_err(),
                "{bad}"
            );
        }
    }
}
