use serde_json::{Value, json};

use hangar_api::conditions::find;

use super::*;
use crate::plan;
use crate::report::present;
use crate::testing::{CORE, Fake, at, condition, merge, object, owner, said};

const NOW: i64 = 10_000;
const REMEDIATE_ANNOTATION: &str = "cluster.x-k8s.io/remediate-machine";
const SUSPECT: &str = "wait MachineSuspect: Machine x is not healthy; looking again";

/// What is said of a Machine that is to be replaced, and why.
fn ill(name: &str, reason: &str) -> String {
    format!("mark Machine n/{name} HealthCheckSucceeded=False {reason}, OwnerRemediated=False WaitingForRemediation")
}

fn machine(name: &str, fields: Value) -> Value {
    let mut machine = object(
        CORE,
        "Machine",
        name,
        json!({
            "metadata": { "labels": { "pool": "a" }, "creationTimestamp": at(0).to_string(), "ownerReferences": owner(CORE, "MachineSet", "ms") },
            "spec": { "clusterName": "c" },
            "status": { "nodeRef": { "name": name }, "conditions": [{ "type": SUCCEEDED, "status": "True", "reason": SUCCEEDED, "message": "" }] },
            "node": [{ "type": "Ready", "status": "True" }],
        }),
    );
    merge(&mut machine, &fields);
    machine
}

fn healthy(name: &str) -> Value {
    machine(name, json!({}))
}

fn broken(name: &str) -> Value {
    machine(name, json!({ "status": { "conditions": [] }, "node": null }))
}

/// A condition of the Node since this second.
fn node(kind: &str, status: &str, since: i64) -> Value {
    let condition = json!({ "type": kind, "status": status, "lastTransitionTime": at(since).to_string() });
    json!({ "status": { "conditions": [] }, "node": [{ "type": "Other", "status": "True" }, condition] })
}

fn healthy_now() -> String {
    "mark Machine n/x HealthCheckSucceeded=True HealthCheckSucceeded".to_owned()
}

/// The Nodes of the Machines stand with these, as `node`.
fn world(spec: Value, mut machines: Vec<Value>) -> World {
    let nodes = machines.iter_mut().filter_map(|machine| {
        let conditions = machine.as_object_mut().unwrap().remove("node")?;
        let name = machine["status"]["nodeRef"]["name"].as_str()?;
        let node = object("v1", "Node", name, json!({ "status": { "conditions": conditions } }));
        Some((name.to_owned(), crate::testing::shared(node)))
    });
    let nodes = nodes.collect();
    let mut own = object(
        CORE,
        "MachineHealthCheck",
        "h",
        json!({ "spec": { "clusterName": "c", "selector": { "matchLabels": { "pool": "a" } },
        "checks": { "unhealthyNodeConditions": [{ "type": "Ready", "status": "False", "timeoutSeconds": 300 }, { "type": "Ready", "status": "Unknown", "timeoutSeconds": 100 }] } } }),
    );
    merge(&mut own["spec"], &spec);
    let mut world: World = crate::testing::world(own, machines);
    world.facts = Facts { now: at(NOW), nodes: Some(nodes), ..Facts::default() };
    world
}

fn decided(world: &World) -> String {
    said(&plan(world, at(NOW)))
}

