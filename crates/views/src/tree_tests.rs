//! Trees of small clusters, as whole texts.

use hangar_api::Object;
use serde_json::{Value, json};

use super::*;
use crate::{RenderOptions, is_ready, render, why};

fn object(kind: &str, name: &str, condition: Value, spec: Value) -> Object {
    let mut object = Object::named("any/v1", kind, "default", name);
    object.0["spec"] = spec;
    if !condition.is_null() {
        object.0["status"] = json!({ "conditions": [condition] });
    }
    object
}

fn says(kind: &str, status: &str, reason: &str, message: &str, time: &str) -> Value {
    let time = format!("2026-01-01T{time}Z");
    json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time })
}

fn ready(kind: &str, time: &str) -> Value {
    says(kind, "True", kind, "", time)
}

fn labelled(mut object: Object, label: &str, value: &str) -> Object {
    object.0["metadata"]["labels"][label] = value.into();
    object
}

fn machine(name: &str, condition: Value) -> Object {
    let spec = json!({
        "bootstrap": { "configRef": { "kind": "KubeadmConfig", "name": name } },
        "infrastructureRef": { "kind": "OpenStackMachine", "name": name },
    });
    labelled(object("Machine", name, condition, spec), names::DEPLOYMENT_NAME_LABEL, "capi-quickstart-md-0")
}

fn quickstart() -> Snapshot {
    let refs = json!({
        "infrastructureRef": { "kind": "OpenStackCluster", "name": "capi-quickstart" },
        "controlPlaneRef": { "kind": "KamajiControlPlane", "name": "kamaji-quickstart-control-plane" },
    });
    let plane = ready("Available", "00:50:00");
    Snapshot {
        cluster: object("Cluster", "capi-quickstart", ready("Available", "00:48:00"), refs),
        infrastructure: Some(object("OpenStackCluster", "capi-quickstart", ready("Ready", "00:59:48"), json!({}))),
        control_plane: Some(object("KamajiControlPlane", "kamaji-quickstart-control-plane", plane, json!({}))),
        deployments: vec![object(
            "MachineDeployment",
            "capi-quickstart-md-0",
            ready("Available", "00:57:17"),
            json!({}),
        )],
        sets: vec![],
        pools: vec![],
        machines: vec![machine("capi-quickstart-md-0-f5xz7-w54x9", ready("Available", "00:56:40"))],
        infrastructure_machines: vec![],
        bootstrap_configs: vec![],
    }
}

fn text(snapshot: &Snapshot, width: usize) -> String {
    let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
    render(&tree(snapshot), now, &RenderOptions { color: false, width })
}

#[test]
fn a_ready_cluster_looks_as_its_documentation_shows_it() {
    let expected = "\
NAME                                                                 READY  REASON  SINCE  MESSAGE
Cluster/capi-quickstart                                              True           12m
├─ClusterInfrastructure - OpenStackCluster/capi-quickstart           True           12s
├─ControlPlane - KamajiControlPlane/kamaji-quickstart-control-plane  True           10m
└─Workers
  └─MachineDeployment/capi-quickstart-md-0                           True           2m43s
    └─Machine/capi-quickstart-md-0-f5xz7-w54x9                       True           3m20s
";
    assert_eq!(text(&quickstart(), 120), expected);
    assert!(is_ready(&tree(&quickstart())));
}

#[test]
fn what_is_missing_unreported_or_under_deletion_is_said() {
    let mut snapshot = quickstart();
    snapshot.infrastructure = None;
    snapshot.control_plane.as_mut().unwrap().0["status"] = Value::Null;
    snapshot.machines[0].0["metadata"]["deletionTimestamp"] = "2026-01-01T00:59:00Z".into();
    let expected = "\
NAME                                                                 READY    REASON       SINCE  MESSAGE
Cluster/capi-quickstart                                              True                  12m
├─ClusterInfrastructure - OpenStackCluster/capi-quickstart           False    NotFound            the object does not exist:
│                                                                                                 apply it, or correct
│                                                                                                 spec.infrastructureRef of the
│                                                                                                 Cluster
├─ControlPlane - KamajiControlPlane/kamaji-quickstart-control-plane  Unknown  NotReported         not reported yet
└─Workers
  └─MachineDeployment/capi-quickstart-md-0                           True                  2m43s
    └─Machine/capi-quickstart-md-0-f5xz7-w54x9                       False    Deleting     60s    waiting for deletion
";
    assert_eq!(text(&snapshot, 128), expected);
    assert_eq!(why(&tree(&snapshot)).len(), 3);
}

