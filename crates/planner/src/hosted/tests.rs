//! The phases of hosted control planes, through the front end of Kamaji.

use serde_json::{Value, json};

use super::*;
use crate::kamaji_control_plane::KamajiControlPlanes;
use crate::step::{DataStoreCall, Signer, TenantCall};
use crate::testing::{Fake, at, changed, cluster, deleting, merge, object, planned, said, shared};
use crate::{Plan, Step};
use hangar_api::Object;
use hangar_api::names::KAMAJI_FINALIZER;

pub(crate) type World = crate::World<KamajiControlPlanes>;

const PLANE: &str = "controlplane.cluster.x-k8s.io/v1alpha2";

pub(crate) fn plane(spec: Value) -> Value {
    let mut plane = object(
        PLANE,
        "KamajiControlPlane",
        "p",
        json!({
            "metadata": { "finalizers": [KAMAJI_FINALIZER], "labels": { "cluster.x-k8s.io/cluster-name": "c" } },
            "spec": { "version": "v1.34.4", "replicas": 2, "dataStoreName": "store", "addons": { "coreDNS": {}, "kubeProxy": {} },
                "network": { "serviceType": "LoadBalancer" }, "kubelet": {} },
        }),
    );
    merge(&mut plane["spec"], &spec);
    plane
}

pub(crate) fn ready_store() -> DataStoreView {
    let authority = Signer { certificate_pem: "etcd ca".into(), key_pem: "etcd key".into(), trust_pem: None };
    DataStoreView::Ready { endpoints: vec!["10.9.0.1:2379".into(), "10.9.0.2:2379".into()], authority }
}

pub(crate) fn world(spec: Value) -> World {
    let infra = object("infrastructure.cluster.x-k8s.io/v1beta1", "OpenStackCluster", "i", json!({ "spec": {} }));
    let of = cluster(json!({ "spec": {
        "clusterNetwork": { "services": { "cidrBlocks": ["10.96.0.0/16"] }, "pods": { "cidrBlocks": ["192.168.0.0/16"] }, "serviceDomain": "cluster.local" },
        "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackCluster", "name": "i" } } }));
    let mut world: World = crate::testing::world(plane(spec), vec![of, infra]);
    begin_pass(&mut world);
    world
}

/// Facts are made anew for each pass.
pub(crate) fn begin_pass(world: &mut World) {
    world.facts = Facts {
        data_store: ready_store(),
        tenant_version: world.facts.tenant_version.clone(),
        konnectivity: world.facts.konnectivity.clone(),
        ..Facts::default()
    };
}

/// What the rest of Kubernetes does to an object.
pub(crate) fn edit(world: &mut World, group: &str, kind: &str, name: &str, fields: Value) {
    let mut object = world.named(group, kind, name).unwrap().clone();
    merge(&mut object.0, &fields);
    world.objects.insert(shared(object.0));
}

