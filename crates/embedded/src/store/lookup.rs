//! What is at hand without a network: the named directory, the store, PATH.
//!
//! A program outside the store counts only after it has said its version, which is asked once per file and remembered.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

use semver::Version;

use super::{Component, Store, StoreError, StoredComponent};

/// Versions that programs have said, by file and time of change, so that a replaced file is asked again.
pub(super) type ProbedVersions = Mutex<HashMap<(PathBuf, SystemTime), Option<Version>>>;

impl Store {
    /// The program, if it can be had without a network.
    pub fn installed(&self, name: &str, version: &Version) -> Option<PathBuf> {
        let stored = |directory: &Path| executable(directory.join(format!("{name}-{version}")).join(name));
        let named = self.options.named.as_deref();
        named
            .and_then(stored)
            .or_else(|| named.and_then(|directory| self.if_version_matches(directory.join(name), name, version)))
            .or_else(|| stored(&self.options.directory))
            .or_else(|| self.on_path(name).find(|path| self.reported_version(path, name).as_ref() == Some(version)))
    }

    /// Whether the directory that the user named can be read. Without this, a typo would end in a download or in a build of minutes.
    pub fn check_named(&self) -> Result<(), StoreError> {
        let Some(path) = &self.options.named else { return Ok(()) };
        path.read_dir().map(drop).map_err(|source| StoreError::NamedUnreadable { path: path.clone(), source })
    }

    /// Whether all of these can be had without a network, if the user named a directory and no site to get the rest from.
    pub fn check_named_has(&self, components: &[Component]) -> Result<(), StoreError> {
        let Some(path) = self.options.named.clone().filter(|_| self.options.mirror.is_none()) else { return Ok(()) };
        let missing = components.iter().filter(|wanted| self.installed(&wanted.name, &wanted.version).is_none());
        let lacking: Vec<String> = missing.map(|wanted| self.lacking(&path, wanted)).collect();
        match lacking.is_empty() {
            true => Ok(()),
            false => Err(StoreError::NamedLacks { path, lacking: lacking.join(", ") }),
        }
    }

    /// A component with what the directory has in its place.
    fn lacking(&self, directory: &Path, wanted: &Component) -> String {
        let program = directory.join(&wanted.name);
        if !program.exists() {
            return wanted.to_string();
        }
        match (executable(program.clone()), self.reported_version(&program, &wanted.name)) {
            (None, _) => format!("{wanted} (the file there is not executable)"),
            (Some(_), Some(version)) => format!("{wanted} (the program there is {version})"),
            (Some(_), None) => format!("{wanted} (the program there does not report its version)"),
        }
    }

    /// The nearest version at hand: the same minor first, then the next higher, then the next lower.
    pub fn nearest(&self, name: &str, version: &Version) -> Option<(Version, PathBuf)> {
        if let Some(path) = self.installed(name, version) {
            return Some((version.clone(), path));
        }
        let mut known: Vec<(Version, PathBuf)> = self
            .options
            .named
            .iter()
            .chain([&self.options.directory])
            .flat_map(|directory| stored_in(directory))
            .filter(|stored| stored.component.name == name)
            .map(|stored| (stored.component.version, stored.path))
            .collect();
        let loose = self.options.named.iter().map(|directory| directory.join(name)).chain(self.on_path(name));
        known.extend(loose.filter_map(|path| Some((self.reported_version(&path, name)?, path))));
        known.into_iter().min_by_key(|(candidate, _)| distance(version, candidate))
    }

    /// Everything in the store.
    pub fn list(&self) -> Vec<StoredComponent> {
        let mut all = stored_in(&self.options.directory);
        all.sort_by(|a, b| a.component.cmp(&b.component));
        all
    }

    fn if_version_matches(&self, path: PathBuf, name: &str, version: &Version) -> Option<PathBuf> {
        (self.reported_version(&path, name).as_ref() == Some(version)).then_some(path)
    }

    fn on_path(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        let path = std::env::var_os("PATH").filter(|_| self.options.path_lookup).unwrap_or_default();
        let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
        directories.into_iter().map(move |directory| directory.join(name)).filter_map(executable)
    }

    fn reported_version(&self, path: &Path, name: &str) -> Option<Version> {
        let changed = path.metadata().ok()?.modified().ok()?;
        let key = (path.to_owned(), changed);
        if let Some(known) = self.probed.lock().ok()?.get(&key) {
            return known.clone();
        }
        let args: &[&str] = if name == "kubectl" { &["version", "--client"] } else { &["--version"] };
        let output = Command::new(path).args(args).output().ok();
        let reported = output.and_then(|output| version_in(&String::from_utf8_lossy(&output.stdout)));
        self.probed.lock().ok()?.insert(key, reported.clone());
        reported
    }
}

fn executable(path: PathBuf) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = path.metadata().ok()?;
    (metadata.is_file() && metadata.permissions().mode() & 0o111 != 0).then_some(path)
}

pub(super) fn stored_in(directory: &Path) -> Vec<StoredComponent> {
    let Ok(entries) = directory.read_dir() else { return vec![] };
    entries.filter_map(|entry| stored_at(&entry.ok()?.path())).collect()
}

