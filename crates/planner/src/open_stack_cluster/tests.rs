use std::sync::Arc;

use hangar_openstack_types::SecurityGroup;
use serde_json::{Value, json};

use super::*;
use crate::cloud::rules::Role;
use crate::cloud::{PROJECT_ANNOTATION, Resource};
use crate::hosted;
use crate::testing::{Fake, at, changed, cluster, condition, deleting, merge, object, planned, said};
use crate::{OwnerKey, Step};

const INFRA: &str = "infrastructure.cluster.x-k8s.io/v1beta1";

fn of_cluster(kind: &str) -> Value {
    cluster(
        json!({ "spec": { "controlPlaneRef": { "apiGroup": "controlplane.cluster.x-k8s.io", "kind": kind, "name": "p" } } }),
    )
}

fn own(spec: Value) -> Value {
    let mut own = object(
        INFRA,
        "OpenStackCluster",
        "i",
        json!({
            "metadata": { "finalizers": [OPENSTACK_CLUSTER_FINALIZER], "labels": { "cluster.x-k8s.io/cluster-name": "c" }, "annotations": { PROJECT_ANNOTATION: "p" } },
            "spec": { "identityRef": { "name": "x", "cloudName": "o" }, "apiServerFixedIP": "", "disableAPIServerFloatingIP": true, "network": { "id": "net" }, "managedSecurityGroups": { "allowAllInClusterTraffic": true } },
        }),
    );
    merge(&mut own["spec"], &spec);
    own
}

fn world(spec: Value) -> World {
    world_of(spec, vec![of_cluster("KamajiControlPlane")])
}

fn world_of(spec: Value, others: Vec<Value>) -> World {
    let mut world: World = crate::testing::world(own(spec), others);
    world.facts = Facts {
        cloud: Cloud { project: "p".into(), ..Cloud::default() },
        found: Found {
            network_lookup: Lookup::Found("net".into()),
            network: Some(Network { id: "net".into(), name: "network".into(), ..Network::default() }),
            subnets: vec![Subnet {
                id: "sub".into(),
                name: "subnet".into(),
                cidr: "10.6.0.0/24".into(),
                ..Subnet::default()
            }],
            external_network: Some(external()),
            external: Lookup::Found("ext".into()),
            ..Found::default()
        },
        zones: vec!["z1".into(), "z2".into()],
        ..Facts::default()
    };
    world
}

fn external() -> Network {
    Network { id: "ext".into(), name: "public".into(), external: true, ..Network::default() }
}

fn group(id: &str, role: &str) -> SecurityGroup {
    SecurityGroup {
        id: id.into(),
        name: id.into(),
        description: OwnerKey::new("c-uid", "i-uid", role).describe("x"),
        ..SecurityGroup::default()
    }
}

fn with_groups(mut world: World, groups: Vec<SecurityGroup>) -> World {
    groups.into_iter().for_each(|group| world.facts.cloud.resources.insert(Resource::SecurityGroup(Arc::new(group))));
    world
}

#[test]
fn each_phase_of_building_says_what_it_does_or_waits_for() {
    let mut unknown = world(json!({}));
    unknown.facts.found.network_lookup = Lookup::Missing { wanted: "x".into(), known: vec!["a".into()] };
    let mut away = world(json!({}));
    away.facts_error = Some(crate::Reason::retry("CloudUnreachable", "connection refused"));
    for (what, world, expected) in [
        ("no Cluster", world_of(json!({}), vec![]), "wait WaitingForCluster: no Cluster refers to it yet"),
        ("the cloud is away", away, "blocked CloudUnreachable: connection refused"),
        ("network", unknown, "blocked NetworkNotFound: spec.network x matches no network; the cloud has a"),
        (
            "the project is written down first",
            changed(world(json!({})), |own| own["metadata"]["annotations"] = json!(null)),
            r#"patch OpenStackCluster n/i {"metadata":{"annotations":{"hangar.dev/cloud-project":"p"}}}"#,
        ),
        (
            "groups",
            world(json!({})),
            "create group k8s-cluster-n-c-secgroup-controlplane; create group k8s-cluster-n-c-secgroup-worker",
        ),
        ("no groups are wanted", world(json!({ "managedSecurityGroups": null })), "done"),
        (
            "endpoint of a hosted control plane",
            world(json!({ "managedSecurityGroups": null, "apiServerFixedIP": "1.2.3.4", "apiServerPort": 443 })),
            r#"patch OpenStackCluster n/i {"spec":{"controlPlaneEndpoint":{"host":"1.2.3.4","port":443}}}"#,
        ),
        (
            "an endpoint that is set stays",
            world(
                json!({ "managedSecurityGroups": null, "apiServerFixedIP": "1.2.3.4", "controlPlaneEndpoint": { "host": "h", "port": 1 } }),
            ),
            "done",
        ),
    ] {
        assert_eq!(said(&planned(&world)), expected, "{what}");
    }
}

#[test]
fn every_kind_of_hosted_control_plane_is_known_to_be_hosted() {
    for (_, kind) in hosted::KINDS {
        let world = world_of(json!({ "managedSecurityGroups": null }), vec![of_cluster(kind)]);
        assert_eq!(said(&planned(&world)), "done", "{kind}");
    }
}

