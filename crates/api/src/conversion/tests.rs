use serde_json::json;

use super::*;

fn machine_deployment() -> Object {
    Object(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineDeployment",
        "metadata": {"name": "md-0", "namespace": "default"},
        "spec": {
            "clusterName": "c", "replicas": 1, "minReadySeconds": 5, "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "deletePolicy": "Oldest"}},
            "template": {"spec": {
                "clusterName": "c", "version": "v1.28.10", "nodeDrainTimeout": "10m",
                "bootstrap": {"configRef": {"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "KubeadmConfigTemplate", "name": "t"}},
                "infrastructureRef": {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "OpenStackMachineTemplate", "name": "t"},
            }},
        },
    }))
}

#[test]
fn fields_move_to_their_new_places() {
    let hub = convert(&machine_deployment(), "v1beta2").unwrap();
    assert_eq!(hub.get("/spec/rollout/strategy/rollingUpdate/maxSurge"), 1);
    assert_eq!(hub.get("/spec/deletion/order"), "Oldest");
    assert_eq!(hub.get("/spec/template/spec/deletion/nodeDrainTimeoutSeconds"), 600);
    assert_eq!(hub.get("/spec/template/spec/bootstrap/configRef/apiGroup"), "bootstrap.cluster.x-k8s.io");
    assert_eq!(hub.get("/spec/template/spec/minReadySeconds"), 5);
}

#[test]
fn what_the_hub_cannot_say_comes_back() {
    let there = convert(&machine_deployment(), "v1beta2").unwrap();
    assert_eq!(convert(&there, "v1beta1").unwrap(), machine_deployment());
}

#[test]
fn an_edit_in_the_hub_wins_over_what_was_set_aside() {
    let mut hub = convert(&machine_deployment(), "v1beta2").unwrap();
    hub.0["spec"]["template"]["spec"]["deletion"]["nodeDrainTimeoutSeconds"] = json!(90);
    hub.0["spec"]["template"]["spec"]["bootstrap"]["configRef"]["name"] = json!("other");
    let old = convert(&hub, "v1beta1").unwrap();
    assert_eq!(old.get("/spec/template/spec/nodeDrainTimeout"), "1m30s");
    assert_eq!(old.get("/spec/template/spec/bootstrap/configRef/name"), "other");
    assert_eq!(old.get("/spec/progressDeadlineSeconds"), 600);
}

#[test]
fn an_empty_string_is_not_an_absent_one() {
    let object = Object(json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1alpha1", "kind": "KamajiControlPlane",
        "metadata": {"name": "k"}, "spec": {"dataStoreName": "", "version": "1.28.10", "addons": {"coreDNS": {}}},
    }));
    let hub = convert(&object, "v1alpha2").unwrap();
    assert_eq!(hub.get("/spec/dataStoreName"), "");
    assert_eq!(hub.get("/spec/addons/coreDNS"), &json!({}));
    assert_eq!(convert(&hub, "v1alpha1").unwrap(), object);
}

#[test]
fn an_unknown_version_is_named_with_the_served_ones() {
    let error = convert(&machine_deployment(), "v1alpha9").unwrap_err();
    assert_eq!(
        error.to_string(),
        "MachineDeployment has no version v1alpha9 here; served are v1alpha3, v1beta1, v1beta2"
    );
}

