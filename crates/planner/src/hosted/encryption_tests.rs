//! What API servers write and read at each moment, for new control planes and for those from before.

use hangar_api::Object;
use serde_json::{Value, json};

use super::encryption::Rewriting;
use super::rotation::Stage;
use super::rotation_tests::{annotate, pass, roll_out, running, settle};
use super::tests::{World, begin_pass, run, world};
use crate::testing::{Fake, condition, planned, said};

const HOUR: i64 = 3600;
const FIRST: &str = "first";
const NEXT: &str = "next";
const PLAIN: &str = "identity";

fn secret(world: &World) -> &Object {
    world.named("", "Secret", "p-encryption").unwrap()
}

/// The names of the keys in the order of the configuration.
fn keys(world: &World) -> Vec<String> {
    let configuration: Value = serde_json::from_str(&secret(world).secret_text("encryption.json").unwrap()).unwrap();
    let resources = configuration["resources"].as_array().unwrap();
    assert_eq!((resources.len(), &resources[0]["resources"]), (1, &json!(["secrets"])));
    let providers = resources[0]["providers"].as_array().unwrap();
    let name = |provider: &Value| provider["secretbox"]["keys"][0]["name"].as_str().unwrap_or(PLAIN).to_owned();
    providers.iter().map(name).collect()
}

fn files(world: &World) -> Vec<&str> {
    secret(world).get("/data").as_object().unwrap().keys().map(String::as_str).collect()
}

/// As a release without encryption left it.
fn from_before() -> (World, Fake) {
    let (mut world, mut fake) = running(&json!({}));
    forget(&mut world, "p-encryption");
    let mut server = world.named("apps", "Deployment", "p").unwrap().clone();
    let args = server.0["spec"]["template"]["spec"]["containers"][0]["args"].as_array_mut().unwrap();
    args.retain(|argument| !argument.as_str().unwrap().contains("encryption"));
    world.objects.insert(crate::testing::shared(server.0));
    fake.done.clear();
    (world, fake)
}

fn forget(world: &mut World, name: &str) {
    let key = hangar_api::ObjectKey::new("", "Secret", "n", name);
    world.absorb(&crate::Effect::Deleted { key, left: None });
}

fn template(world: &World, deployment: &str) -> Value {
    world.named("apps", "Deployment", deployment).unwrap().get("/spec/template").clone()
}

#[test]
fn a_new_control_plane_has_a_key_from_the_start_and_only_its_api_server_has_it() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    let plan = run(&mut world, &mut fake);
    assert_eq!((keys(&world), Stage::of(secret(&world))), (vec![FIRST.to_owned()], Stage::Rest));
    assert!(secret(&world).is_owned_by(world.object().uid()));
    let argument = "--encryption-provider-config=/etc/kubernetes/pki/encryption.json";
    assert!(template(&world, "p").to_string().contains(argument));
    for deployment in ["p-controller-manager", "p-scheduler"] {
        assert!(!template(&world, deployment).to_string().contains("encryption"), "{deployment}");
    }
    assert_eq!(condition(&plan, "AuthoritiesCurrent").unwrap().1, "RotationScheduled");
    let made = fake.done.iter().position(|step| step == "issue Secret n/p-encryption").unwrap();
    let written = fake.done.iter().position(|step| step == "create Deployment n/p").unwrap();
    assert!(made < written, "{:#?}", fake.done);
}