pub(crate) fn with_address(world: &mut World, address: &str) {
    edit(
        world,
        "",
        "Service",
        "p",
        json!({ "spec": { "clusterIP": "10.0.0.7" }, "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } }),
    );
}

pub(crate) fn with_pods(world: &mut World) {
    edit(
        world,
        "apps",
        "Deployment",
        "p",
        json!({ "status": { "replicas": 2, "availableReplicas": 2, "readyReplicas": 2, "updatedReplicas": 2 } }),
    );
}

/// From nothing to a control plane that runs.
pub(crate) fn run(world: &mut World, fake: &mut Fake) -> Plan {
    fake.pass(world);
    with_address(world, "203.0.113.5");
    begin_pass(world);
    fake.pass(world);
    with_pods(world);
    begin_pass(world);
    fake.pass(world);
    begin_pass(world);
    let before = fake.done.len();
    let plan = fake.pass(world);
    assert_eq!(fake.done[before..], [] as [String; 0], "a converged World gives no step");
    plan
}

#[test]
fn it_is_built_in_order_and_waits_where_others_have_to_act() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    assert_eq!(said(&fake.pass(&mut world)), "wait WaitingForAddress: Service p has no address yet");
    assert_eq!(fake.done, ["create Service n/p"]);
    with_address(&mut world, "203.0.113.5");
    begin_pass(&mut world);
    let plan = fake.pass(&mut world);
    assert_eq!(said(&plan), "wait WaitingForAPIServer: the API server is starting");
    let order = [
        "patch KamajiControlPlane n/p",
        "patch OpenStackCluster n/i",
        "issue Secret n/p-ca",
        "store: CreateTenant",
        "create Secret n/p-datastore-config",
        "issue Secret n/p-api-server-certificate",
        "issue Secret n/p-datastore-certificate",
        "create Secret n/c-kubeconfig",
        "create Deployment n/p",
    ];
    let position = |wanted: &str| {
        fake.done
            .iter()
            .position(|step| step.starts_with(wanted))
            .unwrap_or_else(|| panic!("{wanted}: {:#?}", fake.done))
    };
    let places: Vec<usize> = order.iter().map(|wanted| position(wanted)).collect();
    assert!(places.is_sorted(), "{places:?} {:#?}", fake.done);
    assert!(
        !fake
            .done
            .iter()
            .any(|step| step.contains("controller-manager\"") || step == "create Deployment n/p-controller-manager"),
        "the API server comes first and alone"
    );
    world.facts.pods_wait_for = Some("fetching kube-apiserver".into());
    assert_eq!(said(&planned(&world)), "wait WaitingForAPIServer: the API server is starting: fetching kube-apiserver");
    with_pods(&mut world);
    begin_pass(&mut world);
    let before = fake.done.len();
    assert_eq!(said(&fake.pass(&mut world)), "done");
    let after: Vec<&str> = fake.done[before..].iter().map(|step| step.split(", ").next().unwrap()).collect();
    assert_eq!(
        (after[0], after[1], after.last().copied()),
        (
            "create Deployment n/p-controller-manager",
            "create Deployment n/p-scheduler",
            Some("create ConfigMap n/p-kubeadmconfig")
        )
    );
    assert!(after[2].starts_with("c: apply"), "{after:?}");
}

#[test]
fn what_cannot_be_built_says_so() {
    let view = |view: DataStoreView| {
        let mut world = world(json!({}));
        world.facts.data_store = view;
        world
    };
    let ours = |kind: &str, name: &str| {
        let mut world = world(json!({}));
        world.objects.insert(shared(object("v1", kind, name, json!({}))));
        world
    };
    for (what, world, expected) in [
        (
            "no Cluster",
            crate::testing::world(plane(json!({})), vec![]),
            "wait WaitingForCluster: no Cluster refers to it yet",
        ),
        (
            "version",
            world(json!({ "version": "latest" })),
            r#"blocked InvalidControlPlane: spec.version "latest" is not a Kubernetes version such as v1.34.4"#,
        ),
        (
            "store not read",
            view(DataStoreView::Unknown),
            "wait WaitingForDataStore: its DataStore has not been read yet",
        ),
        (
            "no store",
            view(DataStoreView::Missing("store".into())),
            "wait WaitingForDataStore: there is no DataStore store yet",
        ),
        ("store unusable", view(DataStoreView::Unusable("no key".into())), "blocked DataStoreUnusable: no key"),
        (
            "somebody else's Service",
            ours("Service", "p"),
            "blocked NotOurs: Service n/p exists and was not made by Hangar: rename or delete it",
        ),
    ] {
        assert_eq!(said(&planned(&world)), expected, "{what}");
    }
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    fake.pass(&mut world);
    with_address(&mut world, "1.2.3.4");
    world.objects.insert(shared(object("v1", "Secret", "p-ca", json!({}))));
    assert_eq!(
        said(&fake.pass(&mut world)),
        "blocked NotOurs: Secret n/p-ca exists and was not made by Hangar: rename or delete it"
    );
}

#[test]
fn runtimes_and_storages_that_are_not_built_yet_say_so() {
    let world = world(json!({}));
    let model = || crate::kamaji_control_plane::tests::model(&world);
    for (what, plane, expected) in [
        ("k0s", ControlPlane { runtime: Runtime::K0s, ..model() }, "control planes that run k0s are not built yet"),
        (
            "own etcd",
            ControlPlane { storage: Storage::OwnEtcd { members: 3 }, ..model() },
            "control planes with an etcd of their own are not built yet",
        ),
        ("kine", ControlPlane { storage: Storage::Kine, ..model() }, "control planes on kine are not built yet"),
    ] {
        let hosting = Hosting {
            owner: world.object(),
            model: Ok(plane),
            objects: &world.objects,
            facts: &world.facts,
            infrastructure: None,
        };
        assert_eq!(crate::Part::build(&hosting, at(0)), crate::Phase::blocked("NotBuiltYet", expected), "{what}");
    }
}

#[test]
fn deletion_of_a_control_plane_whose_data_store_cannot_be_read_is_blocked_and_says_why_and_the_annotation_skips_it() {
    let built = || {
        let (mut world, mut fake) = (world(json!({})), Fake::default());
        run(&mut world, &mut fake);
        // The pods are gone already.
        for name in ["p", "p-controller-manager", "p-scheduler"] {
            world.absorb(&crate::Effect::Deleted {
                key: hangar_api::ObjectKey::new("apps", "Deployment", "n", name),
                left: None,
            });
        }
        changed(world, |own| own["metadata"]["deletionTimestamp"] = at(0).to_string().into())
    };
    let problem = |why: &str| {
        format!(
            "blocked DataStoreCleanupBlocked: user p-uid and the keys below /p-uid/ cannot be removed: {why}; restore it, or give them up with the annotation hangar.dev/skip-data-store-cleanup=true"
        )
    };
    let released = r#"patch KamajiControlPlane n/p {"metadata":{"finalizers":[]}}"#.to_owned();
    for (what, view, skip, expected) in [
        ("not read", DataStoreView::Unknown, "", problem("DataStore store has not been read yet")),
        ("missing", DataStoreView::Missing("store".into()), "", problem("there is no DataStore store")),
        ("unusable", DataStoreView::Unusable("its Secret has no key".into()), "", problem("its Secret has no key")),
        ("skipped", DataStoreView::Missing("store".into()), "true", released),
        (
            "another value does not skip",
            DataStoreView::Missing("store".into()),
            "yes",
            problem("there is no DataStore store"),
        ),
        (
            "ready",
            ready_store(),
            "",
            r#"store: DeleteTenant { owner: "p-uid", user: "p-uid", role: "p-uid", prefix: "/p-uid/" }"#.into(),
        ),
    ] {
        let mut world = changed(built(), |own| own["metadata"]["annotations"][SKIP_CLEANUP_ANNOTATION] = skip.into());
        world.facts.data_store = view;
        assert_eq!(said(&planned(&world)), expected, "{what}");
    }
    let mut world = built();
    let mut fake = Fake::default();
    fake.pass(&mut world);
    assert!(world.object().finalizers().is_empty());
}

#[test]
fn pods_go_before_the_data_and_a_control_plane_without_a_record_made_nothing() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    run(&mut world, &mut fake);
    edit(&mut world, "apps", "Deployment", "p", json!({ "metadata": { "finalizers": ["foregroundDeletion"] } }));
    let mut world = changed(world, |own| own["metadata"]["deletionTimestamp"] = at(0).to_string().into());
    assert_eq!(said(&fake.pass(&mut world)), "wait WaitingForPodsDeletion: waiting for 1 Deployments to be deleted");
    assert!(!fake.done.iter().any(|step| step.contains("DeleteTenant")));
    let mut fresh = deleting(self::world(json!({})), Some(KAMAJI_FINALIZER));
    fresh.facts.data_store = DataStoreView::Missing("store".into());
    assert_eq!(said(&planned(&fresh)), r#"patch KamajiControlPlane n/p {"metadata":{"finalizers":[]}}"#);
}

#[test]
fn the_place_in_the_store_is_recorded_before_it_is_made_and_does_not_move() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    fake.pass(&mut world);
    with_address(&mut world, "203.0.113.5");
    fake.pass(&mut world);
    let record = fake.done.iter().position(|step| step.contains("hangar.dev/data-store-tenant")).unwrap();
    let made = fake.done.iter().position(|step| step.starts_with("store: CreateTenant")).unwrap();
    assert!(record < made);
    for (what, change) in [
        ("store", json!({ "dataStoreName": "other" })),
        ("schema", json!({ "dataStoreSchema": "x" })),
        ("user", json!({ "dataStoreUsername": "x" })),
    ] {
        let mut moved: World = crate::testing::world(world.object().clone().0, vec![cluster(json!({}))]);
        moved = changed(moved, |own| merge(&mut own["spec"], &change));
        begin_pass(&mut moved);
        let said = said(&planned(&moved));
        assert!(
            said.starts_with("blocked DataStoreChanged: its data is in DataStore store under /p-uid/"),
            "{what}: {said}"
        );
    }
}

