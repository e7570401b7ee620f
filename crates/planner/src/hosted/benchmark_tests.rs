//! The table in SECURITY.md, against what is rendered for a tenant.

use serde_json::json;

use super::tests::{run, world};
use crate::testing::Fake;

fn arguments(deployment: &str) -> Vec<String> {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    run(&mut world, &mut fake);
    let found = world.objects.of_kind("apps", "Deployment").find(|object| object.name() == deployment).unwrap();
    let args = found.get("/spec/template/spec/containers/0/args").as_array().unwrap();
    args.iter().map(|argument| argument.as_str().unwrap().to_owned()).collect()
}

/// A cell is a list of arguments, or of beginnings of arguments, or says that the argument of the check is not set.
fn check(row: &[&str], cell: &str, arguments: &[String]) {
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    for wanted in words(cell) {
        let is_there = arguments.iter().any(|argument| match wanted.ends_with('=') {
            true => argument.starts_with(&wanted),
            false => *argument == wanted,
        });
        assert!(is_there, "{row:?}: {wanted} is not among {arguments:?}");
    }
    if cell == "not set" {
        for flag in words(row[1]) {
            assert!(!arguments.iter().any(|argument| argument.starts_with(&flag)), "{row:?}: {flag} is set");
        }
    } else {
        assert!(!words(cell).is_empty(), "{row:?} says nothing that can be checked");
    }
}

#[test]
fn the_table_of_the_benchmark_is_true_for_tenants() {
    let rendered =
        [("1.2.", arguments("p")), ("1.3.", arguments("p-controller-manager")), ("1.4.", arguments("p-scheduler"))];
    let mut rows = 0;
    for line in include_str!("../../../../SECURITY.md").lines() {
        let row: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let Some((_, arguments)) = rendered.iter().find(|(number, _)| row[0].starts_with(number)) else { continue };
        check(&row, row[3], arguments);
        rows += 1;
    }
    assert_eq!(rows, 30);
}