/// H1.
#[test]
fn h1_targets_are_selected_and_nobody_asked_to_leave_them_alone() {
    let done = || "done".to_owned();
    for (what, fields, expected) in [
        ("selected", json!({}), ill("x", "NodeDeleted")),
        ("another label", json!({ "metadata": { "labels": { "pool": "b" } } }), done()),
        ("paused", json!({ "metadata": { "annotations": { PAUSED_ANNOTATION: "" } } }), done()),
        (
            "marked to be left alone",
            json!({ "metadata": { "annotations": { SKIP_REMEDIATION_ANNOTATION: "" } } }),
            done(),
        ),
        ("it goes already", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), done()),
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
    let own = json!({ "checks": { "unhealthyNodeConditions": [{ "type": "Disk", "status": "True", "timeoutSeconds": 0 }, { "type": "Ready", "status": "False", "timeoutSeconds": 300 }] } });
    let mut renamed = node("Disk", "False", 0);
    renamed["status"]["nodeRef"]["name"] = "renamed".into();
    let done = || "done".to_owned();
    for (what, spec, fields, expected) in [
        ("healthy", json!({}), json!({}), done()),
        ("Node deleted", json!({}), json!({ "status": { "conditions": [] }, "node": null }), ill("x", "NodeDeleted")),
        ("no Node, within ten minutes", json!({}), none(NOW - 599), SUSPECT.to_owned()),
        ("no Node after ten minutes", json!({}), none(NOW - 600), ill("x", "NodeStartupTimeout")),
        ("no Node after its own time", soon, none(NOW - 61), ill("x", "NodeStartupTimeout")),
        ("0 disables", never, none(0), done()),
        ("not ready for a while", json!({}), node("Ready", "False", NOW - 299), SUSPECT.to_owned()),
        ("not ready for too long", json!({}), node("Ready", "False", NOW - 300), ill("x", "UnhealthyNode")),
        ("unknown has its own time", json!({}), node("Ready", "Unknown", NOW - 100), ill("x", "UnhealthyNode")),
        ("another condition, at once", own.clone(), node("Disk", "True", NOW), ill("x", "UnhealthyNode")),
        ("another condition that is good", own, renamed, healthy_now()),
        ("a condition that nobody checks", json!({}), node("Disk", "True", 0), healthy_now()),
        (
            "a status that nobody checks",
            json!({ "checks": { "unhealthyNodeConditions": [] } }),
            node("Ready", "False", 0),
            healthy_now(),
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
    let marked =
        ["x", "y"].map(|name| format!("mark Machine n/{name} HealthCheckSucceeded=False NodeDeleted")).join("; ");
    let both = format!("{}; {}", ill("x", "NodeDeleted"), ill("y", "NodeDeleted"));
    let rest = || "done".to_owned();
    for (what, spec, expected, then, remaining) in [
        ("no limit", json!({}), both.clone(), rest(), 1),
        ("a number", limit(json!(1)), marked.clone(), too_many(1), 0),
        ("enough", limit(json!(2)), both.clone(), rest(), 0),
        ("a share, rounded down", limit(json!("66%")), marked, too_many(1), 0),
        ("a larger share", limit(json!("67%")), both, rest(), 0),
    ] {
        let mut world = world(spec, three());
        assert_eq!(decided(&world), expected, "{what}");
        assert_eq!(said(&Fake { now: NOW, ..Fake::default() }.converge(&mut world)), then, "{what}");
        let refused = crate::refused(&world, crate::Reason::retry("X", "x"), at(NOW)).status.unwrap();
        assert_eq!(
            (&refused["expectedMachines"], &refused["currentHealthy"], &refused["remediationsAllowed"]),
            (&json!(3), &json!(1), &json!(remaining)),
            "{what}"
        );
        assert_eq!(refused["targets"], json!(["x", "y", "z"]), "{what}");
    }
    let plan = Fake { now: NOW, ..Fake::default() }.converge(&mut world(limit(json!(0)), three()));
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
        ("within", "[2-2]", 2, "done"),
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
        let mut world = world(range(text), of(unhealthy));
        let mut fake = Fake { now: NOW, ..Fake::default() };
        assert_eq!(said(&fake.converge(&mut world)), expected, "{what}");
        let told = fake.done.iter().filter(|step| step.contains(OWNER_REMEDIATED)).count();
        assert_eq!(told, if what == "within" { 2 } else { 0 }, "{what}");
    }
}

/// H2.
#[test]
fn h2_people_and_conditions_of_machines_say_that_one_is_unhealthy() {
    let checks = json!({ "checks": { "unhealthyMachineConditions": [{ "type": "Net", "status": "False", "timeoutSeconds": 60 }] } });
    let net = |status: &str, since: i64| json!({ "status": { "conditions": [{ "type": "Net", "status": status, "reason": "X", "lastTransitionTime": at(since).to_string() }] } });
    let person = json!({ "metadata": { "annotations": { REMEDIATE_ANNOTATION: "" } } });
    for (what, fields, expected) in [
        ("a person", person, ill("x", "HasRemediateMachineAnnotation")),
        ("a condition that is good", net("True", 0), healthy_now()),
        ("one that is bad for a while", net("False", NOW - 59), SUSPECT.to_owned()),
        ("one that is bad for too long", net("False", NOW - 60), ill("x", "UnhealthyMachine")),
    ] {
        assert_eq!(decided(&world(checks.clone(), vec![machine("x", fields)])), expected, "{what}");
    }
    // A Node cannot come before there is something to join.
    let none = json!({ "status": { "nodeRef": null, "conditions": null } });
    let ready = json!({ "type": "ControlPlaneInitialized", "status": "True", "reason": "X", "lastTransitionTime": at(NOW - 10).to_string() });
    let cluster = crate::testing::cluster(json!({ "status": { "conditions": [ready] } }));
    assert_eq!(
        decided(&world(json!({}), vec![machine("x", none), cluster])),
        SUSPECT,
        "counted from when one can join"
    );
}

/// A Machine that an earlier pass has found ill.
fn marked(name: &str, fields: Value) -> Value {
    let mut machine = machine(
        name,
        json!({ "status": { "conditions": [
        { "type": SUCCEEDED, "status": "False", "reason": "UnhealthyNode", "message": "Node x: Ready has been False for more than 300 s" },
        { "type": OWNER_REMEDIATED, "status": "False", "reason": "WaitingForRemediation", "message": "waiting for MachineSet ms to replace it" },
    ] } }),
    );
    merge(&mut machine, &fields);
    machine
}

/// H2.
#[test]
fn h2_a_node_that_registers_under_another_name_is_not_deleted() {
    let machine = machine("x", json!({ "spec": { "providerID": "openstack:///x" }, "node": null }));
    let mut world = world(json!({}), vec![machine]);
    assert_eq!(decided(&world), ill("x", "NodeDeleted"));
    let node =
        object("v1", "Node", "renamed", json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }));
    world.facts.nodes.as_mut().unwrap().insert("openstack:///x".to_owned(), crate::testing::shared(node));
    assert_eq!(decided(&world), "done");
}

