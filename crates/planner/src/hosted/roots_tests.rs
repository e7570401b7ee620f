//! Authorities and keys that users bring along.

use serde_json::{Value, json};

use super::roots::{PROVIDED_BY_ANNOTATION, Provided, Root};
use super::tests::{World, begin_pass, plane, run, with_address, world};
use crate::step::Signer;
use crate::testing::{Fake, cluster, condition, object, planned, said, shared};

fn signer(name: &str) -> Signer {
    Signer { certificate_pem: format!("{name} certificate"), key_pem: format!("{name} key"), trust_pem: None }
}

/// A user's Secret, and what the controller reads of it.
fn provide(world: &mut World, root: Root, content: Result<Signer, String>) {
    let secret = format!("{}{}", world.cluster().unwrap().name(), root.provided_suffix().unwrap());
    world.objects.insert(shared(object("v1", "Secret", &secret, json!({ "type": "cluster.x-k8s.io/secret" }))));
    world.facts.provided.insert(root, Provided { secret, content });
}

fn secret(world: &World, name: &str, key: &str) -> Option<String> {
    world.named("", "Secret", name)?.secret_text(key)
}

/// Several passes, in each of which the controller reads the same Secrets.
fn run_with(world: &mut World, fake: &mut Fake) {
    let provided = world.facts.provided.clone();
    fake.pass(world);
    with_address(world, "203.0.113.5");
    begin_pass(world);
    world.facts.provided = provided;
    fake.pass(world);
}

#[test]
fn what_a_user_provides_is_used_and_neither_overwritten_nor_adopted() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    let both = Signer { trust_pem: Some("ca certificate, other certificate".into()), ..signer("ca") };
    provide(&mut world, Root::ClusterAuthority, Ok(both));
    provide(&mut world, Root::FrontProxyAuthority, Ok(signer("proxy")));
    provide(&mut world, Root::ServiceAccountKeys, Ok(signer("sa")));
    let before: Vec<Value> =
        ["c-ca", "c-proxy", "c-sa"].map(|name| world.named("", "Secret", name).unwrap().0.clone()).into();
    run_with(&mut world, &mut fake);
    let after: Vec<Value> =
        ["c-ca", "c-proxy", "c-sa"].map(|name| world.named("", "Secret", name).unwrap().0.clone()).into();
    assert_eq!(before, after);
    for (name, key, expected) in [
        ("p-ca", "ca.crt", "ca certificate, other certificate"),
        ("p-ca", "tls.crt", "ca certificate, other certificate"),
        ("p-ca", "signer.crt", "ca certificate"),
        ("p-ca", "ca.key", "ca key"),
        ("p-front-proxy-ca-certificate", "front-proxy-ca.crt", "proxy certificate"),
        ("p-front-proxy-ca-certificate", "front-proxy-ca.key", "proxy key"),
        ("p-sa-certificate", "sa.pub", "sa certificate"),
        ("p-sa-certificate", "sa.key", "sa key"),
    ] {
        assert_eq!(secret(&world, name, key).as_deref(), Some(expected), "{name} {key}");
    }
    assert!(!fake.done.iter().any(|step| step.ends_with("Secret n/c-ca") || step.starts_with("issue Secret n/p-ca")));
    let (status, reason, message) = condition(&planned(&world), "ProvidedCertificatesUsed").unwrap();
    assert_eq!((&*status, &*reason, &*message), ("True", "Used", "used from Secrets c-ca, c-proxy, c-sa"));
}

