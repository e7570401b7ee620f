//! The whole API on a real kube-apiserver with our definitions and webhook, and nothing else that moves: every document of the five seeds,
//! read back in every served version; what is refused and how; explain, columns, short names and scale.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod api;

use api::{Api, documents, lacks, subset};
use hangar_api::conversion::convert;
use hangar_api::{Object, registry};
use serde_json::{Value, json};

const SEEDS: [(&str, &str); 6] = [
    ("000", include_str!("seeds/000-kamaji-openstack.yaml")),
    ("001", include_str!("seeds/001-capo-kubeadm.yaml")),
    ("002", include_str!("seeds/002-kamaji-metal3.yaml")),
    ("003, its class", include_str!("seeds/003-class.yaml")),
    ("003", include_str!("seeds/003-cluster-stack-hosted-control-plane.yaml")),
    ("004", include_str!("seeds/004-k0smotron-openstack.yaml")),
];

/// One server for all of it: starting one takes longer than everything that is asked of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_is_served() {
    let api = Api::start().await;
    for namespace in ["metal3", "hcp-system", "cluster"] {
        api.kubectl(&["create", "namespace", namespace]);
    }
    every_seed_is_admitted_and_read_back(&api).await;
    what_is_wrong_is_named(&api);
    what_must_not_change_stays(&api);
    the_webhook_answers_anything(&api).await;
    people_find_their_way(&api);
    api.stop().await;
}

async fn every_seed_is_admitted_and_read_back(api: &Api) {
    let (mut applied, mut read) = (0, 0);
    for (seed, text) in SEEDS {
        api.kubectl_with(&["apply", "--validate=strict", "-f", "-"], text);
        for written in documents(text) {
            applied += 1;
            read += 1;
            let stored = api.get(&written, None).await;
            subset(&written.0, &stored.0, &format!("seed {seed}: {}", written.key()));
            let Some(facts) = registry::kind(written.group(), written.kind()) else { continue };
            let own = written.api_version().rsplit('/').next().unwrap();
            for version in &facts.versions {
                read += 1;
                let rendition = api.get(&written, Some(version.name)).await;
                assert_eq!(rendition.api_version(), format!("{}/{}", facts.group, version.name));
                // In another version fields have other places: turned back, all of them must be there.
                let back = convert(&rendition, own).unwrap();
                subset(&written.0, &back.0, &format!("seed {seed}: {} read as {}", written.key(), version.name));
                // And what is read in a version can be written in that version.
                let text = rendition.without_server_fields().to_string();
                api.kubectl_with(&["replace", "--dry-run=server", "--validate=strict", "-f", "-"], &text);
            }
        }
    }
    assert_eq!(applied, 36, "33 documents of the seeds and three of the class");
    println!("{applied} documents applied, read back {read} times");
    null_and_wrong_versions(api).await;
}

/// What the documents have that no other release takes.
async fn null_and_wrong_versions(api: &Api) {
    let named = |group: &str, kind: &str, namespace: &str, name: &str| {
        let facts = registry::kind(group, kind).unwrap();
        Object::named(&facts.hub_api_version(), kind, namespace, name)
    };
    let kamaji = named("controlplane.cluster.x-k8s.io", "KamajiControlPlane", "metal3", "capi-quickstart-metal3");
    assert_eq!(api.get(&kamaji, None).await.get("/spec/deployment"), &Value::Null, "null is nothing");
    let workers = api.get(&named("cluster.x-k8s.io", "MachineDeployment", "default", "basic-1-md-0"), None).await;
    let labels = workers.get("/spec/selector/matchLabels");
    assert_eq!(
        labels,
        &json!({"cluster.x-k8s.io/cluster-name": "basic-1", "cluster.x-k8s.io/deployment-name": "basic-1-md-0"})
    );
    // The reference says v1beta1, the object exists as v1alpha1 and v1alpha2: group and kind find it.
    let cluster = api.get(&named("cluster.x-k8s.io", "Cluster", "metal3", "test1"), None).await;
    let reference = cluster.get("/spec/controlPlaneRef");
    assert_eq!(
        reference,
        &json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KamajiControlPlane", "name": "capi-quickstart-metal3"})
    );
    let cloud = api
        .get(&named("infrastructure.cluster.x-k8s.io", "OpenStackCluster", "default", "capi-quickstart"), None)
        .await;
    assert_eq!(cloud.get("/spec/apiServerFixedIP"), "", "empty is not absent");
}

