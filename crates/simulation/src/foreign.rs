//! What is not Hangar's, in the same project of the cloud and in the same namespace: it must outlive everything untouched.

use std::collections::BTreeMap;

use hangar_api::ObjectKey;
use hangar_openstack::wire::{
    CreateFloatingIp, CreateLoadBalancer, CreateNetwork, CreatePort, CreateRouter, CreateSecurityGroup, CreateServer,
    CreateSubnet, ServerNetwork,
};
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

    /// What another management plane made for a cluster of the same namespace and name: the names are ours, the keys are not.
    pub async fn plant_namesakes(&self, cluster: &str) {
        let config =
            CloudConfig::parse(self.cloud.clouds_yaml("http://cloud.test").as_bytes(), "openstack", None, None)
                .unwrap();
        let cloud = Cloud::new(config, self.cloud.transport());
        let name = format!("k8s-clusterapi-cluster-{NAMESPACE}-{cluster}");
        let key = |role: &str| {
            let uids = "00000000-0000-4000-8000-00000000000a/00000000-0000-4000-8000-00000000000b";
            Some(format!(
                "Created by cluster-api-provider-openstack cluster {NAMESPACE}-{cluster} [hangar:{uids}/{role}]"
            ))
        };
        let network = CreateNetwork { name: name.clone(), description: key("network"), ..CreateNetwork::default() };
        let network = cloud.create_network(&network).await.unwrap().id;
        let subnet = CreateSubnet {
            network_id: network.clone(),
            name: name.clone(),
            ip_version: 4,
            cidr: "10.8.0.0/24".into(),
            description: key("subnet-0"),
            ..CreateSubnet::default()
        };
        let subnet = cloud.create_subnet(&subnet).await.unwrap().id;
        let router = CreateRouter { name: name.clone(), description: key("router"), ..CreateRouter::default() };
        let router = cloud.create_router(&router).await.unwrap().id;
        let interface = cloud.add_router_interface(&router, &subnet).await.unwrap().port_id;
        let ip = CreateFloatingIp {
            floating_network_id: starter::PUBLIC_NETWORK_ID.into(),
            description: key("api-floating-ip"),
            ..CreateFloatingIp::default()
        };
        let ip = cloud.create_floating_ip(&ip).await.unwrap().id;
        let mut resources = vec![
            ("networks", network),
            ("subnets", subnet.clone()),
            ("routers", router),
            ("ports", interface),
            ("floating_ips", ip),
        ];
        for role in ["controlplane", "worker", "bastion"] {
            let group = CreateSecurityGroup {
                name: format!("k8s-cluster-{NAMESPACE}-{cluster}-secgroup-{role}"),
                description: key(&format!("security-group-{role}")),
                ..CreateSecurityGroup::default()
            };
            resources.push(("security_groups", cloud.create_security_group(&group).await.unwrap().id));
        }
        let balancer = CreateLoadBalancer {
            name: format!("{name}-kubeapi"),
            description: key("api-load-balancer"),
            vip_subnet_id: Some(subnet),
            ..CreateLoadBalancer::default()
        };
        let balancer = cloud.create_load_balancer(&balancer).await.unwrap();
        resources.push(("ports", balancer.vip_port_id.unwrap_or_default()));
        resources.push(("load_balancers", balancer.id));
        for (table, id) in resources {
            self.laws.is_foreign_resource(table, &id);
        }
        self.cloud.clear_journal();
    }
}
