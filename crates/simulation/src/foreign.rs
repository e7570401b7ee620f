//! What is not Hangar's, in the same project of the cloud and in the same namespace: it must outlive everything untouched.

use std::collections::BTreeMap;

use hangar_api::ObjectKey;
use hangar_openstack::wire::{CreateNetwork, CreatePort, CreateSecurityGroup, CreateServer, ServerNetwork};
use hangar_openstack::{Cloud, CloudConfig};
use hangar_simulator::starter;
use serde_json::json;

use crate::world::{CAPI, NAMESPACE, Simulation};

/// On objects that nobody but their owner may touch.
pub const LABEL: &str = "example.org/foreign";
/// A cluster that another installation has made.
pub const CLUSTER: &str = "elsewhere";
/// The key of another installation: as ours in form, but of no object here.
const OTHERS_KEY: &str =
    "made elsewhere [hangar:00000000-0000-4000-8000-00000000000a/00000000-0000-4000-8000-00000000000b/port-0]";

impl Simulation {
    /// For what people do in the cloud.
    pub fn cloud_client(&self) -> Cloud {
        let config =
            CloudConfig::parse(self.cloud.clouds_yaml("http://cloud.test").as_bytes(), "openstack", None, None)
                .unwrap();
        Cloud::new(config, self.cloud.transport())
    }

    /// A server, ports, a security group and a network; a Secret, a ConfigMap and a Machine.
    pub(crate) async fn plant_foreign(&self) {
        let cloud = self.cloud_client();
        let port = |name: &str, description: &str| CreatePort {
            network_id: starter::NETWORK_ID.to_owned(),
            name: name.to_owned(),
            description: Some(description.to_owned()),
            ..CreatePort::default()
        };
        let used = cloud.create_port(&port("foreign", "made by hand")).await.unwrap();
        let keyed = cloud.create_port(&port("foreign-keyed", OTHERS_KEY)).await.unwrap();
        let flavor = cloud.flavors().await.unwrap().into_iter().next().unwrap();
        let server = CreateServer {
            name: "foreign".to_owned(),
            flavor_id: flavor.id,
            image_id: "c81cf709-d3a4-4f51-8ae7-8e9daca0cfd8".to_owned(),
            networks: vec![ServerNetwork { port: Some(used.id.clone()), ..ServerNetwork::default() }],
            metadata: BTreeMap::from([("owner".to_owned(), "somebody".to_owned())]),
            ..CreateServer::default()
        };
        let server = cloud.create_server(&server).await.unwrap();
        let group = CreateSecurityGroup { name: "foreign".to_owned(), ..CreateSecurityGroup::default() };
        let group = cloud.create_security_group(&group).await.unwrap();
        let network = CreateNetwork { name: "foreign".to_owned(), ..CreateNetwork::default() };
        let network = cloud.create_network(&network).await.unwrap();
        let resources = [
            ("ports", used.id),
            ("ports", keyed.id),
            ("servers", server),
            ("security_groups", group.id),
            ("networks", network.id),
        ];
        for (table, id) in resources {
            self.laws.is_foreign_resource(table, &id);
        }
        let metadata = json!({ "name": "foreign", "namespace": NAMESPACE, "labels": { LABEL: "true" } });
        for kind in ["Secret", "ConfigMap"] {
            self.apply(&json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata })).await;
            self.laws.is_foreign_object(ObjectKey::new("", kind, NAMESPACE, "foreign"));
        }
        let machine = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": metadata,
            "spec": {
                "clusterName": CLUSTER, "bootstrap": { "dataSecretName": "foreign" },
                "infrastructureRef": { "apiGroup": "infrastructure.example.org", "kind": "ForeignMachine", "name": "foreign" },
            },
        });
        self.apply(&machine).await;
        self.laws.is_foreign_object(ObjectKey::new(CAPI, "Machine", NAMESPACE, "foreign"));
        // The journal is about Hangar's calls.
        self.cloud.clear_journal();
    }
}