#[test]
fn a_reader_of_the_old_version_finds_conditions_and_counts_that_nobody_wrote() {
    let mut hub = Object::named("cluster.x-k8s.io/v1beta2", "MachineDeployment", "default", "md-0");
    hub.0["status"] = json!({
        "replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "upToDateReplicas": 3,
        "conditions": [{
            "type": "Available", "status": "False", "reason": "NotAvailable", "message": "1 of 3", "observedGeneration": 4,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    });
    let old = convert(&hub, "v1beta1").unwrap();
    assert_eq!(old.get("/status/readyReplicas"), 2);
    assert_eq!(old.get("/status/updatedReplicas"), 3);
    assert_eq!(old.get("/status/unavailableReplicas"), 2);
    assert_eq!(old.get("/status/conditions/0/type"), "Ready");
    assert_eq!(old.get("/status/conditions/0/severity"), "Warning");
    assert_eq!(old.get("/status/v1beta2/conditions/0/observedGeneration"), 4);
    // What was made for the reader does not come back as something that somebody wrote.
    assert_eq!(convert(&old, "v1beta2").unwrap(), hub);
    assert_eq!(convert(&hub, "v1alpha3").unwrap().get("/status/readyReplicas"), 2);
}

#[test]
fn an_old_clusters_flags_follow_the_hub() {
    let mut hub = Object::named("cluster.x-k8s.io/v1beta2", "Cluster", "default", "c");
    hub.0["status"] = json!({"initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true}});
    let oldest = convert(&hub, "v1alpha3").unwrap();
    assert_eq!(
        oldest.get("/status"),
        &json!({"infrastructureReady": true, "controlPlaneReady": true, "controlPlaneInitialized": true})
    );
    assert_eq!(convert(&oldest, "v1beta2").unwrap(), hub);
}

#[test]
fn om10_openstacks_newest_version_says_the_same_in_groups() {
    let newest = Object(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "OpenStackCluster", "metadata": {"name": "c"},
        "spec": {
            "identityRef": {"name": "x", "cloudName": "o"}, "enableExternalNetwork": false,
            "apiServer": {"port": 7443, "enableFloatingIP": false, "fixedIP": "10.0.0.9", "managedLoadBalancer": {"enabled": true}},
            "managedNetwork": {"mtu": 1400, "enablePortSecurity": false}, "managedRouter": {"externalIPs": [{"subnet": {"id": "s"}}]},
            "managedSecurityGroups": {"allowAllInClusterTraffic": false, "clusterNodesSecurityGroupRules": [{"name": "r", "direction": "ingress"}]},
            "bastion": {"spec": {"image": {"id": "i"}, "flavor": {"filter": {"name": "m1"}}, "ports": [{"enablePortSecurity": false}]}},
        },
        "status": {
            "failureDomains": [{"name": "nova", "controlPlane": true}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    }));
    let hub = convert(&newest, "v1beta1").unwrap();
    let spec = hub.get("/spec");
    for (field, value) in [
        ("disableExternalNetwork", json!(true)),
        ("apiServerPort", json!(7443)),
        ("disableAPIServerFloatingIP", json!(true)),
        ("apiServerFixedIP", json!("10.0.0.9")),
        ("apiServerLoadBalancer", json!({"enabled": true})),
        ("networkMTU", json!(1400)),
        ("disablePortSecurity", json!(true)),
        ("externalRouterIPs", json!([{"subnet": {"id": "s"}}])),
    ] {
        assert_eq!(spec[field], value, "{field}");
    }
    assert_eq!(spec["managedSecurityGroups"]["allNodesSecurityGroupRules"][0]["name"], "r");
    let bastion = &spec["bastion"]["spec"];
    assert_eq!((&bastion["flavor"], &bastion["ports"][0]["disablePortSecurity"]), (&json!("m1"), &json!(true)));
    assert_eq!(hub.get("/status/failureDomains/nova/controlPlane"), true);
    assert_eq!(hub.get("/status/conditions/0").get("message"), None);
    assert_eq!(hub.annotation(&format!("{REMAINDER_PREFIX}v1beta2")), None, "nothing is left over");
    assert_eq!(convert(&hub, "v1beta2").unwrap(), newest);
    let by_id = Object(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "OpenStackMachine", "metadata": {"name": "m"},
        "spec": {"flavor": {"id": "f"}, "image": {"id": "i"}},
    }));
    assert_eq!(convert(&by_id, "v1beta1").unwrap().get("/spec/flavorID"), "f");
}

/// Hosted control planes of others ask for no version, get the newest one, and write the address where v1beta1 has it.
#[test]
fn om10_the_address_of_a_hosted_control_plane_is_understood_in_the_newest_version_too() {
    let cluster = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "OpenStackCluster", "metadata": {"name": "c"},
        "spec": {"identityRef": {"name": "x", "cloudName": "o"}, "disableAPIServerFloatingIP": true, "apiServerFixedIP": ""},
    });
    let mut read = convert(&Object(cluster), "v1beta2").unwrap();
    assert_eq!(read.get("/spec/apiServer/fixedIP"), "");
    read.0["spec"]["apiServerFixedIP"] = "203.0.113.5".into();
    read.0["spec"]["apiServerPort"] = 6443.into();
    let stored = convert(&read, "v1beta1").unwrap();
    assert_eq!(stored.get("/spec/apiServerFixedIP"), "203.0.113.5");
    assert_eq!(stored.get("/spec/apiServerPort"), 6443);
    assert_eq!(convert(&stored, "v1beta2").unwrap(), read, "whoever wrote it finds it again");
}

#[test]
fn a_machine_of_openstacks_first_version_is_understood() {
    let old = Object(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha3", "kind": "OpenStackMachineTemplate", "metadata": {"name": "t"},
        "spec": {"template": {"spec": {
            "cloudName": "dev", "cloudsSecret": {"name": "config", "namespace": "default"}, "flavor": "m1", "image": "Ubuntu",
            "networks": [{"uuid": "n1"}, {"filter": {"name": "x", "tags": "a,b"}, "subnets": [{"uuid": "s1"}, {"filter": {"name": "s"}}]}],
            "securityGroups": [{"name": "default"}, {"uuid": "g1"}], "serverMetadata": {"a": "b"}, "rootVolume": {"diskSize": 20},
        }}},
    }));
    let hub = convert(&old, "v1beta1").unwrap();
    let spec = hub.get("/spec/template/spec");
    assert_eq!(spec["identityRef"], json!({"cloudName": "dev", "name": "config"}));
    assert_eq!(spec["image"], json!({"filter": {"name": "Ubuntu"}}));
    assert_eq!(spec["ports"][0], json!({"network": {"id": "n1"}}));
    assert_eq!(spec["ports"][1]["network"], json!({"filter": {"name": "x", "tags": ["a", "b"]}}));
    assert_eq!(spec["ports"][2]["fixedIPs"], json!([{"subnet": {"filter": {"name": "s"}}}]));
    assert_eq!(spec["securityGroups"], json!([{"filter": {"name": "default"}}, {"id": "g1"}]));
    assert_eq!(spec["serverMetadata"], json!([{"key": "a", "value": "b"}]));
    assert_eq!(spec["rootVolume"], json!({"sizeGiB": 20}));
    assert_eq!(convert(&hub, "v1alpha3").unwrap(), old);
}