/// H4.
#[test]
fn h4_marks_are_written_once_and_go_when_the_machine_is_healthy_again() {
    let ready = |status: &str, since: i64| json!({ "node": [{ "type": "Ready", "status": status, "lastTransitionTime": at(since).to_string() }] });
    let none_left = json!({ "remediation": { "triggerIf": { "unhealthyLessThanOrEqualTo": 0 } } });
    let withdrawn = "mark Machine n/x HealthCheckSucceeded=False UnhealthyNode".to_owned();
    let (done, deleting) = (|| "done".to_owned(), json!({ "metadata": { "deletionTimestamp": at(NOW).to_string() } }));
    let too_many = "blocked TooManyUnhealthy: 1 of 1 Machines are unhealthy, at most 0 may be: nothing is remediated";
    for (what, spec, fields, expected) in [
        ("nothing new", json!({}), ready("False", 0), done()),
        ("healthy again", json!({}), ready("True", NOW), healthy_now()),
        ("on its way to be ill in another way", json!({}), ready("Unknown", NOW), SUSPECT.to_owned()),
        ("outside of the limit nobody is told to replace it", none_left.clone(), ready("False", 0), withdrawn.clone()),
        ("the same while it is only suspect", none_left.clone(), ready("Unknown", NOW), withdrawn),
        ("it goes already", json!({}), deleting.clone(), done()),
        ("what goes for being ill counts until it is gone", none_left, deleting, too_many.to_owned()),
    ] {
        assert_eq!(decided(&world(spec, vec![marked("x", fields)])), expected, "{what}");
    }
    let mut again = world(json!({}), vec![broken("x"), healthy("y")]);
    let mut fake = Fake { now: NOW, ..Fake::default() };
    fake.converge(&mut again);
    assert_eq!(fake.done, [ill("x", "NodeDeleted")], "said once");
}