fn what_is_wrong_is_named(api: &Api) {
    let cluster = |spec: Value| manifest("cluster.x-k8s.io/v1beta1", "Cluster", spec);
    let deployment = |spec: Value| manifest("cluster.x-k8s.io/v1beta2", "MachineDeployment", spec);
    let machine = json!({"clusterName": "c", "bootstrap": {"dataSecretName": "s"}, "infrastructureRef": {"apiGroup": "a", "kind": "K", "name": "n"}});
    let with = |version: &str| {
        let mut spec = machine.clone();
        spec["version"] = version.into();
        json!({"clusterName": "c", "template": {"spec": spec}})
    };
    let network = |network: Value| {
        let spec = json!({"identityRef": {"name": "n", "cloudName": "c"}, "network": network});
        manifest("infrastructure.cluster.x-k8s.io/v1beta1", "OpenStackCluster", spec)
    };
    let id = "11111111-2222-4333-8444-555555555555";
    let table: Vec<(Value, &[&str])> = vec![
        (cluster(json!({"clusterNetwrk": {}})), &["unknown field", "spec.clusterNetwrk"]),
        (cluster(json!({"paused": "yes"})), &["spec.paused", "boolean"]),
        (
            cluster(json!({"clusterNetwork": {"pods": {"cidrBlocks": ["10.0.0.0/33"]}}})),
            &["spec.clusterNetwork.pods.cidrBlocks[0]", "10.0.0.0/33", "CIDR"],
        ),
        (
            cluster(json!({"topology": {"class": "c", "version": "latest"}})),
            &["spec.topology.version", "latest", "v1.33.6"],
        ),
        (deployment(with("one")), &["spec.template.spec.version", "one"]),
        (
            deployment(
                json!({"clusterName": "c", "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": machine}}),
            ),
            &["spec.template.metadata.labels[a]", "spec.selector"],
        ),
        (network(json!({"id": id, "filter": {"name": "n"}})), &["spec.network", "at most 1"]),
        (network(json!({"id": "no-uuid"})), &["spec.network.id", "uuid"]),
        (
            manifest(
                "infrastructure.cluster.x-k8s.io/v1beta1",
                "OpenStackCluster",
                json!({"identityRef": {"name": "n", "cloudName": "c"}, "disableExternalNetwork": true}),
            ),
            &["spec.disableAPIServerFloatingIP", "disableExternalNetwork"],
        ),
        (
            manifest(
                "controlplane.cluster.x-k8s.io/v1alpha2",
                "KamajiControlPlane",
                json!({"version": "1.33.6", "network": {"ingress": {"hostname": "a"}, "gateway": {"hostname": "a", "name": "g", "namespace": "n"}}}),
            ),
            &["spec.network", "exclude each other"],
        ),
        (
            manifest(
                "controlplane.cluster.x-k8s.io/v1beta2",
                "KubeadmControlPlane",
                json!({"replicas": 2, "version": "v1.33.6", "kubeadmConfigSpec": {}, "machineTemplate": {"spec": {"infrastructureRef": {"apiGroup": "a", "kind": "K", "name": "n"}}}}),
            ),
            &["spec.replicas", "odd"],
        ),
        (
            manifest(
                "ipam.metal3.io/v1alpha1",
                "IPPool",
                json!({"namePrefix": "p", "pools": [{"start": "10.0.0.9", "end": "10.0.0.1"}]}),
            ),
            &["spec.pools[0]", "start"],
        ),
    ];
    for (manifest, words) in table {
        api.refused(&["apply", "--validate=strict", "-f", "-"], &manifest.to_string(), words);
    }
}

fn manifest(api_version: &str, kind: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "wrong", "namespace": "default"}, "spec": spec})
}

fn what_must_not_change_stays(api: &Api) {
    let table = [
        (
            "machinedeployment/basic-1-md-0",
            r#"{"spec":{"clusterName":"other","template":{"spec":{"clusterName":"other"}}}}"#,
            "spec.clusterName",
        ),
        (
            "openstackmachinetemplates.v1beta1.infrastructure.cluster.x-k8s.io/basic-1-md-0",
            r#"{"spec":{"template":{"spec":{"flavor":"m1.huge"}}}}"#,
            "spec.template.spec",
        ),
        (
            "openstackclusters.v1beta1.infrastructure.cluster.x-k8s.io/capi-quickstart",
            r#"{"spec":{"disableExternalNetwork":false}}"#,
            "spec.disableExternalNetwork",
        ),
        // The newest version has it the other way round.
        (
            "openstackcluster/capi-quickstart",
            r#"{"spec":{"enableExternalNetwork":true}}"#,
            "spec.disableExternalNetwork",
        ),
    ];
    for (what, patch, field) in table {
        api.refused(&["patch", what, "--type=merge", "-p", patch], "", &[field, "cannot be changed"]);
    }
}

