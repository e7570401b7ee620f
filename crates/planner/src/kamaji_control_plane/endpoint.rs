//! Where the control plane answers, and who has to be told.

use hangar_api::Object;
use jiff::Timestamp;
use serde_json::json;

use super::{World, with_model};
use crate::hosted::Addresses;
use crate::{Phase, Step, intent};

pub(super) fn addresses(world: &World) -> Option<Addresses> {
    let service = world.service.as_ref()?;
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
pub(super) fn endpoint(world: &World, _now: Timestamp) -> Phase {
    let Some(addresses) = addresses(world) else { return Phase::Done };
    with_model(world, |plane| {
        let endpoint = json!({ "host": addresses.endpoint, "port": plane.exposure.port });
        let mut steps: Vec<Step> =
            intent::touch(&world.object, json!({ "spec": { "controlPlaneEndpoint": endpoint } })).into_iter().collect();
        if let Some(infrastructure) = world.infrastructure.as_ref().filter(|object| !object.is_deleting()) {
            steps.extend(push(infrastructure, &endpoint));
        }
        Phase::steps(steps)
    })
}

fn push(infrastructure: &Object, endpoint: &serde_json::Value) -> Option<Step> {
    match infrastructure.kind() {
        "OpenStackCluster" => {
            let known = infrastructure.text("/spec/controlPlaneEndpoint/host");
            let fixed = infrastructure.text("/spec/apiServerFixedIP");
            if !known.is_empty() || !fixed.is_empty() {
                return None;
            }
            let fields = json!({
                "apiServerFixedIP": endpoint["host"],
                "apiServerPort": endpoint["port"],
                "controlPlaneEndpoint": endpoint,
            });
            intent::touch(infrastructure, json!({ "spec": fields }))
        }
        _ if infrastructure.text("/spec/controlPlaneEndpoint/host").is_empty() => {
            intent::touch(infrastructure, json!({ "spec": { "controlPlaneEndpoint": endpoint } }))
        }
        _ => None,
    }
}