/// H4.
#[test]
fn h4_of_what_nobody_can_ask_nothing_new_is_said() {
    for (what, machine, expected) in [
        ("healthy before", healthy("x"), "done".to_owned()),
        ("unknown before", machine("x", json!({ "status": { "conditions": [] } })), "done".to_owned()),
        ("ill before", marked("x", json!({})), "done".to_owned()),
        (
            "known to be deleted before",
            machine(
                "x",
                json!({ "status": { "conditions": [{ "type": "NodeReady", "status": "False", "reason": "NodeDeleted" }] } }),
            ),
            ill("x", "NodeDeleted"),
        ),
    ] {
        let mut world = world(json!({}), vec![machine]);
        world.facts.nodes = None;
        assert_eq!(decided(&world), expected, "{what}");
    }
}

/// H4.
#[test]
fn h4_the_condition_says_who_is_to_replace_the_machine() {
    for (owners, expected) in [
        (owner(CORE, "MachineSet", "ms"), "waiting for MachineSet ms to replace it"),
        (owner("g/v1", "Other", "o"), "waiting for Other o to replace it, which is not Hangar's to do"),
        (json!([]), "nothing owns it that would make another one: delete it, or mend its Node"),
    ] {
        let mut machine = broken("x");
        machine["metadata"]["ownerReferences"] = owners;
        let steps = plan(&world(json!({}), vec![machine]), at(NOW)).steps;
        let [crate::Step::Mark(marked)] = &steps[..] else { panic!("{steps:?}") };
        let conditions = present(marked);
        assert_eq!(find(&conditions, OWNER_REMEDIATED).unwrap().message, expected);
        assert_eq!(find(&conditions, SUCCEEDED).unwrap().message, "Node x was deleted");
    }
}

const METAL: &str = "infrastructure.cluster.x-k8s.io/v1beta2";

fn external(kind: &str) -> Value {
    json!({ "remediation": { "templateRef": { "kind": kind, "name": "t", "apiVersion": METAL } } })
}

fn template() -> Value {
    let spec = json!({ "template": { "spec": { "strategy": { "type": "Reboot" } } } });
    object(METAL, "Metal3RemediationTemplate", "t", json!({ "spec": spec }))
}

/// An ill Machine for which help was announced in an earlier pass.
fn asked_for(name: &str, ready: &str) -> Value {
    let mark = |kind: &str, reason: &str, message: String| json!({ "type": kind, "status": "False", "reason": reason, "message": message });
    let text = format!("waiting for Metal3Remediation {name} to mend it");
    machine(
        name,
        json!({
            "status": { "conditions": [
                mark(SUCCEEDED, "UnhealthyNode", format!("Node {name}: Ready has been False for more than 300 s")),
                mark(EXTERNALLY_REMEDIATED, "WaitingForRemediation", text),
            ] },
            "node": [{ "type": "Ready", "status": ready, "lastTransitionTime": at(0).to_string() }],
        }),
    )
}

/// The requests as the API server has them: of whom, if there is one.
fn with_requests(mut world: World, requests: &[(&str, Option<&str>)]) -> World {
    for (name, owner_name) in requests {
        let request = |of: &str| {
            object(
                METAL,
                "Metal3Remediation",
                name,
                json!({ "metadata": { "ownerReferences": owner(CORE, "Machine", of) } }),
            )
        };
        let request = owner_name.map(|of| crate::testing::shared(request(of)));
        let key = hangar_api::ObjectKey::new("infrastructure.cluster.x-k8s.io", "Metal3Remediation", "n", name);
        world.facts.requests.0.insert(key, request);
    }
    world
}

