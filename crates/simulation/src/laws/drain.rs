//! A server is not deleted before the pods of its Node are gone, unless its cluster goes or somebody said that it need not be waited for.

use hangar_api::ObjectKey;
use serde_json::Value;

use super::{Book, is_object_deleting};

const GROUP: &str = "cluster.x-k8s.io";
const EXCLUDED: &str = "machine.cluster.x-k8s.io/exclude-node-draining";

impl Book {
    pub(super) fn emptied_before(&mut self, server: &str, goes: bool) {
        let Some(node) = goes.then(|| self.drained_node(server)).flatten() else { return };
        let left = self.tenants.as_ref().map_or(vec![], |tenants| tenants.evictable(&node));
        if !left.is_empty() {
            self.violation(
                "drain",
                format!("the server of Node {node} was deleted under its pods {}", left.join(", ")),
            );
        }
    }

    /// The Node of a server whose Machine is being deleted, if it has to be drained.
    fn drained_node(&self, server: &str) -> Option<String> {
        let machines = self.objects.range(ObjectKey::new(GROUP, "Machine", "", "")..);
        let mut machines = machines.take_while(|(key, _)| key.group == GROUP && key.kind == "Machine");
        let (key, machine) = machines
            .find(|(_, machine)| machine["spec"]["providerID"].as_str().is_some_and(|id| id.ends_with(server)))?;
        let excluded = machine["metadata"]["annotations"].get(EXCLUDED).is_some();
        let limited = machine["spec"]["deletion"]["nodeDrainTimeoutSeconds"].as_i64().unwrap_or(0) > 0;
        let stays = |kind: &str, name: &Value| {
            let key = ObjectKey::new(GROUP, kind, &key.namespace, name.as_str().unwrap_or_default());
            self.objects.get(&key).is_some_and(|object| !is_object_deleting(object))
        };
        // Whoever deletes a server behind Hangar's back is not Hangar.
        let drained =
            is_object_deleting(machine) && !excluded && !limited && stays("Cluster", &machine["spec"]["clusterName"]);
        drained.then(|| machine["status"]["nodeRef"]["name"].as_str().map(str::to_owned)).flatten()
    }
}
