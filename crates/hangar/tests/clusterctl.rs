//! `cargo xtask clusterctl`: upstream's own command line against our objects: what it describes, which kubeconfig it finds, and what it writes down and reads back.
//!
//! Not part of CI: clusterctl takes some minutes to build.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use plane::Plane;
use serde_json::Value;

const CLUSTER: &str = "capi-quickstart";

struct Clusterctl {
    program: PathBuf,
    kubeconfig: String,
}

impl Clusterctl {
    fn new(plane: &Plane) -> Self {
        let program = plane.ok(&["components", "path", "clusterctl"]).trim().into();
        Self { program, kubeconfig: plane.home().join("kubeconfig").display().to_string() }
    }

    fn ok(&self, arguments: &[&str]) -> String {
        self.run(arguments, "--kubeconfig")
    }

    /// `at` is how the command calls the cluster that it works on.
    fn run(&self, arguments: &[&str], at: &str) -> String {
        let output = Command::new(&self.program)
            .args(arguments)
            .args([at, &self.kubeconfig, "--namespace", "default"])
            // It would ask a site for newer versions of itself.
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
            .output()
            .unwrap();
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "clusterctl {arguments:?} failed\n{said}\n{errors}");
        said.into_owned()
    }
}

#[test]
#[ignore = "clusterctl takes minutes to build: `cargo xtask clusterctl` runs it"]
fn clusterctl_understands_our_clusters() {
    let plane = Plane::new();
    plane.ok(&["up", "examples/kamaji-openstack.yaml"]);
    let clusterctl = Clusterctl::new(&plane);
    trees_are_alike(&plane, &clusterctl);
    let (theirs, ours) = (clusterctl.ok(&["get", "kubeconfig", CLUSTER]), plane.ok(&["get", "kubeconfig", CLUSTER]));
    assert_eq!(theirs.trim(), ours.trim());
    what_is_written_down_comes_back(&plane, &clusterctl);
    plane.kubectl(&["delete", "cluster", CLUSTER, "--timeout=300s"]);
    assert_eq!(plane.inventory(), Vec::<Value>::new(), "something is left in the cloud");
}

fn trees_are_alike(plane: &Plane, clusterctl: &Clusterctl) {
    let theirs = clusterctl.ok(&["describe", "cluster", CLUSTER, "--color=false"]);
    let ours = plane.ok(&["describe", "cluster", CLUSTER]);
    println!("{theirs}\n{ours}");
    assert_eq!(structure(&theirs), structure(&ours));
    assert!(structure(&ours).len() >= 6, "{ours}");
}

/// Depth and name of each row; rows without a name continue the message of the row above.
fn structure(tree: &str) -> Vec<(usize, String)> {
    let rows = tree.lines().skip(1).filter_map(|line| {
        let name = line.trim_start_matches(['│', '├', '└', '─', ' ']);
        let depth = (line.chars().count() - name.chars().count()) / 2;
        let name = name.split("  ").next().unwrap_or_default().trim();
        name.chars().next().is_some_and(char::is_alphabetic).then(|| (depth, name.to_owned()))
    });
    // What follows the tree in our output are reasons.
    rows.take_while(|(_, name)| name != "why:").collect()
}

/// A move into a directory and back: every object of the cluster is in there, and what comes back replaces and restarts nothing.
fn what_is_written_down_comes_back(plane: &Plane, clusterctl: &Clusterctl) {
    let (servers, objects) = (plane.inventory(), identities(plane));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display().to_string();
    clusterctl.ok(&["move", "--to-directory", &path]);
    let kinds = kinds_in(directory.path());
    println!("written down: {kinds:?}");
    for kind in [
        "Cluster",
        "KamajiControlPlane",
        "KubeadmConfig",
        "KubeadmConfigTemplate",
        "Machine",
        "MachineDeployment",
        "MachineSet",
        "OpenStackCluster",
        "OpenStackMachine",
        "OpenStackMachineTemplate",
        "Secret",
    ] {
        assert!(kinds.contains(kind), "clusterctl found no {kind}: {kinds:?}");
    }
    clusterctl.run(&["move", "--from-directory", &path], "--to-kubeconfig");
    plane.until(&format!("cluster/{CLUSTER}"), |cluster| {
        let paused = cluster["spec"]["paused"] == true;
        !paused && plane::condition(cluster, "Available").0 == "True"
    });
    assert_eq!(identities(plane), objects, "something was made anew");
    assert_eq!(plane.inventory().len(), servers.len(), "something was made anew in the cloud");
}

/// Names and UIDs of what must not be replaced.
fn identities(plane: &Plane) -> Vec<(String, String)> {
    let of = |kind: &str| plane.get(kind)["items"].as_array().cloned().unwrap_or_default();
    let all = ["clusters", "machinesets", "machines", "openstackmachines", "kamajicontrolplanes"].map(of).concat();
    let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap().to_owned();
    all.iter().map(|object| (text(object, "name"), text(object, "uid"))).collect()
}

fn kinds_in(directory: &Path) -> BTreeSet<String> {
    let files = directory.read_dir().unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    let kind = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("kind: ").map(str::to_owned));
        line.or_else(|| serde_json::from_str::<Value>(&text).ok()?["kind"].as_str().map(str::to_owned))
    };
    files.filter_map(kind).collect()
}