/// H4.
#[test]
fn h4_help_is_asked_for_from_the_template_and_no_longer_when_the_machine_is_well() {
    let spec = || external("Metal3RemediationTemplate");
    let announced =
        "mark Machine n/x HealthCheckSucceeded=False NodeDeleted, ExternallyRemediated=False WaitingForRemediation";
    let create = "create Metal3Remediation n/x";
    let none = "blocked RemediationTemplateNotFound: there is no Metal3RemediationTemplate t, from which remediation is asked for";
    let unknown = "blocked InvalidTemplateRef: spec.remediation.templateRef: Machine is not a template of a kind that Hangar serves";
    let foreign =
        "mark Machine n/x HealthCheckSucceeded=False UnhealthyNode, ExternallyRemediated=False WaitingForRemediation";
    for (what, spec, machines, requests, expected) in [
        ("announced first", spec(), vec![broken("x"), template()], vec![], announced.to_owned()),
        ("then asked for", spec(), vec![asked_for("x", "False"), template()], vec![("x", None)], create.to_owned()),
        ("no template", spec(), vec![asked_for("x", "False")], vec![("x", None)], none.to_owned()),
        ("no template of a kind that is known", external("Machine"), vec![broken("x")], vec![], unknown.to_owned()),
        ("asked for", spec(), vec![asked_for("x", "False"), template()], vec![("x", Some("x"))], "done".to_owned()),
        (
            "somebody else's",
            spec(),
            vec![asked_for("x", "False"), template()],
            vec![("x", Some("o"))],
            foreign.to_owned(),
        ),
        (
            "well again",
            spec(),
            vec![asked_for("x", "True"), template()],
            vec![("x", Some("x"))],
            "delete Metal3Remediation n/x".to_owned(),
        ),
        ("well again, and gone", spec(), vec![asked_for("x", "True"), template()], vec![("x", None)], healthy_now()),
        (
            "somebody else's stays",
            spec(),
            vec![asked_for("x", "True"), template()],
            vec![("x", Some("o"))],
            healthy_now(),
        ),
    ] {
        assert_eq!(decided(&with_requests(world(spec, machines), &requests)), expected, "{what}");
    }
    let world = with_requests(world(spec(), vec![asked_for("x", "False"), template()]), &[("x", None)]);
    let steps = plan(&world, at(NOW)).steps;
    let [crate::Step::Create(request)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(request.get("/spec"), &json!({ "strategy": { "type": "Reboot" } }));
    assert_eq!(request.label("cluster.x-k8s.io/cluster-name"), Some("c"));
    assert_eq!(request.annotation("cluster.x-k8s.io/cloned-from-name"), Some("t"));
    assert!(request.is_owned_by("x-uid"), "it goes with the Machine");
}

/// H5.
#[test]
fn h5_one_that_is_asked_for_keeps_nobody_else_waiting() {
    let machines = ["a", "b", "c", "d"].map(|name| asked_for(name, "False")).to_vec();
    let requests = [("a", Some("a")), ("b", Some("other")), ("c", None), ("d", None)];
    let spec = external("Metal3RemediationTemplate");
    let mut world = with_requests(world(spec, [machines, vec![broken("e"), template()]].concat()), &requests);
    let mut fake = Fake { now: NOW, ..Fake::default() };
    fake.converge(&mut world);
    let created: Vec<&String> = fake.done.iter().filter(|step| step.starts_with("create")).collect();
    assert_eq!(created, ["create Metal3Remediation n/c", "create Metal3Remediation n/d"]);
    assert!(fake.done.iter().any(|step| step.starts_with("mark Machine n/e")), "{:?}", fake.done);
}

/// H3.
#[test]
fn h3_nobody_else_is_asked_outside_of_the_limit_and_who_was_asked_may_go_on() {
    let mut spec = external("Metal3RemediationTemplate");
    spec["remediation"]["triggerIf"] = json!({ "unhealthyLessThanOrEqualTo": 1 });
    let machines = vec![asked_for("x", "False"), asked_for("y", "False"), broken("z"), template()];
    let mut world = with_requests(world(spec, machines), &[("x", Some("x")), ("y", None)]);
    let mut fake = Fake { now: NOW, ..Fake::default() };
    let plan = fake.converge(&mut world);
    assert!(said(&plan).starts_with("blocked TooManyUnhealthy"), "{}", said(&plan));
    assert_eq!(fake.done, ["mark Machine n/z HealthCheckSucceeded=False NodeDeleted"]);
}
