use hangar_api::Object;
use hangar_api::kinds::{Cluster, Machine, MachineSet};
use serde_json::{Value, json};

use super::*;
use crate::pass::tests::{Context, Tests, context, key, said, stored};
use crate::pass::{Registration, of};

const CORE: &str = "cluster.x-k8s.io";

static TESTS: Registration<Context> = of::<Tests, Context>();

/// The same kind with other reads.
static LINKED: Registration<Context> = Registration {
    reads: &[
        crate::reads::read(
            &[crate::reads::cluster(), crate::reads::reference("/spec/infrastructureRef")],
            &["/spec/a", "/status/network"],
        ),
        crate::reads::read(&[crate::reads::owner::<MachineSet>()], &["/status/conditions[Ready]"]),
    ],
    ..of::<Tests, Context>()
};

#[test]
fn what_controllers_are_for_or_read_by_name_is_watched_and_always_clusters() {
    for (what, controllers, expected) in [
        ("none", vec![], vec![(CORE, "Cluster")]),
        ("one", vec![&TESTS], vec![("", "ConfigMap"), (CORE, "Cluster"), (CORE, "Machine")]),
        (
            "a reference may lead anywhere",
            vec![&LINKED],
            vec![(CORE, "Cluster"), (CORE, "Machine"), (CORE, "MachineSet")],
        ),
    ] {
        assert_eq!(watched(&controllers).into_iter().collect::<Vec<_>>(), expected, "{what}");
    }
}

#[test]
fn links_come_from_all_reads() {
    assert_eq!(links(&[&TESTS]).len(), 0);
    let [(from, Link::Reference(pointer))] = links(&[&TESTS, &LINKED])[..] else { panic!() };
    assert_eq!((from, pointer), ((CORE, "Cluster"), "/spec/infrastructureRef"));
}

#[test]
fn fields_of_a_status_that_somebody_reads_are_known_by_kind() {
    let provider = Box::leak(Box::new(Registration { group: "infrastructure.test", kind: "TestCluster", ..LINKED }));
    let fields = status_fields(&[&LINKED, provider]);
    // A reference may lead to any kind of a provider that somebody here writes, and to none of the core's.
    assert_eq!(fields[&("infrastructure.test", "TestCluster")].iter().copied().collect::<Vec<_>>(), ["/network"]);
    assert!(!fields.contains_key(&(CORE, "Machine")));
    assert_eq!(fields[&(CORE, "MachineSet")].iter().copied().collect::<Vec<_>>(), ["/conditions[Ready]"]);
    assert!(!fields.contains_key(&(CORE, "Cluster")), "only what stands at the end of the way");
}

fn machine(change: impl FnOnce(&mut Value)) -> Arc<Object> {
    let mut object = Object::named("cluster.x-k8s.io/v1beta2", "Machine", "default", "m");
    object.0["metadata"]["uid"] = "u".into();
    object.0["metadata"]["resourceVersion"] = "1".into();
    object.0["metadata"]["labels"] = json!({ CLUSTER_NAME_LABEL: "c" });
    object.0["spec"] = json!({ "clusterName": "c" });
    object.0["status"] = json!({ "phase": "Pending" });
    change(&mut object.0);
    Arc::new(object)
}

fn change(new: Option<Arc<Object>>) -> Change {
    let old = machine(|_| {});
    Change { key: old.key(), old: Some(old), new }
}

#[test]
fn an_object_is_woken_by_its_own_change_but_not_by_its_own_status() {
    for (what, new, expected) in [
        ("nothing", machine(|_| {}), false),
        ("status", machine(|own| own["status"]["phase"] = "Running".into()), false),
        (
            "server fields",
            machine(|own| {
                own["metadata"]["resourceVersion"] = "2".into();
                own["metadata"]["generation"] = 2.into();
            }),
            false,
        ),
        ("spec", machine(|own| own["spec"]["version"] = "v1".into()), true),
        ("a new field", machine(|own| own["data"] = json!({})), true),
        ("annotation", machine(|own| own["metadata"]["annotations"] = json!({ "a": "b" })), true),
        ("deletion", machine(|own| own["metadata"]["deletionTimestamp"] = "x".into()), true),
        ("another one of the same name", machine(|own| own["metadata"]["uid"] = "v".into()), true),
    ] {
        assert_eq!(concerns_itself(&change(Some(new))), expected, "{what}");
    }
    assert!(concerns_itself(&Change { key: key(), old: None, new: Some(machine(|_| {})) }), "it comes");
}

