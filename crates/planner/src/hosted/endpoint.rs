//! Where the control plane answers, and who has to be told.

use hangar_api::Object;
use serde_json::{Value, json};

use super::Addresses;
use crate::{Step, intent};

/// The addresses of a Service, once it has them.
pub fn addresses(service: Option<&Object>) -> Option<Addresses> {
    let service = service?;
    let cluster_ip = service.text("/spec/clusterIP").to_owned();
    if cluster_ip.is_empty() || cluster_ip == "None" {
        return None;
    }
    let ingress = service.get("/status/loadBalancer/ingress/0");
    let given = ingress["ip"].as_str().or(ingress["hostname"].as_str());
    let endpoint = match (service.text("/spec/type"), given) {
        ("LoadBalancer", Some(address)) => address.to_owned(),
        ("LoadBalancer", None) => return None,
        _ => cluster_ip.clone(),
    };
    Some(Addresses { cluster_ip, endpoint })
}

/// The control plane brings the endpoint; infrastructure learns it here, each kind in its own way.
pub fn push(infrastructure: &Object, endpoint: &Value) -> Option<Step> {
    if infrastructure.is_deleting() || !infrastructure.text("/spec/controlPlaneEndpoint/host").is_empty() {
        return None;
    }
    let mut fields = json!({ "controlPlaneEndpoint": endpoint });
    if infrastructure.is::<hangar_api::kinds::OpenStackCluster>() {
        if !infrastructure.text("/spec/apiServerFixedIP").is_empty() {
            return None;
        }
        fields["apiServerFixedIP"] = endpoint["host"].clone();
        fields["apiServerPort"] = endpoint["port"].clone();
    }
    intent::touch(infrastructure, json!({ "spec": fields }))
}