pub(super) fn stored_at(directory: &Path) -> Option<StoredComponent> {
    let (name, version) = split_name(directory.file_name()?.to_str()?)?;
    let path = executable(directory.join(&name))?;
    let sha256 = std::fs::read_to_string(directory.join("sha256")).unwrap_or_default();
    let sha256 = sha256.split_whitespace().next().unwrap_or_default().to_owned();
    Some(StoredComponent { bytes: path.metadata().ok()?.len(), path, sha256, component: Component { name, version } })
}

/// `kube-apiserver-1.34.4` is a name and a version; the version starts at the first `-` before a digit.
fn split_name(text: &str) -> Option<(String, Version)> {
    let at =
        text.char_indices().find(|&(at, c)| c == '-' && text[at + 1..].starts_with(|c: char| c.is_ascii_digit()))?.0;
    Some((text[..at].to_owned(), Version::parse(&text[at + 1..]).ok()?))
}

/// The first word that is a version, with or without a `v`.
fn version_in(text: &str) -> Option<Version> {
    text.split_whitespace().find_map(|word| Version::parse(word.strip_prefix('v').unwrap_or(word)).ok())
}

/// Orders candidates: same minor, then higher ones from below, then lower ones from above; within a minor the newest patch.
fn distance(wanted: &Version, candidate: &Version) -> (u8, u64, u64, std::cmp::Reverse<Version>) {
    let (want, have) = ((wanted.major, wanted.minor), (candidate.major, candidate.minor));
    let group = match have.cmp(&want) {
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => 1,
        std::cmp::Ordering::Less => 2,
    };
    (group, have.0.abs_diff(want.0), have.1.abs_diff(want.1), std::cmp::Reverse(candidate.clone()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::StoreOptions;
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    fn put(directory: &Path, file: &str, script: &str) {
        let path = directory.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn store(directory: &Path, named: Option<&Path>) -> Store {
        let options = StoreOptions {
            directory: directory.to_owned(),
            named: named.map(Path::to_owned),
            mirror: None,
            download: false,
            path_lookup: false,
            ..StoreOptions::default()
        };
        Store::new(options)
    }

    #[test]
    fn the_nearest_version_is_the_same_minor_then_higher_then_lower() {
        let rows = [
            ("1.28.10", &["1.28.15", "1.29.0", "1.27.16"][..], "1.28.15"),
            ("1.28.10", &["1.34.4", "1.33.13", "1.27.16"], "1.33.13"),
            ("1.36.0", &["1.34.4", "1.35.4"], "1.35.4"),
            ("1.34.4", &["1.34.3", "1.34.4", "1.34.5"], "1.34.4"),
        ];
        for (wanted, have, nearest) in rows {
            let directory = tempfile::tempdir().unwrap();
            for each in have {
                put(directory.path(), &format!("kube-apiserver-{each}/kube-apiserver"), "");
            }
            let found = store(directory.path(), None).nearest("kube-apiserver", &version(wanted)).unwrap();
            assert_eq!(found.0, version(nearest), "wanted {wanted} of {have:?}");
        }
    }

    #[test]
    fn a_loose_program_counts_only_if_it_says_the_version() {
        let (directory, named) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        put(named.path(), "kube-scheduler", "#!/bin/sh\necho Kubernetes v1.34.4\n");
        let store = store(directory.path(), Some(named.path()));
        assert_eq!(store.installed("kube-scheduler", &version("1.34.4")), Some(named.path().join("kube-scheduler")));
        assert_eq!(store.installed("kube-scheduler", &version("1.33.0")), None);
    }

    #[test]
    fn a_named_directory_that_cannot_serve_is_refused_with_the_reason() {
        let (directory, named) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let reason = |named: &Path| {
            let error = store(directory.path(), Some(named)).check_named().unwrap_err();
            let cause = std::error::Error::source(&error).unwrap().to_string();
            format!("{error}: {cause}")
        };
        let missing = reason(&named.path().join("typo"));
        assert!(missing.contains("typo (--components)") && missing.contains("No such file"), "{missing}");
        std::fs::write(named.path().join("file"), "").unwrap();
        assert!(reason(&named.path().join("file")).contains("Not a directory"));

        put(named.path(), "etcd", "#!/bin/sh\necho etcd Version: 3.6.16\n");
        put(named.path(), "kubectl", "#!/bin/sh\necho Client Version: v1.20.0\n");
        std::fs::write(named.path().join("kube-scheduler"), "").unwrap();
        let wanted = |name: &str| Component { name: name.into(), version: super::super::default_version(name) };
        let with = store(directory.path(), Some(named.path()));
        with.check_named().unwrap();
        with.check_named_has(&[wanted("etcd")]).unwrap();
        let all = ["etcd", "kube-apiserver", "kube-scheduler", "kubectl"].map(wanted);
        let error = with.check_named_has(&all).unwrap_err().to_string();
        for words in ["lacks kube-apiserver 1.34.4,", "not executable", "kubectl 1.34.4 (the program there is 1.20.0)"]
        {
            assert!(error.contains(words), "no {words:?} in {error}");
        }
        assert!(!error.contains("etcd"), "{error}");
        store(directory.path(), None).check_named_has(&all).unwrap();
    }

    #[test]
    fn names_with_dashes_and_versions_come_apart() {
        assert_eq!(
            split_name("kube-controller-manager-1.34.4"),
            Some(("kube-controller-manager".into(), version("1.34.4")))
        );
        assert_eq!(split_name(".making-12"), None);
        assert_eq!(version_in("etcd Version: 3.6.16\nGit SHA: x"), Some(version("3.6.16")));
    }
}
