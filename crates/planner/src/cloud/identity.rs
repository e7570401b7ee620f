//! Which Secret an identityRef leads to: one of the own namespace, or through an OpenStackClusterIdentity one that is shared.
//!
//! Holds: another namespace's Secret is only reached through an OpenStackClusterIdentity whose selector takes in the own namespace; a refusal says nothing about the Secret.

use hangar_api::kinds::OpenStackClusterIdentity;
use hangar_api::{Kind, Object, ObjectKey, selector};

use super::CloudIdentity;
use crate::plan::Reason;

/// The type of an identityRef that names an OpenStackClusterIdentity.
pub const CLUSTER_IDENTITY: &str = "ClusterIdentity";

impl CloudIdentity {
    pub fn is_shared(&self) -> bool {
        self.kind == CLUSTER_IDENTITY
    }

    /// The OpenStackClusterIdentity that it names; they have no namespace.
    pub fn cluster_identity(&self) -> ObjectKey {
        ObjectKey::of::<OpenStackClusterIdentity>("", &self.name)
    }

    /// The Secret of an identity of its own.
    pub fn secret(&self) -> Result<ObjectKey, Reason> {
        match self.kind.as_str() {
            "" | "Secret" => Ok(ObjectKey::new("", "Secret", &self.namespace, &self.name)),
            other => {
                let text =
                    format!("spec.identityRef.type {other} is not known; it must be Secret or {CLUSTER_IDENTITY}");
                Err(Reason::retry("InvalidIdentity", text))
            }
        }
    }

    /// The Secret of a shared one, if `namespace`, the own one, may use it.
    pub fn shared_secret(&self, identity: Option<&Object>, namespace: Option<&Object>) -> Result<ObjectKey, Reason> {
        let kind = OpenStackClusterIdentity::KIND;
        let Some(identity) = identity else {
            let text = format!("there is no {kind} {}: create it, or name another one in spec.identityRef", self.name);
            return Err(Reason::retry("IdentityNotFound", text));
        };
        // Absent: every namespace. An empty selector matches all of them, too.
        let wanted = identity.get("/spec/namespaceSelector");
        let labels = namespace.map(Object::labels).unwrap_or_default();
        if !wanted.is_null() && (namespace.is_none() || !selector::matches(wanted, &labels)) {
            let text = format!(
                "{kind} {} may not be used in namespace {}: its spec.namespaceSelector does not match the namespace's labels",
                self.name, self.namespace
            );
            return Err(Reason::retry("IdentityNotAllowed", text));
        }
        Ok(ObjectKey::new(
            "",
            "Secret",
            identity.text("/spec/secretRef/namespace"),
            identity.text("/spec/secretRef/name"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn identity(kind: &str) -> CloudIdentity {
        CloudIdentity { namespace: "team".into(), kind: kind.into(), name: "shared".into(), ..CloudIdentity::default() }
    }

    fn shared(selector: &Value) -> Object {
        let spec = json!({ "secretRef": { "namespace": "clouds", "name": "s" }, "namespaceSelector": selector });
        Object(json!({ "kind": "OpenStackClusterIdentity", "metadata": { "name": "shared" }, "spec": spec }))
    }

    #[test]
    fn a_secret_is_one_of_the_own_namespace() {
        for kind in ["", "Secret"] {
            assert_eq!(identity(kind).secret().unwrap(), ObjectKey::new("", "Secret", "team", "shared"));
        }
        let refused = identity("ConfigMap").secret().unwrap_err();
        assert_eq!(
            refused.message,
            "spec.identityRef.type ConfigMap is not known; it must be Secret or ClusterIdentity"
        );
    }

    #[test]
    fn om5_a_shared_identity_is_for_the_namespaces_that_it_selects() {
        let namespace = |labels: Value| Object(json!({ "metadata": { "name": "team", "labels": labels } }));
        let labelled = || Some(namespace(json!({ "cloud": "yes" })));
        let plain = || Some(namespace(json!({})));
        let selects = json!({ "matchLabels": { "cloud": "yes" } });
        for (what, selector, namespace, allowed) in [
            ("no selector", json!(null), plain(), true),
            ("an empty one", json!({}), plain(), true),
            ("one that fits", selects.clone(), labelled(), true),
            ("one that does not", selects.clone(), plain(), false),
            ("a namespace that nobody has seen", selects.clone(), None, false),
            (
                "an operator that nobody knows",
                json!({ "matchExpressions": [{ "key": "cloud", "operator": "Like" }] }),
                labelled(),
                false,
            ),
        ] {
            let found = identity(CLUSTER_IDENTITY).shared_secret(Some(&shared(&selector)), namespace.as_ref());
            assert_eq!(found.is_ok(), allowed, "{what}");
            match found {
                Ok(secret) => assert_eq!(secret, ObjectKey::new("", "Secret", "clouds", "s"), "{what}"),
                Err(reason) => assert!(!reason.message.contains("clouds"), "{what}: {}", reason.message),
            }
        }
        let missing = identity(CLUSTER_IDENTITY).shared_secret(None, None).unwrap_err();
        assert_eq!(missing.code, "IdentityNotFound");
    }
}
