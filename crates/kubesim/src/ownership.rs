//! Who set which field, and server-side apply on top of it.
//!
//! Flows: (live object, configuration, owners) -> the object as applied, and the owners after it. Holds: what a manager applied before
//! and no longer applies goes, unless another one has it too.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::fields::{Path, Segment, Shape, lay_over, leaves, take_away};

/// Applying and updating under one name are two owners, and so are an object and its status.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Manager {
    pub name: String,
    pub applies: bool,
    pub subresource: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owners(BTreeMap<Manager, BTreeSet<Path>>);

impl Owners {
    /// The object after `manager` applied `config`; without force, the paths that others hold with other values.
    pub fn apply(
        &mut self,
        live: &Value,
        config: &Value,
        manager: &Manager,
        shape: Shape<'_>,
        force: bool,
    ) -> Result<Value, Vec<String>> {
        let (wanted, there) = (leaves(config, shape), leaves(live, shape));
        let changed: BTreeSet<&Path> =
            wanted.iter().filter(|(path, value)| there.get(*path) != Some(value)).map(|(path, _)| path).collect();
        let mut conflicts = vec![];
        for (other, paths) in self.0.iter_mut().filter(|(other, _)| *other != manager) {
            let lost: Vec<Path> = paths.iter().filter(|path| changed.contains(path)).cloned().collect();
            for path in lost {
                conflicts.push(format!("conflict with \"{}\": {}", other.name, words(&path)));
                paths.remove(&path);
            }
        }
        if !force && !conflicts.is_empty() {
            return Err(conflicts);
        }
        let mut applied = live.clone();
        lay_over(&mut applied, config, shape);
        let before = self.0.get(manager).cloned().unwrap_or_default();
        let now: BTreeSet<Path> = wanted.into_keys().collect();
        for path in before.difference(&now) {
            if !self.held_by_others(manager, path) && !now.iter().any(|held| held.starts_with(path)) {
                take_away(&mut applied, path, shape);
            }
        }
        // A map that is still applied, but empty now, went with its last field.
        lay_over(&mut applied, config, shape);
        self.0.insert(manager.clone(), now);
        self.0.retain(|_, paths| !paths.is_empty());
        Ok(applied)
    }

    fn held_by_others(&self, manager: &Manager, path: &Path) -> bool {
        self.0.iter().any(|(other, paths)| other != manager && paths.iter().any(|held| held.starts_with(path)))
    }

    /// What changed other than by applying belongs to whoever changed it.
    pub fn update(&mut self, old: Option<&Value>, new: &Value, manager: Manager, shape: Shape<'_>) {
        let before = old.map(|old| leaves(old, shape)).unwrap_or_default();
        let after = leaves(new, shape);
        let changed: BTreeSet<Path> = after
            .iter()
            .filter(|(path, value)| before.get(*path) != Some(value))
            .map(|(path, _)| path.clone())
            .collect();
        for paths in self.0.values_mut() {
            paths.retain(|path| after.contains_key(path) && !changed.contains(path));
        }
        self.0.entry(manager).or_default().extend(changed);
        self.0.retain(|_, paths| !paths.is_empty());
    }
}

/// A path as messages have it: `.spec.replicas`.
fn words(path: &Path) -> String {
    let segment = |segment: &Segment| match segment {
        Segment::Field(name) => format!(".{name}"),
        Segment::Item(key) => format!("[{key}]"),
    };
    path.iter().map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manager(name: &str) -> Manager {
        Manager { name: name.into(), applies: true, subresource: String::new() }
    }

    /// What two managers apply in turn, and what stands there in the end.
    #[test]
    fn fields_that_are_no_longer_applied_go_unless_another_has_them() {
        let rows = [
            (json!({"a": 1, "b": 2}), json!({"c": 3}), json!({"a": 1}), json!({"a": 1, "c": 3})),
            (json!({"a": 1, "b": 2}), json!({"b": 2}), json!({"a": 1}), json!({"a": 1, "b": 2})),
            (json!({"m": {"x": 1, "y": 2}}), json!({}), json!({"m": {"y": 2}}), json!({"m": {"y": 2}})),
            (json!({"m": {"x": 1}, "k": 0}), json!({}), json!({"k": 0}), json!({"k": 0})),
            (json!({"l": [1, 2]}), json!({}), json!({"l": [2]}), json!({"l": [2]})),
            (json!({"k": 1, "e": {}}), json!({}), json!({"k": 1}), json!({"k": 1})),
            (
                json!({"metadata": {"finalizers": ["a", "b"]}}),
                json!({"metadata": {"finalizers": ["c"]}}),
                json!({"metadata": {"finalizers": ["b"]}}),
                json!({"metadata": {"finalizers": ["b", "c"]}}),
            ),
            (
                json!({"status": {"conditions": [{"type": "A", "x": 1}, {"type": "B", "x": 1}]}}),
                json!({"status": {"conditions": [{"type": "C", "x": 2}]}}),
                json!({"status": {"conditions": [{"type": "B", "x": 3}]}}),
                json!({"status": {"conditions": [{"type": "B", "x": 3}, {"type": "C", "x": 2}]}}),
            ),
        ];
        for (first, second, third, expected) in rows {
            let (mut owners, shape) = (Owners::default(), Shape::Root(None));
            let mut live = json!({});
            for (config, name) in [(&first, "one"), (&second, "two"), (&third, "one")] {
                live = owners.apply(&live, config, &manager(name), shape, true).unwrap();
            }
            assert_eq!(live, expected);
        }
    }

    #[test]
    fn a_change_takes_the_field_from_whoever_applied_it() {
        let (mut owners, shape) = (Owners::default(), Shape::Root(None));
        let live = owners.apply(&json!({}), &json!({"a": 1, "b": 1}), &manager("one"), shape, false).unwrap();
        let edited = json!({"a": 2, "b": 1});
        owners.update(Some(&live), &edited, Manager { applies: false, ..manager("editor") }, shape);
        let again = owners.clone().apply(&edited, &json!({"a": 1, "b": 1}), &manager("one"), shape, false);
        assert_eq!(again.unwrap_err(), [r#"conflict with "editor": .a"#]);
        assert_eq!(owners.apply(&edited, &json!({"b": 1}), &manager("one"), shape, false).unwrap(), edited);
    }
}