#[test]
fn it_comes_to_rest_with_groups_and_rules_and_puts_right_what_somebody_changed() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    let plan = fake.converge(&mut world);
    assert_eq!(said(&plan), "done");
    assert_eq!(plan.recheck, Some(DRIFT));
    let status = plan.status.clone().unwrap();
    assert_eq!(
        (&status["ready"], &status["network"]["id"], &status["network"]["subnets"][0]["cidr"]),
        (&json!(true), &json!("net"), &json!("10.6.0.0/24"))
    );
    assert_eq!(status["workerSecurityGroup"]["name"], "k8s-cluster-n-c-secgroup-worker");
    assert_eq!(status["failureDomains"]["z1"]["controlPlane"], true);
    assert_eq!(condition(&plan, "Ready").unwrap().0, "True");
    assert_eq!(condition(&plan, "Deleting"), None, "readers of the older contract take a false condition for a fault");
    // A foreign rule goes, and a missing one comes back.
    let mut changed = (**world.facts.cloud.resources.security_groups.values().next().unwrap()).clone();
    let lost = changed.security_group_rules.remove(0);
    changed.security_group_rules.push(hangar_openstack_types::SecurityGroupRule {
        id: "foreign".into(),
        direction: "ingress".into(),
        ethertype: "IPv4".into(),
        ..Default::default()
    });
    let id = changed.id.clone();
    fake.cloud.insert(Resource::SecurityGroup(Arc::new(changed.clone())));
    world.facts.cloud.resources.insert(Resource::SecurityGroup(Arc::new(changed)));
    let plan = planned(&world);
    assert_eq!(said(&plan), format!("delete rule foreign of {id}; create 1 rules of {id}"), "{lost:?}");
    fake.converge(&mut world);
}

#[test]
fn security_groups_are_found_at_deletion_even_if_managed_security_groups_was_nulled_or_the_cluster_is_gone() {
    let groups = || vec![group("g1", Role::ControlPlane.key_role()), group("g2", Role::Worker.key_role())];
    for (what, spec, others) in [
        ("as it was", json!({}), vec![of_cluster("KamajiControlPlane")]),
        ("nulled", json!({ "managedSecurityGroups": null }), vec![of_cluster("KamajiControlPlane")]),
        ("the Cluster is gone", json!({}), vec![]),
    ] {
        let mut world = deleting(with_groups(world_of(spec, others), groups()), Some(OPENSTACK_CLUSTER_FINALIZER));
        let mut fake = Fake { cloud: world.facts.cloud.resources.clone(), ..Fake::default() };
        fake.pass(&mut world);
        assert_eq!(fake.done[..2], ["delete SecurityGroup g1", "delete SecurityGroup g2"], "{what}");
        assert!(world.object().finalizers().is_empty(), "{what}");
    }
}

#[test]
fn on_the_way_out_machines_go_first_and_another_project_is_refused() {
    let machine = object(INFRA, "OpenStackMachine", "m", json!({ "spec": { "flavor": "f", "image": { "id": "i" } } }));
    let leaves = |world| deleting(world, Some(OPENSTACK_CLUSTER_FINALIZER));
    let mut other = leaves(world(json!({})));
    other.facts.cloud.project = "q".into();
    let mut away = leaves(world(json!({})));
    away.facts_error = Some(crate::Reason::retry("CloudUnreachable", "connection refused"));
    for (what, world, expected) in [
        (
            "machines",
            leaves(world_of(json!({}), vec![machine])),
            "wait WaitingForMachines: waiting for 1 OpenStackMachines to be deleted",
        ),
        (
            "another project",
            other,
            "blocked CloudProjectChanged: its resources are in project p, spec.identityRef now leads to project q: name a credential of the former project",
        ),
        ("the cloud is away", away, "blocked CloudUnreachable: connection refused"),
        ("nothing is left", leaves(world(json!({}))), r#"patch OpenStackCluster n/i {"metadata":{"finalizers":[]}}"#),
    ] {
        assert_eq!(said(&planned(&world)), expected, "{what}");
    }
}

#[test]
fn a_cluster_that_never_tried_a_create_can_go_without_its_cloud() {
    let mut world = deleting(changed(world(json!({})), |own| own["metadata"]["annotations"] = json!(null)), None);
    world.facts_error = Some(crate::Reason::retry("CloudUnreachable", "connection refused"));
    let plan = planned(&world);
    assert_eq!((said(&plan).as_str(), plan.status), ("done", None));
}

#[test]
fn a_switch_of_identity_within_the_same_project_changes_nothing() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    fake.converge(&mut world);
    let before = fake.done.len();
    let mut world = changed(world, |own| own["spec"]["identityRef"] = json!({ "name": "another", "cloudName": "o2" }));
    fake.pass(&mut world);
    assert_eq!(fake.done[before..], [] as [String; 0]);
    world.facts.cloud.project = "q".into();
    assert!(said(&planned(&world)).starts_with("blocked CloudProjectChanged"));
}

#[test]
fn what_was_reported_before_the_cloud_went_silent_stays() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    let status = fake.converge(&mut world).status.unwrap();
    let mut silent = changed(world, |own| own["status"] = status.clone());
    silent.facts = Facts::default();
    silent.facts_error = Some(crate::Reason::retry("CloudUnreachable", "connection refused"));
    let now = planned(&silent).status.unwrap();
    for field in ["network", "workerSecurityGroup", "controlPlaneSecurityGroup", "failureDomains", "initialization"] {
        assert_eq!(now[field], status[field], "{field}");
    }
    assert_eq!(now["ready"], false);
}

#[test]
fn finalizer_and_project_come_in_one_request_before_the_first_create() {
    let bare = changed(world(json!({})), |own| {
        merge(own, &json!({ "metadata": { "finalizers": null, "annotations": null } }))
    });
    let plan = crate::plan(&bare, at(0));
    let [Step::Patch { fields, resource_version, .. }] = &plan.steps[..] else { panic!("{plan:?}") };
    assert_eq!(
        fields,
        &json!({ "metadata": { "annotations": { PROJECT_ANNOTATION: "p" }, "finalizers": [OPENSTACK_CLUSTER_FINALIZER] } })
    );
    assert_eq!(resource_version.as_deref(), Some("1"));
}
