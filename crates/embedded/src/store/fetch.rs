//! The whole ladder, under a lock for each thing that is made.
//!
//! Holds: parallel callers for the same thing, also in other processes, wait for the one who works and then find what it made; everything is
//! made in a directory of the store that nobody looks into and then renamed.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};

use super::build::{self, Module};
use super::{Component, DownloadError, Progress, Stage, Store, StoreError};

const STAGING_PREFIX: &str = ".making-";

impl Store {
    /// Gets all components, in the order asked for.
    pub async fn fetch(&self, components: &[Component], progress: &dyn Progress) -> Result<Vec<PathBuf>, StoreError> {
        let (mut found, mut missing) = (vec![], vec![]);
        for component in components {
            match self.find_installed(component).await {
                Some(path) => found.push((component, path)),
                None => missing.push(component),
            }
        }
        for (component, path) in &found {
            progress.stage(component, Stage::Found(path.clone()));
        }
        if !missing.is_empty() {
            self.fetch_missing(missing, progress).await?;
        }
        let mut paths = vec![];
        for component in components {
            paths.push(self.find_installed(component).await.ok_or_else(|| StoreError::Unknown(component.clone()))?);
        }
        Ok(paths)
    }

    pub(super) async fn find_installed(&self, component: &Component) -> Option<PathBuf> {
        let (store, component) = (self.clone(), component.clone());
        tokio::task::spawn_blocking(move || store.installed(&component.name, &component.version)).await.ok()?
    }

    async fn fetch_missing(&self, missing: Vec<&Component>, progress: &dyn Progress) -> Result<(), StoreError> {
        let started = Instant::now();
        let (mut to_build, mut failures) = (vec![], vec![]);
        for component in missing {
            let _lock = self.lock(&file_name(component), &[component], progress).await?;
            if let Some(path) = self.find_installed(component).await {
                progress.stage(component, Stage::Found(path));
                continue;
            }
            match self.download(component, progress).await {
                Ok(true) => progress.stage(component, Stage::Done { seconds: started.elapsed().as_secs() }),
                Ok(false) => to_build.push(component),
                // Somebody replaced it: a build would hide that.
                Err(source @ DownloadError::Replaced { .. }) => {
                    return Err(StoreError::Download { component: component.clone(), source: Box::new(source) });
                }
                Err(error) => {
                    let reason = error.to_string();
                    progress.stage(component, Stage::DownloadFailed { reason: reason.clone() });
                    tracing::warn!(%component, reason, "download failed, building instead");
                    failures.push(reason);
                    to_build.push(component);
                }
            }
        }
        for (module, group) in by_module(to_build)? {
            let _lock = self.lock(&format!("build-{}-{}", module.short, module.version), &group, progress).await?;
            let mut left = vec![];
            for component in group {
                match self.find_installed(component).await {
                    Some(path) => progress.stage(component, Stage::Found(path)),
                    None => left.push(component),
                }
            }
            if left.is_empty() {
                continue;
            }
            self.build(&module, &left, &failures, progress).await?;
            for component in left {
                progress.stage(component, Stage::Done { seconds: started.elapsed().as_secs() });
            }
        }
        Ok(())
    }

    /// Whether it was downloaded; `Err` says why not although it was tried.
    async fn download(&self, component: &Component, progress: &dyn Progress) -> Result<bool, DownloadError> {
        let Some(url) = super::download::url(&self.options, component) else { return Ok(false) };
        let name = file_name(component);
        let broken = |error: StoreError| DownloadError::File {
            path: self.options.directory.display().to_string(),
            source: std::io::Error::other(error),
        };
        let staging = self.staging(&name).map_err(broken)?;
        let file = staging.path.join(&component.name);
        let tell = |done, total| progress.stage(component, Stage::Downloading { done, total });
        tell(0, None);
        let digest = super::download::verified(&url, self.options.insecure_mirror, &file, &tell).await?;
        self.remember(&name, &url, &digest)?;
        self.keep(component, &file).map_err(broken)?;
        Ok(true)
    }

