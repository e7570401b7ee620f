//! What keeps a store in order: verify what lies in it, and drop what is no longer wanted.

use std::path::{Path, PathBuf};

use super::fetch::sha256;
use super::lookup::stored_at;
use super::{Component, Store, StoreError, StoredComponent, default_version};

/// A component whose file is not what was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub component: Component,
    pub path: PathBuf,
    pub expected: String,
    /// What the file has now; nothing if it cannot be read.
    pub found: Option<String>,
}

/// What is wrong with a program of a store; nothing is known of one from elsewhere, which has no digest beside it.
pub(crate) fn damage_of(program: &Path) -> Option<Damage> {
    stored_at(program.parent()?).filter(|stored| stored.path == program && !stored.sha256.is_empty()).and_then(damage)
}

fn damage(stored: StoredComponent) -> Option<Damage> {
    let found = sha256(&stored.path).ok();
    let intact = found.as_ref() == Some(&stored.sha256);
    (!intact).then_some(Damage { component: stored.component, path: stored.path, expected: stored.sha256, found })
}

impl Store {
    /// Reads every program and compares its digest with the one written down; what cannot be used any more is named.
    pub fn verify(&self) -> Vec<Damage> {
        self.list().into_iter().filter_map(damage).collect()
    }

    /// Those that no default asks for.
    pub fn not_default(&self) -> Vec<StoredComponent> {
        let is_default = |stored: &StoredComponent| default_version(&stored.component.name) == stored.component.version;
        self.list().into_iter().filter(|stored| !is_default(stored)).collect()
    }

    /// Removes a component; renamed first, so that nobody finds half of it.
    pub fn remove(&self, component: &Component) -> Result<(), StoreError> {
        let directory = &self.options.directory;
        let name = format!("{}-{}", component.name, component.version);
        let (from, gone) = (directory.join(&name), directory.join(format!(".making-removed-{name}")));
        let work = std::fs::rename(&from, &gone).and_then(|()| std::fs::remove_dir_all(&gone));
        work.map_err(|source| StoreError::NotWritable { path: from, source })
    }
}
