use serde_json::{Value, json};

use super::*;
use crate::names::{CLUSTER_NAME_LABEL, DEPLOYMENT_NAME_LABEL};

fn deployment(spec: Value) -> Object {
    let mut object = Object::named("cluster.x-k8s.io/v1beta2", "MachineDeployment", "default", "md-0");
    object.0["spec"] = spec;
    object
}

#[test]
fn a_missing_selector_selects_the_deployments_own_machines() {
    for selector in [json!(null), json!({}), json!({"matchLabels": null})] {
        let object =
            deployment(json!({"clusterName": "c", "selector": selector, "template": {"spec": {"version": "1.28.10"}}}));
        let admitted = admit(&object, None).unwrap();
        let labels = json!({DEPLOYMENT_NAME_LABEL: "md-0", CLUSTER_NAME_LABEL: "c"});
        assert_eq!(admitted.get("/spec/selector/matchLabels"), &labels);
        assert_eq!(admitted.get("/spec/template/metadata/labels"), &labels);
        assert_eq!(admitted.get("/spec/template/spec/version"), "v1.28.10");
        assert_eq!(admitted.get("/spec/rollout/strategy/rollingUpdate/maxSurge"), 1);
    }
}

#[test]
fn admitting_twice_changes_nothing() {
    let once = admit(&deployment(json!({"clusterName": "c", "template": {"spec": {}}})), None).unwrap();
    assert_eq!(admit(&once, Some(&once)).unwrap(), once);
}