#[test]
fn the_controller_manager_signs_with_one_certificate_and_trusts_all() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    provide(&mut world, Root::ClusterAuthority, Ok(Signer { trust_pem: Some("both".into()), ..signer("ca") }));
    let provided = world.facts.provided.clone();
    run_with(&mut world, &mut fake);
    super::tests::with_pods(&mut world);
    begin_pass(&mut world);
    world.facts.provided = provided;
    fake.pass(&mut world);
    let spec =
        world.named("apps", "Deployment", "p-controller-manager").unwrap().get("/spec/template/spec").to_string();
    for expected in
        ["--cluster-signing-cert-file=/etc/kubernetes/pki/signer.crt", "--root-ca-file=/etc/kubernetes/pki/ca.crt"]
    {
        assert!(spec.contains(expected), "{spec}");
    }
    assert!(spec.contains(r#"{"key":"signer.crt","path":"signer.crt"}"#), "{spec}");
}

#[test]
fn an_invalid_one_is_refused_with_its_name_and_later_does_no_harm() {
    let problem = "Secret c-proxy: tls.key is missing or empty".to_owned();
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    provide(&mut world, Root::FrontProxyAuthority, Err(problem.clone()));
    run_with(&mut world, &mut fake);
    assert_eq!(said(&planned(&world)), format!("blocked ProvidedCertificateInvalid: {problem}"));
    // Mended, and broken again when everything runs.
    provide(&mut world, Root::FrontProxyAuthority, Ok(signer("proxy")));
    fake.pass(&mut world);
    provide(&mut world, Root::FrontProxyAuthority, Err(problem.clone()));
    let plan = fake.pass(&mut world);
    assert_eq!(said(&plan), "wait WaitingForAPIServer: the API server is starting");
    assert_eq!(secret(&world, "p-front-proxy-ca-certificate", "front-proxy-ca.key").as_deref(), Some("proxy key"));
    let (status, reason, message) = condition(&plan, "ProvidedCertificatesUsed").unwrap();
    assert_eq!((&*status, &*reason, message), ("False", "ProvidedCertificateInvalid", problem));
}

#[test]
fn one_that_comes_too_late_is_not_used_and_one_that_went_is_still_in_use() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    run(&mut world, &mut fake);
    let before = secret(&world, "p-sa-certificate", "sa.key");
    provide(&mut world, Root::ServiceAccountKeys, Ok(signer("sa")));
    let plan = fake.pass(&mut world);
    assert_eq!((said(&plan).as_str(), secret(&world, "p-sa-certificate", "sa.key")), ("done", before));
    assert_eq!(condition(&plan, "ProvidedCertificatesUsed").unwrap().1, "ProvidedTooLate");

    let (mut world, mut fake) = (self::world(json!({})), Fake::default());
    provide(&mut world, Root::ServiceAccountKeys, Ok(signer("sa")));
    run_with(&mut world, &mut fake);
    world.facts.provided.clear();
    let plan = fake.pass(&mut world);
    assert_eq!(secret(&world, "p-sa-certificate", "sa.key").as_deref(), Some("sa key"));
    let (_, reason, message) = condition(&plan, "ProvidedCertificatesUsed").unwrap();
    assert_eq!(
        (&*reason, &*message),
        (
            "ProvidedCertificateMissing",
            "Secret c-sa is missing: its last content is used; create it again to change it"
        )
    );
}

#[test]
fn another_certificate_of_the_user_rolls_the_pods() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    provide(&mut world, Root::ClusterAuthority, Ok(signer("ca")));
    run_with(&mut world, &mut fake);
    let checksum =
        |world: &World| world.named("apps", "Deployment", "p").unwrap().get("/spec/template/metadata").clone();
    let before = checksum(&world);
    provide(&mut world, Root::ClusterAuthority, Ok(signer("next")));
    fake.pass(&mut world);
    assert_eq!(secret(&world, "p-ca", "ca.key").as_deref(), Some("next key"));
    assert_ne!(checksum(&world), before);
}

/// The name of the user's Secret is that of our own then.
#[test]
fn a_control_plane_called_like_its_cluster_copies_the_users_authority_under_another_name() {
    let own = || {
        let mut own = plane(json!({}));
        own["metadata"]["name"] = "c".into();
        let mut world: World = crate::testing::world(own, vec![cluster(json!({}))]);
        begin_pass(&mut world);
        world
    };
    let with_address = |world: &mut World, fake: &mut Fake| {
        fake.pass(world);
        let service = json!({ "spec": { "clusterIP": "10.0.0.7" }, "status": { "loadBalancer": { "ingress": [{ "ip": "1.2.3.4" }] } } });
        super::tests::edit(world, "", "Service", "c", service);
        let provided = world.facts.provided.clone();
        begin_pass(world);
        world.facts.provided = provided;
        fake.pass(world);
    };
    let (mut world, mut fake) = (own(), Fake::default());
    provide(&mut world, Root::ClusterAuthority, Ok(signer("ca")));
    with_address(&mut world, &mut fake);
    assert_eq!(secret(&world, "c-ca-copy", "ca.key").as_deref(), Some("ca key"));
    assert!(world.named("", "Secret", "c-ca").unwrap().controller().is_none(), "the user's stays the user's");
    let pods = world.named("apps", "Deployment", "c").unwrap().get("/spec/template/spec/volumes").to_string();
    assert!(pods.contains(r#""name":"c-ca-copy""#), "{pods}");

    let (mut world, mut fake) = (own(), Fake::default());
    with_address(&mut world, &mut fake);
    assert!(secret(&world, "c-ca", "ca.crt").is_some(), "ours, where nobody provides one");
    assert!(world.named("", "Secret", "c-ca").unwrap().annotation(PROVIDED_BY_ANNOTATION).is_none());
}
