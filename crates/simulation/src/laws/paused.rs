//! While a Cluster is paused, or an object by its annotation, Hangar writes nothing of it but conditions, and creates and deletes nothing of
//! it in the cloud.

use hangar_api::ObjectKey;
use hangar_kubesim::Write;
use hangar_simulator::CloudWrite;
use serde_json::Value;

use super::{Book, Resource};

const ANNOTATION: &str = "cluster.x-k8s.io/paused";
const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";
const GROUP: &str = "cluster.x-k8s.io";

impl Book {
    pub(super) fn paused_object(&mut self, write: &Write<'_>) {
        let Some(object) = write.after.or(write.before) else { return };
        let annotated = |object: &Value| object["metadata"]["annotations"].get(ANNOTATION).is_some();
        let itself = write.before.is_some_and(annotated) && self.known_long_enough(write.key);
        let cluster = self.cluster_of(write.key, object);
        let by_cluster = cluster.as_ref().is_some_and(|cluster| self.is_paused(cluster));
        if !(itself || by_cluster) || only_conditions(write) {
            return;
        }
        let of = cluster.filter(|_| by_cluster).map_or_else(|| "it".to_owned(), |cluster| cluster.to_string());
        let change = match (write.before, write.after) {
            (None, _) => "created",
            (_, None) => "deleted",
            _ => "wrote",
        };
        let door = if write.subresource.is_empty() { "the object" } else { write.subresource };
        self.violation("paused", format!("Hangar {change} {} ({door}) while {of} is paused", write.key));
    }

    pub(super) fn paused_resource(
        &mut self,
        write: &CloudWrite<'_>,
        before: Option<&Resource>,
        after: Option<&Resource>,
    ) {
        // What the cloud does by itself was asked for earlier.
        if write.by.is_empty() {
            return;
        }
        let Some(key) = after.or(before).and_then(|resource| resource.key.clone()) else { return };
        let begins_to_go = after.is_none_or(|now| now.deleting) && before.is_none_or(|then| !then.deleting);
        let change = match (before, after) {
            (None, Some(_)) => "created",
            _ if begins_to_go => "deleted",
            _ => return,
        };
        let clusters = self.objects.range(ObjectKey::new(GROUP, "Cluster", "", "")..);
        let mut clusters = clusters.take_while(|(key, _)| key.group == GROUP && key.kind == "Cluster");
        let cluster = clusters.find(|(_, object)| object["metadata"]["uid"] == *key.cluster_uid);
        let Some(cluster) = cluster.map(|(key, _)| key.clone()) else { return };
        if self.is_paused(&cluster) {
            let (table, id) = (write.table, write.id);
            self.violation("paused", format!("Hangar {change} {id} of {table} with {key} while {cluster} is paused"));
        }
    }

    fn is_paused(&self, cluster: &ObjectKey) -> bool {
        let paused = self.objects.get(cluster).is_some_and(|object| object["spec"]["paused"] == true);
        paused && self.known_long_enough(cluster)
    }

    /// Whether the last change of what a user wants of it has reached everybody.
    fn known_long_enough(&self, key: &ObjectKey) -> bool {
        self.earlier.get(key).is_none_or(|(since, _)| since.elapsed() > self.news_take)
    }

    /// The Cluster that an object belongs to.
    fn cluster_of(&self, key: &ObjectKey, object: &Value) -> Option<ObjectKey> {
        let owner = || {
            let owners = object["metadata"]["ownerReferences"].as_array()?;
            owners.iter().find(|owner| owner["kind"] == "Cluster")?["name"].as_str()
        };
        let name = match (key.group.as_str(), key.kind.as_str()) {
            (GROUP, "Cluster") => Some(key.name.as_str()),
            _ => object["metadata"]["labels"][CLUSTER_LABEL]
                .as_str()
                .or_else(|| object["spec"]["clusterName"].as_str())
                .or_else(owner),
        };
        name.map(|name| ObjectKey::new(GROUP, "Cluster", &key.namespace, name))
    }
}

/// Conditions say that it is paused, and for which generation.
fn only_conditions(write: &Write<'_>) -> bool {
    let (Some(before), Some(after)) = (write.before, write.after) else { return false };
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(status) = object["status"].as_object_mut() {
            ["conditions", "observedGeneration", "v1beta2", "deprecated"]
                .iter()
                .for_each(|field| drop(status.remove(*field)));
            // The API server fills in flags of a status that had nothing before.
            status.retain(|_, value| *value != false);
        }
        if object["status"].as_object().is_none_or(serde_json::Map::is_empty) {
            object["status"] = Value::Null;
        }
        for field in ["resourceVersion", "managedFields"] {
            object["metadata"][field] = Value::Null;
        }
        object
    };
    write.subresource == "status" && rest(before) == rest(after)
}
