//! The background process is killed at ten moments of a cluster's life; each time `up` brings everything back, and nothing is doubled or left.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;

use std::io::{BufRead as _, BufReader};

use plane::{Plane, condition};
use serde_json::Value;

const PLANE: &str = "kamajicontrolplane/kamaji-quickstart-control-plane";

type Moment = (&'static str, &'static str, fn(&Value) -> bool);

fn there(object: &Value) -> bool {
    object["metadata"]["name"].is_string()
}

fn some(list: &Value) -> bool {
    list["items"].as_array().is_some_and(|items| !items.is_empty())
}

/// When to kill: as soon as this object is like that.
const CREATION: [Moment; 6] = [
    ("the manifest has just been applied", "cluster/capi-quickstart", there),
    ("the Service is there", "service/kamaji-quickstart-control-plane", there),
    ("the first certificates are there", "secret/kamaji-quickstart-control-plane-ca", there),
    ("the API server starts", "deployment/kamaji-quickstart-control-plane", there),
    ("the control plane is initialized", PLANE, |plane| {
        plane["status"]["initialization"]["controlPlaneInitialized"] == true
    }),
    ("the server is being built", "openstackmachines", |list| {
        list["items"].as_array().is_some_and(|items| {
            items.iter().any(|item| ["BUILD", "ACTIVE"].iter().any(|state| item["status"]["instanceState"] == *state))
        })
    }),
];

const DELETION: [Moment; 4] = [
    ("deletion has begun", "cluster/capi-quickstart", |cluster| cluster["metadata"]["deletionTimestamp"].is_string()),
    // They may all be gone while the plane comes back: kubectl prints nothing then.
    ("the machines go, or are gone", "machines", |list| {
        let mut items = list["items"].as_array().into_iter().flatten();
        items.all(|item| item["metadata"]["deletionTimestamp"].is_string())
    }),
    ("the control plane goes", "cluster/capi-quickstart", |cluster| {
        cluster.is_null()
            || condition(cluster, "Deleting").1.contains("KamajiControlPlane")
            || condition(cluster, "Deleting").1.contains("OpenStackCluster")
    }),
    ("the cluster is gone, or nearly", "kamajicontrolplanes", |list| {
        !some(list) || list["items"][0]["metadata"]["deletionTimestamp"].is_string()
    }),
];

#[test]
fn killed_at_ten_moments_and_nothing_is_doubled_or_left() {
    let plane = Plane::new();
    plane.ok(&["up"]);
    let mut waiting = plane.start(&["up", "examples/kamaji-openstack.yaml"]);
    // One that has not applied anything yet would start the plane again itself.
    let mut told = BufReader::new(waiting.stdout.take().unwrap());
    told.read_line(&mut String::new()).unwrap();
    let mut waiting = Some((waiting, told));
    for (moment, object, reached) in CREATION {
        plane.until(object, reached);
        eprintln!("killed when {moment}");
        plane.kill();
        if let Some((mut waiting, _told)) = waiting.take() {
            assert!(!waiting.wait().unwrap().success(), "whoever waits is told");
        }
        plane.ok(&["up"]);
    }
    plane.until("cluster/capi-quickstart", |cluster| condition(cluster, "Available").0 == "True");
    let count = |kind: &str| plane.inventory().iter().filter(|item| item["kind"] == kind).count();
    assert_eq!((count("server"), count("port"), count("security-group")), (1, 1, 2));
    assert_eq!(plane.tenant("capi-quickstart", &["get", "nodes", "-o", "name"]).lines().count(), 1);

    plane.kubectl(&["delete", "cluster", "capi-quickstart", "--wait=false"]);
    for (moment, object, reached) in DELETION {
        plane.until(object, reached);
        eprintln!("killed when {moment}");
        plane.kill();
        plane.ok(&["up"]);
    }
    plane.until("cluster/capi-quickstart", Value::is_null);
    assert_eq!(plane.inventory(), Vec::<Value>::new());
    let kinds = "machinedeployments,machinesets,machines,openstackclusters,openstackmachines,kubeadmconfigs,kamajicontrolplanes,deployments";
    plane.until(kinds, |list| !some(list));
}
