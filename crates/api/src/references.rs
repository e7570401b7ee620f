//! What an object names elsewhere.
//!
//! Holds: only group, kind and name of a reference count, never its version.

use crate::names::CLUSTER_NAME_LABEL;
use crate::{Object, ObjectKey, Owner, kinds};

/// The one that a control plane uses if it names none.
const DEFAULT_DATA_STORE: &str = "default";

/// What the reference at a place of an object points at.
pub fn target(object: &Object, pointer: &str) -> Option<ObjectKey> {
    let reference = object.get(pointer);
    let (group, kind, name) =
        (reference["apiGroup"].as_str()?, reference["kind"].as_str()?, reference["name"].as_str()?);
    Some(ObjectKey::new(group, kind, object.namespace(), name))
}

/// Where the data of a control plane lie.
pub fn data_store(plane: &Object) -> ObjectKey {
    let named = plane.text("/spec/dataStoreName");
    ObjectKey::of::<kinds::DataStore>("", if named.is_empty() { DEFAULT_DATA_STORE } else { named })
}

/// The Cluster that an object belongs to: by label, else by its own word, else by owner.
pub fn cluster(object: &Object) -> Option<ObjectKey> {
    if object.is::<kinds::Cluster>() {
        return Some(object.key());
    }
    let labelled = object.label(CLUSTER_NAME_LABEL).filter(|name| !name.is_empty());
    let named = || Some(object.text("/spec/clusterName")).filter(|name| !name.is_empty());
    let owner = || object.owners().into_iter().find(Owner::is::<kinds::Cluster>).map(|owner| owner.name);
    let name = labelled.or_else(named).map(str::to_owned).or_else(owner)?;
    Some(ObjectKey::of::<kinds::Cluster>(object.namespace(), &name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Kind as _;

    #[test]
    fn a_control_plane_that_names_no_store_uses_the_default_one() {
        let mut plane = Object::named("controlplane.cluster.x-k8s.io/v1alpha2", "KamajiControlPlane", "n", "p");
        assert_eq!(data_store(&plane), ObjectKey::of::<kinds::DataStore>("", "default"));
        plane.0["spec"] = json!({ "dataStoreName": "other" });
        assert_eq!(data_store(&plane), ObjectKey::of::<kinds::DataStore>("", "other"));
    }

    #[test]
    fn a_reference_lies_in_the_namespace_of_whoever_refers_and_has_no_version() {
        let mut cluster = Object::named("cluster.x-k8s.io/v1beta2", "Cluster", "n", "c");
        let reference =
            json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackCluster", "name": "i" });
        cluster.0["spec"] = json!({ "infrastructureRef": reference });
        let target = target(&cluster, "/spec/infrastructureRef");
        assert_eq!(target, Some(ObjectKey::of::<kinds::OpenStackCluster>("n", "i")));
    }

    #[test]
    fn an_object_belongs_to_a_cluster_by_label_by_its_own_word_or_by_owner() {
        let mut machine = Object::named("cluster.x-k8s.io/v1beta2", "Machine", "n", "m");
        assert_eq!(cluster(&machine), None);
        // Others have kinds of the same name.
        let owner =
            |group: &str| json!([{ "apiVersion": format!("{group}/v1"), "kind": "Cluster", "name": "o", "uid": "u" }]);
        machine.0["metadata"]["ownerReferences"] = owner("k0smotron.io");
        assert_eq!(cluster(&machine), None);
        machine.0["metadata"]["ownerReferences"] = owner(kinds::Cluster::GROUP);
        assert_eq!(cluster(&machine).unwrap().name, "o");
        machine.0["spec"] = json!({ "clusterName": "s" });
        assert_eq!(cluster(&machine).unwrap().name, "s");
        machine.0["metadata"]["labels"] = json!({ CLUSTER_NAME_LABEL: "l" });
        assert_eq!(cluster(&machine).unwrap().name, "l");
    }
}