#[test]
fn a_cluster_of_openstacks_first_version_keeps_what_it_meant() {
    let old = Object(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha3", "kind": "OpenStackCluster", "metadata": {"name": "c"},
        "spec": {
            "cloudName": "dev", "cloudsSecret": {"name": "config", "namespace": "default"}, "disablePortSecurity": false,
            "dnsNameservers": ["8.8.8.8"], "nodeCidr": "10.6.0.0/24", "managedAPIServerLoadBalancer": false, "useOctavia": false,
            "managedSecurityGroups": true, "externalNetworkId": "e1", "apiServerPort": 0,
        },
    }));
    let hub = convert(&old, "v1beta1").unwrap();
    assert_eq!(hub.get("/spec/managedSubnets"), &json!([{"cidr": "10.6.0.0/24", "dnsNameservers": ["8.8.8.8"]}]));
    assert_eq!(hub.get("/spec/externalNetwork/id"), "e1");
    assert_eq!(hub.get("/spec/apiServerLoadBalancer"), &Value::Null);
    assert_eq!(hub.get("/spec/apiServerPort"), &Value::Null);
    assert_eq!(hub.get("/spec/managedSecurityGroups/allNodesSecurityGroupRules/0/portRangeMin"), 179);
    assert_eq!(convert(&hub, "v1alpha3").unwrap(), old);
}

#[test]
fn a_class_is_understood_down_to_its_lists() {
    let old = Object(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "ClusterClass", "metadata": {"name": "c"},
        "spec": {
            "controlPlane": {"ref": {"apiVersion": "controlplane.cluster.x-k8s.io/v1alpha1", "kind": "HostedControlPlaneTemplate", "name": "t"}},
            "workers": {"machineDeployments": [{
                "class": "default-worker",
                "template": {
                    "bootstrap": {"ref": {"apiVersion": "b/v1", "kind": "K", "name": "n"}},
                    "infrastructure": {"ref": {"apiVersion": "i/v1", "kind": "K", "name": "n"}},
                },
                "machineHealthCheck": {"unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "5m"}]},
                "strategy": {"type": "OnDelete"},
            }]},
        },
    }));
    let hub = convert(&old, "v1beta2").unwrap();
    let worker = hub.get("/spec/workers/machineDeployments/0");
    assert_eq!(worker["bootstrap"]["templateRef"]["name"], "n");
    assert_eq!(worker["healthCheck"]["checks"]["unhealthyNodeConditions"][0]["timeoutSeconds"], 300);
    assert_eq!(worker["rollout"]["strategy"]["type"], "OnDelete");
    assert_eq!(hub.get("/spec/controlPlane/templateRef/kind"), "HostedControlPlaneTemplate");
    assert_eq!(convert(&hub, "v1beta1").unwrap(), old);
}

#[test]
fn old_names_of_hosted_control_planes_and_bare_metal_are_understood() {
    let table = [
        (
            "controlplane.cluster.x-k8s.io",
            "K0smotronControlPlane",
            json!({"controllerPlaneFlags": ["--debug"], "kineDataSourceURL": "u"}),
            json!({"controlPlaneFlags": ["--debug"], "storage": {"kine": {"dataSourceURL": "u"}, "type": "kine"}}),
        ),
        (
            "bootstrap.cluster.x-k8s.io",
            "K0sWorkerConfig",
            json!({"preStartCommands": ["a"]}),
            json!({"preK0sCommands": ["a"]}),
        ),
        (
            "infrastructure.cluster.x-k8s.io",
            "Metal3Cluster",
            json!({"noCloudProvider": true}),
            json!({"cloudProviderEnabled": false}),
        ),
        (
            "infrastructure.cluster.x-k8s.io",
            "Metal3Remediation",
            json!({"strategy": {"timeout": "5m"}}),
            json!({"strategy": {"timeoutSeconds": 300}}),
        ),
        (
            "k0smotron.io",
            "JoinTokenRequest",
            json!({"clusterRef": {"name": "c", "namespace": "n"}}),
            json!({"clusterName": "c"}),
        ),
    ];
    for (group, kind, spec, expected) in table {
        let mut old = Object::named(&format!("{group}/v1beta1"), kind, "default", "x");
        old.0["spec"] = spec;
        let hub = convert(&old, "v1beta2").unwrap();
        assert_eq!(hub.get("/spec"), &expected, "{kind}");
        assert_eq!(convert(&hub, "v1beta1").unwrap(), old, "{kind}");
    }
}
