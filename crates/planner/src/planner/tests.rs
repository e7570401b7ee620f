//! What all kinds share, with the smallest of planners.

use hangar_api::kinds::Machine;
use serde_json::{Value, json};

use super::*;
use crate::testing::{CORE, at, changed, condition, deleting, object, said};

const FINALIZER: &str = "test";

/// Its annotation `do` says what its phases answer.
struct Tests;

impl Planner for Tests {
    type Kind = Machine;
    type Facts = ();
    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(decided).facts().then(last)
    }

    fn delete(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(decided)
    }

    fn status(_: &World<Self>, _: &Progress, _: &mut Report<Machine>) {}

    fn recheck(_: &World<Self>, _: jiff::Timestamp) -> Option<Duration> {
        Some(Duration::from_secs(7))
    }
}

fn decided(world: &World<Tests>) -> Phase {
    let object = world.object();
    match object.annotation("do").unwrap_or_default() {
        "own" => Phase::steps(intent::touch(object, json!({ "spec": { "providerID": "x" } }))),
        "create" => Phase::Steps(vec![Step::Create(hangar_api::Object::named("v1", "ConfigMap", "n", "x"))]),
        "wait" => Phase::wait("Waits", "for something"),
        "blocked" => Phase::blocked("Broken", "by somebody"),
        _ => Phase::Done,
    }
}

fn last(_: &World<Tests>) -> Phase {
    Phase::Done
}

fn world(what: &str, finalizers: Value) -> World<Tests> {
    let metadata = json!({ "metadata": { "annotations": { "do": what }, "finalizers": finalizers }, "spec": { "clusterName": "c", "bootstrap": {} } });
    crate::testing::world(object(CORE, "Machine", "m", metadata), vec![])
}

#[test]
fn the_finalizer_goes_on_with_the_first_step_and_no_earlier() {
    for (what, finalizers, expected) in [
        ("done", json!([]), "done"),
        ("wait", json!([]), "wait Waits: for something"),
        ("blocked", json!([]), "blocked Broken: by somebody"),
        (
            "own",
            json!(["theirs"]),
            r#"patch Machine n/m {"metadata":{"finalizers":["theirs","test"]},"spec":{"providerID":"x"}}"#,
        ),
        ("create", json!(["theirs"]), r#"patch Machine n/m {"metadata":{"finalizers":["theirs","test"]}}"#),
        ("create", json!([FINALIZER]), "create ConfigMap n/x"),
        ("own", json!([FINALIZER]), r#"patch Machine n/m {"spec":{"providerID":"x"}}"#),
    ] {
        let plan = plan(&world(what, finalizers.clone()), at(0));
        assert_eq!(said(&plan), expected, "{what} {finalizers}");
        if let [Step::Patch { fields, resource_version, .. }] = &plan.steps[..] {
            assert_eq!(
                resource_version.is_some(),
                fields["metadata"]["finalizers"].is_array(),
                "{what}: lists are whole"
            );
        }
        assert_eq!(plan.status.is_some(), plan.steps.is_empty(), "{what}: between steps nobody reports");
        assert_eq!(plan.recheck.is_some(), plan.progress.is_done(), "{what}");
    }
}

#[test]
fn what_never_did_anything_goes_without_our_help() {
    for (what, finalizer, expected) in [
        ("create", None, "done"),
        ("done", Some(FINALIZER), r#"patch Machine n/m {"metadata":{"finalizers":[]}}"#),
        ("wait", Some(FINALIZER), "wait Waits: for something"),
        ("blocked", Some(FINALIZER), "blocked Broken: by somebody"),
        ("create", Some(FINALIZER), "create ConfigMap n/x"),
    ] {
        let plan = plan(&deleting(world(what, json!([])), finalizer), at(0));
        assert_eq!(said(&plan), expected, "{what} {finalizer:?}");
        assert_eq!(plan.recheck, None);
        if finalizer.is_none() {
            assert_eq!(plan.status, None, "there is nobody left to report on");
        }
    }
}

#[test]
fn finalizers_of_others_stay_when_ours_goes() {
    let world = changed(deleting(world("done", json!([])), Some(FINALIZER)), |own| {
        own["metadata"]["finalizers"] = json!(["theirs", FINALIZER])
    });
    assert_eq!(said(&plan(&world, at(0))), r#"patch Machine n/m {"metadata":{"finalizers":["theirs"]}}"#);
}

#[test]
fn a_refusal_ends_the_steps_and_is_in_the_status() {
    let plan = refused(&world("create", json!([])), Reason::retry("Quota", "Quota exceeded"), at(0));
    assert_eq!((plan.steps.len(), said(&plan).as_str(), plan.recheck), (0, "blocked Quota: Quota exceeded", None));
    assert_eq!(condition(&plan, "Ready").unwrap(), ("False".into(), "Quota".into(), "Quota exceeded".into()));
}

#[test]
fn facts_that_could_not_be_had_block_only_from_where_they_are_needed() {
    for (what, expected) in [("wait", "wait Waits: for something"), ("done", "blocked Away: the cloud is away")] {
        let mut world = world(what, json!([]));
        world.facts_error = Some(Reason::retry("Away", "the cloud is away"));
        assert_eq!(said(&plan(&world, at(0))), expected, "{what}");
    }
}

#[test]
fn the_same_world_gives_the_same_plan() {
    let world = world("own", json!([]));
    assert_eq!(plan(&world, at(5)), plan(&world, at(5)));
}

#[test]
fn an_object_that_does_not_fit_its_kind_is_unreadable() {
    let broken = object(CORE, "Machine", "m", json!({ "spec": { "clusterName": 5 } }));
    let error = World::<Tests>::new(crate::testing::shared(broken), crate::Objects::default()).err().unwrap();
    assert!(error.0.contains("invalid type"), "{error:?}");
}
