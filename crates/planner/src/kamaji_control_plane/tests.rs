use serde_json::{Value, json};

use super::*;
use crate::hosted::tests::{begin_pass, edit, run, world};
use crate::hosted::{ControlPlane, Exposure, Facts};
use crate::plan;
use crate::testing::{Fake, at, changed, condition, merge, planned, said, shared};

pub(crate) fn model(world: &World) -> ControlPlane {
    translate::control_plane(world).unwrap()
}

#[test]
fn kamajis_words_are_translated_and_have_defaults() {
    let plain = model(&world(json!({ "network": { "serviceType": null } })));
    assert_eq!(
        (plain.replicas, plain.registry.as_str(), plain.cluster_name.as_str(), plain.name.as_str()),
        (2, "registry.k8s.io", "c", "p")
    );
    assert_eq!(
        (plain.network.dns_ip.as_str(), plain.network.pod_cidr.as_str(), plain.kubernetes_service_ip().as_str()),
        ("10.96.0.10", "192.168.0.0/16", "10.96.0.1")
    );
    assert_eq!((plain.exposure.service_type.as_str(), plain.exposure.port), ("LoadBalancer", 6443));
    assert_eq!(
        (plain.kubelet.cgroup_driver.as_str(), plain.kubelet.preferred_address_types.join(",")),
        ("systemd", "InternalIP,ExternalIP,Hostname".into())
    );
    let tenancy = plain.tenancy().unwrap();
    assert_eq!(
        (tenancy.store.as_str(), tenancy.user.as_str(), tenancy.prefix().as_str()),
        ("store", "p-uid", "/p-uid/")
    );
    let chosen = model(&world(
        json!({ "replicas": 3, "registry": "mirror", "dataStoreSchema": "s", "dataStoreUsername": "u",
        "addons": { "coreDNS": { "dnsServiceIPs": ["10.96.0.53"], "imageRepository": "r", "imageTag": "t" } },
        "network": { "serviceType": "LoadBalancer", "serviceAddress": "1.2.3.4", "certSANs": ["a"], "serviceLabels": { "l": "1" }, "serviceAnnotations": { "a": "2" },
            "loadBalancerConfig": { "loadBalancerClass": "k", "loadBalancerSourceRanges": ["10.0.0.0/8"] } },
        "kubelet": { "cgroupfs": "cgroupfs", "preferredAddressTypes": ["ExternalIP"] },
        "apiServer": { "containerImageName": "custom", "extraArgs": ["--v=4"] },
        "deployment": { "nodeSelector": { "a": "b" }, "tolerations": [] } }),
    ));
    assert_eq!(
        (chosen.replicas, chosen.registry.as_str(), chosen.network.dns_ip.as_str()),
        (3, "mirror", "10.96.0.53")
    );
    assert_eq!((chosen.tenancy().unwrap().user.as_str(), chosen.tenancy().unwrap().schema.as_str()), ("u", "s"));
    let Exposure { address, labels, annotations, source_ranges, class, .. } = &chosen.exposure;
    assert_eq!((address.as_deref(), class.as_deref(), source_ranges.len()), (Some("1.2.3.4"), Some("k"), 1));
    assert_eq!((labels, annotations), (&json!({ "l": "1" }), &json!({ "a": "2" })));
    assert_eq!(chosen.image(&chosen.api_server, "kube-apiserver"), "mirror/custom:v1.34.4");
    assert_eq!(chosen.placement, json!({ "nodeSelector": { "a": "b" }, "tolerations": [] }));
    assert_eq!(chosen.kubelet.cgroup_driver, "cgroupfs");
}