#[test]
fn a_control_plane_from_before_moves_over_and_every_api_server_reads_what_the_others_write() {
    let (mut world, mut fake) = from_before();
    let others = ["p-controller-manager", "p-scheduler"].map(|name| template(&world, name));
    pass(&mut world, &mut fake, 0, Some(&[]));
    // All pods write plain text, and those of the new form know the key.
    assert_eq!((keys(&world), Stage::of(secret(&world))), (vec![PLAIN.into(), NEXT.into()], Stage::Trust));
    let plan = pass(&mut world, &mut fake, 10 * HOUR, Some(&[]));
    assert_eq!(keys(&world), [PLAIN, NEXT], "not before all pods know it");
    let (status, reason, words) = condition(&plan, "AuthoritiesCurrent").unwrap();
    assert_eq!((&*status, &*reason), ("False", "RotationInProgress"));
    assert!(
        words.starts_with("rotation of the key that encrypts Secrets (step 1 of 3, all API servers learn"),
        "{words}"
    );
    assert_eq!(condition(&plan, "Available").unwrap().0, "True");
    settle(&mut world, &mut fake, 10 * HOUR, Some(&[]));
    pass(&mut world, &mut fake, 12 * HOUR, Some(&[]));
    assert_eq!((keys(&world), Stage::of(secret(&world))), (vec![NEXT.into(), PLAIN.into()], Stage::Sign));
    pass(&mut world, &mut fake, 100 * HOUR, Some(&[]));
    assert!(!fake.done.iter().any(|step| step.contains("RewriteSecrets")), "some pods may still write plain text");
    roll_out(&mut world);
    pass(&mut world, &mut fake, 100 * HOUR, Some(&[]));
    assert_eq!(keys(&world), [NEXT, PLAIN], "one that was replaced just now may still write plain text");
    settle(&mut world, &mut fake, 102 * HOUR, Some(&[]));
    assert_eq!((keys(&world), files(&world)), (vec![NEXT.to_owned()], vec![super::encryption::FILE]));
    let written = fake.done.iter().filter(|step| *step == "c: RewriteSecrets { from: None }").count();
    assert_eq!(written, 1, "{:#?}", fake.done);
    assert_eq!(
        ["p-controller-manager", "p-scheduler"].map(|name| template(&world, name)),
        others,
        "they need not roll"
    );
    let before = fake.done.len();
    settle(&mut world, &mut fake, 200 * HOUR, Some(&[]));
    assert_eq!(fake.done[before..], [] as [String; 0]);
}

#[test]
fn a_key_is_rotated_in_the_three_steps_of_everything_else() {
    let (world, mut fake) = running(&json!({}));
    let mut world = annotate(world, &json!({ "hangar.dev/rotate-encryption-key": "1" }));
    let mut seen = vec![keys(&world)];
    for hour in [0, 2, 4, 6, 8] {
        settle(&mut world, &mut fake, hour * HOUR, Some(&[]));
        if seen.last() != Some(&keys(&world)) {
            seen.push(keys(&world));
        }
    }
    assert_eq!(seen, [vec![FIRST], vec![FIRST, NEXT], vec![NEXT, FIRST], vec![NEXT]]);
    assert_eq!(files(&world), ["encryption.json"], "nothing is left of the old one");
}

#[test]
fn the_old_key_stays_until_the_last_secret_is_written() {
    let (world, mut fake) = running(&json!({}));
    let mut world = annotate(world, &json!({ "hangar.dev/rotate-encryption-key": "1" }));
    for hour in [0, 2] {
        settle(&mut world, &mut fake, hour * HOUR, Some(&[]));
    }
    let call = |rewriting: Rewriting, world: &mut World| {
        begin_pass(world);
        world.facts.rewriting = rewriting;
        said(&crate::plan(world, crate::testing::at(9 * HOUR)))
    };
    for (rewriting, expected) in [
        (Rewriting::NotTried, "c: RewriteSecrets { from: None }"),
        (Rewriting::Until("page".into()), r#"c: RewriteSecrets { from: Some("page") }"#),
        (Rewriting::Left("a webhook refused it".into()), "done"),
        (Rewriting::Done, "apply Secret n/p-encryption"),
    ] {
        assert_eq!(call(rewriting.clone(), &mut world), expected, "{rewriting:?}");
    }
    world.facts.rewriting = Rewriting::Left("Secret n/s: a webhook refused it".into());
    let plan = crate::plan(&world, crate::testing::at(9 * HOUR));
    let (_, reason, words) = condition(&plan, "AuthoritiesCurrent").unwrap();
    assert_eq!(reason, "WaitingForSecrets");
    assert!(words.ends_with("not all Secrets could be written again: Secret n/s: a webhook refused it"), "{words}");
    assert_eq!(condition(&plan, "Available").unwrap().0, "True");
    assert_eq!(plan.recheck.unwrap().as_secs(), 600);
}

#[test]
fn a_key_that_is_lost_is_not_replaced() {
    let (mut world, _) = running(&json!({}));
    forget(&mut world, "p-encryption");
    let said = said(&planned(&world));
    assert!(said.starts_with("blocked EncryptionKeyMissing: Secret p-encryption is missing"), "{said}");
}
