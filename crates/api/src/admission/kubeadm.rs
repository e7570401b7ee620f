//! Control planes on Machines.

use serde_json::Value;

use super::Refusal;
use super::check::{changed, default, upgrade, version};
use crate::object::Object;

pub fn control_plane(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    let spec = &mut object.0["spec"];
    default(spec, &[], "replicas", 1);
    default(spec, &["rollout", "strategy"], "type", "RollingUpdate");
    default(spec, &["rollout", "strategy", "rollingUpdate"], "maxSurge", 1);
    if let Some(text) = object.0.pointer_mut("/spec/version")
        && let Some(bare) = text.as_str().filter(|text| text.starts_with(|letter: char| letter.is_ascii_digit()))
    {
        *text = format!("v{bare}").into();
    }
    let mut refusals = replicas(object, old);
    refusals.extend(version(object, old, "/spec/version"));
    refusals.extend(upgrade(object, old, "/spec/version"));
    refusals.extend(etcd(object, old));
    refusals
}

/// Members of etcd on the control plane's own hosts must be able to outvote each other.
fn replicas(object: &Object, old: Option<&Object>) -> Vec<Refusal> {
    let field = "/spec/replicas";
    let external = object.get("/spec/kubeadmConfigSpec/clusterConfiguration/etcd/external").is_object();
    match object.get(field).as_i64().filter(|_| changed(object, old, field)) {
        Some(0) => vec![Refusal::new(
            "spec.replicas",
            "0 would leave no control plane; delete the cluster instead, or write 1 or 3",
        )],
        Some(count) if count % 2 == 0 && !external => {
            let message = format!(
                "{count} members of etcd cannot decide by majority better than {}; write an odd number",
                count - 1
            );
            vec![Refusal::new("spec.replicas", message)]
        }
        _ => vec![],
    }
}

fn etcd(object: &Object, old: Option<&Object>) -> Vec<Refusal> {
    let place = "/spec/kubeadmConfigSpec/clusterConfiguration/etcd";
    let etcd = object.get(place);
    let mut refusals = vec![];
    if etcd["local"].is_object() && etcd["external"].is_object() {
        let field = "spec.kubeadmConfigSpec.clusterConfiguration.etcd";
        refusals.push(Refusal::new(field, "local and external exclude each other; keep one of them"));
    }
    let was_external = old.map(|old| old.get(place).get("external").is_some_and(Value::is_object));
    if was_external.is_some_and(|was| was != etcd["external"].is_object()) {
        let field = "spec.kubeadmConfigSpec.clusterConfiguration.etcd.external";
        refusals.push(Refusal::new(field, "data does not move between etcds; make a new cluster, or set it back"));
    }
    refusals
}
