//! The templates, written anew with the fields of upstream's, and what each of them makes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_simulation::NAMESPACE;
use serde_json::{Value, json};

use crate::place::Place;

/// What the cloud has, as manifests name it.
pub struct Names {
    pub cluster: String,
    clouds_yaml: String,
    flavor: String,
    image: String,
    external: String,
}

impl Names {
    pub fn of(place: &Place) -> Self {
        Self {
            cluster: format!("{}c", place.tag),
            clouds_yaml: place.clouds_yaml.clone(),
            flavor: place.flavor.name.clone(),
            image: place.image.name.clone(),
            external: place.external.id.clone(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Template {
    /// The default: a load balancer of Octavia before the control plane.
    Octavia,
    /// One control plane machine with the floating IP.
    WithoutLoadBalancer,
    ZonesAndVolumes,
    Networks,
    Bastion,
    Trunk,
}

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1beta1";

impl Template {
    pub fn documents(self, names: &Names) -> Vec<Value> {
        let name = &names.cluster;
        let identity = json!({ "name": name, "cloudName": "demo" });
        let mut spec = json!({
            "identityRef": identity, "externalNetwork": { "id": names.external },
            "managedSubnets": [{ "cidr": "10.6.0.0/24", "dnsNameservers": ["192.0.2.53"] }],
            "managedSecurityGroups": { "allowAllInClusterTraffic": self != Self::Octavia, "allNodesSecurityGroupRules": [{
                "name": "BGP", "direction": "ingress", "etherType": "IPv4", "protocol": "tcp", "portRangeMin": 179, "portRangeMax": 179,
                "description": "between nodes", "remoteManagedGroups": ["controlplane", "worker"],
            }] },
            "tags": ["of-the-cluster"],
        });
        match self {
            Self::Octavia => {
                spec["apiServerLoadBalancer"] = json!({ "enabled": true, "additionalPorts": [8132], "allowedCIDRs": ["192.0.2.0/24"],
                    "monitor": { "delay": 20, "timeout": 6, "maxRetries": 4, "maxRetriesDown": 2 } });
            }
            Self::Bastion => {
                spec["bastion"] = json!({ "enabled": true, "spec": server(names) });
            }
            _ => {}
        }
        let metadata = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
        // The label is that of bootstrap data: Secrets without it are not watched.
        let secret = |name: &str, key: &str, text: &str| {
            let mut metadata = metadata(name);
            metadata["labels"] = json!({ "cluster.x-k8s.io/cluster-name": names.cluster });
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": { key: STANDARD.encode(text) } })
        };
        let reference =
            json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackCluster", "name": name });
        let mut documents = vec![
            secret(name, "clouds.yaml", &names.clouds_yaml),
            secret(&format!("{name}-data"), "value", "#cloud-config\n"),
            json!({ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata(name), "spec": { "infrastructureRef": reference } }),
            json!({ "apiVersion": INFRASTRUCTURE, "kind": "OpenStackCluster", "metadata": metadata(name), "spec": spec }),
        ];
        for (suffix, spec) in self.machines(names) {
            let machine = format!("{name}-{suffix}");
            let mut labels = json!({ "cluster.x-k8s.io/cluster-name": name });
            if suffix.starts_with("cp") {
                labels["cluster.x-k8s.io/control-plane"] = "".into();
            }
            let mut own = metadata(&machine);
            own["labels"] = labels;
            documents.push(
                json!({ "apiVersion": INFRASTRUCTURE, "kind": "OpenStackMachine", "metadata": own, "spec": spec }),
            );
            documents.push(json!({ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": own, "spec": {
                "clusterName": name, "failureDomain": "nova", "bootstrap": { "dataSecretName": format!("{name}-data") },
                "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackMachine", "name": machine },
            } }));
        }
        documents
    }

    fn machines(self, names: &Names) -> Vec<(&'static str, Value)> {
        let with = |fields: Value| {
            let mut spec = server(names);
            fields.as_object().unwrap().iter().for_each(|(name, value)| spec[name] = value.clone());
            spec
        };
        let network = json!({ "filter": { "name": format!("k8s-clusterapi-cluster-{NAMESPACE}-{}", names.cluster) } });
        match self {
            Self::Octavia => vec![("cp0", server(names)), ("md0", server(names))],
            Self::WithoutLoadBalancer => {
                vec![("cp0", server(names)), ("md0", with(json!({ "tags": ["of-the-machine"] })))]
            }
            Self::ZonesAndVolumes => vec![(
                "md0",
                with(json!({
                    "rootVolume": { "sizeGiB": 2, "availabilityZone": { "from": "Machine" } },
                    "additionalBlockDevices": [
                        { "name": "etcd", "sizeGiB": 1, "storage": { "type": "Volume", "volume": { "availabilityZone": { "from": "Name", "name": "nova" } } } },
                    ],
                })),
            )],
            Self::Networks => vec![(
                "md0",
                with(json!({ "ports": [
                    {},
                    { "network": network, "nameSuffix": "storage", "disablePortSecurity": true, "tags": ["of-the-port"] },
                ] })),
            )],
            Self::Bastion => vec![],
            Self::Trunk => vec![("md0", with(json!({ "trunk": true })))],
        }
    }

    /// What is there when it is ready; `C` is the cluster's name.
    pub fn expected(self) -> Vec<String> {
        let text = match self {
            Self::Octavia => include_str!("octavia.txt"),
            Self::WithoutLoadBalancer => include_str!("without_lb.txt"),
            Self::ZonesAndVolumes => include_str!("zones_and_volumes.txt"),
            Self::Networks => include_str!("networks.txt"),
            Self::Bastion => include_str!("bastion.txt"),
            Self::Trunk => include_str!("trunk.txt"),
        };
        text.lines().map(str::to_owned).collect()
    }
}

fn server(names: &Names) -> Value {
    json!({ "flavor": names.flavor, "image": { "filter": { "name": names.image } } })
}