#[test]
fn a_selector_that_misses_the_template_is_refused() {
    let object =
        deployment(json!({"clusterName": "c", "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {}}}));
    assert_eq!(admit(&object, None).unwrap_err()[0].field, "spec.template.metadata.labels[a]");
}

#[test]
fn an_endpoint_is_filled_in_once() {
    let cluster = |spec: Value| {
        let mut object = Object::named("infrastructure.cluster.x-k8s.io/v1beta1", "OpenStackCluster", "default", "c");
        object.0["spec"] = spec;
        object
    };
    let empty = cluster(json!({"disableAPIServerFloatingIP": true, "apiServerFixedIP": ""}));
    let filled = cluster(json!({"disableAPIServerFloatingIP": true, "apiServerFixedIP": "10.0.0.1"}));
    let other = cluster(json!({"disableAPIServerFloatingIP": true, "apiServerFixedIP": "10.0.0.2"}));
    assert!(admit(&filled, Some(&empty)).is_ok());
    assert_eq!(admit(&empty, Some(&filled)).unwrap(), filled);
    assert_eq!(admit(&other, Some(&filled)).unwrap_err()[0].field, "spec.apiServerFixedIP");
}

fn object(api_version: &str, kind: &str, spec: Value) -> Object {
    let mut object = Object::named(api_version, kind, "default", "x");
    object.0["spec"] = spec;
    object
}

fn refused(object: &Object, old: Option<&Object>, field: &str, word: &str) {
    let refusals = admit(object, old).expect_err(field);
    let found = refusals.iter().find(|refusal| refusal.field == field);
    let found = found.unwrap_or_else(|| panic!("{field} is not among {refusals:?}"));
    assert!(found.message.contains(word), "no {word:?} in {found}");
    assert!(!found.message.ends_with('.') && found.message.len() > 20, "{found}");
}

#[test]
fn versions_are_understood_and_only_go_up() {
    let kinds = [
        ("cluster.x-k8s.io/v1beta2", "Cluster", "/spec/topology/version"),
        ("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", "/spec/version"),
        ("controlplane.cluster.x-k8s.io/v1alpha2", "KamajiControlPlane", "/spec/version"),
        ("controlplane.cluster.x-k8s.io/v1alpha1", "HostedControlPlane", "/spec/version"),
        ("kamaji.clastix.io/v1alpha1", "TenantControlPlane", "/spec/kubernetes/version"),
    ];
    for (api_version, kind, pointer) in kinds {
        let at = |version: &str| {
            let mut made = object(api_version, kind, json!({"topology": {}, "kubernetes": {}}));
            *made.0.pointer_mut(pointer.rsplit_once('/').unwrap().0).unwrap() =
                json!({"version": version, "topology": {}, "kubernetes": {}});
            made
        };
        let field = pointer.trim_start_matches('/').replace('/', ".");
        assert!(admit(&at("1.33.6"), None).is_ok(), "{kind}");
        refused(&at("latest"), None, &field, "v1.33.6");
        refused(&at("v1.32.8"), Some(&at("v1.33.6")), &field, "older");
        refused(&at("v1.35.0"), Some(&at("v1.33.6")), &field, "v1.34");
        assert!(admit(&at("v1.34.0"), Some(&at("1.33.6"))).is_ok(), "{kind}");
        // What was once taken is not judged again.
        assert!(admit(&at("latest"), Some(&at("latest"))).is_ok(), "{kind}");
    }
}

#[test]
fn what_cannot_be_is_named() {
    let (openstack, metal3) = ("infrastructure.cluster.x-k8s.io/v1beta1", "infrastructure.cluster.x-k8s.io/v1beta2");
    let both = json!([{"name": "r", "remoteGroupID": "g", "remoteIPPrefix": "10.0.0.0/8"}]);
    let table = [
        (
            object(
                "cluster.x-k8s.io/v1beta2",
                "Cluster",
                json!({"clusterNetwork": {"services": {"cidrBlocks": ["10.0.0.0/8", "ten"]}}}),
            ),
            "spec.clusterNetwork.services.cidrBlocks[1]",
            "CIDR",
        ),
        (
            object(
                "cluster.x-k8s.io/v1beta2",
                "Cluster",
                json!({"topology": {"variables": [{"name": "a"}, {"name": "a"}]}}),
            ),
            "spec.topology.variables[1].name",
            "twice",
        ),
        (
            object("cluster.x-k8s.io/v1beta2", "ClusterClass", json!({"patches": [{"name": "p"}]})),
            "spec.patches[0]",
            "definitions",
        ),
        (
            object("cluster.x-k8s.io/v1beta2", "ClusterClass", json!({"variables": [{"name": "builtin"}]})),
            "spec.variables[0].name",
            "another name",
        ),
        (object("cluster.x-k8s.io/v1beta2", "Machine", json!({"bootstrap": {}})), "spec.bootstrap", "dataSecretName"),
        (
            object(
                "cluster.x-k8s.io/v1beta2",
                "MachineHealthCheck",
                json!({"checks": {"nodeStartupTimeoutSeconds": 5}}),
            ),
            "spec.checks.nodeStartupTimeoutSeconds",
            "30",
        ),
        (
            object("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", json!({"replicas": 4})),
            "spec.replicas",
            "odd",
        ),
        (
            object("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", json!({"replicas": 0})),
            "spec.replicas",
            "delete",
        ),
        (
            object("controlplane.cluster.x-k8s.io/v1beta2", "K0smotronControlPlane", json!({"version": "new"})),
            "spec.version",
            "k0s",
        ),
        (
            object(
                "controlplane.cluster.x-k8s.io/v1alpha1",
                "HostedControlPlane",
                json!({"certificates": {"rootCaCertificateDuration": "1h", "caCertificateDuration": "48h"}}),
            ),
            "spec.certificates.rootCaCertificateDuration",
            "shorter",
        ),
        (
            object(
                openstack,
                "OpenStackCluster",
                json!({"managedSecurityGroups": {"allNodesSecurityGroupRules": both}}),
            ),
            "spec.managedSecurityGroups.allNodesSecurityGroupRules[0]",
            "exclude each other",
        ),
        (
            object(openstack, "OpenStackCluster", json!({"managedSubnets": [{"cidr": "10.6"}]})),
            "spec.managedSubnets[0].cidr",
            "CIDR",
        ),
        (
            object(
                openstack,
                "OpenStackMachine",
                json!({"ports": [{"disablePortSecurity": true, "securityGroups": [{"id": "g"}]}]}),
            ),
            "spec.ports[0]",
            "exclude each other",
        ),
        (
            object(openstack, "OpenStackMachineTemplate", json!({"template": {"spec": {"providerID": "p"}}})),
            "spec.template.spec.providerID",
            "leave it out",
        ),
        (object(metal3, "Metal3Machine", json!({})), "spec.image", "customDeploy"),
        (
            object(metal3, "Metal3MachineTemplate", json!({"template": {"spec": {"image": {"url": "http://x/y"}}}})),
            "spec.template.spec.image.checksum",
            "needed",
        ),
        (
            object("ipam.metal3.io/v1alpha1", "IPPool", json!({"pools": [{"start": "10.0.0.2", "end": "10.0.0.1"}]})),
            "spec.pools[0]",
            "exchange",
        ),
        (
            object(
                "ipam.metal3.io/v1alpha1",
                "IPPool",
                json!({"pools": [{"start": "10.0.0.1", "end": "10.0.0.2"}], "preAllocations": {"a": "10.0.0.9"}}),
            ),
            "spec.preAllocations[a]",
            "in none",
        ),
    ];
    for (object, field, word) in table {
        refused(&object, None, field, word);
    }
}

#[test]
fn what_is_fixed_stays_and_what_may_change_may() {
    let cluster = |spec: Value| object("infrastructure.cluster.x-k8s.io/v1beta1", "OpenStackCluster", spec);
    let subnets =
        |cidr: &str, server: &str| cluster(json!({"managedSubnets": [{"cidr": cidr, "dnsNameservers": [server]}]}));
    assert!(admit(&subnets("10.0.0.0/24", "9.9.9.9"), Some(&subnets("10.0.0.0/24", "8.8.8.8"))).is_ok());
    refused(
        &subnets("10.1.0.0/24", "8.8.8.8"),
        Some(&subnets("10.0.0.0/24", "8.8.8.8")),
        "spec.managedSubnets",
        "cannot be changed",
    );
    let machine = |spec: Value| object("infrastructure.cluster.x-k8s.io/v1beta1", "OpenStackMachine", spec);
    assert!(admit(&machine(json!({"providerID": "p", "flavor": "m"})), Some(&machine(json!({"flavor": "m"})))).is_ok());
    refused(
        &machine(json!({"flavor": "l"})),
        Some(&machine(json!({"flavor": "m"}))),
        "spec.flavor",
        "cannot be changed",
    );
    let template = |spec: Value| object("infrastructure.cluster.x-k8s.io/v1beta2", "Metal3DataTemplate", spec);
    refused(&template(json!({"metaData": {}})), Some(&template(json!({}))), "spec.metaData", "cannot be changed");
}

/// What CAPO's webhook lets through, and what it does not.
#[test]
fn oc18_an_openstack_cluster_changes_where_upstreams_may() {
    let status = json!({
        "network": { "id": "net", "subnets": [{ "id": "a" }, { "id": "b" }] }, "apiServerLoadBalancer": { "ip": "192.0.2.4" },
    });
    let cluster = |spec: &Value| {
        let mut object = object("infrastructure.cluster.x-k8s.io/v1beta1", "OpenStackCluster", spec.clone());
        object.0["status"] = status.clone();
        object
    };
    let rule = json!([{ "name": "x", "direction": "ingress" }]);
    for (what, old, new, field) in [
        ("bastion switched off", json!({"bastion": {"enabled": true}}), json!({"bastion": {"enabled": false}}), None),
        (
            "bastion changed",
            json!({"bastion": {"spec": {"flavor": "a"}}}),
            json!({"bastion": {"spec": {"flavor": "b"}}}),
            None,
        ),
        ("bastion removed", json!({"bastion": {"enabled": true}}), json!({}), Some("spec.bastion")),
        ("bastion removed when it was off", json!({"bastion": {"enabled": false}}), json!({}), None),
        ("groups added", json!({}), json!({"managedSecurityGroups": {}}), None),
        (
            "rules",
            json!({"managedSecurityGroups": {}}),
            json!({"managedSecurityGroups": {"allNodesSecurityGroupRules": rule}}),
            None,
        ),
        ("groups removed", json!({"managedSecurityGroups": {}}), json!({}), Some("spec.managedSecurityGroups")),
        (
            "zones",
            json!({}),
            json!({"controlPlaneAvailabilityZones": ["a"], "controlPlaneOmitAvailabilityZone": true}),
            None,
        ),
        (
            "who may connect",
            json!({"apiServerLoadBalancer": {"enabled": true}}),
            json!({"apiServerLoadBalancer": {"enabled": true, "allowedCIDRs": ["10.0.0.0/8"], "monitor": {"delay": 1}}}),
            None,
        ),
        (
            "the provider",
            json!({"apiServerLoadBalancer": {"enabled": true}}),
            json!({"apiServerLoadBalancer": {"enabled": true, "provider": "ovn"}}),
            Some("spec.apiServerLoadBalancer"),
        ),
        ("another credential", json!({"identityRef": {"name": "a"}}), json!({"identityRef": {"name": "b"}}), None),
        (
            "the network that was found",
            json!({"network": {"filter": {"name": "n"}}}),
            json!({"network": {"id": "net"}}),
            None,
        ),
        (
            "another network",
            json!({"network": {"filter": {"name": "n"}}}),
            json!({"network": {"id": "x"}}),
            Some("spec.network"),
        ),
        (
            "the subnets that were found",
            json!({"subnets": [{"filter": {"name": "n"}}, {"id": "b"}]}),
            json!({"subnets": [{"id": "b"}, {"id": "a"}]}),
            None,
        ),
        (
            "other subnets",
            json!({"subnets": [{"filter": {"name": "n"}}]}),
            json!({"subnets": [{"id": "a"}]}),
            Some("spec.subnets"),
        ),
        ("the address that it has", json!({}), json!({"apiServerFloatingIP": "192.0.2.4"}), None),
        ("another address", json!({}), json!({"apiServerFloatingIP": "192.0.2.5"}), Some("spec.apiServerFloatingIP")),
        ("an endpoint for none", json!({}), json!({"controlPlaneEndpoint": {"host": "h", "port": 1}}), None),
        (
            "another endpoint",
            json!({"controlPlaneEndpoint": {"host": "h", "port": 1}}),
            json!({"controlPlaneEndpoint": {"host": "i", "port": 1}}),
            Some("spec.controlPlaneEndpoint"),
        ),
        ("tags", json!({}), json!({"tags": ["a"]}), Some("spec.tags")),
        ("MTU", json!({"networkMTU": 1400}), json!({"networkMTU": 1500}), Some("spec.networkMTU")),
    ] {
        let refusals = admit(&cluster(&new), Some(&cluster(&old))).err().unwrap_or_default();
        let fields: Vec<&str> = refusals.iter().map(|refusal| refusal.field.as_str()).collect();
        assert_eq!(fields, field.into_iter().collect::<Vec<_>>(), "{what}: {refusals:?}");
    }
}

#[test]
fn no_shape_of_a_spec_makes_it_panic() {
    let shapes = [
        json!(null),
        json!("text"),
        json!(3),
        json!([]),
        json!({}),
        json!({"selector": "x", "template": 1, "rollout": [], "topology": "t", "pools": {}}),
        json!({"selector": {"matchLabels": []}, "template": {"metadata": "m", "spec": "s"}, "rollout": {"strategy": "s"}, "image": 1, "controlPlaneEndpoint": {"port": {}}}),
    ];
    for (group, plural, version) in admitted() {
        let facts =
            crate::registry::kinds().iter().find(|facts| facts.group == group && facts.plural() == plural).unwrap();
        for shape in &shapes {
            let made = object(&format!("{group}/{version}"), facts.kind, shape.clone());
            drop(admit(&made, None));
            for old in &shapes {
                drop(admit(&made, Some(&object(&format!("{group}/{version}"), facts.kind, old.clone()))));
            }
            drop(admit(
                &Object(json!({"apiVersion": format!("{group}/{version}"), "kind": facts.kind, "metadata": "m"})),
                None,
            ));
        }
    }
}

#[test]
fn every_kind_that_is_judged_exists() {
    assert_eq!(admitted().len(), JUDGES.len());
}

#[test]
fn a_control_plane_names_no_other_tenant_of_its_data_store_and_stays_where_it_is() {
    let plane = |spec: serde_json::Value| {
        let mut spec = spec;
        spec["version"] = "v1.34.4".into();
        object("controlplane.cluster.x-k8s.io/v1alpha2", "KamajiControlPlane", spec)
    };
    for field in ["dataStoreUsername", "dataStoreSchema"] {
        let place = format!("spec.{field}");
        refused(&plane(json!({ field: "root" })), None, &place, "reserved");
        refused(&plane(json!({ field: "a/b" })), None, &place, "letters");
        refused(&plane(json!({ field: "5e0e3f5e-9a2b-4a52-8b0c-6f0f1e9d1a12" })), None, &place, "UID");
        assert!(admit(&plane(json!({ field: "team_a" })), None).is_ok());
        refused(&plane(json!({ field: "b" })), Some(&plane(json!({ field: "a" }))), &place, "cannot be changed");
        refused(&plane(json!({ field: "b" })), Some(&plane(json!({}))), &place, "cannot be changed");
        // What is stored already is told by a condition, and can still be deleted.
        assert!(admit(&plane(json!({ field: "root" })), Some(&plane(json!({ field: "root" })))).is_ok());
    }
    let (unset, default, other) =
        (plane(json!({})), plane(json!({ "dataStoreName": "default" })), plane(json!({ "dataStoreName": "b" })));
    assert!(admit(&default, Some(&unset)).is_ok());
    refused(&other, Some(&default), "spec.dataStoreName", "cannot be changed");
}

#[test]
fn no_more_replicas_are_asked_for_than_a_cluster_can_have() {
    let of = |replicas: i64| deployment(json!({"clusterName": "c", "replicas": replicas, "template": {"spec": {}}}));
    let table = [
        (0, None, true),
        (10_000, None, true),
        (10_001, None, false),
        (2_147_483_647, None, false),
        (-1, None, false),
        (10_001, Some(10_001), true),
        (10_001, Some(20_000), true),
        (20_001, Some(20_000), false),
        (-1, Some(-1), false),
    ];
    for (replicas, before, accepted) in table {
        let outcome = admit(&of(replicas), before.map(of).as_ref());
        assert_eq!(outcome.is_ok(), accepted, "{replicas} after {before:?}");
        if let Err(refusals) = outcome {
            assert_eq!(refusals[0].field, "spec.replicas");
        }
    }
}

#[test]
fn arguments_that_keep_tenants_apart_cannot_be_set() {
    let plane = |component: &str, argument: &str| {
        let spec = json!({ "version": "v1.34.4", component: { "extraArgs": ["--v=4", argument] } });
        object("controlplane.cluster.x-k8s.io/v1alpha2", "KamajiControlPlane", spec)
    };
    refused(
        &plane("apiServer", "--etcd_prefix=/x"),
        None,
        "spec.apiServer.extraArgs",
        "--etcd-prefix is set by Hangar",
    );
    refused(&plane("scheduler", "--kubeconfig=/x"), None, "spec.scheduler.extraArgs", "--kubeconfig");
    refused(&plane("controllerManager", "x"), None, "spec.controllerManager.extraArgs", "--name=value");
    assert!(admit(&plane("apiServer", "--cloud-provider=external"), None).is_ok());
    let stored = plane("apiServer", "--etcd-prefix=/x");
    assert!(admit(&stored, Some(&stored)).is_ok(), "what is stored is told by a condition");
}
