use serde_json::{Value, json};

use super::*;
use crate::plan;
use crate::testing::{CORE, at, condition, merge, object, owner, said};

const NOW: i64 = 10_000;

fn machine(name: &str, fields: Value) -> Value {
    let mut machine = object(
        CORE,
        "Machine",
        name,
        json!({
            "metadata": { "labels": { "pool": "a" }, "creationTimestamp": at(0).to_string(), "ownerReferences": owner(CORE, "MachineSet", "ms") },
            "spec": { "clusterName": "c" },
            "status": { "nodeRef": { "name": name }, "conditions": [{ "type": "NodeReady", "status": "True", "reason": "NodeReady" }] },
        }),
    );
    merge(&mut machine, &fields);
    machine
}

fn healthy(name: &str) -> Value {
    machine(name, json!({}))
}

fn broken(name: &str) -> Value {
    machine(
        name,
        json!({ "status": { "conditions": [{ "type": "NodeReady", "status": "False", "reason": "NodeDeleted" }] } }),
    )
}

/// Since this second.
fn unhealthy(status: &str, since: i64) -> Value {
    json!({ "status": { "conditions": [{ "type": "NodeReady", "status": status, "reason": "NodeNotReady", "lastTransitionTime": at(since).to_string() }] } })
}

fn world(spec: Value, machines: Vec<Value>) -> World {
    let mut own = object(
        CORE,
        "MachineHealthCheck",
        "h",
        json!({ "spec": { "clusterName": "c", "selector": { "matchLabels": { "pool": "a" } },
        "checks": { "unhealthyNodeConditions": [{ "type": "Ready", "status": "False", "timeoutSeconds": 300 }, { "type": "Ready", "status": "Unknown", "timeoutSeconds": 100 }] } } }),
    );
    merge(&mut own["spec"], &spec);
    let mut world: World = crate::testing::world(own, machines);
    world.facts.now = at(NOW);
    world
}

fn decided(world: &World) -> String {
    said(&plan(world, at(NOW)))
}

/// H1.
#[test]
fn h1_targets_are_selected_and_nobody_asked_to_leave_them_alone() {
    for (what, fields, expected) in [
        ("selected", json!({}), "delete Machine n/x"),
        ("another label", json!({ "metadata": { "labels": { "pool": "b" } } }), "done"),
        ("paused", json!({ "metadata": { "annotations": { PAUSED_ANNOTATION: "" } } }), "done"),
        (
            "marked to be left alone",
            json!({ "metadata": { "annotations": { SKIP_REMEDIATION_ANNOTATION: "" } } }),
            "done",
        ),
        ("nobody would make another one", json!({ "metadata": { "ownerReferences": null } }), "done"),
        ("it goes already", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), "done"),
    ] {
        let mut target = broken("x");
        merge(&mut target, &fields);
        assert_eq!(decided(&world(json!({}), vec![target, healthy("y")])), expected, "{what}");
    }
}

/// H2.
#[test]
fn h2_a_machine_is_unhealthy_by_its_node_and_by_time() {
    let none = |created: i64| json!({ "metadata": { "creationTimestamp": at(created).to_string() }, "status": { "nodeRef": null, "conditions": null } });
    let never = json!({ "checks": { "nodeStartupTimeoutSeconds": 0 } });
    let soon = json!({ "checks": { "nodeStartupTimeoutSeconds": 60 } });
    for (what, spec, fields, expected) in [
        ("healthy", json!({}), json!({}), "done"),
        ("Node deleted", json!({}), broken("x"), "delete Machine n/x"),
        (
            "no Node, within ten minutes",
            json!({}),
            none(NOW - 599),
            "wait MachineSuspect: Machine x is not healthy; looking again",
        ),
        ("no Node after ten minutes", json!({}), none(NOW - 600), "delete Machine n/x"),
        ("no Node after its own time", soon, none(NOW - 61), "delete Machine n/x"),
        ("0 disables", never, none(0), "done"),
        (
            "not ready for a while",
            json!({}),
            unhealthy("False", NOW - 299),
            "wait MachineSuspect: Machine x is not healthy; looking again",
        ),
        ("not ready for too long", json!({}), unhealthy("False", NOW - 300), "delete Machine n/x"),
        ("unknown has its own time", json!({}), unhealthy("Unknown", NOW - 100), "delete Machine n/x"),
        (
            "an API that cannot be reached says nothing about the Node",
            json!({}),
            json!({ "status": { "conditions": [{ "type": "NodeReady", "status": "Unknown", "reason": "ConnectionDown", "lastTransitionTime": at(0).to_string() }] } }),
            "done",
        ),
        (
            "a status that nobody checks",
            json!({ "checks": { "unhealthyNodeConditions": [] } }),
            unhealthy("False", 0),
            "done",
        ),
    ] {
        assert_eq!(decided(&world(spec, vec![machine("x", fields)])), expected, "{what}");
    }
    let suspect = plan(&world(json!({}), vec![machine("x", none(NOW - 590)), machine("y", none(NOW - 400))]), at(NOW));
    assert_eq!(
        suspect.progress.reason().unwrap().wake,
        crate::Wake::After(Duration::from_secs(11)),
        "the next one, and a second"
    );
}

