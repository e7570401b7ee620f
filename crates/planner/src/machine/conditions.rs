//! What a Machine says of itself: its bootstrap config, its infrastructure, its Node, and what follows from them.

use hangar_api::conditions::{Condition, Status, summary};
use hangar_api::contract::Foreign;
use hangar_api::{KubeVersion, Object};

use super::{BOOTSTRAP, CONNECTING, INFRASTRUCTURE, Tenant, UNREACHABLE, World};
use crate::Progress;
use crate::report::READY;

/// M4.
pub(super) fn of(world: &World, progress: &Progress, has_data: bool, provisioned: bool) -> Vec<Condition> {
    let say = |kind: &str, good: bool, object: Option<&Object>, otherwise: &str| {
        if good {
            return Condition::new(kind, Status::True, kind, "");
        }
        let message = object.map_or_else(|| otherwise.to_owned(), |object| Foreign::new(object).waits_for(otherwise));
        Condition::new(kind, Status::False, &format!("Not{kind}"), message)
    };
    let (config, machine) = (world.referenced(BOOTSTRAP), world.referenced(INFRASTRUCTURE));
    let bootstrap = say("BootstrapConfigReady", has_data, config, "has no bootstrap data yet");
    let infrastructure = say("InfrastructureReady", provisioned, machine, "is not provisioned yet");
    let node = node_condition(world);
    let mut ready = summary(READY, &[&bootstrap, &infrastructure, &node]);
    if let Progress::Blocked(reason) = progress {
        ready = Condition::new(READY, Status::False, reason.code, reason.message.clone());
    } else if world.object().is_deleting() {
        ready = Condition::new(READY, Status::False, "Deleting", "it is being deleted");
    }
    let available = Condition { kind: "Available".into(), ..ready.clone() };
    let mut all = vec![available, ready, bootstrap, infrastructure, node];
    all.extend(up_to_date(world));
    all
}

/// M13: whether the node runs what was asked for. Versions are compared by meaning: a build tag or a missing `v` is no difference.
fn up_to_date(world: &World) -> Option<Condition> {
    let Tenant::Node(node) = &world.facts.tenant else { return None };
    let wanted = KubeVersion::parse(world.typed().spec.version.as_deref()?)?;
    let running = KubeVersion::parse(node.text("/status/nodeInfo/kubeletVersion"))?;
    Some(if running == wanted {
        Condition::new("UpToDate", Status::True, "UpToDate", "")
    } else {
        let text = format!("requested {wanted}, its kubelet runs {running}");
        Condition::new("UpToDate", Status::False, "NotUpToDate", text)
    })
}

/// M3: a Node that was there and is gone is not the same as one that has not come yet.
fn node_condition(world: &World) -> Condition {
    let condition = |status, reason: &str, message: String| Condition::new("NodeHealthy", status, reason, message);
    let known = world.object().text("/status/nodeRef/name");
    let node = match &world.facts.tenant {
        Tenant::Unreachable => {
            return condition(Status::Unknown, "ConnectionDown", UNREACHABLE.into());
        }
        Tenant::Connecting => return condition(Status::Unknown, "ConnectionDown", CONNECTING.into()),
        Tenant::NoNode if !known.is_empty() => {
            return condition(Status::False, "NodeDeleted", format!("Node {known} was deleted"));
        }
        Tenant::NoNode => {
            let text = "no Node with its provider id has joined yet".into();
            return condition(Status::Unknown, "NodeNotYetJoined", text);
        }
        Tenant::Node(node) => node,
    };
    let mut theirs = node.get("/status/conditions").as_array().into_iter().flatten();
    match theirs.find(|condition| condition["type"] == "Ready") {
        Some(ready) if ready["status"] == "True" => condition(Status::True, "NodeHealthy", String::new()),
        Some(ready) => {
            let text = ready["message"].as_str().unwrap_or_default();
            condition(Status::False, "NodeNotHealthy", format!("Node {} is not ready: {text}", node.name()))
        }
        None => condition(Status::Unknown, "NodeStatusUnknown", format!("Node {} has not reported yet", node.name())),
    }
}
