//! What a user gets wrong is said: what, where, and what to do.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;

use plane::{Plane, condition, repository};
use serde_json::{Value, json};

fn refused(plane: &Plane, arguments: &[&str], words: &[&str]) {
    let output = plane.run(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{arguments:?} succeeded: {said}");
    for word in words {
        assert!(said.contains(word), "{arguments:?}: no {word:?} in:\n{said}");
    }
}

#[test]
fn what_cannot_work_is_said_before_anything_is_started() {
    let plane = Plane::new();
    refused(&plane, &["up", "no-such-file.yaml"], &["no-such-file.yaml", "No such file"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("broken.yaml");
    std::fs::write(&file, "kind: Cluster\nspec: [").unwrap();
    refused(&plane, &["up", file.to_str().unwrap()], &["broken.yaml", "not valid YAML in document 1"]);
    std::fs::write(&file, "kind: Cluster\napiVersion: v1\nmetadata: {name: x}\ndata: ${NO_SUCH_VARIABLE}\n").unwrap();
    refused(&plane, &["up", file.to_str().unwrap()], &["NO_SUCH_VARIABLE", "environment"]);
    refused(&plane, &["up", "--timeout", "soon"], &["--timeout", "soon", "90s"]);
    refused(&plane, &["up", "--substitute-versions", "never"], &["--substitute-versions=never"]);
    refused(&plane, &["--home", "/proc/hangar", "status"], &["/proc/hangar", "--home", "HANGAR_HOME"]);
    refused(&plane, &["up", "--components", "/no/such/place"], &["/no/such/place (--components)", "No such file"]);
    refused(
        &plane,
        &["up", "--components", file.to_str().unwrap()],
        &["broken.yaml (--components)", "Not a directory"],
    );
    refused(&plane, &["kubectl", "--", "get", "nodes"], &["hangar up"]);
    refused(&plane, &["crds", "NoSuchKind"], &["NoSuchKind"]);
    assert!(!plane.state().is_object());
}

#[test]
fn without_go_and_without_a_network_the_ways_out_are_named() {
    let plane = Plane::new();
    let empty = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hangar"));
    command.env("HANGAR_HOME", plane.home()).env("HANGAR_COMPONENTS", empty.path()).env("PATH", empty.path());
    // Nobody listens there: a network that is not there answers no faster.
    let output =
        command.args(["--mirror", "http://127.0.0.1:9", "--insecure-mirror", "components", "fetch"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    for word in ["Go", "--components", "--mirror"] {
        assert!(said.contains(word), "no {word:?} in:\n{said}");
    }
}

const MICE: &str = "
{apiVersion: example.org/v1, kind: Mouse, metadata: {name: grey}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: mice.example.org}
spec:
  group: example.org
  names: {kind: Mouse, plural: mice}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
";

#[test]
fn manifests_come_from_files_and_pipes_and_programs_are_answered_in_json() {
    let (plane, directory) = (Plane::new(), tempfile::tempdir().unwrap());
    let up: Value = serde_json::from_str(&plane.ok(&["up", "-o", "json"])).unwrap();
    assert_eq!((&up["kubernetes"], &up["clusters"]), (&json!("1.34.4"), &json!([])), "{up}");
    let text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}\n\
                - {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 7}\n";
    let applied = plane.run_with(&["apply", "-f", "-", "-o", "json"], text);
    let applied: Value = serde_json::from_slice(&applied.stdout).unwrap();
    assert_eq!(applied["items"][0]["metadata"]["namespace"], "default", "{applied}");
    assert_eq!(applied["items"][1]["metadata"].get("namespace"), None, "{applied}");
    assert_eq!(plane.get("priorityclass/high")["value"], 7);
    let refused = plane.run_with(&["apply", "-f", "-"], "{apiVersion: example.org/v1, kind: Car, metadata: {name: x}}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("no kind Car in example.org/v1") && said.contains("api-resources"), "{said}");
    empty_values_and_missing_namespaces(&plane, directory.path());
    // With its definition, whatever its plural, and whichever stands first.
    let with_definition = plane.run_with(&["apply", "-f", "-"], MICE);
    assert!(with_definition.status.success(), "{}", String::from_utf8_lossy(&with_definition.stderr));
    assert_eq!(plane.get("mice.example.org/grey")["metadata"]["namespace"], "default");
}

/// As in published examples: `deployment:` with nothing behind it, in a namespace that nobody made.
const EMPTY_VALUE: &str = "
apiVersion: controlplane.cluster.x-k8s.io/v1alpha1
kind: KamajiControlPlane
metadata: {name: quickstart, namespace: metal3}
spec:
  dataStoreName: default
  network: {serviceType: LoadBalancer}
  deployment:
  replicas: 2
  version: 1.34.4
";

fn empty_values_and_missing_namespaces(plane: &Plane, directory: &std::path::Path) {
    let file = directory.join("empty-value.yaml");
    std::fs::write(&file, EMPTY_VALUE).unwrap();
    let file = file.to_str().unwrap();
    refused(plane, &["apply", "-f", file], &["namespace metal3", "hangar kubectl -- create namespace metal3"]);
    let said = plane.ok(&["up", "--no-wait", file]);
    assert!(said.contains("created namespace metal3"), "{said}");
    let said = plane.ok(&["up", "--no-wait", file]);
    assert!(!said.contains("created namespace"), "{said}");
    plane.ok(&["apply", "-f", file]);
}

#[test]
fn a_typo_is_named_and_the_clouds_refusals_are_shown() {
    let plane = Plane::new();
    plane.ok(&["up"]);
    let directory = tempfile::tempdir().unwrap();
    let example = std::fs::read_to_string(repository().join("examples/kamaji-openstack.yaml")).unwrap();
    let changed = |name: &str, from: &str, to: &str| {
        let path = directory.path().join(name);
        assert!(example.contains(from), "{from}");
        std::fs::write(&path, example.replace(from, to)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let password = std::fs::read_to_string(plane.home().join("cloud/password")).unwrap();
    // Before anybody can have a token: what is right in the manifest below is applied.
    plane.admin("PUT", "/admin/password", &json!({ "user": "demo", "password": "changed" }));
    refused(
        &plane,
        &[
            "up",
            &changed(
                "typo.yaml",
                "clusterName: capi-quickstart\n  replicas",
                "clusterNme: capi-quickstart\n  replicas",
            ),
        ],
        &["MachineDeployment", "clusterNme"],
    );

    // Three things are wrong at once: the password, then the network, then the flavor; each is mended in turn.
    let wrong = changed("wrong.yaml", "flavor: m1.small", "flavor: m1.huge");
    plane.ok(&["up", "--no-wait", &wrong]);
    let ready = |object: &Value| condition(object, "Ready").1;
    plane.until("openstackcluster/capi-quickstart", |object| ready(object).contains("401"));
    plane.until("cluster/capi-quickstart", |object| condition(object, "InfrastructureReady").1.contains("401"));
    plane.admin("PUT", "/admin/password", &json!({ "user": "demo", "password": password }));
    plane.until("openstackcluster/capi-quickstart", |object| condition(object, "Ready").0 == "True");
    let machine = |list: &Value| ready(&list["items"][0]);
    plane.until("openstackmachines", |list| {
        machine(list).contains("m1.huge matches no flavor; the cloud has m1.large, m1.medium, m1.small")
    });
    plane.until("machines", |list| machine(list).contains("m1.huge"));

    // Templates are fixed: a right one under another name replaces the machine.
    let mended = changed("mended.yaml", "name: capi-quickstart-md-0\n      version", "name: mended\n      version");
    let mended_template = std::fs::read_to_string(&mended).unwrap().replace(
        "kind: OpenStackMachineTemplate\nmetadata:\n  name: capi-quickstart-md-0",
        "kind: OpenStackMachineTemplate\nmetadata:\n  name: mended",
    );
    let network = "      ports:\n      - network:\n          id: ";
    for (what, right, wrong, words) in [
        (
            "image",
            "c81cf709-d3a4-4f51-8ae7-8e9daca0cfd8".to_owned(),
            "00000000-0000-4000-8000-000000000001".to_owned(),
            "image",
        ),
        ("network", format!("{network}d3c7a2b4"), format!("{network}00000000"), "could not be found"),
    ] {
        let text = mended_template.replace("name: mended", &format!("name: mended-{what}")).replace(&right, &wrong);
        let path = directory.path().join(format!("{what}.yaml"));
        std::fs::write(&path, text).unwrap();
        plane.ok(&["up", "--no-wait", path.to_str().unwrap()]);
        let shown = |item: &Value| ready(item).to_lowercase().contains(words);
        plane.until("machines", |list| list["items"].as_array().is_some_and(|items| items.iter().any(shown)));
    }
    std::fs::write(directory.path().join("right.yaml"), mended_template).unwrap();
    plane.ok(&["up", directory.path().join("right.yaml").to_str().unwrap()]);
    plane.kubectl(&["delete", "cluster", "capi-quickstart", "--timeout=180s"]);
    assert_eq!(plane.inventory(), Vec::<Value>::new());

    // A port that somebody took in the meantime.
    plane.ok(&["down"]);
    let kubeconfig = std::fs::read_to_string(plane.home().join("kubeconfig")).unwrap();
    let server = kubeconfig.split("https://").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let taken = std::net::TcpListener::bind(server.trim()).unwrap();
    refused(&plane, &["up"], &["already in use", "state.json"]);
    drop(taken);
    plane.ok(&["up"]);
}