#[test]
fn a_change_wakes_the_object_itself_those_who_read_it_and_everything_of_a_paused_cluster() {
    let cache = Cache::default();
    cache.put((*machine(|_| {})).clone());
    let of = |paused: bool| {
        let mut of = Object::named("cluster.x-k8s.io/v1beta2", "Cluster", "default", "c");
        of.0["metadata"]["uid"] = "c".into();
        of.0["spec"] = json!({ "paused": paused });
        Arc::new(of)
    };
    let router = Router::new(&[&LINKED], cache);
    let cluster_change = |old: bool, new: bool| Change {
        key: ObjectKey::of::<Cluster>("default", "c"),
        old: Some(of(old)),
        new: Some(of(new)),
    };
    let m = || BTreeSet::from([ObjectKey::of::<Machine>("default", "m")]);
    for (what, change, expected) in [
        ("its spec", change(Some(machine(|own| own["spec"]["version"] = "v1".into()))), m()),
        ("its status", change(Some(machine(|own| own["status"]["phase"] = "Running".into()))), BTreeSet::new()),
        ("it is gone", change(None), BTreeSet::new()),
        ("the Cluster is paused", cluster_change(false, true), m()),
        ("the Cluster stays as it is", cluster_change(false, false), BTreeSet::new()),
    ] {
        assert_eq!(router.concerned(&change), expected, "{what}");
    }
    let named = Router::new(&[&LINKED], Cache::new(links(&[&LINKED])));
    let mut referring = (*of(false)).clone();
    referring.0["spec"]["infrastructureRef"] =
        json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackCluster", "name": "i" });
    let found = named.named(&Change { key: referring.key(), old: None, new: Some(Arc::new(referring)) });
    assert_eq!(
        found,
        [ObjectKey::new("infrastructure.cluster.x-k8s.io", "OpenStackCluster", "default", "i")],
        "kinds that are only referred to are found"
    );
}

#[tokio::test(start_paused = true)]
async fn a_panic_becomes_a_condition_and_the_others_go_on() {
    let (api, context) = context(json!({ "annotations": { "do": "panic" } }), false);
    let dispatch = Dispatch { controllers: vec![&TESTS], context: Arc::new(context) };
    assert_eq!(dispatch.pass(&key()).await.unwrap(), Outcome::Failed);
    let expected = "this is a bug in Hangar, see its log: one and one is three";
    assert_eq!(said(&stored(&api), "Ready"), ("False".into(), "InternalError".into(), expected.into()));
    // Mended, it is ready at the next look.
    api.edit(CORE, "Machine", "default", "m", |own| own["metadata"]["annotations"] = json!({}));
    dispatch.context.passes().management.cache().put(stored(&api));
    assert_eq!(dispatch.pass(&key()).await.unwrap(), Outcome::Settled);
    assert_eq!(said(&stored(&api), "Ready").0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_kind_that_nobody_is_for_is_nothing_to_do() {
    let (_api, context) = context(json!({}), false);
    let dispatch = Dispatch { controllers: vec![&TESTS], context: Arc::new(context) };
    assert_eq!(dispatch.pass(&ObjectKey::of::<Cluster>("default", "c")).await.unwrap(), Outcome::Settled);
}

#[test]
fn the_words_of_a_panic_are_kept_and_causes_are_told_in_one_line() {
    assert_eq!(words(&"a"), "a");
    assert_eq!(words(&"b".to_owned()), "b");
    assert_eq!(words(&5), "panicked without a message");
    let error = PassError::LookAgain("x".into());
    assert_eq!(chain(&error), "another look is needed: x");
}
