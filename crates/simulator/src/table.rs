//! Rows by id that remember which of them changed, so that a change can be written down without writing everything.
//!
//! Holds: a row is changed only through [`Table::insert`], [`Table::get_mut`] and [`Table::remove`], and each of them notes
//! the id; [`Rows::take_changed`] gives every id noted since the last time once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone)]
pub(crate) struct Table<T> {
    rows: BTreeMap<String, T>,
    changed: BTreeSet<String>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), changed: BTreeSet::new() }
    }
}

/// Reading is that of the map.
impl<T> Deref for Table<T> {
    type Target = BTreeMap<String, T>;

    fn deref(&self) -> &Self::Target {
        &self.rows
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&mut self, id: impl Into<String>, row: T) {
        let id = id.into();
        self.changed.insert(id.clone());
        self.rows.insert(id, row);
    }

    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut T> {
        let row = self.rows.get_mut(id)?;
        self.changed.insert(id.to_owned());
        Some(row)
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<T> {
        let row = self.rows.remove(id)?;
        self.changed.insert(id.to_owned());
        Some(row)
    }

    /// Ids of the rows that fit, to be changed one by one.
    pub(crate) fn ids(&self, fits: impl Fn(&T) -> bool) -> Vec<String> {
        self.rows.iter().filter(|(_, row)| fits(row)).map(|(id, _)| id.clone()).collect()
    }
}

impl<T: Serialize> Serialize for Table<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.rows.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self { rows: BTreeMap::deserialize(deserializer)?, changed: BTreeSet::new() })
    }
}

/// An id, and the row as JSON or nothing if it is gone.
pub(crate) type Change = (String, Option<String>);

/// A table whose rows can be written down and read back without knowing what they are.
pub(crate) trait Rows {
    /// Ids noted since the last time.
    fn take_changed(&mut self) -> BTreeSet<String>;
    /// As JSON.
    fn row(&self, id: &str) -> Option<String>;
    fn put(&mut self, id: &str, row: Option<&str>) -> Result<(), serde_json::Error>;
}

impl<T: Serialize + DeserializeOwned> Rows for Table<T> {
    fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    fn row(&self, id: &str) -> Option<String> {
        // Rows are plain data: what cannot be written as JSON does not exist in here.
        self.rows.get(id).and_then(|row| serde_json::to_string(row).ok())
    }

    fn put(&mut self, id: &str, row: Option<&str>) -> Result<(), serde_json::Error> {
        match row {
            Some(text) => self.rows.insert(id.to_owned(), serde_json::from_str(text)?),
            None => self.rows.remove(id),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_told_once_and_can_be_replayed() {
        let mut table = Table::default();
        table.insert("a", 1);
        table.insert("b", 2);
        *table.get_mut("a").unwrap() = 3;
        table.remove("b");
        assert!(table.get_mut("c").is_none());
        let changed = table.take_changed().into_iter();
        let changes: Vec<Change> = changed.map(|id| (table.row(&id), id)).map(|(row, id)| (id, row)).collect();
        assert_eq!(changes, [("a".to_owned(), Some("3".to_owned())), ("b".to_owned(), None)]);
        assert!(table.take_changed().is_empty());
        let mut other: Table<i32> = serde_json::from_str(r#"{"b": 9}"#).unwrap();
        for (id, row) in changes {
            other.put(&id, row.as_deref()).unwrap();
        }
        assert_eq!(serde_json::to_string(&other).unwrap(), r#"{"a":3}"#);
    }
}
