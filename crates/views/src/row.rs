//! One line of a tree with what is below it, and the two questions that are asked of it.
//!
//! Holds: a tree is ready exactly if there is nothing to say why it is not.

use jiff::Timestamp;
use serde::Serialize;

/// The state of one object (or of a heading such as `Workers`, which has none), with its children.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub name: String,
    /// `True`, `False` or `Unknown`; nothing for a heading.
    pub ready: Option<String>,
    pub reason: String,
    pub since: Option<Timestamp>,
    pub message: String,
    pub children: Vec<Row>,
}

impl Row {
    /// A line that has no state of its own.
    pub(crate) fn heading(name: &str, children: Vec<Row>) -> Self {
        Self { name: name.into(), ready: None, reason: String::new(), since: None, message: String::new(), children }
    }

    pub(crate) fn is_bad(&self) -> bool {
        self.ready.as_deref().is_some_and(|ready| ready != "True")
    }
}

/// Whether the object at the root and everything below it is ready.
pub fn is_ready(root: &Row) -> bool {
    root.ready.is_some() && why(root).is_empty()
}

/// The deepest rows that are not ready: the path to each, its reason, since when, and what it says.
pub fn why(root: &Row) -> Vec<String> {
    let mut found = Vec::new();
    descend(root, &mut Vec::new(), &mut found);
    found
}

fn descend<'a>(row: &'a Row, path: &mut Vec<&'a str>, found: &mut Vec<String>) {
    // A heading says nothing about what is or is not ready, so it is no part of the path.
    if row.ready.is_some() {
        path.push(&row.name);
    }
    let before = found.len();
    for child in &row.children {
        descend(child, path, found);
    }
    if found.len() == before && row.is_bad() {
        found.push(reason_line(row, path));
    }
    if row.ready.is_some() {
        path.pop();
    }
}

fn reason_line(row: &Row, path: &[&str]) -> String {
    let state = if row.ready.as_deref() == Some("False") { "is not ready" } else { "is in an unknown state" };
    let mut line = format!("{} {state}", path.join(" > "));
    if let Some(since) = row.since {
        line.push_str(&format!(" since {since}"));
    }
    let lines = row.message.lines().map(|part| part.trim_start_matches("* "));
    let message = lines.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
    for part in [row.reason.as_str(), message.as_str()] {
        if !part.is_empty() {
            line.push_str(&format!(": {part}"));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, ready: &str, reason: &str, message: &str, children: Vec<Row>) -> Row {
        Row {
            name: name.into(),
            ready: Some(ready.into()),
            reason: reason.into(),
            since: Timestamp::from_second(0).ok(),
            message: message.into(),
            children,
        }
    }

    #[test]
    fn the_deepest_reasons_are_given_with_their_paths() {
        let machine = row("Machine/m", "False", "QuotaExceeded", "* cores: 20 of 20 used\n* raise it", vec![]);
        let fine = row("Machine/n", "True", "Ready", "", vec![]);
        let deployment = row("MachineDeployment/md", "False", "NotAvailable", "0 of 2", vec![machine, fine]);
        let plane = row("ControlPlane - KamajiControlPlane/p", "Unknown", "NotReported", "", vec![]);
        let root =
            row("Cluster/c", "False", "NotAvailable", "much", vec![plane, Row::heading("Workers", vec![deployment])]);
        assert_eq!(
            why(&root),
            [
                "Cluster/c > ControlPlane - KamajiControlPlane/p is in an unknown state since 1970-01-01T00:00:00Z: \
                 NotReported",
                "Cluster/c > MachineDeployment/md > Machine/m is not ready since 1970-01-01T00:00:00Z: QuotaExceeded: \
                 cores: 20 of 20 used; raise it",
            ]
        );
        assert!(!is_ready(&root));
    }

    #[test]
    fn a_tree_is_ready_only_if_all_of_it_is() {
        let child = |ready: &str| row("Machine/m", ready, "", "", vec![]);
        let table = [
            (row("Cluster/c", "True", "", "", vec![]), true),
            (row("Cluster/c", "True", "", "", vec![Row::heading("Workers", vec![child("True")])]), true),
            (row("Cluster/c", "True", "", "", vec![Row::heading("Workers", vec![child("False")])]), false),
            (row("Cluster/c", "True", "", "", vec![child("Unknown")]), false),
            (row("Cluster/c", "False", "", "", vec![child("True")]), false),
            (Row::heading("Cluster/c", vec![]), false),
        ];
        for (root, expected) in table {
            assert_eq!(is_ready(&root), expected, "{root:?}");
        }
    }
}
