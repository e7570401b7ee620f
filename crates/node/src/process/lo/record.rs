//! What this home put on `lo`, or is about to: one small file.
//!
//! Holds: it is replaced all at once, before `lo` changes. An entry stays while its owner does, also while the node is stopped, so that the
//! owner gets the address back.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::balancer_addresses::Owners;
use crate::small_file::keep;

const FILE: &str = "lo-addresses.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Entry {
    pub owners: Owners,
    pub uid: String,
    /// By which it is known on `lo`.
    pub label: String,
}

#[derive(Debug)]
pub(in super::super) struct Record {
    path: PathBuf,
    entries: BTreeMap<Ipv4Addr, Entry>,
}

impl Record {
    pub fn empty(home: &Path) -> Self {
        Self { path: home.join(FILE), entries: BTreeMap::new() }
    }

    pub fn read(home: &Path) -> Result<Self, String> {
        let empty = Self::empty(home);
        let broken = |error: &dyn std::fmt::Display| {
            let path = empty.path.display();
            format!(
                "could not read {path} ({error}): remove it, and the addresses with label lo:hangar in `ip address show dev lo`"
            )
        };
        let bytes = match std::fs::read(&empty.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(empty),
            Err(error) => return Err(broken(&error)),
        };
        let entries = serde_json::from_slice(&bytes).map_err(|error| broken(&error))?;
        Ok(Self { entries, ..empty })
    }

    pub fn entries(&self) -> &BTreeMap<Ipv4Addr, Entry> {
        &self.entries
    }

    pub fn insert(&mut self, address: Ipv4Addr, entry: Entry) -> Result<(), String> {
        let before = self.entries.insert(address, entry);
        let written = self.write();
        if written.is_err() {
            // What is not on disk does not count.
            self.entries.remove(&address);
            before.map(|before| self.entries.insert(address, before));
        }
        written
    }

    pub fn remove(&mut self, address: Ipv4Addr) -> Result<(), String> {
        match self.entries.remove(&address) {
            Some(_) => self.write(),
            None => Ok(()),
        }
    }

    fn write(&self) -> Result<(), String> {
        let write = || keep(&self.path, &serde_json::to_vec_pretty(&self.entries)?);
        write().map_err(|error: std::io::Error| format!("{} cannot be written: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_a_broken_file_is_named() {
        let home = tempfile::tempdir().unwrap();
        let address = Ipv4Addr::new(172, 18, 255, 200);
        let entry = Entry { owners: Owners::Services, uid: "u".into(), label: "lo:hangar0a1b2c".into() };
        let mut record = Record::read(home.path()).unwrap();
        record.insert(address, entry.clone()).unwrap();
        let mut again = Record::read(home.path()).unwrap();
        assert_eq!(again.entries(), &BTreeMap::from([(address, entry.clone())]));
        again.remove(address).unwrap();
        assert!(Record::read(home.path()).unwrap().entries().is_empty());
        std::fs::write(home.path().join(FILE), "{").unwrap();
        let error = Record::read(home.path()).unwrap_err();
        assert!(error.contains(FILE) && error.contains("ip address show"), "{error}");
    }

    #[test]
    fn what_could_not_be_written_is_not_remembered() {
        let home = tempfile::tempdir().unwrap();
        let mut record = Record::empty(&home.path().join("gone"));
        let entry = Entry { owners: Owners::Gateways, uid: "u".into(), label: "lo:hangar0a1b2c".into() };
        assert!(record.insert(Ipv4Addr::new(172, 18, 255, 200), entry).unwrap_err().contains("cannot be written"));
        assert!(record.entries().is_empty());
    }
}