#[test]
fn what_cannot_be_translated_is_named() {
    let mut unusable = world(json!({}));
    let mut cluster = unusable.cluster().unwrap().clone();
    merge(&mut cluster.0, &json!({ "spec": { "clusterNetwork": { "services": { "cidrBlocks": ["ten"] } } } }));
    unusable.objects.insert(shared(cluster.0));
    for (what, world, expected) in [
        ("version", world(json!({ "version": "" })), r#"spec.version "" is not a Kubernetes version such as v1.34.4"#),
        ("service range", unusable, r#"the Cluster's service range "ten" is not a CIDR such as 10.96.0.0/16"#),
    ] {
        assert_eq!(translate::control_plane(&world).unwrap_err(), expected, "{what}");
    }
}

#[test]
fn a_control_planes_status_version_says_what_runs() {
    for (what, running, before, expected) in [
        ("nothing runs yet", None, "", ""),
        ("what was requested", Some("v1.34.4"), "", "v1.34.4"),
        ("another one", Some("v1.33.1"), "v1.34.4", "v1.33.1"),
        ("the API does not answer", None, "v1.34.2", "v1.34.2"),
        ("a build tag is none of our business", Some("v1.34.4+k3s1"), "", "v1.34.4"),
    ] {
        let mut world = changed(world(json!({})), |own| own["status"] = json!({ "version": before }));
        world.facts.tenant_version = running.map(str::to_owned);
        let refused = crate::refused(&world, crate::Reason::retry("X", "x"), at(0)).status.unwrap();
        assert_eq!(refused["version"].as_str().unwrap_or_default(), expected, "{what}");
    }
}

#[test]
fn another_version_than_the_one_requested_is_never_run_in_silence() {
    for (running, expected) in [
        (None, None),
        (Some("v1.34.4"), Some(("True", ""))),
        (
            Some("v1.33.1"),
            Some(("False", "requested v1.34.4, running v1.33.1: the requested version is not installed")),
        ),
    ] {
        let mut world = world(json!({}));
        world.facts.tenant_version = running.map(str::to_owned);
        let plan = crate::refused(&world, crate::Reason::retry("X", "x"), at(0));
        let found = condition(&plan, "VersionAsRequested");
        assert_eq!(
            found.as_ref().map(|(status, _, message)| (status.as_str(), message.as_str())),
            expected,
            "{running:?}"
        );
    }
}

#[test]
fn the_status_follows_the_deployment_and_what_was_initialized_stays_so() {
    let (mut world, mut fake) = (world(json!({})), Fake::default());
    let plan = run(&mut world, &mut fake);
    let status = plan.status.clone().unwrap();
    assert_eq!(
        (&status["ready"], &status["replicas"], &status["readyReplicas"], &status["externalManagedControlPlane"]),
        (&json!(true), &json!(2), &json!(2), &json!(true))
    );
    assert_eq!(status["initialization"]["controlPlaneInitialized"], true);
    assert!(status["selector"].as_str().unwrap().contains("kamaji.clastix.io/name=p"));
    for kind in [
        "Ready",
        "Available",
        "TenantControlPlaneAddressReady",
        "KamajiControlPlaneIsInitialized",
        "KamajiControlPlaneIsReady",
        "KubeadmResourcesCreated",
    ] {
        assert_eq!(condition(&plan, kind).unwrap().0, "True", "{kind}");
    }
    let mut world = changed(world, |own| own["status"] = status);
    edit(&mut world, "apps", "Deployment", "p", json!({ "status": { "availableReplicas": 0 } }));
    begin_pass(&mut world);
    let plan = planned(&world);
    let status = plan.status.clone().unwrap();
    assert_eq!((&status["ready"], &status["initialization"]["controlPlaneInitialized"]), (&json!(false), &json!(true)));
    assert_eq!(
        condition(&plan, "Available").unwrap(),
        ("False".into(), "WaitingForAPIServer".into(), "the API server is starting".into())
    );
}

#[test]
fn konnectivity_is_shown_only_if_it_was_asked_for_and_says_how_to_get_it() {
    let asked = || json!({ "addons": { "konnectivity": { "server": {}, "agent": {} } } });
    let shown = |spec: Value, konnectivity: Result<(), String>| {
        let mut world = world(spec);
        world.facts = Facts { konnectivity, ..world.facts };
        condition(&crate::refused(&world, crate::Reason::retry("X", "x"), at(0)), "KonnectivityReady")
            .map(|it| (it.0, it.2))
    };
    assert_eq!(shown(json!({}), Ok(())), None);
    assert_eq!(shown(asked(), Ok(())), Some(("False".into(), String::new())));
    let missing = "konnectivity-server is not installed, the API server calls nodes directly: fetch it";
    assert_eq!(shown(asked(), Err("fetch it".into())), Some(("False".into(), missing.into())));
    let mut without = world(asked());
    without.facts.konnectivity = Err("fetch it".into());
    assert_eq!(model(&without).addons.konnectivity, None, "without the program nothing would start");
}

#[test]
fn it_carries_the_name_of_its_cluster_and_our_finalizer_from_the_first_step_on() {
    let bare = changed(world(json!({})), |own| {
        merge(
            own,
            &json!({ "metadata": { "finalizers": null, "labels": null, "ownerReferences": crate::testing::owner(crate::testing::CORE, "Cluster", "c") } }),
        );
    });
    assert_eq!(
        said(&plan(&bare, at(0))),
        r#"patch KamajiControlPlane n/p {"metadata":{"finalizers":["kamajicontrolplane.controlplane.cluster.x-k8s.io"],"labels":{"cluster.x-k8s.io/cluster-name":"c"}}}"#
    );
}
