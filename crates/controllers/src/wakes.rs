//! Whom a change concerns.
//!
//! Holds: an object always wakes itself and its owners; what looks at it from elsewhere is woken only by the fields that it reads, so that a
//! heartbeat of one object is not a storm of passes.

use hangar_api::names::CLUSTER_NAME_LABEL;
use hangar_api::references::{self, target};
use hangar_api::{Kind, Object, ObjectKey, kinds};
use hangar_engine::cache::{Cache, Change};

/// By group and kind: others have kinds of the same name.
const CONTROLLED: [(&str, &str); 9] = [
    (kinds::Cluster::GROUP, kinds::Cluster::KIND),
    (kinds::MachineDeployment::GROUP, kinds::MachineDeployment::KIND),
    (kinds::MachineSet::GROUP, kinds::MachineSet::KIND),
    (kinds::Machine::GROUP, kinds::Machine::KIND),
    (kinds::KubeadmConfig::GROUP, kinds::KubeadmConfig::KIND),
    (kinds::OpenStackCluster::GROUP, kinds::OpenStackCluster::KIND),
    (kinds::OpenStackMachine::GROUP, kinds::OpenStackMachine::KIND),
    (kinds::KamajiControlPlane::GROUP, kinds::KamajiControlPlane::KIND),
    (kinds::DataStore::GROUP, kinds::DataStore::KIND),
];

pub fn wakes(change: &Change, cache: &Cache) -> Vec<ObjectKey> {
    let Some(object) = change.new.as_deref().or(change.old.as_deref()) else { return vec![] };
    let mut keys = vec![];
    if CONTROLLED.contains(&(&change.key.group, &change.key.kind)) && change.new.is_some() && concerns_itself(change) {
        keys.push(change.key.clone());
    }
    for owner in object.owners().iter().filter(|owner| CONTROLLED.contains(&(owner.group(), &owner.kind))) {
        keys.push(ObjectKey::new(owner.group(), &owner.kind, &change.key.namespace, &owner.name));
    }
    keys.extend(lookers(change, object, cache));
    keys
}

/// A status is written by the object's own controller, which need not look at it again: else a message that is never twice the same would
/// keep it busy for ever.
fn concerns_itself(change: &Change) -> bool {
    let (Some(old), Some(new)) = (change.old.as_deref(), change.new.as_deref()) else { return true };
    let without_status = |object: &Object| {
        let mut value = object.without_server_fields();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("status");
        }
        value
    };
    without_status(old) != without_status(new)
}

/// Those who read an object without owning it.
fn lookers(change: &Change, object: &Object, cache: &Cache) -> Vec<ObjectKey> {
    let of_cluster = |cluster: &str, kinds: &[&str]| -> Vec<ObjectKey> {
        let found = kinds.iter().flat_map(|kind| cache.of_cluster(object.namespace(), cluster, kind));
        found.map(|object| object.key()).collect()
    };
    let cluster = object.label(CLUSTER_NAME_LABEL).unwrap_or_default();
    match object.kind() {
        kinds::Cluster::KIND => {
            let mut keys: Vec<ObjectKey> = ["/spec/infrastructureRef", "/spec/controlPlaneRef"]
                .iter()
                .filter_map(|at| target(object, at))
                .collect();
            let read = [
                "/status/initialization",
                "/spec/controlPlaneEndpoint",
                "/spec/paused",
                "/metadata/deletionTimestamp",
                "/spec/clusterNetwork",
            ];
            if differs(change, &read) {
                let all = [
                    kinds::MachineSet::KIND,
                    kinds::Machine::KIND,
                    kinds::KubeadmConfig::KIND,
                    kinds::OpenStackMachine::KIND,
                ];
                keys.extend(of_cluster(object.name(), &all));
                // A deployment that came before its cluster carries no label yet.
                keys.extend(referring(cache, object));
            }
            keys
        }
        kinds::OpenStackCluster::KIND
            if differs(change, &["/status/initialization", "/status/network", "/status/workerSecurityGroup"]) =>
        {
            let mut keys = of_cluster(cluster, &[kinds::OpenStackMachine::KIND, kinds::KamajiControlPlane::KIND]);
            keys.extend(referring(cache, object));
            keys
        }
        kinds::OpenStackCluster::KIND => referring(cache, object),
        kinds::KamajiControlPlane::KIND => {
            let mut keys = referring(cache, object);
            if differs(change, &["/spec/dataStoreName"]) {
                keys.extend(
                    [&change.old, &change.new].into_iter().flatten().map(|plane| references::data_store(plane)),
                );
            }
            if differs(change, &["/status/version", "/spec/version"]) {
                keys.extend(of_cluster(cluster, &[kinds::MachineSet::KIND]));
            }
            keys
        }
        kinds::Machine::KIND => {
            let mut keys = vec![ObjectKey::of::<kinds::Cluster>(object.namespace(), cluster)];
            if differs(
                change,
                &["/status/nodeRef", "/metadata/deletionTimestamp", "/spec/bootstrap", "/spec/failureDomain"],
            ) {
                keys.extend(
                    ["/spec/bootstrap/configRef", "/spec/infrastructureRef"].iter().filter_map(|at| target(object, at)),
                );
            }
            keys
        }
        kinds::MachineDeployment::KIND => {
            vec![ObjectKey::of::<kinds::Cluster>(object.namespace(), object.text("/spec/clusterName"))]
        }
        // The infrastructure machine reads the bootstrap data of its twin.
        "Secret" if object.name().ends_with("-ca") || object.name().ends_with("-kubeconfig") => {
            of_cluster(cluster, &[kinds::KubeadmConfig::KIND, kinds::Machine::KIND])
        }
        "Secret" => of_cluster(cluster, &[kinds::OpenStackMachine::KIND])
            .into_iter()
            .filter(|key| key.name == object.name())
            .collect(),
        "KubeadmConfigTemplate" | "OpenStackMachineTemplate" => referring(cache, object),
        // Its status names all of them: whoever comes must not wake the others.
        kinds::DataStore::KIND if differs(change, &["/spec"]) => referring(cache, object),
        _ => vec![],
    }
}

