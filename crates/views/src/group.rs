//! Many siblings in one state become one row, so that a hundred machines fit a screen.
//!
//! Holds: only rows of one kind that say exactly the same (their children too) are put together, so nothing worth reading is lost.

use crate::Row;

/// This many siblings of one state are still listed one by one.
const LISTED: usize = 5;
const NAMED: usize = 3;

/// The rows in their order, where more than five of one kind and state are one row in the place of the first.
pub(crate) fn group(rows: Vec<Row>) -> Vec<Row> {
    let mut alike: Vec<Vec<Row>> = Vec::new();
    for row in rows {
        match alike.iter_mut().find(|group| group.first().is_some_and(|first| same_state(first, &row))) {
            Some(group) => group.push(row),
            None => alike.push(vec![row]),
        }
    }
    alike.into_iter().flat_map(|rows| if rows.len() > LISTED { vec![merged(rows)] } else { rows }).collect()
}

fn same_state(a: &Row, b: &Row) -> bool {
    let same = kind(&a.name) == kind(&b.name) && a.ready == b.ready && a.reason == b.reason && a.message == b.message;
    same && a.children.len() == b.children.len() && a.children.iter().zip(&b.children).all(|(a, b)| same_state(a, b))
}

fn kind(name: &str) -> &str {
    name.split_once('/').map_or(name, |(kind, _)| kind)
}

fn merged(rows: Vec<Row>) -> Row {
    let names: Vec<&str> = rows.iter().filter_map(|row| row.name.split_once('/')).map(|(_, name)| name).collect();
    let see = format!("See {}, ...", names[..names.len().min(NAMED)].join(", "));
    let first = rows.first();
    let said = first.map(|row| row.message.clone()).unwrap_or_default();
    Row {
        name: format!("{} {}s...", rows.len(), first.map_or("", |row| kind(&row.name))),
        ready: first.and_then(|row| row.ready.clone()),
        reason: first.map(|row| row.reason.clone()).unwrap_or_default(),
        // The last to come into this state: since then all of them have been in it.
        since: rows.iter().filter_map(|row| row.since).max(),
        message: if said.is_empty() { see } else { format!("{said}\n{see}") },
        children: group(rows.into_iter().flat_map(|row| row.children).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(index: i64, ready: &str, message: &str) -> Row {
        Row {
            name: format!("Machine/m-{index}"),
            ready: Some(ready.into()),
            reason: String::new(),
            since: jiff::Timestamp::from_second(index).ok(),
            message: message.into(),
            children: vec![],
        }
    }

    #[test]
    fn five_alike_are_listed_and_six_are_one_row() {
        let five: Vec<Row> = (0..5).map(|index| machine(index, "True", "")).collect();
        assert_eq!(group(five.clone()), five);
        let six = group((0..6).map(|index| machine(index, "True", "")).collect());
        assert_eq!(six.len(), 1);
        assert_eq!(six[0].name, "6 Machines...");
        assert_eq!(six[0].message, "See m-0, m-1, m-2, ...");
        assert_eq!(six[0].since, jiff::Timestamp::from_second(5).ok());
    }

    #[test]
    fn what_differs_stands_alone() {
        let mut rows: Vec<Row> = (0..6).map(|index| machine(index, "False", "no host has room")).collect();
        rows.push(machine(6, "False", "quota exceeded"));
        let grouped = group(rows);
        let names: Vec<&str> = grouped.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["6 Machines...", "Machine/m-6"]);
        assert_eq!(grouped[0].message, "no host has room\nSee m-0, m-1, m-2, ...");
    }

    #[test]
    fn children_are_put_together_with_their_parents() {
        let with_child = |index: i64| Row {
            children: vec![Row {
                name: format!("MachineInfrastructure - OpenStackMachine/m-{index}"),
                ..machine(index, "False", "no host has room")
            }],
            ..machine(index, "False", "")
        };
        let grouped = group((0..7).map(with_child).collect());
        assert_eq!(grouped[0].children.len(), 1);
        assert_eq!(grouped[0].children[0].name, "7 MachineInfrastructure - OpenStackMachines...");
    }
}
