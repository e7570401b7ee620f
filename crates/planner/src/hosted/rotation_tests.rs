//! The three steps of a rotation: what each of them waits for, and what is trusted and signs at each moment.

use hangar_api::Object;
use serde_json::{Value, json};

use super::roots::{Provided, Root};
use super::rotation::{self, Stage};
use super::tests::{World, begin_pass, edit, run, world};
use crate::step::Signer;
use crate::testing::{CORE, Fake, at, changed, condition, object, planned, said, shared};

const HOUR: i64 = 3600;
const YEAR: i64 = 366 * 24 * HOUR;

fn root(world: &World, root: Root) -> &Object {
    let name = match root {
        Root::ClusterAuthority => "p-ca",
        Root::FrontProxyAuthority => "p-front-proxy-ca-certificate",
        Root::ServiceAccountKeys => "p-sa-certificate",
        Root::EncryptionKey => "p-encryption",
    };
    world.named("", "Secret", name).unwrap()
}

fn stages(world: &World) -> [Stage; 3] {
    [Root::ClusterAuthority, Root::FrontProxyAuthority, Root::ServiceAccountKeys].map(|it| Stage::of(root(world, it)))
}

/// All pods of all Deployments are of the newest form.
pub(super) fn roll_out(world: &mut World) {
    for name in ["p", "p-controller-manager", "p-scheduler"] {
        let deployment = world.named("apps", "Deployment", name).unwrap();
        let (generation, replicas) = (deployment.generation(), deployment.get("/spec/replicas").clone());
        let status = json!({ "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas, "availableReplicas": replicas, "readyReplicas": replicas });
        edit(world, "apps", "Deployment", name, json!({ "status": status }));
    }
}

/// A running control plane with these annotations.
pub(super) fn running(annotations: &Value) -> (World, Fake) {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    run(&mut world, &mut fake);
    roll_out(&mut world);
    let world = annotate(world, annotations);
    (world, fake)
}

pub(super) fn annotate(world: World, annotations: &Value) -> World {
    changed(world, |own| crate::testing::merge(&mut own["metadata"]["annotations"], annotations))
}

/// A pass at a time, with the nodes given.
pub(super) fn pass(world: &mut World, fake: &mut Fake, now: i64, nodes: Option<&[(&str, i64)]>) -> crate::Plan {
    begin_pass(world);
    world.facts.nodes = nodes.map(|all| all.iter().map(|(name, joined)| ((*name).to_owned(), at(*joined))).collect());
    fake.now = now;
    fake.pass(world)
}

/// Until all pods have what was decided at this time.
pub(super) fn settle(world: &mut World, fake: &mut Fake, now: i64, nodes: Option<&[(&str, i64)]>) -> crate::Plan {
    pass(world, fake, now, nodes);
    roll_out(world);
    pass(world, fake, now, nodes)
}

fn machine(world: &mut World, name: &str, created: i64) {
    let fields = json!({ "metadata": { "creationTimestamp": at(created).to_string() }, "status": { "nodeRef": { "name": name } } });
    world.objects.insert(shared(object(CORE, "Machine", name, fields)));
}

fn text(world: &World, of: Root, file: &str) -> String {
    root(world, of).secret_text(file).unwrap_or_default().replace('\n', "|")
}

#[test]
fn nothing_is_rotated_without_a_reason_and_a_value_is_acted_upon_once() {
    let (mut world, mut fake) = running(&json!({}));
    let plan = settle(&mut world, &mut fake, 0, Some(&[]));
    assert_eq!((said(&plan).as_str(), stages(&world)), ("done", [Stage::Rest; 3]));
    assert_eq!(condition(&plan, "AuthoritiesCurrent").unwrap().1, "RotationScheduled");
    let mut world = annotate(world, &json!({ "hangar.dev/rotate-service-account-keys": "1" }));
    settle(&mut world, &mut fake, 0, Some(&[]));
    assert_eq!(stages(&world), [Stage::Rest, Stage::Rest, Stage::Trust]);
    for hours in [2, 4, 60, 120] {
        settle(&mut world, &mut fake, hours * HOUR, Some(&[]));
    }
    assert_eq!(stages(&world), [Stage::Rest; 3]);
    assert_eq!(text(&world, Root::ServiceAccountKeys, "sa.key"), "next key|");
    let before = fake.done.len();
    settle(&mut world, &mut fake, 200 * HOUR, Some(&[]));
    assert_eq!(fake.done[before..], [] as [String; 0]);
}

#[test]
fn the_value_that_a_control_plane_was_made_with_asks_for_nothing() {
    let (world, mut fake) = (world(json!({})), Fake::default());
    let mut world =
        annotate(world, &json!({ "hangar.dev/rotate-ca": "1", "hangar.dev/rotate-service-account-keys": "1" }));
    run(&mut world, &mut fake);
    roll_out(&mut world);
    settle(&mut world, &mut fake, HOUR, Some(&[]));
    assert_eq!(stages(&world), [Stage::Rest; 3]);
}

#[test]
fn both_are_trusted_from_the_first_step_to_the_last_and_one_signs() {
    let (mut world, mut fake) = running(&json!({ "hangar.dev/rotate-ca": "1" }));
    let (ca, old) = (Root::ClusterAuthority, text(&world, Root::ClusterAuthority, "ca.crt"));
    pass(&mut world, &mut fake, 0, Some(&[]));
    assert_eq!(stages(&world), [Stage::Trust, Stage::Trust, Stage::Rest]);
    assert_eq!(text(&world, ca, "ca.crt"), format!("{old}|next certificate|"));
    assert_eq!(
        (text(&world, ca, "signer.crt"), text(&world, ca, "tls.crt")),
        (old.clone(), text(&world, ca, "ca.crt"))
    );
    assert_eq!(text(&world, ca, "ca.key"), "ca.key of p-ca");
    let published = world.named("", "Secret", "c-ca").unwrap().secret_text("tls.crt").unwrap();
    assert!(published.contains("next certificate") && published.contains("ca.crt of p-ca"), "{published}");
    // Not before all pods have it.
    let plan = pass(&mut world, &mut fake, 10 * HOUR, Some(&[]));
    assert_eq!(stages(&world)[0], Stage::Trust);
    let words = condition(&plan, "AuthoritiesCurrent").unwrap().2;
    assert!(words.contains("waiting for all pods to restart"), "{words}");
    assert_eq!(condition(&plan, "Available").unwrap().0, "True", "the control plane is ready all the way");
    settle(&mut world, &mut fake, 10 * HOUR, Some(&[]));
    let plan = settle(&mut world, &mut fake, 10 * HOUR + 60, Some(&[]));
    assert!(
        condition(&plan, "AuthoritiesCurrent").unwrap().2.contains("the next step follows after 1970-01-01T11:00:00Z")
    );
    assert!(plan.recheck.unwrap().as_secs() <= 3600);
    settle(&mut world, &mut fake, 12 * HOUR, Some(&[]));
    assert_eq!(stages(&world), [Stage::Sign, Stage::Sign, Stage::Rest]);
    assert_eq!(text(&world, ca, "ca.crt"), format!("next certificate|{old}|"));
    assert_eq!(
        (text(&world, ca, "signer.crt"), text(&world, ca, "ca.key")),
        ("next certificate|".into(), "next key|".into())
    );
    assert!(!root(&world, ca).0.to_string().contains("next.key"), "the old key is gone, and there is one key");
    settle(&mut world, &mut fake, 14 * HOUR, Some(&[]));
    settle(&mut world, &mut fake, 16 * HOUR, Some(&[]));
    assert_eq!(stages(&world), [Stage::Rest; 3]);
    assert_eq!(text(&world, ca, "ca.crt"), "next certificate|");
    let files: Vec<&String> = root(&world, ca).get("/data").as_object().unwrap().keys().collect();
    assert_eq!(files, ["ca.crt", "ca.key", "tls.crt", "tls.key"]);
}

#[test]
fn no_node_is_cut_off() {
    let (mut world, mut fake) = running(&json!({ "hangar.dev/rotate-ca": "1" }));
    machine(&mut world, "m-old", -HOUR);
    let by_hand: &[(&str, i64)] = &[("m-old", -HOUR), ("by-hand", -HOUR)];
    settle(&mut world, &mut fake, 0, Some(by_hand));
    let plan = pass(&mut world, &mut fake, 100 * HOUR, Some(by_hand));
    assert_eq!(stages(&world)[..2], [Stage::Trust; 2], "the front proxy's goes along");
    let (status, reason, words) = condition(&plan, "AuthoritiesCurrent").unwrap();
    assert_eq!((&*status, &*reason), ("False", "WaitingForNodes"));
    assert!(words.contains("these trust only the old one: Machine m-old, Node by-hand; replace them"), "{words}");
    // The Machine is replaced; the tenant does not answer: nobody knows whether there are others.
    world.objects = world
        .objects
        .of_kind("", "Secret")
        .chain(world.objects.of_kind("", "Service"))
        .chain(world.objects.of_kind("apps", "Deployment"))
        .chain(world.objects.of_kind("", "ConfigMap"))
        .chain(world.objects.of_kind("cluster.x-k8s.io", "Cluster"))
        .map(|it| shared(it.0.clone()))
        .collect();
    machine(&mut world, "m-new", 50 * HOUR);
    pass(&mut world, &mut fake, 101 * HOUR, None);
    assert_eq!(stages(&world)[0], Stage::Trust);
    settle(&mut world, &mut fake, 102 * HOUR, Some(&[("m-new", 50 * HOUR)]));
    assert_eq!(stages(&world)[..2], [Stage::Sign; 2]);
    // It trusts both, but its own certificate is of the old one, for a year at most.
    let plan = pass(&mut world, &mut fake, 200 * HOUR, Some(&[("m-new", 50 * HOUR)]));
    assert!(
        condition(&plan, "AuthoritiesCurrent")
            .unwrap()
            .2
            .contains("these may have a certificate of the old one: Machine m-new;")
    );
    assert_eq!(stages(&world)[0], Stage::Sign);
    settle(&mut world, &mut fake, 103 * HOUR + YEAR, Some(&[("m-new", 50 * HOUR)]));
    assert_eq!(stages(&world), [Stage::Rest; 3]);
}

#[test]
fn a_person_may_confirm_that_nodes_are_fine_for_one_step() {
    let (mut world, mut fake) =
        running(&json!({ "hangar.dev/rotate-ca": "1", "hangar.dev/rotation-confirmed": "sign" }));
    machine(&mut world, "m", -HOUR);
    settle(&mut world, &mut fake, 0, Some(&[]));
    settle(&mut world, &mut fake, 10 * HOUR, Some(&[]));
    assert_eq!(stages(&world)[0], Stage::Trust, "another step was confirmed");
    let mut world = annotate(world, &json!({ "hangar.dev/rotation-confirmed": "trust" }));
    settle(&mut world, &mut fake, 10 * HOUR, Some(&[]));
    settle(&mut world, &mut fake, 20 * HOUR, Some(&[]));
    assert_eq!(stages(&world)[0], Stage::Sign);
}

#[test]
fn certificates_of_kubelets_that_live_longer_are_not_waited_out() {
    let (world, mut fake) = running(&json!({ "hangar.dev/rotate-ca": "1", "hangar.dev/rotation-confirmed": "trust" }));
    let mut world = changed(world, |own| {
        own["spec"]["controllerManager"] = json!({ "extraArgs": ["--cluster-signing-duration=99999h"] })
    });
    machine(&mut world, "m", -HOUR);
    for hours in [0, 10] {
        settle(&mut world, &mut fake, hours * HOUR, Some(&[]));
    }
    assert_eq!(stages(&world)[0], Stage::Sign);
    settle(&mut world, &mut fake, 5 * YEAR, Some(&[]));
    assert_eq!(stages(&world)[0], Stage::Sign);
}

#[test]
fn authorities_are_rotated_by_the_clock_when_a_third_of_their_life_is_left_and_keys_are_not() {
    let day = 24 * HOUR;
    for (days, expected) in [(2432, Stage::Rest), (2433, Stage::Trust)] {
        let (mut world, mut fake) = running(&json!({}));
        pass(&mut world, &mut fake, days * day, Some(&[]));
        assert_eq!(stages(&world), [expected, expected, Stage::Rest], "{days}");
    }
}

#[test]
fn what_a_user_provides_is_theirs_to_rotate() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    let content = Ok(Signer { certificate_pem: "mine".into(), key_pem: "key".into(), trust_pem: None });
    world.facts.provided.insert(Root::ClusterAuthority, Provided { secret: "c-ca".into(), content });
    let provided = world.facts.provided.clone();
    fake.pass(&mut world);
    super::tests::with_address(&mut world, "1.2.3.4");
    begin_pass(&mut world);
    world.facts.provided = provided;
    fake.pass(&mut world);
    let world = annotate(world, &json!({ "hangar.dev/rotate-ca": "1" }));
    let (_, reason, words) = condition(&planned(&world), "AuthoritiesCurrent").unwrap();
    assert_eq!(reason, "ProvidedByUser");
    assert!(words.ends_with("replace the content of Secret c-ca"), "{words}");
}

/// What was applied by somebody else stays when we no longer apply it.
#[test]
fn what_somebody_left_on_the_secret_ends_no_step_early() {
    let (mut world, mut fake) = running(&json!({ "hangar.dev/rotate-ca": "1" }));
    settle(&mut world, &mut fake, 0, Some(&[]));
    settle(&mut world, &mut fake, 2 * HOUR, Some(&[]));
    assert_eq!(stages(&world)[0], Stage::Sign);
    for left in ["trust 1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"] {
        edit(
            &mut world,
            "",
            "Secret",
            "p-ca",
            json!({ "metadata": { "annotations": { "hangar.dev/rotation-settled": left } } }),
        );
        settle(&mut world, &mut fake, 2 * HOUR, Some(&[]));
        assert_eq!(stages(&world)[0], Stage::Sign, "{left}");
    }
}

#[test]
fn without_pods_nothing_moves() {
    let (mut world, mut fake) = running(&json!({}));
    world = annotate(world, &json!({ "hangar.dev/rotate-ca": "1" }));
    world = changed(world, |own| own["spec"]["replicas"] = 0.into());
    settle(&mut world, &mut fake, 0, Some(&[]));
    assert_eq!(stages(&world), [Stage::Rest; 3]);
}

#[test]
fn the_state_is_in_the_data_alone() {
    let secret = |files: &[&str]| {
        let mut secret = Object::named("v1", "Secret", "n", "s");
        files.iter().for_each(|file| secret.0["data"][*file] = "eA==".into());
        secret
    };
    for (files, stage) in [
        (&["ca.crt", "ca.key"][..], Stage::Rest),
        (&["ca.crt", "signer.crt", "next.crt", "next.key"], Stage::Trust),
        (&["ca.crt", "signer.crt", "old.crt"], Stage::Sign),
    ] {
        assert_eq!(Stage::of(&secret(files)), stage);
    }
    assert_eq!(rotation::rotate_after(Root::ServiceAccountKeys, &secret(&["sa.key"])), None);
}