/// Over the wire, past the API server, which would send nothing of the kind.
async fn the_webhook_answers_anything(api: &Api) {
    let client = api.webhook_client();
    let bodies = [
        b"".to_vec(),
        b"garbage".to_vec(),
        // As much as admission reads; more is refused while it comes (`no_more_is_read_than_an_api_server_sends`).
        vec![b'['; 7 << 20],
        vec![0xff; 1000],
        br#"{"kind":"ConversionReview","request":{"uid":"u"}}"#.to_vec(),
    ];
    for body in bodies {
        for path in ["/convert", "/admit"] {
            let request =
                http::Request::post(path).header("content-type", "application/json").body(body.clone()).unwrap();
            let answer: Value = client.request(request).await.unwrap();
            let response = &answer["response"];
            let failed = response["result"]["status"] == "Failure" || response["allowed"] == false;
            assert!(failed, "{path}: {answer}");
        }
    }
}

#[test]
fn definitions_are_printed_with_their_conversion_stanza() {
    let run =
        |arguments: &[&str]| std::process::Command::new(env!("CARGO_BIN_EXE_hangar")).args(arguments).output().unwrap();
    let json = |arguments: &[&str]| -> Value { serde_json::from_slice(&run(arguments).stdout).unwrap() };
    let all = json(&["crds", "-o", "json"]);
    assert_eq!(all["items"].as_array().unwrap().len(), registry::kinds().len());
    let addons = json(&["crds", "--group", "addons.cluster.x-k8s.io", "-o", "json"]);
    assert_eq!(addons["items"].as_array().unwrap().len(), 2);
    let clusters = json(&["crds", "--kind", "Cluster", "-o", "json"]);
    assert_eq!(clusters["items"].as_array().unwrap().len(), 2, "Cluster API's and k0smotron's");
    let client = &clusters["items"][0]["spec"]["conversion"]["webhook"]["clientConfig"];
    assert_eq!(client["service"]["name"], "hangar-webhook");
    let yaml = String::from_utf8(run(&["crds", "ippools", "-o", "yaml"]).stdout).unwrap();
    let printed = hangar_api::yaml::document(&yaml).unwrap();
    assert_eq!(printed["metadata"]["name"], "ippools.ipam.metal3.io");
    let refused = run(&["crds", "--webhook-url", "https://127.0.0.1:1"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--webhook-ca"));
}

fn people_find_their_way(api: &Api) {
    let explain = |arguments: &[&str]| {
        let said = api.kubectl(&[&["explain"], arguments].concat());
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let said = explain(&["cluster.spec.topology.version"]);
    assert!(said.contains("Version of Kubernetes of the whole cluster"), "{said}");
    let said = explain(&["osc.spec.apiServerFixedIP"]);
    assert!(said.contains("An empty text is not the same as none"), "{said}");
    let table = [
        (
            "cl",
            "NAME CLUSTERCLASS AVAILABLE CP DESIRED CP AVAILABLE CP UP-TO-DATE W DESIRED W AVAILABLE W UP-TO-DATE PHASE AGE VERSION",
        ),
        ("md", "NAME CLUSTER AVAILABLE DESIRED CURRENT READY AVAILABLE UP-TO-DATE PHASE AGE VERSION"),
        ("kcp", "NAME CLUSTER AVAILABLE DESIRED CURRENT READY AVAILABLE UP-TO-DATE INITIALIZED AGE VERSION"),
        (
            "machinedeployments.v1beta1.cluster.x-k8s.io",
            "NAME CLUSTER REPLICAS READY UPDATED UNAVAILABLE PHASE AGE VERSION",
        ),
    ];
    for (what, columns) in table {
        let said = api.kubectl(&["get", what]);
        let head = said.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(head, columns, "kubectl get {what}");
    }
    for short in
        ["osc", "osmt", "ktcp", "cc", "hcpt", "csk", "m3c", "m3dt", "m3mt", "ipp", "bmh", "tcp", "kmc", "ext", "mhc"]
    {
        api.kubectl(&["get", short, "-A"]);
    }
    assert!(api.kubectl(&["get", "cluster-api", "-A"]).contains("kubeadmcontrolplane"), "categories");
    let before = api.kubectl(&["get", "md", "basic-1-md-0", "-o", "jsonpath={.spec.replicas}"]);
    assert_eq!(before, "1");
    for scaled in
        ["machinedeployment/basic-1-md-0", "ktcp/kamaji-quickstart-control-plane", "kcp/basic-1-control-plane"]
    {
        api.kubectl(&["scale", scaled, "--replicas=3"]);
        assert_eq!(api.kubectl(&["get", scaled, "-o", "jsonpath={.spec.replicas}"]), "3", "{scaled}");
    }
    lacks(&api.kubectl(&["get", "crd", "clusters.cluster.x-k8s.io", "-o", "json"]), "\"None\"");
}