#[test]
fn add_ons_that_were_switched_off_are_removed_from_the_tenant() {
    let (world, mut fake) = (world(json!({})), Fake::default());
    let mut world = world;
    run(&mut world, &mut fake);
    let mut world = changed(world, |own| own["spec"]["addons"] = json!({ "kubeProxy": {} }));
    begin_pass(&mut world);
    let plan = planned(&world);
    let [Step::Tenant { call: TenantCall::Apply { objects, remove }, .. }] = &plan.steps[..] else {
        panic!("{}", said(&plan))
    };
    let gone: Vec<String> = remove.iter().map(|key| format!("{} {}", key.kind, key.name)).collect();
    let core_dns = [
        "ServiceAccount coredns",
        "ClusterRole system:coredns",
        "ClusterRoleBinding system:coredns",
        "ConfigMap coredns",
        "Service kube-dns",
        "Deployment coredns",
    ];
    assert_eq!(gone, core_dns);
    assert!(objects.iter().any(|object| object.name() == "kube-proxy"));
    fake.pass(&mut world);
    begin_pass(&mut world);
    assert_eq!(planned(&world).steps, [], "and it is not asked for again");
}

#[test]
fn a_changed_certificate_rolls_the_pods() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    run(&mut world, &mut fake);
    let checksum = |world: &World| {
        world.named("apps", "Deployment", "p").unwrap().get("/spec/template/metadata/annotations").clone()
    };
    let before = checksum(&world);
    let mut world = changed(world, |own| own["spec"]["network"]["certSANs"] = json!(["api.example.org"]));
    begin_pass(&mut world);
    fake.pass(&mut world);
    assert_ne!(checksum(&world), before);
}