/// Those whose references name this object.
fn referring(cache: &Cache, object: &Object) -> Vec<ObjectKey> {
    cache.referring_to(&object.key()).iter().map(|from| from.key()).collect()
}

fn differs(change: &Change, pointers: &[&str]) -> bool {
    match (change.old.as_deref(), change.new.as_deref()) {
        (Some(old), Some(new)) => pointers.iter().any(|pointer| old.get(pointer) != new.get(pointer)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn owners_are_told_apart_by_group_and_an_own_status_wakes_nobody() {
        let secret = |group: &str| {
            let owner = json!({ "apiVersion": format!("{group}/v1"), "kind": "Cluster", "name": "c", "uid": "u" });
            Object(json!({ "apiVersion": "v1", "kind": "Secret",
                "metadata": { "name": "s", "namespace": "n", "ownerReferences": [owner] } }))
        };
        let woken = |old: Option<&Object>, new: &Object| {
            let change = Change { key: new.key(), old: old.cloned().map(Arc::new), new: Some(Arc::new(new.clone())) };
            wakes(&change, &Cache::default())
        };
        let cluster = ObjectKey::of::<kinds::Cluster>("n", "c");
        assert_eq!(woken(None, &secret(kinds::Cluster::GROUP)), [cluster]);
        assert_eq!(woken(None, &secret("k0smotron.io")), []);

        let before = Object::named("kamaji.clastix.io/v1alpha1", kinds::DataStore::KIND, "", "d");
        assert_eq!(woken(None, &before), [before.key()]);
        let mut after = before.clone();
        after.0["status"] = json!({ "ready": true });
        assert_eq!(woken(Some(&before), &after), []);
        after.0["spec"] = json!({ "driver": "etcd" });
        assert_eq!(woken(Some(&before), &after), [before.key()]);
    }

    #[test]
    fn a_store_and_its_planes_wake_each_other_only_by_what_they_read() {
        let cache = Cache::default();
        let mut plane = Object::named("controlplane.cluster.x-k8s.io/v1alpha2", "KamajiControlPlane", "n", "p");
        plane.0["metadata"]["resourceVersion"] = "1".into();
        let mut store = Object::named("kamaji.clastix.io/v1alpha1", kinds::DataStore::KIND, "", "default");
        let change = |old: Option<&Object>, new: &Object| Change {
            key: new.key(),
            old: old.cloned().map(Arc::new),
            new: Some(Arc::new(new.clone())),
        };
        let come = cache.put(plane.clone()).unwrap();
        assert_eq!(wakes(&come, &cache), [plane.key(), store.key()]);
        assert_eq!(wakes(&change(None, &store), &cache), [store.key(), plane.key()]);

        let before = store.clone();
        store.0["status"] = json!({ "usedBy": ["n/p"] });
        assert_eq!(wakes(&change(Some(&before), &store), &cache), [], "a list of users wakes no user");
        store.0["spec"] = json!({ "driver": "etcd" });
        assert_eq!(wakes(&change(Some(&before), &store), &cache), [store.key(), plane.key()]);

        let before = plane.clone();
        plane.0["status"] = json!({ "ready": true });
        assert_eq!(wakes(&change(Some(&before), &plane), &cache), []);
        plane.0["spec"] = json!({ "dataStoreName": "other" });
        let other = ObjectKey::of::<kinds::DataStore>("", "other");
        assert_eq!(wakes(&change(Some(&before), &plane), &cache), [plane.key(), store.key(), other]);
    }
}