/// H3.
#[test]
fn h3_outside_of_the_limit_nothing_is_touched_and_the_status_says_so() {
    let limit = |value: Value| json!({ "remediation": { "triggerIf": { "unhealthyLessThanOrEqualTo": value } } });
    let three = || vec![broken("x"), broken("y"), healthy("z")];
    let too_many = |allowed: usize| {
        format!(
            "blocked TooManyUnhealthy: 2 of 3 Machines are unhealthy, at most {allowed} may be: nothing is remediated"
        )
    };
    let both = "delete Machine n/x; delete Machine n/y".to_owned();
    for (what, spec, expected, remaining) in [
        ("no limit", json!({}), both.clone(), 1),
        ("a number", limit(json!(1)), too_many(1), 0),
        ("enough", limit(json!(2)), both.clone(), 0),
        ("a share, rounded down", limit(json!("66%")), too_many(1), 0),
        ("a larger share", limit(json!("67%")), both, 0),
    ] {
        let world = world(spec, three());
        assert_eq!(decided(&world), expected, "{what}");
        let refused = crate::refused(&world, crate::Reason::retry("X", "x"), at(NOW)).status.unwrap();
        assert_eq!(
            (&refused["expectedMachines"], &refused["currentHealthy"], &refused["remediationsAllowed"]),
            (&json!(3), &json!(1), &json!(remaining)),
            "{what}"
        );
        assert_eq!(refused["targets"], json!(["x", "y", "z"]), "{what}");
    }
    let plan = plan(&world(limit(json!(0)), three()), at(NOW));
    assert_eq!(condition(&plan, "RemediationAllowed").unwrap().0, "False");
}

/// H3.
#[test]
fn h3_a_range_says_when_remediation_begins_and_when_it_ends() {
    let range = |text: &str| json!({ "remediation": { "triggerIf": { "unhealthyInRange": text } } });
    let of = |broken_ones: usize| -> Vec<Value> {
        (0..3).map(|at| if at < broken_ones { broken(&format!("m{at}")) } else { healthy(&format!("m{at}")) }).collect()
    };
    for (what, text, unhealthy, expected) in [
        ("none", "[2-2]", 0, "done"),
        (
            "below",
            "[2-2]",
            1,
            "blocked TooFewUnhealthy: 1 of 3 Machines are unhealthy, remediation begins with 2: nothing is remediated",
        ),
        ("within", "[2-2]", 2, "delete Machine n/m0; delete Machine n/m1"),
        (
            "above",
            "[2-2]",
            3,
            "blocked TooManyUnhealthy: 3 of 3 Machines are unhealthy, at most 2 may be: nothing is remediated",
        ),
        (
            "upside down",
            "[3-1]",
            2,
            "blocked InvalidRange: spec.remediation.triggerIf.unhealthyInRange must be two numbers, such as [1-3]",
        ),
        (
            "no range",
            "1-3",
            2,
            "blocked InvalidRange: spec.remediation.triggerIf.unhealthyInRange must be two numbers, such as [1-3]",
        ),
    ] {
        assert_eq!(decided(&world(range(text), of(unhealthy))), expected, "{what}");
    }
}

/// H2.
#[test]
fn h2_people_and_conditions_of_machines_say_that_one_is_unhealthy() {
    let checks = json!({ "checks": { "unhealthyMachineConditions": [{ "type": "Net", "status": "False", "timeoutSeconds": 60 }] } });
    let net = |status: &str, since: i64| json!({ "status": { "conditions": [{ "type": "Net", "status": status, "reason": "X", "lastTransitionTime": at(since).to_string() }] } });
    let suspect = "wait MachineSuspect: Machine x is not healthy; looking again";
    for (what, fields, expected) in [
        ("a person", json!({ "metadata": { "annotations": { REMEDIATE_ANNOTATION: "" } } }), "delete Machine n/x"),
        ("a condition that is good", net("True", 0), "done"),
        ("one that is bad for a while", net("False", NOW - 59), suspect),
        ("one that is bad for too long", net("False", NOW - 60), "delete Machine n/x"),
    ] {
        assert_eq!(decided(&world(checks.clone(), vec![machine("x", fields)])), expected, "{what}");
    }
    // A Node cannot come before there is something to join.
    let none = json!({ "status": { "nodeRef": null, "conditions": null } });
    let ready = json!({ "type": "ControlPlaneInitialized", "status": "True", "reason": "X", "lastTransitionTime": at(NOW - 10).to_string() });
    let cluster = crate::testing::cluster(json!({ "status": { "conditions": [ready] } }));
    assert_eq!(
        decided(&world(json!({}), vec![machine("x", none), cluster])),
        suspect,
        "counted from when one can join"
    );
}

#[test]
fn what_is_not_built_yet_says_so() {
    let external = json!({ "remediation": { "templateRef": { "kind": "X", "name": "x", "apiVersion": "g/v1" } } });
    let expected = "blocked NotBuiltYet: external remediation (spec.remediation.templateRef) is not built yet";
    assert_eq!(decided(&world(external, vec![broken("x")])), expected);
}