    /// What was downloaded under a name is what it is, also after it was removed from the store.
    fn remember(&self, name: &str, url: &str, digest: &str) -> Result<(), DownloadError> {
        let record = self.options.directory.join("downloads").join(name);
        let broken = |source| DownloadError::File { path: record.display().to_string(), source };
        let known = match std::fs::read_to_string(&record) {
            Ok(known) => known.trim().to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                std::fs::create_dir_all(self.options.directory.join("downloads")).map_err(broken)?;
                return hangar_node::small_file::keep(&record, format!("{digest}\n").as_bytes()).map_err(broken);
            }
            Err(error) => return Err(broken(error)),
        };
        if known == digest {
            return Ok(());
        }
        let (url, got, record) = (url.to_owned(), digest.to_owned(), record.display().to_string());
        Err(DownloadError::Replaced { url, got, known, record })
    }

    async fn build(
        &self,
        module: &Module,
        group: &[&Component],
        failures: &[String],
        progress: &dyn Progress,
    ) -> Result<(), StoreError> {
        let names: Vec<&str> = group.iter().map(|component| component.name.as_str()).collect();
        let staging = self.staging(&format!("build-{}-{}", module.short, module.version))?;
        let tell = |package_lines| group.iter().for_each(|c| progress.stage(c, Stage::Building { package_lines }));
        let log = self.options.directory.join(format!("build-{}-{}.log", module.short, module.version));
        build::build(module, &names, &staging.path, &log, &tell).await.map_err(|source| {
            let after =
                failures.first().map(|first| format!(" (after a failed download: {first})")).unwrap_or_default();
            StoreError::Build { names: names.join(", "), after, source }
        })?;
        group.iter().try_for_each(|component| self.keep(component, &staging.path.join("out").join(&component.name)))
    }

    /// Moves a finished program to its place. The directory is renamed as a whole, so it is there completely or not at all.
    pub(super) fn keep(&self, component: &Component, program: &Path) -> Result<(), StoreError> {
        let directory = program.with_file_name(format!("{}-{}.done", component.name, component.version));
        let target = self.options.directory.join(file_name(component));
        let work = || -> std::io::Result<()> {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::create_dir(&directory)?;
            std::fs::rename(program, directory.join(&component.name))?;
            let program = directory.join(&component.name);
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
            std::fs::write(directory.join("sha256"), format!("{}  {}\n", sha256(&program)?, component.name))?;
            if target.exists() {
                std::fs::remove_dir_all(&target)?;
            }
            std::fs::rename(&directory, &target)
        };
        work().map_err(|source| self.not_writable(source))
    }

    /// A directory to make something in; those whose makers died are removed on the way.
    pub(super) fn staging(&self, what: &str) -> Result<StagingDirectory, StoreError> {
        for entry in self.options.directory.read_dir().into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let maker = name.strip_prefix(STAGING_PREFIX).and_then(|rest| rest.split('-').next());
            if maker.is_some_and(|maker| !Path::new("/proc").join(maker).exists()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let path = self.options.directory.join(format!("{STAGING_PREFIX}{}-{what}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|source| self.not_writable(source))?;
        Ok(StagingDirectory { path })
    }

    /// One maker of one thing at a time, in all processes; others are not held up.
    pub(super) async fn lock(
        &self,
        what: &str,
        waiting: &[&Component],
        progress: &dyn Progress,
    ) -> Result<File, StoreError> {
        let broken = |source| self.not_writable(source);
        let directory = self.options.directory.join("locks");
        std::fs::create_dir_all(&directory).map_err(broken)?;
        let path = directory.join(what);
        let mut file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).map_err(broken)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            for component in waiting {
                progress.stage(component, Stage::Waiting { holder: holder.clone() });
            }
            let waiter = file.try_clone().map_err(broken)?;
            let locked = tokio::task::spawn_blocking(move || flock(&waiter, FlockOperation::LockExclusive)).await;
            locked.map_err(std::io::Error::other).and_then(|done| Ok(done?)).map_err(broken)?;
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(broken)?;
        write!(file, "{}", std::process::id()).map_err(broken)?;
        Ok(file)
    }

    fn not_writable(&self, source: std::io::Error) -> StoreError {
        StoreError::NotWritable { path: self.options.directory.clone(), source }
    }
}

/// A directory that goes away with whatever is left in it.
pub(super) struct StagingDirectory {
    pub path: PathBuf,
}

impl Drop for StagingDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn file_name(component: &Component) -> String {
    format!("{}-{}", component.name, component.version)
}

fn by_module(components: Vec<&Component>) -> Result<Vec<(Module, Vec<&Component>)>, StoreError> {
    let mut groups: Vec<(Module, Vec<&Component>)> = vec![];
    for component in components {
        let module = Module::of(component).ok_or_else(|| StoreError::Unknown(component.clone()))?;
        match groups.iter_mut().find(|(known, _)| *known == module) {
            Some((_, group)) => group.push(component),
            None => groups.push((module, vec![component])),
        }
    }
    Ok(groups)
}

/// The digest of a file, hexadecimal.
pub(super) fn sha256(path: &Path) -> std::io::Result<String> {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()),
            n => context.update(&buffer[..n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Silent, StoreOptions};
    use super::*;

    fn component(name: &str, version: &str) -> Component {
        Component { name: name.into(), version: version.parse().unwrap() }
    }

    fn store(directory: &Path) -> Store {
        let options = StoreOptions {
            directory: directory.into(),
            named: None,
            mirror: None,
            download: false,
            path_lookup: false,
            ..StoreOptions::default()
        };
        Store::new(options)
    }

    #[test]
    fn programs_of_one_module_and_version_are_built_together() {
        let all = [
            component("kubectl", "1.34.4"),
            component("etcd", "3.6.16"),
            component("kube-scheduler", "1.34.4"),
            component("kubectl", "1.33.0"),
        ];
        let sizes: Vec<usize> = by_module(all.iter().collect()).unwrap().iter().map(|(_, group)| group.len()).collect();
        assert_eq!(sizes, [2, 1, 1]);
    }

    #[test]
    fn a_kept_program_is_found_and_its_digest_is_written_down() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let staging = store.staging("x").unwrap();
        std::fs::write(staging.path.join("etcd"), "abc").unwrap();
        store.keep(&component("etcd", "3.6.16"), &staging.path.join("etcd")).unwrap();
        drop(staging);
        assert!(store.installed("etcd", &"3.6.16".parse().unwrap()).is_some());
        let listed = store.list();
        assert_eq!(listed[0].sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_component_nobody_knows_names_the_way_out() {
        let directory = tempfile::tempdir().unwrap();
        let error = store(directory.path()).fetch(&[component("nginx", "1.0.0")], &Silent).await.unwrap_err();
        assert!(error.to_string().contains("--components"), "{error}");
    }
}
