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

/// One look of a provider of pools: as many machines as are wanted, each of which joins.
fn provide_pool(simulation: &Simulation, contract: Contract) {
    let Some(pool) = simulation.management.get(GROUP, "MyMachinePool", NAMESPACE, "mine") else { return };
    let Some(owner) = simulation.management.get(CAPI, "MachinePool", NAMESPACE, "mine") else { return };
    if !pool["metadata"]["ownerReferences"].is_array() || pool["metadata"]["deletionTimestamp"].is_string() {
        return;
    }
    let ids: Vec<String> =
        (0..owner["spec"]["replicas"].as_u64().unwrap()).map(|number| format!("my://pool-{number}")).collect();
    if pool["spec"]["providerIDList"] != json!(ids) {
        simulation.management.edit(GROUP, "MyMachinePool", NAMESPACE, "mine", |pool| {
            contract.provisioned(pool);
            pool["spec"]["providerIDList"] = json!(ids);
            pool["status"]["replicas"] = ids.len().into();
        });
    }
    for (number, id) in ids.iter().enumerate() {
        for api in simulation.tenants.apis() {
            let name = format!("pool-{number}");
            if api.get("", "Node", "", &name).is_none() {
                api.put(json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": { "name": name }, "spec": { "providerID": id },
                    "status": { "conditions": [{ "type": "Ready", "status": "True" }], "nodeInfo": { "kubeletVersion": "v1.28.10" } },
                }));
            }
        }
    }
}

/// A pool of another provider: bootstrap data, Nodes, another size, new data in time, and away with it.
async fn pool(seed: u64, contract: Contract) {
    let mut simulation = Simulation::new(seed);
    simulation.start(None);
    contract.define(&simulation, "MyMachinePool");
    simulation.management.put(contract.object("MyMachinePool", "mine", json!({})));
    simulation.apply_example().await;
    simulation
        .apply(&json!({
            "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "KubeadmConfig",
            "metadata": { "name": "mine", "namespace": NAMESPACE }, "spec": { "preKubeadmCommands": ["true"] },
        }))
        .await;
    let reference = |group: &str, kind: &str| json!({ "apiGroup": group, "kind": kind, "name": "mine" });
    simulation
        .apply(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "metadata": { "name": "mine", "namespace": NAMESPACE },
            "spec": { "clusterName": CLUSTER, "replicas": 3, "template": { "spec": {
                "clusterName": CLUSTER, "version": "v1.28.10",
                "bootstrap": { "configRef": reference("bootstrap.cluster.x-k8s.io", "KubeadmConfig") },
                "infrastructureRef": reference(GROUP, "MyMachinePool") } } },
        }))
        .await;
    let of_pool = |simulation: &Simulation| simulation.management.get(CAPI, "MachinePool", NAMESPACE, "mine");
    let has = |simulation: &Simulation, nodes: usize| {
        provide_pool(simulation, contract);
        of_pool(simulation).is_some_and(|pool| {
            condition(&pool, "Available")
                && pool["status"]["nodeRefs"].as_array().is_some_and(|refs| refs.len() == nodes)
        })
    };
    let data = |simulation: &Simulation| {
        simulation.management.get("", "Secret", NAMESPACE, "mine").map(|secret| secret["data"]["value"].clone())
    };
    simulation.until("three Nodes have joined", || has(&simulation, 3)).await;
    let node = simulation.tenants.apis()[0].get("", "Node", "", "pool-1").unwrap();
    assert_eq!(node["metadata"]["annotations"]["cluster.x-k8s.io/owner-name"], "mine");
    simulation.management.edit(CAPI, "MachinePool", NAMESPACE, "mine", |pool| pool["spec"]["replicas"] = 1.into());
    simulation.until("one is left", || has(&simulation, 1)).await;
    // At rest nothing is written, but data whose token has lived for half of its time are replaced.
    simulation.wait(Duration::from_secs(60)).await;
    let before = data(&simulation).unwrap();
    simulation.management.clear_requests();
    simulation.wait(Duration::from_secs(3600)).await;
    let writes: Vec<_> = simulation.management.requests().into_iter().filter(|call| call.is_write()).collect();
    assert!(writes.is_empty(), "at rest: {writes:#?}");
    simulation.wait(Duration::from_secs(3700)).await;
    assert!(data(&simulation).is_some_and(|data| data != before), "the data has a token that ends");
    simulation.management.delete(CAPI, "MachinePool", NAMESPACE, "mine");
    simulation.until("the pool is gone", || of_pool(&simulation).is_none()).await;
    assert!(simulation.management.list(GROUP, "MyMachinePool").is_empty() && data(&simulation).is_none());
    assert!(simulation.tenants.apis()[0].get("", "Node", "", "pool-0").is_none());
    simulation.management.delete(CAPI, "Cluster", NAMESPACE, CLUSTER);
    simulation.until("it is gone", || simulation.management.get(CAPI, "Cluster", NAMESPACE, CLUSTER).is_none()).await;
    simulation.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_of_the_new_contract_gives_pools_of_machines() {
    pool(333, Contract::New).await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_of_the_old_contract_gives_pools_of_machines() {
    pool(334, Contract::Old).await;
}
