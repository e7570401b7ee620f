//! What users write: the example's cluster under other names, and the data store that it needs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::yaml;
use hangar_pki::{Authority, Leaf, SystemKeys};
use serde_json::{Value, json};

const EXAMPLE: &str = include_str!("../../../examples/kamaji-openstack.yaml");
/// With a network of its own and a bastion.
const MANAGED_NETWORK: &str = include_str!("../../../examples/openstack-managed-network.yaml");
/// With machines that have what machines can have.
const MACHINE_SHAPES: &str = include_str!("../../../examples/openstack-machine-shapes.yaml");
/// As the example calls it.
pub const CLUSTER: &str = "capi-quickstart";

/// The documents of the example for a cluster of this name.
pub fn cluster(name: &str, clouds_yaml: &str) -> Vec<Value> {
    let text = EXAMPLE.replace("${OPENSTACK_CLOUD_YAML_B64}", &STANDARD.encode(clouds_yaml));
    let text = match name {
        CLUSTER => text,
        name => text.replace("kamaji-quickstart", name).replace(CLUSTER, name),
    };
    yaml::documents(&text).unwrap()
}

/// The documents of the example with a network of its own.
pub fn managed_network(clouds_yaml: &str) -> Vec<Value> {
    yaml::documents(&MANAGED_NETWORK.replace("${OPENSTACK_CLOUD_YAML_B64}", &STANDARD.encode(clouds_yaml))).unwrap()
}

/// The documents of the example with what machines can have.
pub fn machine_shapes(clouds_yaml: &str) -> Vec<Value> {
    yaml::documents(&MACHINE_SHAPES.replace("${OPENSTACK_CLOUD_YAML_B64}", &STANDARD.encode(clouds_yaml))).unwrap()
}

/// The same for a cluster of this name, without the bastion: as many servers as Machines.
pub fn on_own_network(name: &str, clouds_yaml: &str) -> Vec<Value> {
    let text = MANAGED_NETWORK.replace("${OPENSTACK_CLOUD_YAML_B64}", &STANDARD.encode(clouds_yaml));
    let mut documents = yaml::documents(&text.replace("managed-network", name)).unwrap();
    for object in &mut documents {
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.remove("bastion");
        }
    }
    documents
}

/// A data store with an authority of its own.
pub fn data_store(now: jiff::Timestamp) -> Value {
    let authority = Authority::create(&SystemKeys, "etcd", now).unwrap();
    let client = authority.issue(&SystemKeys, &Leaf::client("root", &[]), now).unwrap();
    let content = |pem: &str| json!({ "content": STANDARD.encode(pem) });
    json!({
        "apiVersion": "kamaji.clastix.io/v1alpha1", "kind": "DataStore", "metadata": { "name": "default" },
        "spec": {
            "driver": "etcd", "endpoints": ["127.0.0.1:2379"],
            "tlsConfig": {
                "certificateAuthority": { "certificate": content(authority.certificate_pem()), "privateKey": content(authority.key_pem()) },
                "clientCertificate": { "certificate": content(&client.certificate_pem), "privateKey": content(&client.key_pem) },
            },
        },
    })
}
