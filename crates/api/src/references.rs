//! What an object names elsewhere.
//!
//! Holds: only group, kind and name of a reference count, never its version. What [`of`] returns is all that anybody looks up backwards.

use crate::{Kind as _, Object, ObjectKey, kinds};

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

/// All those from which the way leads back to this object.
pub fn of(object: &Object) -> Vec<ObjectKey> {
    const CLUSTER: [&str; 2] = ["/spec/infrastructureRef", "/spec/controlPlaneRef"];
    const TEMPLATE: [&str; 2] = ["/spec/template/spec/bootstrap/configRef", "/spec/template/spec/infrastructureRef"];
    let at = |pointers: [&str; 2]| pointers.iter().filter_map(|pointer| target(object, pointer)).collect::<Vec<_>>();
    match (object.group(), object.kind()) {
        (kinds::Cluster::GROUP, kinds::Cluster::KIND) => at(CLUSTER),
        (kinds::MachineSet::GROUP, kinds::MachineSet::KIND) => at(TEMPLATE),
        (kinds::MachineDeployment::GROUP, kinds::MachineDeployment::KIND) => {
            let cluster = ObjectKey::of::<kinds::Cluster>(object.namespace(), object.text("/spec/clusterName"));
            at(TEMPLATE).into_iter().chain([cluster]).collect()
        }
        (kinds::KamajiControlPlane::GROUP, kinds::KamajiControlPlane::KIND) => vec![data_store(object)],
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_control_plane_that_names_no_store_uses_the_default_one() {
        let mut plane = Object::named("controlplane.cluster.x-k8s.io/v1alpha2", "KamajiControlPlane", "n", "p");
        assert_eq!(of(&plane), [ObjectKey::of::<kinds::DataStore>("", "default")]);
        plane.0["spec"] = json!({ "dataStoreName": "other" });
        assert_eq!(of(&plane), [ObjectKey::of::<kinds::DataStore>("", "other")]);
    }

    #[test]
    fn a_reference_lies_in_the_namespace_of_whoever_refers_and_has_no_version() {
        let mut cluster = Object::named("cluster.x-k8s.io/v1beta2", "Cluster", "n", "c");
        let reference =
            json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackCluster", "name": "i" });
        cluster.0["spec"] = json!({ "infrastructureRef": reference });
        assert_eq!(of(&cluster), [ObjectKey::of::<kinds::OpenStackCluster>("n", "i")]);
        // Others have kinds of the same name.
        cluster.0["apiVersion"] = "k0smotron.io/v1beta1".into();
        assert_eq!(of(&cluster), []);
    }
}