#[test]
fn an_endpoint_is_where_the_service_says() {
    let service = |kind: &str, ip: &str, ingress: Value| {
        let mut service = Object::named("v1", "Service", "n", "p");
        service.0["spec"] = json!({ "type": kind, "clusterIP": ip });
        service.0["status"] = json!({ "loadBalancer": { "ingress": ingress } });
        service
    };
    for (what, service, expected) in [
        ("no ClusterIP yet", service("NodePort", "", json!([])), None),
        ("headless", service("ClusterIP", "None", json!([])), None),
        ("ClusterIP", service("ClusterIP", "10.0.0.7", json!([])), Some("10.0.0.7")),
        ("NodePort", service("NodePort", "10.0.0.7", json!([])), Some("10.0.0.7")),
        ("LoadBalancer without address", service("LoadBalancer", "10.0.0.7", json!([])), None),
        ("LoadBalancer", service("LoadBalancer", "10.0.0.7", json!([{ "ip": "1.2.3.4" }])), Some("1.2.3.4")),
        (
            "by name",
            service("LoadBalancer", "10.0.0.7", json!([{ "hostname": "lb.example.org" }])),
            Some("lb.example.org"),
        ),
    ] {
        assert_eq!(addresses(Some(&service)).map(|it| it.endpoint).as_deref(), expected, "{what}");
    }
    assert_eq!(addresses(None), None);
}

#[test]
fn infrastructure_learns_the_endpoint_once_and_openstack_where_it_looks_for_it() {
    let endpoint = json!({ "host": "1.2.3.4", "port": 6443 });
    let infra =
        |kind: &str, fields: Value| Object(object("infrastructure.cluster.x-k8s.io/v1beta1", kind, "i", fields));
    for (what, infra, expected) in [
        (
            "OpenStack",
            infra("OpenStackCluster", json!({})),
            Some(
                json!({ "spec": { "controlPlaneEndpoint": endpoint, "apiServerFixedIP": "1.2.3.4", "apiServerPort": 6443 } }),
            ),
        ),
        ("another", infra("OtherCluster", json!({})), Some(json!({ "spec": { "controlPlaneEndpoint": endpoint } }))),
        (
            "set already",
            infra("OpenStackCluster", json!({ "spec": { "controlPlaneEndpoint": { "host": "h" } } })),
            None,
        ),
        ("fixed already", infra("OpenStackCluster", json!({ "spec": { "apiServerFixedIP": "h" } })), None),
        ("going", infra("OpenStackCluster", json!({ "metadata": { "deletionTimestamp": "x" } })), None),
    ] {
        let step = endpoint::push(&infra, &endpoint);
        let fields = step.map(|step| match step {
            Step::Patch { fields, .. } => fields,
            other => panic!("{other:?}"),
        });
        assert_eq!(fields, expected, "{what}");
    }
}

#[test]
fn no_replicas_means_no_waiting_for_pods_and_nothing_inside_the_tenant() {
    let (mut world, mut fake) = (world(json!({ "replicas": 0 })), Fake::default());
    fake.pass(&mut world);
    with_address(&mut world, "203.0.113.5");
    begin_pass(&mut world);
    assert_eq!(said(&fake.pass(&mut world)), "done");
    assert!(!fake.done.iter().any(|step| step.starts_with("c: apply")), "{:?}", fake.done);
}

