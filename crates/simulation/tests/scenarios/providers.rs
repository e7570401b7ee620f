//! Providers that Hangar does not bring: kinds of the test's own, whose controller is the test, by the old contract and by the new one.

use std::time::Duration;

use hangar_simulation::{CAPI, NAMESPACE, Simulation, condition};
use serde_json::{Value, json};

const GROUP: &str = "infrastructure.example.com";
const CLUSTER: &str = "capi-quickstart";

/// Which contract the made-up provider speaks.
#[derive(Clone, Copy, PartialEq)]
enum Contract {
    Old,
    New,
}

impl Contract {
    fn version(self) -> &'static str {
        if self == Self::Old { "v1alpha7" } else { "v1" }
    }

    fn define(self, simulation: &Simulation, kind: &str) {
        let label = if self == Self::Old { "cluster.x-k8s.io/v1beta1" } else { "cluster.x-k8s.io/v1beta2" };
        let plural = format!("{}s", kind.to_lowercase());
        simulation.management.put(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{GROUP}"), "labels": { label: self.version() } },
            "spec": { "group": GROUP, "scope": "Namespaced", "names": { "kind": kind, "plural": plural }, "versions": [{ "name": self.version() }] },
        }));
    }

    fn object(self, kind: &str, name: &str, spec: Value) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/{}", self.version()), "kind": kind,
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
        })
    }

    /// What its controller says of what is done.
    fn provisioned(self, object: &mut Value) {
        match self {
            Self::Old => object["status"]["ready"] = true.into(),
            Self::New => object["status"]["initialization"] = json!({ "provisioned": true }),
        }
    }
}

/// One look of the provider's controller: what has an owner is provisioned, what goes is gone.
fn provide(simulation: &Simulation, contract: Contract) {
    let text =
        |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    for kind in ["MyCluster", "MyMachine"] {
        for object in simulation.management.list(GROUP, kind) {
            let name = text(&object, "/metadata/name");
            let owned = object["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
            if owned && !object["status"].is_object() {
                simulation.management.edit(GROUP, kind, NAMESPACE, &name, |object| {
                    contract.provisioned(object);
                    if kind == "MyMachine" {
                        object["spec"]["providerID"] = format!("my://{name}").into();
                        object["status"]["addresses"] = json!([{ "type": "InternalIP", "address": "10.0.0.7" }]);
                    }
                });
            }
            // The server starts and joins; one that has joined stays as it is.
            for api in simulation.tenants.apis().iter().filter(|_| kind == "MyMachine" && owned) {
                api.put(json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": { "name": name }, "spec": { "providerID": format!("my://{name}") },
                    "status": { "conditions": [{ "type": "Ready", "status": "True" }], "nodeInfo": { "kubeletVersion": "v1.28.10" } },
                }));
            }
        }
    }
}

/// The example with another infrastructure.
async fn lifecycle(seed: u64, contract: Contract, restarts: bool) {
    let mut simulation = Simulation::new(seed);
    simulation.start(None);
    for kind in ["MyCluster", "MyMachine", "MyMachineTemplate"] {
        contract.define(&simulation, kind);
    }
    simulation.management.put(contract.object("MyCluster", "mine", json!({})));
    simulation.management.put(contract.object(
        "MyMachineTemplate",
        "mine",
        json!({ "template": { "spec": { "size": "small" } } }),
    ));
    simulation.apply_example().await;
    let reference = |kind: &str| json!({ "apiGroup": GROUP, "kind": kind, "name": "mine" });
    simulation.management.edit(CAPI, "Cluster", NAMESPACE, CLUSTER, |cluster| {
        cluster["spec"]["infrastructureRef"] = reference("MyCluster");
    });
    simulation.edit_deployment(|deployment| {
        deployment["spec"]["template"]["spec"]["infrastructureRef"] = reference("MyMachineTemplate");
    });
    let is_available = |simulation: &Simulation| {
        provide(simulation, contract);
        let cluster = simulation.management.get(CAPI, "Cluster", NAMESPACE, CLUSTER);
        let machines = simulation.machines();
        cluster.is_some_and(|cluster| condition(&cluster, "Available"))
            && !machines.is_empty()
            && machines.iter().all(|machine| {
                condition(machine, "Available")
                    && machine["spec"]["providerID"].as_str().is_some_and(|id| id.starts_with("my://"))
            })
    };
    simulation.until("it is available", || is_available(&simulation)).await;
    let clones = simulation.management.list(GROUP, "MyMachine");
    assert_eq!((clones.len(), &clones[0]["spec"]["size"]), (1, &json!("small")));
    assert_eq!(clones[0]["metadata"]["annotations"]["cluster.x-k8s.io/cloned-from-name"], "mine");
    simulation.wait(Duration::from_secs(60)).await;
    if restarts {
        // What is not listed yet is not gone.
        simulation.stop_engines().await;
        simulation.management.clear_requests();
        simulation.start(None);
        simulation.wait(Duration::from_secs(60)).await;
    }
    simulation.management.clear_requests();
    simulation.wait(Duration::from_secs(600)).await;
    let writes: Vec<_> = simulation.management.requests().into_iter().filter(|call| call.is_write()).collect();
    assert!(writes.is_empty(), "at rest: {writes:#?}");
    let cluster = simulation.management.get(CAPI, "Cluster", NAMESPACE, CLUSTER).unwrap();
    assert!(condition(&cluster, "InfrastructureReady") && condition(&cluster, "Available"), "{cluster:#}");
    simulation.management.delete(CAPI, "Cluster", NAMESPACE, CLUSTER);
    simulation.until("it is gone", || simulation.management.get(CAPI, "Cluster", NAMESPACE, CLUSTER).is_none()).await;
    assert!(
        simulation.management.list(GROUP, "MyMachine").is_empty()
            && simulation.management.list(GROUP, "MyCluster").is_empty()
    );
    simulation.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_of_the_new_contract_gives_clusters_and_machines() {
    lifecycle(331, Contract::New, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_of_the_old_contract_gives_clusters_and_machines_across_a_restart() {
    lifecycle(332, Contract::Old, true).await;
}
