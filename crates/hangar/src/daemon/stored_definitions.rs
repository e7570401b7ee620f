//! Our definitions, and what else a new plane needs at once, as an API server would have stored them.
//!
//! Holds: they are accepted and established, so that the API server has nothing to write; they belong to us field by field, so that a
//! later release can apply its own over them as if it had made them.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::manifest::drop_nulls;

/// Where the API server keeps a definition.
pub fn key(name: &str) -> String {
    format!("apiextensions.k8s.io/customresourcedefinitions/{name}")
}

/// One definition in its stored form.
pub fn stored(definition: Value, uid: Uuid, now: jiff::Timestamp) -> Value {
    let mut object = definition;
    drop_nulls(&mut object);
    let now = format!("{now:.0}");
    let owned = json!({
        "manager": "hangar", "operation": "Apply", "apiVersion": "apiextensions.k8s.io/v1", "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": { "f:metadata": { "f:labels": fields(&object["metadata"]["labels"]) }, "f:spec": fields(&object["spec"]) },
    });
    let condition = |kind: &str, reason: &str, message: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message });
    object["status"] = json!({
        "acceptedNames": object["spec"]["names"],
        "storedVersions": object["spec"]["versions"].as_array().map(|versions| {
            versions.iter().filter(|one| one["storage"] == true).map(|one| one["name"].clone()).collect::<Vec<_>>()
        }),
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
    });
    let metadata = &mut object["metadata"];
    metadata["uid"] = uid.to_string().into();
    metadata["generation"] = 1.into();
    metadata["creationTimestamp"] = now.clone().into();
    metadata["managedFields"] = json!([owned]);
    object
}

/// The service account of pods in the namespace `default`, and where the API server keeps it.
pub fn default_account(uid: Uuid, now: jiff::Timestamp) -> (String, Value) {
    let metadata = json!({
        "name": "default", "namespace": "default", "uid": uid.to_string(), "creationTimestamp": format!("{now:.0}"),
    });
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
    ("serviceaccounts/default/default".into(), account)
}

/// The paths of what is set. Lists count as one: every list in a definition's specification is atomic.
fn fields(value: &Value) -> Value {
    let Value::Object(map) = value else { return json!({}) };
    map.iter().map(|(name, value)| (format!("f:{name}"), fields(value))).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_definition_is_established_and_ours() {
        for definition in hangar_api::crds::definitions(None) {
            let object = stored(definition, Uuid::nil(), jiff::Timestamp::UNIX_EPOCH);
            assert_eq!(object["status"]["acceptedNames"], object["spec"]["names"]);
            assert_eq!(
                object["status"]["storedVersions"].as_array().unwrap().len(),
                1,
                "{}",
                object["metadata"]["name"]
            );
            assert_eq!(object["metadata"]["creationTimestamp"], "1970-01-01T00:00:00Z");
            let owned = &object["metadata"]["managedFields"][0]["fieldsV1"];
            assert_eq!(owned["f:spec"]["f:versions"], json!({}));
            assert_eq!(owned["f:spec"]["f:names"]["f:kind"], json!({}));
        }
    }
}