#[test]
fn an_address_of_ipv6_has_brackets_wherever_a_port_follows() {
    for (host, expected) in
        [("10.0.0.1", "10.0.0.1:6443"), ("fd00::1", "[fd00::1]:6443"), ("api.example.org", "api.example.org:6443")]
    {
        assert_eq!(certificates::host_port(host, 6443), expected);
    }
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    fake.pass(&mut world);
    with_address(&mut world, "fd00::1");
    fake.pass(&mut world);
    with_pods(&mut world);
    let mut plan = planned(&world);
    while !plan.steps.iter().any(|step| matches!(step, Step::Tenant { .. })) {
        plan.steps.iter().for_each(|step| fake.carry_out(&mut world, step));
        plan = planned(&world);
    }
    let text = format!("{:?}", plan.steps);
    assert!(text.contains("https://[fd00::1]:6443") && !text.contains("https://fd00"), "{text}");
}

#[test]
fn data_store_calls_are_remembered_within_the_pass_only() {
    let call =
        DataStoreCall::CreateTenant { owner: "o".into(), user: "u".into(), role: "r".into(), prefix: "/r/".into() };
    let mut facts = Facts::default();
    crate::Absorb::absorb(&mut facts, &crate::Effect::DataStore(call));
    assert!(facts.tenant_created && !facts.tenant_deleted && !facts.tenant_applied);
}

/// The groups that the kubeconfigs of administrators and the API server's client of kubelets are to have.
fn admin_groups(world: &World) -> Vec<String> {
    let plane = crate::kamaji_control_plane::tests::model(world);
    let signer = Signer { certificate_pem: "ca".into(), key_pem: "key".into(), trust_pem: None };
    let addresses = addresses(world.named("", "Service", "p")).unwrap();
    let hosting = crate::kamaji_control_plane::hosting(world);
    let all = certificates::leaves(&plane, &addresses, &signer, &signer, None, hosting.admins(&plane));
    let mut groups = vec![];
    for issue in all {
        match issue.material {
            crate::step::Material::Leaf { leaf, .. } => groups.extend(leaf.organizations),
            crate::step::Material::Kubeconfig { identities, .. } => {
                groups.extend(identities.into_iter().flat_map(|it| {
                    let file = it.files[0].0.clone();
                    it.leaf.organizations.into_iter().map(move |group| format!("{file} {group}"))
                }));
            }
            _ => {}
        }
    }
    groups
}

const NEW_GROUPS: [&str; 3] =
    ["kubeadm:cluster-admins", "admin.conf kubeadm:cluster-admins", "super-admin.conf system:masters"];

#[test]
fn administrators_have_a_group_that_can_be_revoked_and_hangars_own_kubeconfig_is_published_nowhere() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    run(&mut world, &mut fake);
    assert_eq!(admin_groups(&world), NEW_GROUPS);
    let published = world.named("", "Secret", "c-kubeconfig").unwrap();
    assert_eq!(published.get("/data").as_object().unwrap().len(), 1);
    assert_eq!(published.secret_text("value").unwrap(), "admin.conf of p-admin-kubeconfig");
    let holders: Vec<&str> = world
        .objects
        .of_kind("", "Secret")
        .filter(|secret| secret.get("/data")["super-admin.conf"].is_string())
        .map(Object::name)
        .collect();
    assert_eq!(holders, ["p-admin-kubeconfig"]);
    let pods = world.objects.of_kind("apps", "Deployment").map(|it| it.0.to_string()).collect::<String>();
    assert!(!pods.contains("admin-kubeconfig"), "no pod mounts it");
}

/// A control plane from before has kubeconfigs of system:masters; they change when their new group can do something.
#[test]
fn an_existing_control_plane_gets_the_binding_first_and_the_kubeconfig_then() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    run(&mut world, &mut fake);
    let mut old = world.named("", "Secret", "p-admin-kubeconfig").unwrap().clone();
    old.0["data"].as_object_mut().unwrap().retain(|file, _| file.starts_with("admin."));
    world.objects.insert(shared(old.0));
    assert_eq!(admin_groups(&world), NEW_GROUPS, "the binding is there");
    let mut record = world.named("", "ConfigMap", "p-kubeadmconfig").unwrap().clone();
    record.0["metadata"]["annotations"] = json!({});
    world.objects.insert(shared(record.0));
    assert_eq!(admin_groups(&world), ["system:masters", "admin.conf system:masters"]);
    fake.done.clear();
    begin_pass(&mut world);
    fake.pass(&mut world);
    let position = |wanted: &str| fake.done.iter().rposition(|step| step.starts_with(wanted)).unwrap();
    assert!(position("c: apply") < position("issue Secret n/p-admin-kubeconfig"), "{:#?}", fake.done);
    assert_eq!(admin_groups(&world), NEW_GROUPS);
}
