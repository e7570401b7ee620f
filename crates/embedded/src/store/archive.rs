//! A store in one file, for machines that reach no network.
//!
//! Flows: programs and their digests -> tar, compressed -> elsewhere -> each verified -> store. Holds: a program whose digest does not fit is
//! refused by name, and what was loaded before it stays; nothing outside of the store is written, whatever the archive says.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Component as PathPart, Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::fetch::sha256;
use super::lookup::stored_in;
use super::{Component, Silent, Store, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("{path} cannot be written")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{path} is not an archive of components: create one with `hangar components bundle FILE`")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("there are no components to archive: run `hangar components fetch` first")]
    Empty,
    #[error(
        "{component} in the archive is damaged: its digest is {found}, expected {expected}; create the archive again"
    )]
    Damaged { component: Component, expected: String, found: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Writes everything that is in the store into one file, and says what that was.
    pub fn bundle(&self, path: &Path) -> Result<Vec<Component>, ArchiveError> {
        let all = self.list();
        if all.is_empty() {
            return Err(ArchiveError::Empty);
        }
        let written = |source| ArchiveError::Write { path: path.to_owned(), source };
        // Beside its place and renamed, so that an interrupted run leaves no half archive under the name.
        let partial = path.with_added_extension("partial");
        let work = || -> std::io::Result<()> {
            let compress = GzEncoder::new(BufWriter::new(File::create(&partial)?), Compression::fast());
            let mut archive = tar::Builder::new(compress);
            for stored in &all {
                let name = format!("{}-{}", stored.component.name, stored.component.version);
                if let Some(directory) = stored.path.parent() {
                    archive.append_dir_all(name, directory)?;
                }
            }
            archive.into_inner()?.finish()?.flush()?;
            std::fs::rename(&partial, path)
        };
        let outcome = work().map_err(written);
        if outcome.is_err() {
            let _ = std::fs::remove_file(&partial);
        }
        outcome?;
        Ok(all.into_iter().map(|stored| stored.component).collect())
    }

    /// Takes every program of an archive into the store, and says which.
    pub async fn load(&self, path: &Path) -> Result<Vec<Component>, ArchiveError> {
        let _lock = self.lock("archive", &[], &Silent).await?;
        let staging = self.staging("archive")?;
        let unreadable = |source| ArchiveError::Read { path: path.to_owned(), source };
        unpack(path, &staging.path).map_err(unreadable)?;
        let mut loaded = vec![];
        for stored in stored_in(&staging.path) {
            let found = sha256(&stored.path).map_err(unreadable)?;
            if found != stored.sha256 {
                let (component, expected) = (stored.component, stored.sha256);
                return Err(ArchiveError::Damaged { component, expected, found });
            }
            self.keep(&stored.component, &stored.path)?;
            loaded.push(stored.component);
        }
        if loaded.is_empty() {
            return Err(ArchiveError::Empty);
        }
        loaded.sort();
        Ok(loaded)
    }
}

fn unpack(path: &Path, into: &Path) -> std::io::Result<()> {
    let mut archive = tar::Archive::new(GzDecoder::new(BufReader::new(File::open(path)?)));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        let plain = name.components().all(|part| matches!(part, PathPart::Normal(_)));
        let kind = entry.header().entry_type();
        if !plain || !(kind.is_file() || kind.is_dir()) {
            return Err(std::io::Error::other(format!(
                "{} is not allowed in an archive of components",
                name.display()
            )));
        }
        entry.unpack_in(into)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::StoreOptions;
    use super::*;

    fn store(directory: &Path) -> Store {
        let options = StoreOptions { directory: directory.to_owned(), path_lookup: false, ..StoreOptions::default() };
        Store::new(options)
    }

    fn put(store: &Store, name: &str, text: &str) -> Component {
        let component = Component { name: name.into(), version: "1.2.3".parse().unwrap() };
        let staging = store.staging("x").unwrap();
        std::fs::write(staging.path.join(name), text).unwrap();
        store.keep(&component, &staging.path.join(name)).unwrap();
        component
    }

    #[tokio::test]
    async fn a_store_travels_in_a_file_and_damage_is_named() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = here.path().join("all.tar.gz");
        let (from, to) = (store(&here.path().join("store")), store(there.path()));
        assert!(matches!(from.bundle(&file), Err(ArchiveError::Empty)));
        let component = put(&from, "etcd", "a program");
        let all = vec![component.clone()];
        assert_eq!(from.bundle(&file).unwrap(), all);
        assert_eq!(to.load(&file).await.unwrap(), all);
        assert_eq!(std::fs::read_to_string(&to.list()[0].path).unwrap(), "a program");
        assert_eq!(to.verify(), []);

        std::fs::write(&from.list()[0].path, "another program").unwrap();
        assert_eq!(from.verify()[0].component, component);
        from.bundle(&file).unwrap();
        let error = to.load(&file).await.unwrap_err().to_string();
        assert!(error.contains("etcd 1.2.3") && error.contains("damaged"), "{error}");
        from.remove(&component).unwrap();
        assert!(from.list().is_empty());
    }

    #[tokio::test]
    async fn what_is_no_archive_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x");
        std::fs::write(&file, "just words").unwrap();
        let error = store(&directory.path().join("store")).load(&file).await.unwrap_err().to_string();
        assert!(error.contains("hangar components bundle"), "{error}");
    }
}
