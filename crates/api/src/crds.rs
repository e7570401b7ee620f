//! The CustomResourceDefinitions, assembled from the schemas.
//!
//! Holds: every version is served for ever, the hub is stored; where we are laxer than upstream's schema, [`RELAXED`] says so and why.

use serde_json::{Value, json};

use crate::registry::{KindFacts, VersionFacts, kinds};

/// How the API server reaches our webhook.
#[derive(Debug, Clone)]
pub struct WebhookAddress {
    /// `https://host:port`
    pub url: String,
    /// PEM, base64.
    pub ca_bundle: String,
}

/// Required fields of upstream's schema that we do not insist on: kind, version, pointer to the schema, field.
const RELAXED: &[(&str, &str, &str)] = &[
    // Manifests without a selector are common (upstream's webhook fills it in before validation); so does ours, but a server
    // whose webhook is down must not answer with a misleading schema error.
    ("MachineDeployment", "/properties/spec", "selector"),
    ("MachineSet", "/properties/spec", "selector"),
];

/// All definitions; without a webhook address the conversion stanza says `None`.
pub fn definitions(webhook: Option<&WebhookAddress>) -> Vec<Value> {
    kinds().iter().map(|facts| definition(facts, webhook)).collect()
}

/// The definition of one kind.
pub fn definition(facts: &KindFacts, webhook: Option<&WebhookAddress>) -> Value {
    let hub = facts.hub();
    let singular = facts.kind.to_lowercase();
    let conversion = match webhook {
        Some(address) if facts.versions.len() > 1 => json!({
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": { "url": format!("{}/convert", address.url), "caBundle": address.ca_bundle },
            },
        }),
        _ => json!({ "strategy": "None" }),
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{}", facts.plural(), facts.group), "labels": labels(facts) },
        "spec": {
            "group": facts.group,
            "names": {
                "kind": facts.kind,
                "listKind": format!("{}List", facts.kind),
                "plural": facts.plural(),
                "singular": singular,
                "categories": hub.facts["categories"],
                "shortNames": hub.facts["shortNames"],
            },
            "scope": hub.facts["scope"],
            "conversion": conversion,
            "versions": facts.versions.iter().map(|version| served(facts, version)).collect::<Vec<_>>(),
        },
    })
}

fn served(facts: &KindFacts, version: &VersionFacts) -> Value {
    let mut schema = version.schema().clone();
    without_notes(&mut schema);
    for (_, pointer, field) in RELAXED.iter().filter(|(kind, ..)| *kind == facts.kind) {
        if let Some(required) = schema.pointer_mut(pointer).and_then(|schema| schema["required"].as_array_mut()) {
            required.retain(|name| name != field);
        }
    }
    json!({
        "name": version.name,
        "served": true,
        "storage": version.name == facts.hub().name,
        "schema": { "openAPIV3Schema": schema },
        "subresources": version.facts["subresources"],
        "additionalPrinterColumns": version.facts["printerColumns"],
    })
}

/// The facts say how many rules upstream has; that is a note, not a schema.
fn without_notes(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("cel-rules");
            fields.values_mut().for_each(without_notes);
        }
        Value::Array(items) => items.iter_mut().for_each(without_notes),
        _ => {}
    }
}

/// The labels by which Cluster API finds the version of a kind that fulfils a contract.
fn labels(facts: &KindFacts) -> Value {
    let provider = match facts.group {
        "bootstrap.cluster.x-k8s.io" => "bootstrap-kubeadm",
        "controlplane.cluster.x-k8s.io" => "control-plane-kamaji",
        "infrastructure.cluster.x-k8s.io" => "infrastructure-openstack",
        "cluster.x-k8s.io" => "cluster-api",
        _ => return json!({ "app.kubernetes.io/part-of": "hangar" }),
    };
    let oldest = facts.versions.first().map_or("", |version| version.name);
    let mut labels = json!({
        "app.kubernetes.io/part-of": "hangar",
        "cluster.x-k8s.io/provider": provider,
        "clusterctl.cluster.x-k8s.io": "",
        "cluster.x-k8s.io/v1beta1": oldest,
    });
    if facts.versions.len() > 1 {
        labels["cluster.x-k8s.io/v1beta2"] = facts.hub().name.into();
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::kind;

    #[test]
    fn one_version_is_stored_and_all_are_served() {
        for definition in definitions(None) {
            let versions = definition["spec"]["versions"].as_array().unwrap().clone();
            assert!(versions.iter().all(|version| version["served"] == true));
            assert_eq!(versions.iter().filter(|version| version["storage"] == true).count(), 1);
        }
    }

    #[test]
    fn contract_labels_name_the_version_that_fulfils_it() {
        let definition = definition(kind("controlplane.cluster.x-k8s.io", "KamajiControlPlane").unwrap(), None);
        assert_eq!(definition["metadata"]["labels"]["cluster.x-k8s.io/v1beta1"], "v1alpha1");
        assert_eq!(definition["metadata"]["labels"]["cluster.x-k8s.io/v1beta2"], "v1alpha2");
    }

    #[test]
    fn only_kinds_with_several_versions_need_the_webhook() {
        let address = WebhookAddress { url: "https://127.0.0.1:1".into(), ca_bundle: String::new() };
        for definition in definitions(Some(&address)) {
            let several = definition["spec"]["versions"].as_array().unwrap().len() > 1;
            assert_eq!(definition["spec"]["conversion"]["strategy"] == "Webhook", several);
        }
    }
}