#[test]
fn a_server_is_shown_only_if_it_says_more_than_its_machine() {
    let server = |message: &str| {
        let condition = says("Ready", "False", "InstanceCreateFailed", message, "00:59:00");
        object("OpenStackMachine", "m", condition, json!({}))
    };
    let says_so = says("Ready", "False", "NotReady", "* InfrastructureReady: no host has room", "00:59:00");
    let table = [
        (says_so.clone(), server("no host has room"), 0),
        (says_so.clone(), server("the flavor m1.tiny is not known"), 1),
        (says("Ready", "Unknown", "", "", "00:59:00"), server("no host has room"), 1),
        (says_so.clone(), object("OpenStackMachine", "m", Value::Null, json!({})), 0),
        (says_so.clone(), object("OpenStackMachine", "m", ready("Ready", "00:59:00"), json!({})), 0),
        (says_so, object("OpenStackMachine", "another", ready("Ready", "00:59:00"), json!({})), 0),
    ];
    for (condition, server, expected) in table {
        let mut snapshot = quickstart();
        snapshot.machines = vec![machine("m", condition)];
        snapshot.infrastructure_machines = vec![server];
        let row = machine_row(&snapshot, &snapshot.machines[0]);
        assert_eq!(row.children.len(), expected, "{row:?}");
    }
}

#[test]
fn machines_go_to_whoever_owns_them() {
    let mut snapshot = quickstart();
    let mut set = object("MachineSet", "alone", ready("Ready", "00:00:00"), json!({}));
    set.0["metadata"]["uid"] = "set-uid".into();
    let mut of_set = object("Machine", "of-set", ready("Ready", "00:00:00"), json!({}));
    let owner = json!({ "apiVersion": "any/v1", "kind": "MachineSet", "name": "alone", "uid": "set-uid" });
    of_set.0["metadata"]["ownerReferences"] = json!([owner]);
    let alone = object("Machine", "alone", ready("Ready", "00:00:00"), json!({}));
    let control = object("Machine", "control", ready("Ready", "00:00:00"), json!({}));
    snapshot.sets = vec![set];
    snapshot.machines.extend([of_set, alone, labelled(control, CONTROL_PLANE_LABEL, "")]);
    let expected = "\
NAME                                                                 READY  REASON  SINCE  MESSAGE
Cluster/capi-quickstart                                              True           12m
├─ClusterInfrastructure - OpenStackCluster/capi-quickstart           True           12s
├─ControlPlane - KamajiControlPlane/kamaji-quickstart-control-plane  True           10m
│ └─Machine/control                                                  True           60m
└─Workers
  ├─MachineDeployment/capi-quickstart-md-0                           True           2m43s
  │ └─Machine/capi-quickstart-md-0-f5xz7-w54x9                       True           3m20s
  ├─MachineSet/alone                                                 True           60m
  │ └─Machine/of-set                                                 True           60m
  └─Machine/alone                                                    True           60m
";
    assert_eq!(text(&snapshot, 120), expected);
}

#[test]
fn a_hundred_machines_fit_a_screen() {
    let mut snapshot = quickstart();
    snapshot.machines = (100..200)
        .map(|index| match index {
            150 => machine("m-150", says("Ready", "False", "NotReady", "the quota of cores is used up", "00:58:00")),
            _ => machine(&format!("m-{index}"), ready("Ready", "00:58:00")),
        })
        .collect();
    let expected = "\
NAME                                                                 READY  REASON    SINCE  MESSAGE
Cluster/capi-quickstart                                              True             12m
├─ClusterInfrastructure - OpenStackCluster/capi-quickstart           True             12s
├─ControlPlane - KamajiControlPlane/kamaji-quickstart-control-plane  True             10m
└─Workers
  └─MachineDeployment/capi-quickstart-md-0                           True             2m43s
    ├─99 Machines...                                                 True             2m     See m-100, m-101, m-102, ...
    └─Machine/m-150                                                  False  NotReady  2m     the quota of cores is used up
";
    assert_eq!(text(&snapshot, 140), expected);
}

#[test]
fn a_condition_that_a_schema_filled_in_has_no_age() {
    let mut snapshot = quickstart();
    let mut filled_in = says("Ready", "Unknown", "Pending", "Waiting for controller", "00:00:00");
    filled_in["lastTransitionTime"] = "1970-01-01T00:00:00Z".into();
    snapshot.control_plane = Some(object("K0smotronControlPlane", "plane", filled_in, json!({})));
    let row = &tree(&snapshot).children[1];
    assert_eq!((row.reason.as_str(), row.since), ("Pending", None));
    assert!(why(&tree(&snapshot)).iter().all(|line| !line.contains("1970")));
}
