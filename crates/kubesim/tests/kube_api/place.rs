//! Where a test runs: in memory, or in a namespace of a real server.

use hangar_kubesim::{KubeApi, KubeApiOptions};
use kube::api::*;
use kube::core::GroupVersionKind;
use kube::{Client, Error};
use serde_json::{Value, json};

/// A namespace of its own for each test.
pub struct Place {
    pub client: Client,
    pub namespace: String,
}

impl Place {
    pub async fn new(namespace: &str) -> Self {
        let client = match std::env::var("HANGAR_TEST_KUBECONFIG") {
            Ok(path) => real(&path).await,
            Err(_) => KubeApi::new(KubeApiOptions::default()).client(),
        };
        let place = Self { client, namespace: format!("{namespace}-{}", std::process::id()) };
        let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place.namespace}});
        place.global("", "v1", "Namespace").create(&PostParams::default(), &object(home)).await.unwrap();
        place
    }

    fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    }

    pub fn global(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &Self::resource(group, version, kind))
    }

    pub fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &Self::resource(group, version, kind))
    }

    pub fn config_maps(&self) -> Api<DynamicObject> {
        self.api("", "v1", "ConfigMap")
    }

    pub fn clusters(&self) -> Api<DynamicObject> {
        self.api("cluster.x-k8s.io", "v1beta2", "Cluster")
    }
}

async fn real(path: &str) -> Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let resource = Place::resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    for definition in hangar_api::crds::definitions(None) {
        let definition = object(definition);
        let name = definition.metadata.name.clone().unwrap();
        definitions.patch(&name, &apply("tests"), &Patch::Apply(&definition)).await.unwrap();
        loop {
            let there = definitions.get(&name).await.unwrap();
            let established = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
            if there.data["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(established)) {
                break;
            }
        }
    }
    client
}

pub fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

pub fn config_map(name: &str, data: Value) -> DynamicObject {
    object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}))
}

pub fn cluster(name: &str) -> DynamicObject {
    let reference = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackCluster", "name": name});
    object(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"paused": false, "infrastructureRef": reference},
    }))
}

pub fn apply(manager: &str) -> PatchParams {
    PatchParams::apply(manager).force()
}

/// Code and reason of a refusal.
pub fn refusal<T: std::fmt::Debug>(answer: Result<T, Error>) -> (u16, String) {
    match answer {
        Err(Error::Api(status)) => (status.code, status.reason.clone()),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

pub fn version(object: &DynamicObject) -> String {
    object.metadata.resource_version.clone().unwrap()
}
