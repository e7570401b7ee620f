//! The home: one directory with everything that one local management plane keeps.
//!
//! Holds: only a directory that was new or empty becomes a home, and only a home is removed; it is private to its user, and one daemon at a time works in it (an flock that the kernel gives back
//! when its holder dies, however it dies).

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation, access, flock};

#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("the home {path} is not writable: choose another one with --home or HANGAR_HOME")]
    NotWritable { path: PathBuf, source: std::io::Error },
    #[error(
        "the home {path} is in use by process {pid}: stop it with `hangar down`, or choose another home with --home or HANGAR_HOME"
    )]
    InUse { path: PathBuf, pid: String },
    #[error(
        "{path} has other files in it and is no home of Hangar: choose an empty or new directory with --home or HANGAR_HOME"
    )]
    Foreign { path: PathBuf },
}

/// Says that a directory is a home: only what has it is ever removed.
const MARKER: &str = ".hangar-home";

/// One directory with all state.
#[derive(Debug, Clone)]
pub struct Home {
    path: PathBuf,
}

impl Home {
    /// Opens a home, made if it is not there yet.
    pub fn open(path: PathBuf) -> Result<Home, HomeError> {
        let path =
            std::path::absolute(&path).map_err(|source| HomeError::NotWritable { path: path.clone(), source })?;
        let home = Home { path };
        if !home.mark().map_err(|source| HomeError::NotWritable { path: home.path.clone(), source })? {
            return Err(HomeError::Foreign { path: home.path });
        }
        home.prepare().map_err(|source| HomeError::NotWritable { path: home.path.clone(), source })?;
        Ok(home)
    }

    /// `HANGAR_HOME`, else `~/.hangar`.
    pub fn default_path() -> PathBuf {
        if let Some(path) = std::env::var_os("HANGAR_HOME").filter(|path| !path.is_empty()) {
            return path.into();
        }
        PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| ".".into())).join(".hangar")
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Marks a new directory, before anything else is in it; says whether it is a home now. Homes from before there was a marker are known by what
    /// they contain.
    fn mark(&self) -> std::io::Result<bool> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        if self.path.join(MARKER).exists() {
            return Ok(true);
        }
        let is_older = self.pki().is_dir() && self.logs().is_dir() && self.etcd().is_dir();
        if !is_older && self.path.read_dir()?.next().is_some() && !self.path.join(MARKER).exists() {
            return Ok(false);
        }
        OpenOptions::new().create(true).append(true).mode(0o600).open(self.path.join(MARKER))?;
        Ok(true)
    }

    /// Removes it with everything in it, and what its pods have elsewhere.
    pub fn remove(&self) -> std::io::Result<()> {
        if !self.path.join(MARKER).exists() {
            return Err(std::io::Error::other("it is no home of Hangar"));
        }
        hangar_node::process::remove_pods(&self.pods())?;
        hangar_node::process::remove_tree(&self.path)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    pub fn pki(&self) -> PathBuf {
        self.path.join("pki")
    }

    pub fn etcd(&self) -> PathBuf {
        self.path.join("etcd")
    }

    pub fn pods(&self) -> PathBuf {
        self.path.join("pods")
    }

    pub fn volumes(&self) -> PathBuf {
        self.path.join("volumes")
    }

    /// Ports and network, kept across restarts.
    pub fn state_file(&self) -> PathBuf {
        self.path.join("state.json")
    }

    /// Takes the home for this process until the lock is dropped. Others learn who has it, and may ask that process to end.
    pub fn lock(&self) -> Result<HomeLock, HomeError> {
        let mut lock = self.hold()?;
        let broken = |source| HomeError::NotWritable { path: self.path.clone(), source };
        write!(lock.file, "{}", std::process::id()).map_err(broken)?;
        Ok(lock)
    }

    /// Takes the home without a name, for whoever clears it up: that is soon over, and nobody should end it.
    pub fn hold(&self) -> Result<HomeLock, HomeError> {
        let path = self.path.join("lock");
        let broken = |source| HomeError::NotWritable { path: path.clone(), source };
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(broken)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let pid = self.holder().unwrap_or_else(|| "unknown".to_owned());
            return Err(HomeError::InUse { path: self.path.clone(), pid });
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(broken)?;
        Ok(HomeLock { file })
    }

    /// Whether somebody holds the lock. The question takes it for a moment, as one of many who may: see [`Home::lock`] for whoever wants it alone.
    pub fn is_held(&self) -> bool {
        File::open(self.path.join("lock"))
            .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
    }

    /// The pid last written by a holder of the lock; it may be gone.
    pub fn holder(&self) -> Option<String> {
        let mut text = String::new();
        File::open(self.path.join("lock")).ok()?.read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned()).filter(|pid| !pid.is_empty())
    }

    fn prepare(&self) -> std::io::Result<()> {
        let directories = [self.logs(), self.pki(), self.etcd(), self.pods(), self.volumes()];
        for directory in std::iter::once(self.path.clone()).chain(directories) {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        // Asked, not tried with a file: commands that run at once would remove each other's.
        Ok(access(&self.path, Access::WRITE_OK | Access::EXEC_OK)?)
    }
}

/// Held while a daemon works in a home, or somebody clears it up.
#[derive(Debug)]
pub struct HomeLock {
    file: File,
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn one_daemon_at_a_time_and_the_second_learns_who() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::open(directory.path().join("home")).unwrap();
        assert!(!home.is_held());
        let lock = home.lock().unwrap();
        assert!(home.is_held());
        let error = home.lock().unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(lock);
        assert!(!home.is_held());
        let lock = home.hold().unwrap();
        assert!(home.is_held());
        assert_eq!(home.holder(), None, "nobody to end");
        drop(lock);
        home.lock().unwrap();
    }

    #[test]
    fn a_directory_with_other_files_is_no_home_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("thesis.txt"), "years of work").unwrap();
        let error = Home::open(directory.path().to_owned()).unwrap_err();
        assert!(error.to_string().contains("is no home of Hangar: choose an empty or new directory"), "{error}");
        assert_eq!(directory.path().read_dir().unwrap().count(), 1, "nothing is put beside it");
        let unmarked = Home { path: directory.path().to_owned() };
        unmarked.remove().unwrap_err();
        assert!(directory.path().join("thesis.txt").exists());
        // A home from before there was a marker.
        let older = tempfile::tempdir().unwrap();
        for name in ["pki", "logs", "etcd"] {
            std::fs::create_dir(older.path().join(name)).unwrap();
        }
        Home::open(older.path().to_owned()).unwrap().remove().unwrap();
        assert!(!older.path().exists());
    }

    /// Root may look everywhere: as such this shows less.
    #[test]
    fn a_home_goes_with_directories_that_nobody_may_look_into() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::open(directory.path().join("home")).unwrap();
        let layer = home.pods().join("pod/layer/work/work");
        std::fs::create_dir_all(layer.join("incompat/volatile")).unwrap();
        std::fs::set_permissions(&layer, Permissions::from_mode(0o000)).unwrap();
        home.remove().unwrap();
        assert!(!home.path().exists());
    }

    #[test]
    fn many_may_open_a_home_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("home");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..200).for_each(|_| drop(Home::open(path.clone()).unwrap())));
            }
        });
    }

    #[test]
    fn a_home_that_cannot_be_made_names_the_way_out() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = Home::open(file.join("home")).unwrap_err().to_string();
        assert!(error.contains("--home") && error.contains("HANGAR_HOME"), "{error}");
    }
}
